"""Deciding how graph algorithms share a machine: threads, cores and far ratio from a table.

Pure: measured runs and what is free go in, launches come out. `outercore tune` measures the
table, `outercore jobs` looks at the machine and carries the launches out.

**Source**: Fargraph+ 3.1 (turning point) and 7 (controller).
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
"""Where the edges lie that are not kept in memory."""

SLACK = 0.1
"""A far ratio is beyond the turning point where it costs this share of time more."""

ASSUMED_TURNING_POINT = 0.6
"""Where nothing was measured: what Fargraph+ 3.1 found for BFS and betweenness."""


@dataclass(frozen=True)
class GraphShape:
    """What the time of an algorithm depends on besides its options."""

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
        """The graphs that the table takes for alike: of one size, density and skew.

        The size is the power of ten that bounds the number of nodes. The density is `sparse` below
        4 arcs a node, `medium` below 32, else `dense`. In-degrees are `even` below a skew of 1,
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
        """How different two graphs are: doublings of nodes, of arcs a node, and of skew."""
        pairs = (
            (self.nodes, other.nodes),
            (self.arcs_per_node, other.arcs_per_node),
            (1 + self.skew, 1 + other.skew),
        )
        return sum(abs(math.log2(max(a, 1e-3) / max(b, 1e-3))) for a, b in pairs)


@dataclass(frozen=True)
class Point:
    """One combination that can be measured."""

    algorithm: str
    graph: GraphShape
    medium: Medium
    threads: int
    far_ratio: float
    """Share of the bytes of edges that are not kept in local memory."""

    def __post_init__(self) -> None:
        within("threads", self.threads, 1, None)
        within("far_ratio", self.far_ratio, 0, 1)

    def __str__(self) -> str:
        return f"{self.algorithm}, {self.threads} threads, far ratio {self.far_ratio:g}"


@dataclass(frozen=True)
class Measurement(Point):
    """What a point took: the median of several runs."""

    seconds: float
    bytes_read: int
    """From the disk or from far memory."""
    memory: int
    """The budget: the least that keeps `1 - far_ratio` of the edges."""
    peak_memory: int
    """The most bytes that the process had resident."""

    def __post_init__(self) -> None:
        super().__post_init__()
        within("seconds", self.seconds, 0, None)

    @property
    def point(self) -> Point:
        """What was measured."""
        return Point(**{field.name: getattr(self, field.name) for field in fields(Point)})


@dataclass(frozen=True)
class Profile:
    """What the table knows about an algorithm on one graph."""

    measured: Sequence[Measurement]
    """Of one graph and medium, not empty."""
    same_class: bool
    """Whether that graph is of the class that was asked for."""

    @cached_property
    def curves(self) -> Mapping[int, Sequence[tuple[float, float]]]:
        """Far ratios and seconds, by number of threads."""
        chosen: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for one in self.measured:
            chosen[one.threads].append((one.far_ratio, one.seconds))
        return {threads: sorted(curve) for threads, curve in sorted(chosen.items())}

    @cached_property
    def turning_point(self) -> float:
        """The smallest of those of the numbers of threads, so that it holds for each."""
        return min(turning_point(curve) for curve in self.curves.values())

    @property
    def overhead(self) -> int:
        """The most bytes that a process took beside its budget."""
        return max(max(one.peak_memory - one.memory, 0) for one in self.measured)

    def times(self, far_ratio: float) -> tuple[float, ...]:
        """Seconds with 1, 2, … threads up to the most that were measured.

        Between measured numbers of threads along a line; below the least as if work divided
        evenly.
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
    """The offline table (Fargraph+ 7): measured runs by algorithm and graph.

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
    """Where they were measured."""

    def profile(self, algorithm: str, graph: GraphShape, medium: Medium) -> Profile | None:
        """What is known about an algorithm on a graph like this one; `None` where nothing is.

        Of the same medium and class where there is one, else of the nearest, with its times
        scaled by the number of arcs.
        """
        known = [one for one in self.measurements if one.algorithm == algorithm]
        if not known:
            return None
        here = [one for one in known if one.medium == medium] or known
        alike = [one for one in here if one.graph.graph_class == graph.graph_class] or here
        nearest = min(alike, key=lambda one: (one.graph.distance(graph), one.medium))
        scale = graph.arcs / nearest.graph.arcs if nearest.graph.arcs else 1.0
        measured = [
            replace(one, seconds=one.seconds * scale)
            for one in alike
            if (one.graph, one.medium) == (nearest.graph, nearest.medium)
        ]
        return Profile(measured, nearest.graph.graph_class == graph.graph_class)


