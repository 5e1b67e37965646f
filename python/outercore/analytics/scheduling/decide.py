"""Deciding how graph algorithms share a machine: threads, cores and far ratio from a table.

All functions are pure: from measured runs and free resources they compute the launches. `outercore
tune` measures the table; `outercore jobs` inspects the machine and executes the launches.

**Source**: the Fargraph+ paper, sections 3.1 (turning point) and 7 (controller).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from outercore.base.fields import within

Medium = Literal["disk", "tcp", "unix", "fabric"]
"""Where a run reads the edges that are not in memory."""

SLACK = 0.1
"""A far ratio is beyond the turning point if the time rises by more than this share."""

ASSUMED_TURNING_POINT = 0.6
"""Turning point without measurements. The Fargraph+ paper (3.1) found it for BFS and betweenness.
"""


@dataclass(frozen=True)
class GraphShape:
    """Properties of a graph that determine the time of an algorithm, in addition to its options."""

    nodes: int
    arcs: int
    skew: float
    """Standard deviation of the in-degrees over their mean."""

    @property
    def arcs_per_node(self) -> float:
        """Mean in-degree."""
        return self.arcs / self.nodes if self.nodes else 0.0

    @property
    def graph_class(self) -> str:
        """The class of the graph by size, density and skew; graphs of a class share measurements.

        The size is the power of ten that bounds the number of nodes. The density is `sparse` below
        4 arcs per node, `medium` below 32, else `dense`. In-degrees are `even` below a skew of 1,
        `uneven` below 4, else `skewed`.

        Example:
            >>> GraphShape(nodes=262_144, arcs=4_193_906, skew=8.6).graph_class
            'up to 10^6 nodes, medium, skewed'
        """
        size = math.ceil(math.log10(max(self.nodes, 1)))
        density = ("sparse", "medium", "dense")[bisect_right((4, 32), self.arcs_per_node)]
        skew = ("even", "uneven", "skewed")[bisect_right((1, 4), self.skew)]
        return f"up to 10^{size} nodes, {density}, {skew}"

    def distance(self, other: GraphShape) -> float:
        """How different two graphs are: doublings of nodes, of arcs per node, and of skew."""
        pairs = (
            (self.nodes, other.nodes),
            (self.arcs_per_node, other.arcs_per_node),
            (1 + self.skew, 1 + other.skew),
        )
        return sum(abs(math.log2(max(a, 1e-3) / max(b, 1e-3))) for a, b in pairs)


@dataclass(frozen=True)
class Point:
    """A combination of algorithm, graph, medium, threads and far ratio to measure."""

    algorithm: str
    graph: GraphShape
    medium: Medium
    threads: int
    far_ratio: float
    """Share of the bytes of edges that is not in local memory."""

    def __post_init__(self) -> None:
        within("threads", self.threads, 1, None)
        within("far_ratio", self.far_ratio, 0, 1)

    def __str__(self) -> str:
        return f"{self.algorithm}, {self.threads} threads, far ratio {self.far_ratio:g}"


@dataclass(frozen=True)
class Measurement(Point):
    """Time and memory of a point: the median of several runs."""

    seconds: float
    bytes_read: int
    """Bytes read from the disk or from far memory."""
    memory: int
    """The budget: the least that keeps `1 - far_ratio` of the edges in memory."""
    peak_memory: int
    """Peak of the resident bytes of the process."""

    def __post_init__(self) -> None:
        super().__post_init__()
        within("seconds", self.seconds, 0, None)

    @property
    def point(self) -> Point:
        """The point that was measured."""
        return Point(**{field.name: getattr(self, field.name) for field in fields(Point)})


@dataclass(frozen=True)
class Profile:
    """The measurements of an algorithm on one graph."""

    measured: Sequence[Measurement]
    """Measurements of one graph and medium, not empty."""
    same_class: bool
    """Whether the measured graph is of the requested class."""

    @cached_property
    def curves(self) -> Mapping[int, Sequence[tuple[float, float]]]:
        """Far ratios and seconds, by number of threads."""
        chosen: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for run in self.measured:
            chosen[run.threads].append((run.far_ratio, run.seconds))
        return {threads: sorted(curve) for threads, curve in sorted(chosen.items())}

    @cached_property
    def turning_point(self) -> float:
        """The smallest of the turning points by number of threads, so that it holds for all."""
        return min(turning_point(curve) for curve in self.curves.values())

    @property
    def overhead(self) -> int:
        """The largest number of bytes that a measured process took above its budget."""
        return max(max(run.peak_memory - run.memory, 0) for run in self.measured)

    def times(self, far_ratio: float) -> tuple[float, ...]:
        """Seconds with 1, 2, … threads, up to the largest measured number.

        Interpolates linearly between measured numbers of threads. Below the smallest, it assumes
        that threads share the work evenly.
        """
        known = {
            threads: float(np.interp(far_ratio, *np.transpose(curve)))
            for threads, curve in self.curves.items()
        }
        least, most = min(known), max(known)
        ideal = [known[least] * least / threads for threads in range(1, least)]
        line = np.interp(np.arange(least, most + 1), list(known), list(known.values()))
        return (*ideal, *line.tolist())


@dataclass(frozen=True)
class Table:
    """The table of measured runs, by algorithm and graph ("offline table" of Fargraph+, 7).

    Example:
        >>> graph = GraphShape(nodes=1000, arcs=8000, skew=0.5)
        >>> point = Measurement("bfs", graph, "disk", 1, 0.0, 2.0, 0, 1 << 20, 1 << 21)
        >>> table = Table((point, replace(point, far_ratio=1.0, seconds=4.0)))
        >>> profile = table.profile("bfs", graph, "disk")
        >>> profile.turning_point, profile.times(0.5)
        (0.1, (3.0,))
    """

    measurements: tuple[Measurement, ...] = ()
    machine: dict[str, Any] | None = None
    """The machine of the measurements."""

    def profile(self, algorithm: str, graph: GraphShape, medium: Medium) -> Profile | None:
        """Measurements of an algorithm on the most similar graph; `None` if there are none.

        Prefers the same medium, then the same class, then the nearest graph. Times are scaled by
        the number of arcs.
        """
        known = [run for run in self.measurements if run.algorithm == algorithm]
        if not known:
            return None
        here = [run for run in known if run.medium == medium] or known
        alike = [run for run in here if run.graph.graph_class == graph.graph_class] or here
        nearest = min(alike, key=lambda run: (run.graph.distance(graph), run.medium))
        scale = graph.arcs / nearest.graph.arcs if nearest.graph.arcs else 1.0
        measured = [
            replace(run, seconds=run.seconds * scale)
            for run in alike
            if (run.graph, run.medium) == (nearest.graph, nearest.medium)
        ]
        return Profile(measured, nearest.graph.graph_class == graph.graph_class)


def turning_point(curve: Sequence[tuple[float, float]], slack: float = SLACK) -> float:
    """The far ratio beyond which the time rises by more than the share `slack`.

    `curve` holds far ratios and seconds, in any order. Times are first smoothed to the nearest
    times that never fall with the ratio, so a single slow run does not make a turning point.
    Between measured ratios, times are interpolated linearly.

    Errors: `ValueError` for an empty curve.

    Example:
        >>> turning_point([(0.0, 10.0), (0.6, 10.0), (0.8, 20.0), (1.0, 40.0)])
        0.62

    **Source**: the Fargraph+ paper, section 3.1 and figure 4.
    """
    if not curve:
        raise ValueError("turning point of no measurements")
    points = sorted(curve)
    ratios = [ratio for ratio, _ in points]
    seconds = _never_falling([taken for _, taken in points])
    limit = (1 + slack) * seconds[0]
    if seconds[-1] <= limit:
        return ratios[-1]
    beyond = bisect_right(seconds, limit)
    around = slice(beyond - 1, beyond + 1)
    reached = float(np.interp(limit, seconds[around], ratios[around]))
    # Rounded down to stay within the slack, to three digits as measurements have no more.
    return max(ratios[beyond - 1], math.floor(reached * 1000 + 1e-6) / 1000)


@dataclass(frozen=True)
class Job:
    """A program that waits for cores and memory."""

    name: str
    times: tuple[float, ...]
    """Seconds with 1, 2, … threads; more threads do not save time."""
    memory: int
    """Bytes at the turning point, with `least_threads`."""
    memory_per_thread: int = 0
    """Bytes for each further thread."""
    least_threads: int = 1
    most_threads: int | None = None

    def seconds(self, threads: int) -> float:
        """Expected seconds with this number of threads."""
        return self.times[min(threads, len(self.times)) - 1]

    def memory_with(self, threads: int) -> int:
        """Bytes that the job needs with this number of threads."""
        return self.memory + self.memory_per_thread * max(threads - self.least_threads, 0)


@dataclass(frozen=True)
class Launch:
    """A job that may start now, with its cores and memory."""

    job: Job
    cores: tuple[int, ...]
    """One core per thread, all from one NUMA node if a node had enough free cores."""
    memory: int

    @property
    def threads(self) -> int:
        """Threads to start."""
        return len(self.cores)


def allocate(
    jobs: Sequence[Job], free_cores: Sequence[Sequence[int]], free_memory: int
) -> list[Launch]:
    """Chooses the waiting jobs that start now, and their cores.

    In the order of `jobs`, each job gets its least number of threads if enough cores and its memory
    at the turning point are free. A job that does not fit waits, and later jobs may start before
    it. The remaining cores go to the jobs whose time they shorten most per core, until none are
    left or none help. Then cores are assigned by NUMA node: the job with the most threads first,
    each job from the node with the most free cores.

    Shapes: `free_cores` holds the free cores of each NUMA node.

    **Source**: the Fargraph+ paper, section 7, thread allocation.
    """
    cores = sum(len(node) for node in free_cores)
    memory = free_memory
    threads: dict[int, int] = {}
    for place, job in enumerate(jobs):
        if job.least_threads <= cores and job.memory <= memory:
            threads[place] = job.least_threads
            cores -= job.least_threads
            memory -= job.memory
    while cores:
        growths = (
            (_best_growth(jobs[place], at, cores, memory), place) for place, at in threads.items()
        )
        # If several jobs save equally much, choose the job that has waited longest.
        (saved, more), place = max(
            growths, key=lambda growth: (growth[0][0], -growth[1]), default=((0.0, 0), 0)
        )
        if saved <= 0:
            break
        grown = threads[place] + more
        memory -= jobs[place].memory_with(grown) - jobs[place].memory_with(threads[place])
        cores -= more
        threads[place] = grown
    dealt = _deal(threads, free_cores)
    return [
        Launch(jobs[place], dealt[place], jobs[place].memory_with(count))
        for place, count in sorted(threads.items())
    ]


def _best_growth(job: Job, threads: int, cores: int, memory: int) -> tuple[float, int]:
    """The largest saving in seconds per additional thread, and the number of threads to add.

    It tries more than one additional thread: even if two threads save nothing, four may.
    """
    most = min(threads + cores, job.most_threads or len(job.times), len(job.times))
    best = (0.0, 0)
    for more in range(1, most - threads + 1):
        if job.memory_with(threads + more) - job.memory_with(threads) > memory:
            break
        saved = (job.seconds(threads) - job.seconds(threads + more)) / more
        # If several numbers save equally much, choose the smallest: other jobs get cores first.
        if saved > best[0]:
            best = (saved, more)
    return best


def _deal(
    threads: Mapping[int, int], free_cores: Sequence[Sequence[int]]
) -> dict[int, tuple[int, ...]]:
    nodes = [list(node) for node in free_cores]
    dealt: dict[int, tuple[int, ...]] = {}
    for place in sorted(threads, key=lambda place: (-threads[place], place)):
        needed = threads[place]
        cores: list[int] = []
        while len(cores) < needed:
            fullest = max(range(len(nodes)), key=lambda node: (len(nodes[node]), -node))
            count = min(needed - len(cores), len(nodes[fullest]))
            cores += nodes[fullest][:count]
            del nodes[fullest][:count]
        dealt[place] = tuple(cores)
    return dealt


def _never_falling(values: Sequence[float]) -> list[float]:
    """The non-decreasing values that are nearest to `values`, by least squares.

    **Source**: pool-adjacent-violators algorithm.
    """
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean = (before * many + mean * count) / (many + count)
            count += many
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]
