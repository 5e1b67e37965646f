"""The offline table: what algorithms take by threads, far ratio, partition size, queue length.

**Source**: Fargraph+ 7, offline data collection.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import shutil
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from outercore import analytics
from outercore import record as records
from outercore._native import Progress
from outercore.children import Child, terminate_like_interrupt
from outercore.controller import GraphShape, Measurement, Medium, Profile, Table
from outercore.errors import (
    BudgetError,
    CorruptError,
    DeviceError,
    InterruptError,
    InvalidError,
    NotFoundError,
    OutercoreError,
)
from outercore.far import FarOptions
from outercore.graph import Graph
from outercore.lock import only_one

FAR_RATIOS = (0.0, 0.25, 0.5, 0.75, 1.0)
LIMIT_S = 3600.0
"""A single run that takes longer is given up."""

_STEP = 64 << 10
_MOST_MEMORY = 1 << 50
_ROWS = 1 << 20


@dataclass(frozen=True)
class TuneConfig:
    """What to measure: every combination of these."""

    algorithms: tuple[str, ...] = ("bfs", "pagerank")
    threads: tuple[int, ...] = (1,)
    far_ratios: tuple[float, ...] = FAR_RATIOS
    partitions: tuple[int | None, ...] = (None,)
    """Nodes of a partition as a power of two; `None` for the data set's own grid."""
    queue_lengths: tuple[int | None, ...] = (None,)
    """Transfers in flight in each queue; `None` for the default. Only with `far`."""
    repeat: int = 3
    memory: int = _MOST_MEMORY
    """Points that need more are left out."""
    backend: str = "auto"
    far: FarOptions | None = None

    def __post_init__(self) -> None:
        known = ", ".join(analytics.ALGORITHMS)
        cores = len(os.sched_getaffinity(0))
        for algorithm in self.algorithms:
            if algorithm not in analytics.ALGORITHMS:
                raise InvalidError(f"algorithm `{algorithm}`: expected one of {known}")
        for threads in self.threads:
            if not 1 <= threads <= cores:
                raise InvalidError(f"threads {threads}, expected 1 to {cores}, the cores")
        for ratio in self.far_ratios:
            if not 0 <= ratio <= 1:
                raise InvalidError(f"far ratio {ratio}, expected 0 to 1")
        if self.repeat < 1:
            raise InvalidError(f"repeat {self.repeat}, expected 1 or more")
        if self.far is None and self.queue_lengths != (None,):
            raise InvalidError("queue lengths: expected a memory server with them")

    @property
    def medium(self) -> Medium:
        """Where the edges lie that do not stay in memory."""
        return medium_of(self.far)


@dataclass(frozen=True)
class Point:
    """One combination."""

    algorithm: str
    threads: int
    far_ratio: float
    partition_log2: int | None
    queue_length: int | None

    def __str__(self) -> str:
        words = [f"{self.threads} threads", f"far ratio {self.far_ratio:g}"]
        if self.partition_log2 is not None:
            words.append(f"partitions of 2^{self.partition_log2}")
        if self.queue_length is not None:
            words.append(f"queue length {self.queue_length}")
        return f"{self.algorithm}, {', '.join(words)}"


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


def medium_of(far: FarOptions | None) -> Medium:
    """Where edges are read from."""
    if far is None:
        return "disk"
    scheme = far.address.partition(":")[0]
    return "unix" if scheme == "unix" else "fabric" if scheme == "fabric" else "tcp"


