"""The memory that a far ratio takes, found by asking the memory plan again and again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from outercore import analytics
from outercore.errors import BudgetError
from outercore.far import FarOptions

CHECKPOINTS = {"checkpoint_every": analytics.RunConfig.checkpoint_every}
"""Runs with a record leave them, which takes memory."""

_STEP = 64 << 10


def least_budget(fits: Callable[[int], bool], most: int) -> int | None:
    """The smallest budget that fits, in steps of 64 KiB; `None` where `most` does not.

    Where a budget fits, larger ones are taken to fit too.
    """
    high = _STEP
    while high < most and not fits(high):
        high *= 2
    high = min(high, most)
    if not fits(high):
        return None
    low = high // 2 // _STEP
    top = -(-high // _STEP)
    while low + 1 < top:
        middle = (low + top) // 2
        if fits(middle * _STEP):
            top = middle
        else:
            low = middle
    return min(top * _STEP, high)


def local_budget(
    algorithm: str,
    data_set: Path,
    far_ratio: float,
    *,
    most: int,
    far: FarOptions | None = None,
    threads: int | None = None,
    backend: str = "auto",
    options: dict[str, Any] | None = None,
) -> tuple[int, float] | None:
    """The least memory with which at most `far_ratio` of the edges do not stay in it.

    Returns it with the ratio that it then comes to, which may be smaller: a result needs memory
    that edges can have meanwhile. `None` where `most` is not enough.
    """
    shared: dict[str, Any] = {"threads": threads, "backend": backend, **CHECKPOINTS}
    shared |= options or {}
    if far is not None:
        shared |= {"far": far, "far_ratio": far_ratio}

    def plan(memory: int) -> dict[str, Any] | None:
        try:
            return analytics.plan(algorithm, data_set, memory=memory, **shared)
        except BudgetError:
            return None

    def fits(memory: int) -> bool:
        planned = plan(memory)
        if planned is None or planned["spill"] is not None:
            # With state in scratch files it would be another algorithm.
            return False
        # A far ratio that was asked for is rounded up to whole segments.
        return far is not None or planned_ratio(planned) <= far_ratio

    budget = least_budget(fits, most)
    if budget is None:
        return None
    planned = plan(budget)
    assert planned is not None
    return budget, round(planned_ratio(planned), 4)


def planned_ratio(planned: dict[str, Any]) -> float:
    """Share of the edges that a plan does not keep in memory."""
    total = planned["bytes_first_pass"]
    return planned["bytes_per_pass"] / total if total else 0.0
