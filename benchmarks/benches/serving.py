"""Predictions over HTTP, compared with NumPy, mapped features and PyG behind FastAPI."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np
from limits import drop_cached, run_limited
from measure import Result, Series, Settings, python, say
from product import command, imported
from workloads import Workload

from benches.inputs import import_bytes, workload
from benches.servers import Load, Running, fastapi_path, load, load_command, read_load, started

SHARE = 8
"""Ratio of features to memory."""
ROOM = 64 << 20
"""Bytes per process for connections, requests in flight and the network's activations."""
LEAST = 32 << 20
"""Least memory for data, in bytes: a server needs 14 MiB even for a tiny graph."""
CLIENTS = 64
"""Clients that saturate the server: each sends its next request after an answer."""
OVERLOAD_CLIENTS = 512
"""Clients of the overload test: twice the number of requests that may wait."""
ATTEMPTS = 5
"""Attempts of the overload test: its burst of connections may be reset, because only 128 may wait
to be accepted."""
UPDATE_CLIENTS, QUERY_CLIENTS = 64, 8
SAME_NODES = 20
WHAT = (
    "Requests a second about one node each, drawn from those with in-edges. GraphSAGE, two "
    "layers, hidden 256, fan-out 15,10, 128 float32 features a node, ten edges a node. Both "
    "programs have the same graph, weights and clients; clients run on the same cores. Each is in "
    f"a cgroup of 1/{SHARE} of the features, plus its interpreter with libraries, plus "
    f"{ROOM >> 20} MiB a process. *cold*: one client, right after the start, files not cached. "
    f"*saturated*: {CLIENTS} clients after a warm-up. *overload*: {OVERLOAD_CLIENTS} clients that "
    "together send twice as many requests as were answered when saturated, or as many as they can "
    "while each waits for its answer; latencies count from the moment a request was due."
)


