"""Measuring what is missing in the table, point by point."""

from __future__ import annotations

import itertools
import json
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from outercore import analytics
from outercore._native import Progress
from outercore.errors import InterruptError, InvalidError, OutercoreError
from outercore.graph import Graph
from outercore.runs import record as records
from outercore.runs.lock import only_one
from outercore.scheduling.budgets import local_budget
from outercore.scheduling.children import terminate_like_interrupt
from outercore.scheduling.decide import GraphShape, Measurement, Medium, Profile, Table
from outercore.scheduling.grids import without_grid
from outercore.scheduling.points import Point, TuneConfig, points
from outercore.scheduling.runs import cores_for, finished, run_child
from outercore.scheduling.shape import graph_shape
from outercore.scheduling.table_file import load_table, same_machine, store_table


@dataclass(frozen=True)
class Tuned:
    """What a call of `tune` has found."""

    table: Table
    """All that the file holds now."""
    graph: GraphShape
    measured: int
    """Points that this call has measured."""
    known: int
    """Points that were in the table."""
    left_out: Sequence[str]
    """Points that need more memory than they may have, and such that failed, with the reason."""

    def profiles(self, config: TuneConfig) -> dict[str, Profile]:
        """What is known now about this graph, by algorithm."""
        found = {
            name: self.table.profile(name, self.graph, config.medium) for name in config.algorithms
        }
        return {name: profile for name, profile in found.items() if profile is not None}


def tune(data_set: Path, config: TuneConfig, out: Path, progress: Progress | None = None) -> Tuned:
    """Measures what is missing in the table `out`, point by point, and writes it after each.

    Every run is a process of its own with the least budget of its far ratio, bound to as many
    cores as it has threads. What is in the table is not measured again, so that a call that was
    stopped goes on where it was.

    Errors: `InvalidError` for a table of another machine; `InterruptError` after Ctrl-C, with
    every finished point in the table.
    """
    if Graph(data_set).num_nodes == 0:
        raise InvalidError(f"data set `{data_set}` has no nodes, expected something to measure")
    with ExitStack() as stack:
        stack.enter_context(only_one(out, "outercore tune"))
        table, machine = load_table(out)
        if not same_machine(machine):
            raise InvalidError(
                f"table `{out}` was measured on another machine: {machine}"
                "\nhint: choose another `--out`"
            )
        stack.enter_context(terminate_like_interrupt())
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="outercore-tune-")))
        tuning = _Tuning(data_set, config, out, table, work, stack)
        try:
            return tuning.run(progress)
        except KeyboardInterrupt:
            raise InterruptError(
                f"{tuning.measured} points were measured and are in `{out}`"
                "\nhint: run the same command again: it goes on where it stopped"
            ) from None