def table_path() -> Path:
    """Where the table of this user is: `outercore/controller.json` in the XDG data directory."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "outercore" / "controller.json"


def load_table(path: Path) -> tuple[Table, dict[str, Any] | None]:
    """The table in a file, and the machine that it was measured on; empty where there is none.

    Errors: `CorruptError`, `VersionError` for anything that is no table.
    """
    try:
        value = json.loads(path.read_text())
        return Table.from_dict(value), value.get("machine")
    except FileNotFoundError:
        return Table(), None
    except json.JSONDecodeError as error:
        raise CorruptError(f"table `{path}`: {error}") from None
    except OutercoreError as error:
        raise type(error)(str(error).replace("table:", f"table `{path}`:", 1)) from None
    except OSError as error:
        raise DeviceError(f"table `{path}`: {error.strerror}") from None


def same_machine(machine: dict[str, Any] | None) -> bool:
    """Whether measurements of `machine` hold for this one."""
    mine = _machine()
    return machine is None or {name: machine.get(name) for name in mine} == mine


def graph_shape(graph: Graph) -> GraphShape:
    """Nodes, arcs and skew of the in-degrees.

    **Cost**: reads the offsets once, in pieces.
    """
    described = graph.arrays[graph.key("offsets")]
    dtype = np.dtype(described["dtype"]).newbyteorder("<")
    count, start = described["shape"][0], described["data_offset"]
    squares, before = 0.0, np.zeros(1, dtype)
    file = graph.root / described["file"]
    for first in range(0, count, _ROWS):
        rows = min(_ROWS, count - first)
        offsets = np.fromfile(file, dtype, rows, offset=start + first * dtype.itemsize)
        if len(offsets) != rows:
            raise CorruptError(
                f"array `{file}`: found {first + len(offsets):,} offsets, expected {count:,}"
            )
        degrees = np.diff(offsets, prepend=before).astype(np.float64)
        squares += float(np.dot(degrees, degrees))
        before = offsets[-1:]
    nodes, arcs = graph.num_nodes, graph.num_edges
    mean = arcs / nodes if nodes else 0.0
    variance = max(squares / nodes - mean * mean, 0.0) if nodes else 0.0
    return GraphShape(nodes, arcs, round(math.sqrt(variance) / mean, 6) if mean else 0.0)


def points(config: TuneConfig) -> Iterator[Point]:
    """Every combination, those of one grid together."""
    for partition, algorithm, queue_length, threads, ratio in itertools.product(
        config.partitions,
        config.algorithms,
        config.queue_lengths,
        sorted(config.threads),
        sorted(config.far_ratios),
    ):
        yield Point(algorithm, threads, ratio, partition, queue_length)


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
    shared: dict[str, Any] = {"threads": threads, "backend": backend, **(options or {})}
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
        return far is not None or _ratio(planned) <= far_ratio

    budget = least_budget(fits, most)
    if budget is None:
        return None
    planned = plan(budget)
    assert planned is not None
    return budget, round(_ratio(planned), 4)


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
        if any(_key(one, self._graph, config.medium) == key for one in self._table.measurements):
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
            *("--backend", self._config.backend, "--record", str(directory), "--top", "0"),
            *self._far_arguments(point),
        ]
        return run_child(arguments, cores_for(point.threads), directory)

    def _far_arguments(self, point: Point) -> list[str]:
        far = self._config.far
        if far is None:
            return []
        # A server that is lost would be measured as a disk.
        ratio = str(point.far_ratio)
        arguments = ["--far", far.address, "--far-ratio", ratio, "--no-fallback"]
        given = {
            "--far-token-file": far.token_file,
            "--far-chunk": far.chunk,
            "--far-queues": far.queues,
            "--far-queue-length": point.queue_length or far.queue_length,
            "--far-timeout": far.timeout_s,
        }
        for name, value in given.items():
            arguments += [] if value is None else [name, str(value)]
        return arguments

    def _arguments(self, algorithm: str) -> list[str]:
        """Options with which an algorithm does a fixed, typical amount of work."""
        if algorithm not in self._options:
            self._options[algorithm] = {
                "pagerank": ["--max-iterations", "10", "--tolerance", "0"],
                "betweenness": ["--samples", str(min(4, self._graph.nodes))],
            }.get(algorithm) or (
                ["--source", str(self._busiest())] if algorithm in ("bfs", "sssp") else []
            )
        return self._options[algorithm]

    def _busiest(self) -> int:
        """The node with the most out-arcs: a search from it reaches most of the graph."""
        directory = self._work / f"run-{next(self._runs)}"
        arguments = ["run", "degrees", str(self._data_set), "--which", "out", "--top", "1"]
        child = _finished([*arguments, "--json", "--no-record"], cores_for(1), directory)
        top: list[list[int]] = json.loads(child.output.read_text())["top"]
        return top[0][0]

    def _grid(self, partition_log2: int | None, progress: Progress | None) -> Path:
        """A data set with a grid of that partition size."""
        memory = min(self._config.memory, 1 << 30)
        if partition_log2 is None:
            analytics.grid(self._data_set, memory=memory, progress=progress)
            return self._data_set
        copy = self._stack.enter_context(_other_grid(self._data_set, partition_log2))
        analytics.grid(copy, memory=memory, partition_log2=partition_log2, progress=progress)
        return copy

    def _keep(self, measurement: Measurement) -> None:
        """Adds a point to the table, in memory and in the file."""
        from outercore.storage import Storage, device_errors, replace_file

        self._table = Table([*self._table.measurements, measurement])
        value = {**self._table.to_dict(), "machine": _machine()}
        with device_errors(f"table `{self._out}`"):
            text = json.dumps(value, indent=1, allow_nan=False) + "\n"
            replace_file(Storage(), self._out, text.encode())


def run_child(arguments: Sequence[str], cores: Sequence[int], directory: Path) -> dict[str, Any]:
    """Runs an algorithm in a process of its own and returns its record.

    Errors: `InvalidError` with what it said where it failed; `TimeoutError`.
    """
    _finished(arguments, cores, directory)
    record: dict[str, Any] = json.loads((directory / records.FILE).read_text())
    return record


def cores_for(threads: int) -> tuple[int, ...]:
    """The first cores of this process, as many as there are threads."""
    return tuple(sorted(os.sched_getaffinity(0))[:threads])


def _finished(arguments: Sequence[str], cores: Sequence[int], directory: Path) -> Child:
    child = Child(arguments, cores, directory)
    try:
        code = child.wait(LIMIT_S)
    finally:
        child.close()
    if code != 0:
        raise InvalidError(child.last_error().removeprefix("error: "))
    return child


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


def _key(one: Measurement, graph: GraphShape, medium: Medium) -> Point | None:
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


def _ratio(planned: dict[str, Any]) -> float:
    """Share of the edges that a plan does not keep in memory."""
    total = planned["bytes_first_pass"]
    return planned["bytes_per_pass"] / total if total else 0.0


def _machine() -> dict[str, Any]:
    described = records.machine()
    return {"processor": described["processor"], "cores": os.cpu_count()}


@contextmanager
def _other_grid(data_set: Path, partition_log2: int) -> Iterator[Path]:
    """A data set of the same files without its grid, beside it, so on the same device."""
    root = data_set.resolve()
    manifest = json.loads((root / "graph.json").read_text())
    try:
        copy = Path(tempfile.mkdtemp(prefix=f".{root.name}-{partition_log2}-", dir=root.parent))
    except OSError as error:
        raise NotFoundError(
            f"partitions of 2^{partition_log2}: no directory beside `{root}`: {error.strerror}"
            "\nhint: tune a copy of the data set where you may write"
        ) from None
    try:
        arrays = manifest["arrays"]
        manifest["arrays"] = {
            key: value for key, value in arrays.items() if not key.startswith("grid/")
        }
        for described in manifest["arrays"].values():
            link = copy / described["file"]
            if Path(described["file"]).is_absolute() or link.exists():
                continue
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(root / described["file"])
        (copy / "graph.json").write_text(json.dumps(manifest))
        if (root / "device.json").exists():
            shutil.copy(root / "device.json", copy)
        yield copy
    finally:
        shutil.rmtree(copy, ignore_errors=True)
