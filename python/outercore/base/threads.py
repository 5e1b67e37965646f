"""Checks the number of threads, and sets up PyTorch's threads to share cores with the core's."""

from __future__ import annotations

import math
import os

from outercore.base.fields import whole
from outercore.errors import InvalidError

MOST_THREADS = 1024
"""Largest number of threads: above the cores of any machine, but quick to start."""


def checked_threads(threads: int | None) -> int | None:
    """Checks a number of threads, and returns it. `None` means one thread per CPU core.

    Errors: `InvalidError` for a number outside 1 to 1024.
    """
    if threads is None:
        return None
    threads = whole("threads", threads, -math.inf)
    if not 1 <= threads <= MOST_THREADS:
        raise InvalidError(
            f"threads {threads}, expected 1 to {MOST_THREADS}\n"
            f"hint: this machine has {len(os.sched_getaffinity(0))} cores"
        )
    return threads


def share_cores() -> None:
    """Let idle OpenMP workers sleep instead of spin; call it before PyTorch is imported.

    By default, PyTorch's workers spin between two operations. They then use the time slices of the
    threads that they wait for, such as sampling and reading threads. On two busy cores, a training
    step took five times as long. A value that the user has set does not change.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
