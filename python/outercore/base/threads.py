"""How many threads there may be, and how PyTorch's and the core's share the cores."""

from __future__ import annotations

import math
import os

from outercore.base.fields import whole
from outercore.errors import InvalidError

MOST_THREADS = 1024
"""More than any machine of one graph has cores: starting far more would take minutes."""


def checked_threads(threads: int | None) -> int | None:
    """The number of threads, `None` for one a core.

    Errors: `InvalidError` for one that is not 1 to 1024.
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

    PyTorch's workers spin between two operations by default. Beside sampling and reading threads,
    or other programs, they then burn the time slices that the ones they wait for need: on two
    busy cores a training step took five times as long. What the user has set stays as it is.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
