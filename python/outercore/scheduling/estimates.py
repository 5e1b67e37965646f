"""What a request needs at its turning point, and what it will take."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from outercore import analytics
from outercore._native import Progress
from outercore.config.sizes import format_size
from outercore.errors import InvalidError, NotFoundError
from outercore.graph import Graph
from outercore.scheduling.budgets import CHECKPOINTS, local_budget, planned_ratio
from outercore.scheduling.decide import (
    ASSUMED_TURNING_POINT,
    GraphShape,
    Job,
    Profile,
    Settings,
    Table,
)
from outercore.scheduling.points import medium_of
from outercore.scheduling.request import Request
from outercore.scheduling.shape import graph_shape

_ASSUMED_OVERHEAD = 128 << 20
"""Interpreter, libraries and stacks beside a budget, where nothing was measured."""


@dataclass(frozen=True)
class Estimate:
    """What the controller takes a request for."""

    job: Job
    far_ratio: float
    """That the run is asked for."""
    reached: float
    """That its budget comes to; a result needs memory that edges can have meanwhile."""
    overhead: int
    """Bytes of the process beside its budget."""
    settings: Settings
    measured: bool
    """Whether the table knows the algorithm; all else is an assumption."""
    notes: tuple[str, ...] = ()


def estimate(
    request: Request,
    table: Table,
    most_memory: int,
    progress: Progress | None = None,
    *,
    shapes: dict[Path, GraphShape] | None = None,
) -> Estimate:
    """What a request needs at its turning point, and how its time depends on threads.

    Builds the grid where there is none. `shapes` keeps those of the data sets that were seen.

    Errors: `InvalidError` where not even all the memory is enough; what the memory plan raises.
    """
    graph = Graph(request.data_set)
    try:
        analytics.plan(
            request.algorithm,
            request.data_set,
            memory=1 << 50,
            **{**CHECKPOINTS, **request.options},
        )
    except NotFoundError:
        analytics.grid(request.data_set, memory=min(most_memory, 1 << 30), progress=progress)
    known = {} if shapes is None else shapes
    root = request.data_set.resolve()
    shape = known[root] = known.get(root) or graph_shape(graph)
    profile = table.profile(request.algorithm, shape, medium_of(request.far))
    ratio, notes = _wanted_ratio(request, profile)
    overhead = _overhead(profile)
    least = request.threads or 1
    if request.memory is None:
        first, reached = _budget(request, ratio, least, most_memory - overhead)
        second, _ = _budget(request, ratio, least + 1, 1 << 50)
        per_thread = max(second - first, 0)
    else:
        first, reached, per_thread = request.memory, ratio, 0
    times = _ideal(shape) if profile is None else profile.times(reached)
    return Estimate(
        job=Job(
            name=request.name,
            times=times,
            memory=first + overhead,
            memory_per_thread=per_thread,
            least_threads=least,
            most_threads=request.threads,
        ),
        far_ratio=ratio,
        reached=reached,
        overhead=overhead,
        settings=Settings() if profile is None else profile.settings,
        measured=profile is not None,
        notes=notes,
    )


def _wanted_ratio(request: Request, profile: Profile | None) -> tuple[float, tuple[str, ...]]:
    """The far ratio to run at, and what to say about it."""
    if request.memory is not None:
        planned = analytics.plan(
            request.algorithm,
            request.data_set,
            memory=request.memory,
            threads=request.threads or 1,
            **{**CHECKPOINTS, **request.options},
        )
        return planned_ratio(planned), ()
    if request.far_ratio is not None:
        return request.far_ratio, ()
    if profile is None:
        return ASSUMED_TURNING_POINT, (
            f"nothing was measured for {request.algorithm}: a turning point of "
            f"{ASSUMED_TURNING_POINT:g} is assumed, and that threads share its work evenly; "
            "`outercore tune` measures",
        )
    notes = []
    if not profile.same_class:
        notes.append("measured on a graph of another class")
    measured = profile.measured[0].medium
    if measured != medium_of(request.far):
        notes.append(f"measured with edges from {measured}")
    partition = profile.settings.partition_log2
    if partition is not None:
        notes.append(f"fastest with `outercore grid --partition-log2 {partition}`")
    return profile.turning_point, tuple(notes)


def _budget(request: Request, ratio: float, threads: int, most: int) -> tuple[int, float]:
    found = local_budget(
        request.algorithm,
        request.data_set,
        ratio,
        most=max(most, 1),
        far=request.far,
        threads=threads,
        backend=request.backend,
        options=dict(request.options),
    )
    if found is None:
        raise InvalidError(
            f"its turning point, far ratio {ratio:g}, takes more memory than the "
            f"{format_size(max(most, 0))} there are"
        )
    return found


def _overhead(profile: Profile | None) -> int:
    """Bytes of a process beside its budget."""
    if profile is None:
        return _ASSUMED_OVERHEAD
    return max(max(one.peak_memory - one.memory, 0) for one in profile.measured)


def _ideal(graph: GraphShape) -> tuple[float, ...]:
    """Times of an algorithm that nobody measured: longer on more arcs, evenly shared."""
    return tuple(max(graph.arcs, 1) * 1e-8 / threads for threads in range(1, 65))


def far_arguments(request: Request, estimated: Estimate) -> list[str]:
    """How a run uses its memory server, where the command leaves that open."""
    if request.far is None:
        return []
    arguments = []
    if request.far_ratio is None and request.memory is None:
        arguments += ["--set", f"far_ratio={estimated.far_ratio}"]
    length = estimated.settings.queue_length
    if request.queue_length is None and length is not None:
        arguments += ["--set", f"far.queue_length={length}"]
    return arguments
