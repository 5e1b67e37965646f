"""Needs of a run: the memory for a far ratio, and the estimate from the table."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outercore import analytics
from outercore.analytics.config import AnalysisConfig
from outercore.analytics.running import plan_of
from outercore.analytics.scheduling.decide import (
    ASSUMED_TURNING_POINT,
    GraphShape,
    Job,
    Medium,
    Profile,
    Table,
)
from outercore.base.native import Progress
from outercore.base.plan_display import RunPlan
from outercore.base.sizes import format_size
from outercore.data.far import FarOptions
from outercore.data.graph import Graph
from outercore.errors import BudgetError, InvalidError, NotFoundError
from outercore.files.large_arrays import blocks, mapped

NO_LIMIT = 1 << 50
"""More memory than any machine has."""

_STEP = 64 << 10
_ROWS = 1 << 20
_ASSUMED_OVERHEAD = 128 << 20
"""Bytes above the budget, for interpreter, libraries and stacks, if there are no measurements."""


@dataclass(frozen=True)
class Work:
    """A run to plan: its data set and its configuration."""

    data_set: Path
    config: AnalysisConfig

    def plan(
        self, memory: int, threads: int | None = None, far_ratio: float | None = None
    ) -> RunPlan:
        """The plan of the run with a budget of `memory` bytes.

        Without `far_ratio`, it is the plan of a run without a memory server.

        Errors: as `outercore.analytics.plan`.
        """
        run = self.config.run
        far = None if far_ratio is None else run.far
        run = replace(run, memory=str(memory), threads=threads, far=far, far_ratio=far_ratio)
        return plan_of(replace(self.config, run=run), self.data_set, checkpoints=True)


@dataclass(frozen=True, kw_only=True)
class Request(Work):
    """An `outercore run` command in the list of jobs."""

    name: str
    words: tuple[str, ...]
    """The words of the command, starting with `run`."""
    memory: int | None = None
    """Budget of the command, in bytes; `None`: the controller chooses."""
    record: Path | None = None
    """Directory of its record; by default in the directory of the jobs."""


@dataclass(frozen=True)
class Estimate:
    """The controller's estimate of a request."""

    job: Job
    far_ratio: float
    """Requested far ratio of the run."""
    reached: float
    """Far ratio with the chosen budget. It may be smaller than `far_ratio`, because edges use the
    memory of the result until the result is written."""
    overhead: int
    """Bytes of the process above its budget."""
    measured: bool
    """Whether the table has measurements of the algorithm; otherwise all values are assumptions."""
    notes: tuple[str, ...] = ()


def estimate(
    request: Request, table: Table, most_memory: int, progress: Progress | None = None
) -> Estimate:
    """Estimates the memory of a request at its turning point, and its time by number of threads.

    Builds the grid that the run reads if it does not exist.

    Errors: `InvalidError` if `most_memory` bytes are not enough; errors of the memory plan.
    """
    shape = graph_shape(Graph(request.data_set))
    try:
        request.plan(NO_LIMIT)
    except NotFoundError:
        analytics.grid(
            request.data_set,
            memory=min(most_memory, 1 << 30),
            relation=request.config.run.relation,
            weights=request.config.options.get("weights"),
            progress=progress,
        )
    profile = table.profile(request.config.algorithm, shape, medium_of(request.config.run.far))
    ratio, notes = _wanted_ratio(request, profile)
    overhead = _ASSUMED_OVERHEAD if profile is None else profile.overhead
    least = request.config.run.threads or 1
    if request.memory is None:
        first, reached = local_budget(request, ratio, least, most=most_memory - overhead)
        second, _ = local_budget(request, ratio, least + 1)
        per_thread = max(second - first, 0)
    else:
        first, reached, per_thread = request.memory, ratio, 0
    return Estimate(
        job=Job(
            name=request.name,
            times=_assumed_times(shape) if profile is None else profile.times(reached),
            memory=first + overhead,
            memory_per_thread=per_thread,
            least_threads=least,
            most_threads=request.config.run.threads,
        ),
        far_ratio=ratio,
        reached=reached,
        overhead=overhead,
        measured=profile is not None,
        notes=notes,
    )