@dataclass(frozen=True)
class Inputs:
    """The graph and the model that both programs serve."""

    work: Workload
    folder: Path
    graph: Path
    run: Path

    @property
    def asked(self) -> int:
        """Nodes below this id have in-edges; clients request only these."""
        return int(np.count_nonzero(np.diff(np.load(self.graph / "edges/edge/offsets.npy"))))

    @property
    def budget(self) -> int:
        """Bytes of memory for data."""
        return max(self.work.nodes * self.work.width * 4 // SHARE, LEAST)


@dataclass(frozen=True)
class Turn:
    """A measurement of a program."""

    cold: Load
    saturated: Load
    cpu_ms: float
    """Processor time of the server per request."""
    overload: Load | None
    """Results of the overload test; None if a client got no answer."""
    peak: int | None
    """Highest charge of its cgroup, in bytes."""
    enforced: str


def run(settings: Settings) -> Result:
    """Measure both programs by turns, and Outercore's updates during predictions."""
    result = Result("serving", WHAT)
    inputs = inputs_of(settings)
    work = inputs.work
    result.what += f" {work.nodes:,} nodes, {work.edges:,} edges."
    result.details = {"budget": inputs.budget, "features": work.nodes * work.width * 4}
    # Fails now if the load generator is missing, before a server starts.
    load_command(settings, "", "", 1, 1, 1)
    programs = {"outercore": partial(_ours, settings, inputs)}
    try:
        fastapi_path(settings)
        programs["PyG behind FastAPI"] = partial(_peer, settings, inputs)
        result.details["largest difference"] = _agree(inputs, programs)
    except RuntimeError as failure:
        say(f"PyG behind FastAPI is not available: {failure}")
        programs.pop("PyG behind FastAPI", None)
        result.details["not available"] = str(failure)
    turns: dict[str, list[Turn]] = {name: [] for name in programs}
    for turn in range(settings.repeats):
        for name, start in programs.items():
            try:
                turn_result = _measure(settings, inputs, start)
            except RuntimeError as failure:
                say(f"{name} turn {turn + 1} failed: {failure}")
                continue
            turns[name].append(turn_result)
            say(f"{name} turn {turn + 1}: {turn_result}")
    for name, measured in turns.items():
        _add(result, name, measured)
    result.details["turns"] = {name: [asdict(turn) for turn in got] for name, got in turns.items()}
    _live(result, settings, inputs)
    for case, ours_first in (
        ("saturated, requests", True),
        ("saturated, p50", False),
        ("saturated, p99", False),
        ("saturated, server", False),
        ("cold, p50", False),
        ("cold, p99", False),
        ("overload, answered", True),
        ("overload, p99 of answered", False),
    ):
        ends = ("outercore", case), ("PyG behind FastAPI", case)
        over, under = ends if ours_first else ends[::-1]
        result.compare(f"{case}: {over[0]} over {under[0]}", over, under)
    result.compare(
        "updates beside predictions over updates alone",
        ("outercore", "updates beside predictions"),
        ("outercore", "updates alone"),
    )
    return result


def inputs_of(settings: Settings) -> Inputs:
    """The graph and a network, trained for one epoch, because only its size matters."""
    work, folder = workload(settings, settings.served)
    graph = imported(folder, settings.work / f"{work.name}.outercore", in_place=True)
    run = settings.work / f"{work.name}.sage"
    if not (run / "model").exists():
        say("training the network that is served")
        shutil.rmtree(run, ignore_errors=True)
        train = command(
            "train", graph, "--model", "sage", "--fanout", "15,10", "--epochs", 1, "--out", run
        )
        run_limited(train).check()
    if not (run / "serving").exists():
        run_limited(command("export-model", run)).check()
    return Inputs(work, folder, graph, run)


@contextlib.contextmanager
def _ours(
    settings: Settings, inputs: Inputs, graph: Path | None = None, updates: bool = False
) -> Iterator[Running]:
    """`outercore serve`."""
    call = command(
        "serve", graph or inputs.graph, "--model", inputs.run, "--port", 0, "--json",
        "--memory", inputs.budget, "--threads", settings.threads, *(["--updates"] * updates),
    )  # fmt: skip
    libraries = import_bytes(sys.executable, "import outercore.__main__, outercore.serving.server")
    with started(call, inputs.budget + libraries + ROOM) as running:
        yield running


@contextlib.contextmanager
def _peer(settings: Settings, inputs: Inputs) -> Iterator[Running]:
    """The FastAPI server with a worker per core."""
    path = fastapi_path(settings)
    call = python(
        "peers/pyg_serve.py", inputs.graph, inputs.folder / "x.npy", inputs.run / "model",
        "--name", inputs.run.name, "--workers", settings.threads,
    )  # fmt: skip
    program = (
        f"import sys; sys.path.append({path!r});"
        "import fastapi, uvicorn, uvloop, safetensors.torch, torch_geometric.nn"
    )
    limit = inputs.budget + import_bytes(sys.executable, program) + settings.threads * ROOM
    paths = [path, *filter(None, [os.environ.get("PYTHONPATH")])]
    with started(call, limit, PYTHONPATH=os.pathsep.join(paths)) as running:
        yield running


def _measure(
    settings: Settings, inputs: Inputs, start: partial[AbstractContextManager[Running]]
) -> Turn:
    nodes, seconds = inputs.asked, _seconds(settings)
    drop_cached([inputs.folder / "x.npy", inputs.graph])
    with start() as running:
        ask = partial(load, settings, running, running.model)
        cold = ask(1, seconds, nodes)
        ask(CLIENTS, seconds, nodes)
        before = running.service.cpu_s()
        saturated = ask(CLIENTS, seconds, nodes)
        used = running.service.cpu_s() - before
        overload = None
        for _ in range(ATTEMPTS):
            try:
                overload = ask(OVERLOAD_CLIENTS, seconds, nodes, 2 * saturated.per_second)
                break
            except RuntimeError as failure:
                say(f"overload: {failure}")
        answered = max(1, saturated.statuses.get("200", 0))
        return Turn(
            cold=cold,
            saturated=saturated,
            cpu_ms=used / answered * 1e3,
            overload=overload,
            peak=running.service.peak(),
            enforced=running.service.enforced,
        )


def _add(result: Result, name: str, turns: list[Turn]) -> None:
    """Adds the series of a program."""
    overloads = [turn.overload for turn in turns if turn.overload is not None]
    for case, unit, values in (
        ("cold, p50", "ms", [turn.cold.p50_ms for turn in turns]),
        ("cold, p99", "ms", [turn.cold.p99_ms for turn in turns]),
        ("saturated, requests", "requests/s", [turn.saturated.per_second for turn in turns]),
        ("saturated, p50", "ms", [turn.saturated.p50_ms for turn in turns]),
        ("saturated, p99", "ms", [turn.saturated.p99_ms for turn in turns]),
        ("saturated, server", "CPU-ms/request", [turn.cpu_ms for turn in turns]),
        ("overload, sent", "requests/s", [_sent(turn) for turn in overloads]),
        ("overload, answered", "requests/s", [turn.per_second for turn in overloads]),
        ("overload, p99 of answered", "ms", [turn.p99_ms for turn in overloads]),
        ("overload, refused", "share", [turn.refused for turn in overloads]),
    ):
        note = ", ".join(sorted({turn.enforced for turn in turns}))
        if case == "overload, refused" and overloads:
            note = f"last turn by status: {overloads[-1].statuses}"
        result.series.append(Series(name, case, unit, values, note))


def _live(result: Result, settings: Settings, inputs: Inputs) -> None:
    """Durable single edges per second, without and with concurrent predictions."""
    alone = Series("outercore", "updates alone", "edges/s")
    beside = Series("outercore", "updates beside predictions", "edges/s")
    asked = Series("outercore", "predictions alone", "requests/s")
    meanwhile = Series("outercore", "predictions beside updates", "requests/s")
    result.series += [alone, beside, asked, meanwhile]
    nodes, seconds = inputs.asked, _seconds(settings)
    copy = settings.work / f"{inputs.work.name}.live.outercore"
    for _ in range(settings.repeats):
        # A new copy each time, so that every run starts with an empty log.
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(inputs.graph, copy)
        try:
            with _ours(settings, inputs, copy, updates=True) as running:
                queries = load(settings, running, running.model, QUERY_CLIENTS, seconds, nodes)
                updates = load(settings, running, "updates", UPDATE_CLIENTS, seconds, nodes)
                call = load_command(
                    settings, running.address, running.model, QUERY_CLIENTS, seconds, nodes
                )
                with subprocess.Popen(call, stdout=subprocess.PIPE, text=True) as process:
                    both = load(settings, running, "updates", UPDATE_CLIENTS, seconds, nodes)
                    others = read_load(process.communicate(timeout=seconds + 120)[0])
                say(f"state of the log: {running.ask('/graph')}")
        except RuntimeError as failure:
            alone.note = beside.note = str(failure)[-160:]
            say(f"updates failed: {failure}")
            break
        for series, seen in (
            (alone, updates), (beside, both), (asked, queries), (meanwhile, others)
        ):  # fmt: skip
            series.values.append(seen.per_second)
            series.note = f"p50 {seen.p50_ms:.3g} ms, p99 {seen.p99_ms:.3g} ms, {seen.statuses}"
            say(f"{series.case}: {seen.per_second:.0f}, {series.note}")
    shutil.rmtree(copy, ignore_errors=True)


def _agree(inputs: Inputs, programs: dict[str, partial]) -> float:
    """Largest difference of probabilities, for nodes with at most fan-out neighbours.

    Errors: `RuntimeError` if the programs do not serve the same network.
    """
    edges = inputs.graph / "edges" / "edge"
    offsets = np.load(edges / "offsets.npy", mmap_mode="r").astype(np.int64)
    sources = np.load(edges / "sources.npy", mmap_mode="r")
    degree = np.diff(offsets)
    chosen = []
    for node in np.flatnonzero((degree > 0) & (degree <= 10)):
        if degree[sources[offsets[node] : offsets[node + 1]]].max() <= 10:
            chosen.append(int(node))
        if len(chosen) == SAME_NODES:
            break
    answers = []
    for start in programs.values():
        with start() as running:
            answers.append(np.array([running.predict(node) for node in chosen]))
    difference = float(np.abs(answers[0] - answers[1]).max())
    if difference > 1e-4:
        raise RuntimeError(f"the programs answer differently, by up to {difference}")
    say(f"largest difference of probabilities over {len(chosen)} nodes: {difference:.2g}")
    return difference


def _sent(load: Load) -> float:
    """Sent requests per second; below the intended rate if every client waits for an answer."""
    return load.per_second / (1 - load.refused) if load.refused < 1 else float("nan")


def _seconds(settings: Settings) -> float:
    return 2.0 if settings.quick else 5.0