def turning_point(curve: Sequence[tuple[float, float]], slack: float = SLACK) -> float:
    """The largest far ratio that costs little: beyond it, seconds rise above `slack`.

    `curve` holds far ratios and seconds, in any order. Times are first smoothed to the nearest
    ones that never fall with the ratio, so that one slow run is no turning point; between
    measured ratios they go along a line.

    Errors: `ValueError` for an empty curve.

    Example:
        >>> turning_point([(0.0, 10.0), (0.6, 10.0), (0.8, 20.0), (1.0, 40.0)])
        0.62

    **Source**: Fargraph+ 3.1, figure 4.
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
    # Rounded down: no digit more than the measurements carry, and within the slack.
    return max(ratios[beyond - 1], math.floor(reached * 1000 + 1e-6) / 1000)


@dataclass(frozen=True)
class Job:
    """A program that waits for cores and memory."""

    name: str
    times: tuple[float, ...]
    """Seconds with 1, 2, … threads; more threads than that bring nothing."""
    memory: int
    """Bytes at the turning point, with `least_threads`."""
    memory_per_thread: int = 0
    """Bytes for each further thread."""
    least_threads: int = 1
    most_threads: int | None = None

    def seconds(self, threads: int) -> float:
        """With so many threads."""
        return self.times[min(threads, len(self.times)) - 1]

    def memory_with(self, threads: int) -> int:
        """Bytes that it needs with so many threads."""
        return self.memory + self.memory_per_thread * max(threads - self.least_threads, 0)


@dataclass(frozen=True)
class Launch:
    """A job that may start now, and what is its own."""

    job: Job
    cores: tuple[int, ...]
    """One a thread, of one NUMA node where one had enough."""
    memory: int

    @property
    def threads(self) -> int:
        """Threads to start."""
        return len(self.cores)


def allocate(
    jobs: Sequence[Job], free_cores: Sequence[Sequence[int]], free_memory: int
) -> list[Launch]:
    """Which of the waiting jobs start now, with which cores.

    In the order of `jobs` each gets its least number of threads as long as a core and its memory
    at the turning point are free; one that does not fit waits, and later ones may go ahead. The
    cores left over go, some at a time, to the job whose time they shorten most per core, until
    none are left or none help. Then cores are dealt by NUMA node, most demanding job first, each
    from the node with the most free cores.

    Shapes: `free_cores` holds the free cores of each NUMA node.

    **Source**: Fargraph+ 7, thread allocation.
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
        # Among equals the job that waited longest.
        (saved, more), place = max(
            growths, key=lambda one: (one[0][0], -one[1]), default=((0.0, 0), 0)
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
    """Seconds saved per core by the best number of further threads, and that number.

    Looks beyond the next thread: where two threads bring nothing, four still may.
    """
    most = min(threads + cores, job.most_threads or len(job.times), len(job.times))
    best = (0.0, 0)
    for more in range(1, most - threads + 1):
        if job.memory_with(threads + more) - job.memory_with(threads) > memory:
            break
        saved = (job.seconds(threads) - job.seconds(threads + more)) / more
        # Among equals the fewest threads, so that others are asked before more are given.
        if saved > best[0]:
            best = (saved, more)
    return best


def _deal(
    threads: Mapping[int, int], free_cores: Sequence[Sequence[int]]
) -> dict[int, tuple[int, ...]]:
    nodes = [list(node) for node in free_cores]
    dealt: dict[int, tuple[int, ...]] = {}
    for place in sorted(threads, key=lambda place: (-threads[place], place)):
        wanted = threads[place]
        taken: list[int] = []
        while len(taken) < wanted:
            fullest = max(range(len(nodes)), key=lambda node: (len(nodes[node]), -node))
            count = min(wanted - len(taken), len(nodes[fullest]))
            taken += nodes[fullest][:count]
            del nodes[fullest][:count]
        dealt[place] = tuple(taken)
    return dealt


def _never_falling(values: Sequence[float]) -> list[float]:
    """The nearest values, by squares, that never fall: pool adjacent violators."""
    blocks: list[tuple[float, int]] = []
    for value in values:
        mean, count = float(value), 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean = (before * many + mean * count) / (many + count)
            count += many
        blocks.append((mean, count))
    return [mean for mean, count in blocks for _ in range(count)]