def medium_of(far: FarOptions | None) -> Medium:
    """The medium from which a run reads edges that are not in memory."""
    if far is None:
        return "disk"
    scheme = far.address.partition(":")[0]
    return "unix" if scheme == "unix" else "fabric" if scheme == "fabric" else "tcp"


def _wanted_ratio(request: Request, profile: Profile | None) -> tuple[float, tuple[str, ...]]:
    """The far ratio of the run, and notes for the user."""
    if request.memory is not None:
        return planned_ratio(request.plan(request.memory, request.config.run.threads or 1)), ()
    if request.config.run.far_ratio is not None:
        return request.config.run.far_ratio, ()
    if profile is None:
        return ASSUMED_TURNING_POINT, (
            f"nothing was measured for {request.config.algorithm}: a turning point of "
            f"{ASSUMED_TURNING_POINT:g} is assumed, and that threads share its work evenly; "
            "`outercore tune` measures",
        )
    notes = []
    if not profile.same_class:
        notes.append("measured on a graph of another class")
    measured = profile.measured[0].medium
    if measured != medium_of(request.config.run.far):
        notes.append(f"measured with edges from {measured}")
    return profile.turning_point, tuple(notes)


def _assumed_times(graph: GraphShape) -> tuple[float, ...]:
    """The assumed times of an algorithm without measurements, for 1, 2, … threads.

    They are proportional to the arcs, and inversely proportional to the threads.
    """
    return tuple(max(graph.arcs, 1) * 1e-8 / threads for threads in range(1, 65))


def local_budget(
    work: Work, far_ratio: float, threads: int, *, most: int = NO_LIMIT
) -> tuple[int, float]:
    """The smallest budget that leaves at most `far_ratio` of the edges out of memory.

    Returns the budget and its far ratio. The ratio may be smaller than `far_ratio`, because edges
    use the memory of the result until the result is written.

    Errors: `InvalidError` if `most` is not enough.
    """
    ratio = None if work.config.run.far is None else far_ratio

    def fits(memory: int) -> bool:
        try:
            planned = work.plan(memory, threads, ratio)
        except BudgetError:
            return False
        if planned["spill"] is not None:
            # With state in scratch files, the algorithm and its time differ.
            return False
        # The plan rounds an explicit far ratio up to whole segments.
        return ratio is not None or planned_ratio(planned) <= far_ratio

    budget = least_budget(fits, max(most, 1))
    if budget is None:
        raise InvalidError(
            f"far ratio {far_ratio:g} takes more memory than the {format_size(max(most, 0))} "
            "there are"
        )
    return budget, round(planned_ratio(work.plan(budget, threads, ratio)), 4)


def least_budget(fits: Callable[[int], bool], most: int) -> int | None:
    """The smallest budget that fits, in steps of 64 KiB; `None` if `most` does not fit.

    Assumes that all budgets above one that fits also fit.
    """
    if not fits(most):
        return None
    smaller = range(_STEP, most, _STEP)
    place = bisect_left(smaller, True, key=fits)
    return smaller[place] if place < len(smaller) else most


def planned_ratio(planned: Mapping[str, Any]) -> float:
    """Share of the edges that is not in memory in a plan."""
    total = planned["bytes_first_pass"]
    return planned["bytes_per_pass"] / total if total else 0.0


def graph_shape(graph: Graph) -> GraphShape:
    """The shape of a graph: nodes, arcs and skew of the in-degrees.

    **Cost**: reads the offsets once, in pieces.
    """
    offsets = mapped(graph.root, graph.arrays[graph.key("offsets")])
    squares, before = 0.0, np.zeros(1, offsets.dtype)
    for _, block in blocks(offsets, _ROWS):
        degrees = np.diff(block, prepend=before).astype(np.float64)
        squares += float(np.dot(degrees, degrees))
        before = block[-1:]
    nodes, arcs = graph.num_nodes, graph.num_edges
    mean = arcs / nodes if nodes else 0.0
    variance = max(squares / nodes - mean * mean, 0.0) if nodes else 0.0
    return GraphShape(nodes, arcs, round(math.sqrt(variance) / mean, 6) if mean else 0.0)
