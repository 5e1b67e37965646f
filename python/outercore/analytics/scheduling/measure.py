"""Measuring the offline table: time and memory of algorithms by threads and far ratio.

**Source**: the Fargraph+ paper, section 7, offline data collection.
"""

from __future__ import annotations

import itertools
import os
import statistics
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import numpy as np

from outercore import analytics
from outercore.analytics.config import AnalysisConfig, RunConfig
from outercore.analytics.recorded_run import AnalysisDirectory
from outercore.analytics.scheduling.children import Child
from outercore.analytics.scheduling.decide import GraphShape, Measurement, Point, Profile, Table
from outercore.analytics.scheduling.files import load_table, store
from outercore.analytics.scheduling.machine import described
from outercore.analytics.scheduling.needs import Work, graph_shape, local_budget, medium_of
from outercore.base.fields import Configuration, one_of, within
from outercore.base.native import Progress
from outercore.base.options import BackendOption, Option
from outercore.base.sizes import parse_size
from outercore.data.far import FarOptions
from outercore.data.graph import Graph
from outercore.errors import InterruptError, InvalidError, OutercoreError
from outercore.runs import record as records
from outercore.runs.places import only_one
from outercore.runs.stop import terminate_like_interrupt

LIMIT_S = 3600.0
"""Seconds after which a single run is stopped."""


@dataclass(frozen=True)
class TuneConfig(Configuration):
    """The points to measure: every combination of algorithms, threads and far ratios."""

    algorithms: Annotated[
        tuple[str, ...],
        Option("Measure these algorithms, such as `bfs,pagerank,wcc`.", common=True),
    ] = ("bfs", "pagerank")
    threads: Annotated[
        tuple[int, ...],
        Option(
            "Measure with these numbers of threads. The default is 1, 2, 4, … up to the number of "
            "cores.",
            common=True,
        ),
    ] = ()
    far_ratios: Annotated[
        tuple[float, ...],
        Option("Measure with these shares of the edges outside memory.", common=True),
    ] = (0.0, 0.25, 0.5, 0.75, 1.0)
    repeat: Annotated[
        int, Option("Measure each point this many times. The median counts.", common=True)
    ] = 3
    memory: Annotated[
        str,
        Option(
            "Leave out points that need more memory than this, such as `8GiB`. `auto` is half of "
            "the free memory.",
            size=True,
            common=True,
        ),
    ] = "auto"
    backend: BackendOption = "auto"
    far: FarOptions | None = None
    """Memory server that holds the edges that are not in memory."""

    def __post_init__(self) -> None:
        names = tuple(name.strip().replace("-", "_") for name in self.algorithms)
        object.__setattr__(self, "algorithms", names)
        for name in names:
            one_of("algorithms", name, analytics.ALGORITHMS)
        for threads in self.threads:
            within("threads", threads, 1, len(os.sched_getaffinity(0)))
        for ratio in self.far_ratios:
            within("far_ratios", ratio, 0, 1)
        within("repeat", self.repeat, 1, None)
        parse_size(self.memory, "memory")

    def points(self, graph: GraphShape) -> list[Point]:
        """Every combination as a point to measure, for one graph."""
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


def tune(data_set: Path, config: TuneConfig, out: Path, progress: Progress | None = None) -> Tuning:
    """Measures the points that are missing in the table `out`, and writes the table after each.

    Every run is a separate process. It has the smallest budget for its far ratio, and is bound to
    as many cores as it has threads. Points in the table are skipped, so a stopped call continues.

    Errors: `InvalidError` for a table of another machine; `InterruptError` after Ctrl-C, with
    every finished point in the table.
    """
    graph = Graph(data_set)
    if graph.num_nodes == 0:
        raise InvalidError(f"data set `{data_set}` has no nodes, expected something to measure")
    with only_one(out, "outercore tune"), terminate_like_interrupt():
        table = load_table(out)
        if table.machine not in (None, described()):
            raise InvalidError(
                f"table `{out}` was measured on another machine: {table.machine}"
                "\nhint: choose another `--out`"
            )
        tuning = Tuning(config, data_set, out, graph_shape(graph), table)
        try:
            tuning.run(progress)
        except KeyboardInterrupt:
            raise InterruptError(
                f"{tuning.measured} points were measured and are in `{out}`"
                "\nhint: run the same command again to measure the others"
            ) from None
        return tuning


