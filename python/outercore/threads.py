"""Sharing the cores between PyTorch's threads and the core's."""

from __future__ import annotations

import os


def share_cores() -> None:
    """Let idle OpenMP workers sleep instead of spin; call it before PyTorch is imported.

    PyTorch's workers spin between two operations by default. Beside sampling and reading threads,
    or other programs, they then burn the time slices that the ones they wait for need: on two
    busy cores a training step took five times as long. What the user has set stays as it is.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