class _Tuning:
    """One call of `tune`."""

    def __init__(
        self,
        data_set: Path,
        config: TuneConfig,
        out: Path,
        table: Table,
        work: Path,
        stack: ExitStack,
    ) -> None:
        self._data_set = data_set
        self._config = config
        self._out = out
        self._table = table
        self._work = work
        self._stack = stack
        self._graph = graph_shape(Graph(data_set))
        self._left_out: list[str] = []
        self._options: dict[str, list[str]] = {}
        self._runs = itertools.count()
        self.measured = 0

    def run(self, progress: Progress | None) -> Tuned:
        """All points."""
        config = self._config
        wanted = list(points(config))
        of_algorithm = len(wanted) // len(config.algorithms) * config.repeat
        done = dict.fromkeys(config.algorithms, 0)
        known = 0
        grids: dict[int | None, Path] = {}
        for point in wanted:
            if point.partition_log2 not in grids:
                grids[point.partition_log2] = self._grid(point.partition_log2, progress)
            data_set = grids[point.partition_log2]
            for repeated in self._measure(point, data_set):
                if progress is not None:
                    progress(
                        point.algorithm, done[point.algorithm] + repeated, of_algorithm, "runs"
                    )
                known += repeated == 0
            done[point.algorithm] += config.repeat
        return Tuned(self._table, self._graph, self.measured, known, self._left_out)

    def _measure(self, point: Point, data_set: Path) -> Iterator[int]:
        """Measures a point; yields how often, 0 where it was known."""
        config = self._config
        options = self._arguments(point.algorithm)
        found = local_budget(
            point.algorithm,
            data_set,
            point.far_ratio,
            most=config.memory,
            far=config.far,
            threads=point.threads,
            backend=config.backend,
            options=_plan_options(point.algorithm),
        )
        if found is None:
            self._left_out.append(f"{point}: needs more than it may have")
            return
        budget, ratio = found
        key = replace(point, far_ratio=ratio)
        if any(
            _point_of(one, self._graph, config.medium) == key for one in self._table.measurements
        ):
            yield 0
            return
        counted: list[dict[str, Any]] = []
        try:
            for _ in range(config.repeat):
                counted.append(self._once(point, data_set, budget, options))
                if len(counted) < config.repeat:
                    yield len(counted)
        except (OutercoreError, TimeoutError) as error:
            self._left_out.append(f"{point}: {error}")
            return
        self._keep(_measurement(key, self._graph, config.medium, budget, counted))
        self.measured += 1
        yield config.repeat

    def _once(
        self, point: Point, data_set: Path, budget: int, options: list[str]
    ) -> dict[str, Any]:
        """Runs it once; returns the record."""
        directory = self._work / f"run-{next(self._runs)}"
        arguments = [
            *("run", point.algorithm.replace("_", "-"), str(data_set), *options),
            *("--threads", str(point.threads), "--memory", str(budget)),
            *("--set", f"backend={self._config.backend}"),
            *("--record", str(directory), "--top", "0"),
            *self._far_arguments(point),
        ]
        return run_child(arguments, cores_for(point.threads), directory)

    def _far_arguments(self, point: Point) -> list[str]:
        far = self._config.far
        if far is None:
            return []
        # A server that is lost would be measured as a disk.
        given = {
            "far_ratio": point.far_ratio,
            "far.fallback": False,
            "far.token_file": far.token_file,
            "far.chunk": far.chunk,
            "far.queues": far.queues,
            "far.queue_length": point.queue_length or far.queue_length,
            "far.timeout_s": far.timeout_s,
        }
        arguments = ["--far", far.address]
        for name, value in given.items():
            arguments += [] if value is None else ["--set", f"{name}={value}"]
        return arguments

    def _arguments(self, algorithm: str) -> list[str]:
        """Options with which an algorithm does a fixed, typical amount of work."""
        if algorithm not in self._options:
            self._options[algorithm] = {
                "pagerank": ["--max-iterations", "10", "--tolerance", "0"],
                "betweenness": ["--samples", str(min(4, self._graph.nodes))],
                "closeness": ["--nodes", ",".join(map(str, range(min(64, self._graph.nodes))))],
                "hits": ["--max-iterations", "5", "--tolerance", "0"],
            }.get(algorithm) or (
                ["--source", str(self._busiest())] if algorithm in ("bfs", "sssp") else []
            )
        return self._options[algorithm]

    def _busiest(self) -> int:
        """The node with the most out-arcs: a search from it reaches most of the graph."""
        directory = self._work / f"run-{next(self._runs)}"
        arguments = ["run", "degrees", str(self._data_set), "--which", "out", "--top", "1"]
        child = finished([*arguments, "--json", "--record", "none"], cores_for(1), directory)
        top: list[list[int]] = json.loads(child.output.read_text())["top"]
        return top[0][0]

    def _grid(self, partition_log2: int | None, progress: Progress | None) -> Path:
        """A data set with a grid of that partition size."""
        memory = min(self._config.memory, 1 << 30)
        if partition_log2 is None:
            analytics.grid(self._data_set, memory=memory, progress=progress)
            return self._data_set
        copy = self._stack.enter_context(without_grid(self._data_set, partition_log2))
        analytics.grid(copy, memory=memory, partition_log2=partition_log2, progress=progress)
        return copy

    def _keep(self, measurement: Measurement) -> None:
        """Adds a point to the table, in memory and in the file."""
        self._table = Table([*self._table.measurements, measurement])
        store_table(self._out, self._table)


def _measurement(
    point: Point, graph: GraphShape, medium: Medium, budget: int, counted: Sequence[dict[str, Any]]
) -> Measurement:
    """The median of several runs."""
    tiers = [records.bytes_by_tier(one["counters"]) for one in counted]
    return Measurement(
        algorithm=point.algorithm,
        graph=graph,
        medium=medium,
        threads=point.threads,
        far_ratio=point.far_ratio,
        seconds=statistics.median(one["counters"]["seconds"] for one in counted),
        bytes_read=statistics.median_high(sum(tier.values()) - tier["memory"] for tier in tiers),
        memory=budget,
        peak_memory=max(one["peak_memory_bytes"] for one in counted),
        partition_log2=point.partition_log2,
        queue_length=point.queue_length,
    )


def _point_of(one: Measurement, graph: GraphShape, medium: Medium) -> Point | None:
    """The point of a measurement, where it is one of this graph."""
    if (one.graph, one.medium) != (graph, medium):
        return None
    settings = one.settings
    return Point(
        one.algorithm,
        one.threads,
        one.far_ratio,
        settings.partition_log2,
        settings.queue_length,
    )


def _plan_options(algorithm: str) -> dict[str, Any]:
    """What the memory plan depends on; the source of a search does not matter to it."""
    return {"source": 0} if algorithm in ("bfs", "sssp") else {}