@dataclass
class Tuning:
    """A call of `tune`, and its result."""

    config: TuneConfig
    data_set: Path
    out: Path
    graph: GraphShape
    table: Table
    """Current content of the file `out`."""
    measured: int = 0
    """Points that this call has measured."""
    known: int = 0
    """Points that were already in the table."""
    left_out: list[str] = field(default_factory=list)
    """Points that failed or need more memory than allowed, with the reason."""

    def profiles(self) -> dict[str, Profile]:
        """Measurements for this graph, by algorithm."""
        medium = medium_of(self.config.far)
        names = self.config.algorithms
        profiles = {name: self.table.profile(name, self.graph, medium) for name in names}
        return {name: profile for name, profile in profiles.items() if profile is not None}

    @cached_property
    def _memory(self) -> int:
        return parse_size(self.config.memory)

    def run(self, progress: Progress | None) -> None:
        """Measures all points."""
        points = self.config.points(self.graph)
        of_algorithm = Counter(point.algorithm for point in points)
        done: Counter[str] = Counter()

        def tell(name: str) -> None:
            if progress is not None:
                progress(name, done[name], of_algorithm[name], "points")

        memory = min(self._memory, 1 << 30)
        analytics.grid(self.data_set, memory=memory, progress=progress)
        for point in points:
            tell(point.algorithm)
            self._measure(point)
            done[point.algorithm] += 1
            tell(point.algorithm)

    def _measure(self, point: Point) -> None:
        options = self._typical_options(point.algorithm)
        config = AnalysisConfig(point.algorithm, options, self._resources(point))
        work = Work(self.data_set, config)
        try:
            budget, ratio = local_budget(work, point.far_ratio, point.threads, most=self._memory)
            reached = replace(point, far_ratio=ratio)
            if any(measurement.point == reached for measurement in self.table.measurements):
                self.known += 1
                return
            runs = [run_child(work, budget) for _ in range(self.config.repeat)]
        except (OutercoreError, TimeoutError) as error:
            self.left_out.append(f"{point}: {error}")
            return
        measured = _measurement(reached, budget, runs)
        self.table = Table((*self.table.measurements, measured), described())
        store(self.out, self.table)
        self.measured += 1

    def _resources(self, point: Point) -> RunConfig:
        """The configuration of a point's run, without its memory budget."""
        far = self.config.far
        if far is None:
            return RunConfig(threads=point.threads, backend=self.config.backend)
        return RunConfig(
            threads=point.threads,
            backend=self.config.backend,
            # No fallback: if the server were lost, the run would measure the disk.
            far=replace(far, fallback=False),
            far_ratio=point.far_ratio,
        )

    def _typical_options(self, algorithm: str) -> dict[str, Any]:
        """Options with which an algorithm does a fixed, typical amount of work."""
        nodes = self.graph.nodes
        match algorithm:
            case "pagerank":
                return {"max_iterations": 10, "tolerance": 0.0}
            case "hits":
                return {"max_iterations": 5, "tolerance": 0.0}
            case "betweenness":
                return {"samples": min(4, nodes)}
            case "closeness":
                return {"nodes": list(range(min(64, nodes)))}
            case "bfs" | "sssp":
                return {"source": self._busiest}
        return {}

    @cached_property
    def _busiest(self) -> int:
        """The node with the most out-arcs: a search from it reaches most of the graph."""
        degrees = analytics.degrees(self.data_set, which="out", memory=self._memory)
        return int(np.argmax(degrees))


def run_child(work: Work, budget: int) -> dict[str, Any]:
    """Runs an algorithm in a separate process and returns its record.

    Errors: `InvalidError` with the message of a run that failed; `TimeoutError`.
    """
    config = work.config
    cores = sorted(os.sched_getaffinity(0))[: config.run.threads]
    with tempfile.TemporaryDirectory(prefix="outercore-tune-") as name:
        directory, options = Path(name) / "run", Path(name) / "options.json"
        options.write_text(replace(config.run, memory=str(budget)).to_json())
        arguments = ["run", config.algorithm.replace("_", "-"), str(work.data_set)]
        for option, value in config.options.items():
            text = ",".join(str(item) for item in np.atleast_1d(value))
            arguments += [f"--{option}".replace("_", "-"), text]
        arguments += ["--config", str(options), "--record", str(directory), "--top", "0"]
        with closing(Child(arguments, cores, directory)) as child:
            if child.wait(LIMIT_S) != 0:
                raise InvalidError(child.last_error())
        return AnalysisDirectory(directory).record()


def _measurement(point: Point, budget: int, runs: Sequence[dict[str, Any]]) -> Measurement:
    """The measurement of a point from the records of its runs: medians, and the largest peak."""
    tiers = [records.bytes_by_tier(record["counters"]) for record in runs]
    return Measurement(
        **vars(point),
        seconds=statistics.median(record["counters"]["seconds"] for record in runs),
        bytes_read=statistics.median_high(sum(tier.values()) - tier["memory"] for tier in tiers),
        memory=budget,
        peak_memory=max(record["peak_memory_bytes"] for record in runs),
    )
