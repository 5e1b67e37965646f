"""Configuration of `outercore tune`: the points to measure."""

from __future__ import annotations

import itertools
import os
from dataclasses import dataclass
from typing import Annotated

from outercore.analytics import ALGORITHMS
from outercore.analytics.scheduling.decide import GraphShape, Medium, Point
from outercore.base.fields import Configuration, one_of, within
from outercore.base.options import BackendOption, Option
from outercore.base.sizes import parse_size
from outercore.data.far import FarOptions


@dataclass(frozen=True)
class TuneConfig(Configuration):
    """The points to measure: every combination of algorithms, threads and far ratios."""

    algorithms: Annotated[
        tuple[str, ...], Option("What to measure, such as `bfs,pagerank,wcc`.", common=True)
    ] = ("bfs", "pagerank")
    threads: Annotated[
        tuple[int, ...],
        Option("Numbers of threads; 1, 2, 4, … up to the cores by default.", common=True),
    ] = ()
    far_ratios: Annotated[
        tuple[float, ...], Option("Shares of the edges that are not kept in memory.", common=True)
    ] = (0.0, 0.25, 0.5, 0.75, 1.0)
    repeat: Annotated[int, Option("Runs of each point; the median counts.", common=True)] = 3
    memory: Annotated[
        str, Option("Points that need more are left out.", size=True, common=True)
    ] = "auto"
    backend: BackendOption = "auto"
    far: FarOptions | None = None
    """Memory server that holds the edges that are not in memory."""

    def __post_init__(self) -> None:
        names = tuple(name.strip().replace("-", "_") for name in self.algorithms)
        object.__setattr__(self, "algorithms", names)
        for name in names:
            one_of("algorithms", name, ALGORITHMS)
        for threads in self.threads:
            within("threads", threads, 1, len(os.sched_getaffinity(0)))
        for ratio in self.far_ratios:
            within("far_ratios", ratio, 0, 1)
        within("repeat", self.repeat, 1, None)
        parse_size(self.memory, "memory")

    def points(self, graph: GraphShape) -> list[Point]:
        """Every combination, for one graph."""
        cores = len(os.sched_getaffinity(0))
        chosen = itertools.product(
            self.algorithms,
            sorted(self.threads or {*(1 << power for power in range(cores.bit_length())), cores}),
            sorted(self.far_ratios),
        )
        medium = medium_of(self.far)
        return [
            Point(name, graph, medium, threads, ratio)
            for name, threads, ratio in dict.fromkeys(chosen)
        ]


def medium_of(far: FarOptions | None) -> Medium:
    """The medium from which a run reads edges that are not in memory."""
    if far is None:
        return "disk"
    scheme = far.address.partition(":")[0]
    return "unix" if scheme == "unix" else "fabric" if scheme == "fabric" else "tcp"
