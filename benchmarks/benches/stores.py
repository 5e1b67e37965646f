"""Stores with updates, each in a process that can be killed."""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import numpy as np
from limits import run_limited
from measure import Settings, python, say
from peers.stores import NODES, in_threads, number, pair
from product import command, imported

from benches.servers import Running, load, started

THREADS = (1, 8, 64)
CLIENTS = 64
"""Clients of the load generator, for single edges."""
WRITERS = 8
"""Threads or connections of a process that will be killed."""
LEAST_S = 30.0
"""Seconds that a run may take to start."""


class UnavailableError(RuntimeError):
    """A system that cannot be measured here; the message says why."""


@dataclass(frozen=True)
class Rate:
    """Results of a run that adds edges."""

    threads: int
    per_second: float
    """Edges per second."""
    p50_ms: float
    """Median latency of a call, for any number of edges."""
    p99_ms: float


@dataclass
class Writer:
    """A process that adds edges, and the numbers of acknowledged edges."""

    kill: Callable[[], None]
    """Kills the process, and reads all its acknowledgements."""
    acknowledged: set[int] = field(default_factory=set)


class System(Protocol):
    """A store with a setting; each `root` is a separate folder on the tested disk."""

    name: str
    setting: str
    promise: str
    """The durability that an acknowledgement promises."""

    def rates(self, root: Path, batch: int) -> list[Rate]:
        """Add edges to new stores, `batch` per call, with several numbers of threads."""

    def written(self, root: Path, first: int) -> contextlib.AbstractContextManager[Writer]:
        """Add single edges from number `first` on. Errors: `RuntimeError` if it does not open."""

    def edges(self, root: Path) -> set[int]:
        """Numbers of the stored edges. Errors: `RuntimeError` if it does not open."""


@dataclass(frozen=True)
class Peer:
    """A store from the package index, called in a separate process."""

    settings: Settings
    name: str
    setting: str
    promise: str
    writers: int = WRITERS
    """Number of threads that it allows."""

    def rates(self, root: Path, batch: int) -> list[Rate]:
        """As `System`."""
        rates = []
        for threads in THREADS if self.writers > 1 else (1,):
            shutil.rmtree(root, ignore_errors=True)
            call = self._call(
                "rate", root, "--threads", threads, "--batch", batch, "--seconds", seconds(self)
            )
            try:
                printed = run_limited(call, timeout_s=4 * seconds(self) + LEAST_S).last_json()
            except RuntimeError as failure:
                say(f"{self.name} {self.setting}, {threads} threads: {failure}")
                continue
            rates.append(Rate(threads, printed["per_second"], printed["p50_ms"], printed["p99_ms"]))
        return rates

    @contextlib.contextmanager
    def written(self, root: Path, first: int) -> Iterator[Writer]:
        """As `System`."""
        call = self._call("write", root, "--first", first, "--threads", self.writers)
        process = subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        lines = process.stdout
        if lines is None or lines.readline() != "ready\n":
            raise RuntimeError(process.communicate()[1][-300:])

        def read() -> None:
            # The kill may cut off the last line; its edge was not acknowledged.
            writer.acknowledged.update(int(line) for line in lines if line.endswith("\n"))

        reader = threading.Thread(target=read)

        def kill() -> None:
            process.kill()
            reader.join()

        writer = Writer(kill)
        reader.start()
        try:
            yield writer
        finally:
            kill()
            process.communicate()

    def edges(self, root: Path) -> set[int]:
        """As `System`."""
        return set(run_limited(self._call("edges", root), timeout_s=120).last_json()["edges"])

    def _call(self, act: str, root: Path, *more: object) -> list[str]:
        interpreter = self.settings.stores_python
        if not interpreter.exists():
            raise UnavailableError(f"no {interpreter}; see benchmarks/peers/stores.txt")
        imports = run_limited([str(interpreter), "-c", f"import {self.name}"])
        if imports.returncode:
            raise UnavailableError(imports.stderr.strip().splitlines()[-1])
        return python(
            "peers/stores.py", act, self.name, self.setting, root, *more, interpreter=interpreter
        )


@dataclass(frozen=True)
class Ours:
    """`outercore serve --updates`, and clients in another process."""

    settings: Settings
    name: str = "outercore"
    setting: str = "default"
    promise: str = "log synced; requests see it"

    def rates(self, root: Path, batch: int) -> list[Rate]:
        """As `System`."""
        if batch == 1 and not self.settings.load.exists():
            raise UnavailableError(f"no load generator at {self.settings.load}")
        rates = []
        for clients in (CLIENTS,) if batch == 1 else THREADS:
            shutil.rmtree(root, ignore_errors=True)
            with self._served(root) as running:
                if batch == 1:
                    results = load(self.settings, running, "updates", clients, seconds(self), NODES)
                    if set(results.statuses) != {"200"}:
                        say(f"outercore: answers by status: {results.statuses}")
                    rates.append(Rate(clients, results.per_second, results.p50_ms, results.p99_ms))
                else:
                    rates.append(_post_batches(running, clients, batch, seconds(self)))
        return rates

    @contextlib.contextmanager
    def written(self, root: Path, first: int) -> Iterator[Writer]:
        """As `System`."""
        with self._served(root) as running:

            def add(thread: int) -> None:
                connection, edge = running.connection(), first + thread
                # The kill breaks the connection before or after an answer.
                with contextlib.suppress(OSError, http.client.HTTPException):
                    while _post(connection, _body([edge])):
                        writer.acknowledged.add(edge)
                        edge += WRITERS

            clients = threading.Thread(target=in_threads, args=(WRITERS, add))

            def kill() -> None:
                running.service.kill()
                clients.join()

            writer = Writer(kill)
            clients.start()
            try:
                yield writer
            finally:
                kill()

    def edges(self, root: Path) -> set[int]:
        """As in `System`: a server starts, then the arrays are read as by any other program."""
        with self._served(root) as running:
            running.ask("/graph")
        found = root / "found.npz"
        program = (
            "import sys, numpy, outercore; graph = outercore.open(sys.argv[1]);"
            "parts = {key: graph.array(key) for key in ('offsets', 'sources')};"
            "numpy.savez(sys.argv[2], **parts)"
        )
        run_limited([sys.executable, "-c", program, str(root / "graph"), str(found)]).check()
        arrays = np.load(found)
        targets = np.repeat(np.arange(NODES), np.diff(arrays["offsets"].astype(np.int64)))
        return set(number(arrays["sources"].astype(np.int64), targets).tolist())

    @contextlib.contextmanager
    def _served(self, root: Path) -> Iterator[Running]:
        graph, run = _small_graph(self.settings)
        if not (root / "graph").exists():
            shutil.copytree(graph, root / "graph")
        call = command(
            "serve", root / "graph", "--model", run, "--port", 0, "--updates", "--json",
            "--memory", "1GiB",
        )  # fmt: skip
        with started(call) as running:
            yield running


def systems(settings: Settings) -> list[System]:
    """All stores, each with its default setting and its safest setting.

    Their promises were checked by `strace`: the system calls before an acknowledgement.
    """
    return [
        Ours(settings),
        Peer(settings, "ladybug", "default", "log synced; one writer at a time", writers=1),
        Peer(settings, "ladybug", "multi_writes", "log synced"),
        Peer(settings, "overgraph", "group_commit", "log synced within 50 ms"),
        Peer(settings, "overgraph", "immediate", "log synced"),
        Peer(settings, "grafeo", "default", "log written, not synced"),
        Peer(settings, "grafeo", "checkpoint", "log and store synced, by `wal_checkpoint`"),
    ]


def seconds(system: Peer | Ours) -> float:
    """Seconds to measure a rate."""
    return 1.0 if system.settings.quick else 3.0


def _small_graph(settings: Settings) -> tuple[Path, Path]:
    """A data set of the nodes and one edge, and a model, which a server needs."""
    folder, graph = settings.work / "updates", settings.work / "updates.outercore"
    run = settings.work / "updates.sage"
    if not (run / "model").exists():
        say("making the graph that takes updates")
        folder.mkdir(exist_ok=True)
        random = np.random.default_rng(1)
        np.save(folder / "edges.npy", np.array([pair(NODES * NODES - 1)]))
        np.save(folder / "x.npy", random.random((NODES, 8), np.float32))
        np.save(folder / "y.npy", random.integers(2, size=NODES))
        np.savez(folder / "splits.npz", train=np.arange(1024))
        imported(folder, graph, extra=f"--nodes {NODES}")
        train = command(
            "train", graph, "--model", "sage", "--hidden", 16, "--epochs", 1, "--memory", "256MiB",
            "--out", run,
        )  # fmt: skip
        run_limited(train).check()
    return graph, run


def _body(edges: Sequence[int]) -> bytes:
    ends = [pair(edge) for edge in edges]
    updates = [{"op": "add_edge", "source": source, "target": target} for source, target in ends]
    return json.dumps({"updates": updates}, separators=(",", ":")).encode()


def _post(connection: http.client.HTTPConnection, body: bytes) -> bool:
    """Whether the updates were acknowledged."""
    connection.request("POST", "/graph/updates", body)
    answer = connection.getresponse()
    answer.read()
    return answer.status == 200


def _post_batches(running: Running, clients: int, batch: int, duration: float) -> Rate:
    """Edges per second by a number of clients, and the latency of a request."""
    begun, refused = time.perf_counter(), 0
    times: list[list[float]] = [[] for _ in range(clients)]

    def work(client: int) -> None:
        nonlocal refused
        connection, turn = running.connection(), client
        while time.perf_counter() < begun + duration:
            body = _body(range(turn * batch, (turn + 1) * batch))
            before = time.perf_counter()
            if _post(connection, body):
                times[client].append(time.perf_counter() - before)
            else:
                refused += 1
                time.sleep(0.01)
            turn += clients

    in_threads(clients, work)
    took = time.perf_counter() - begun
    if refused:
        say(f"outercore: {refused} batches were refused")
    latencies = np.array([seconds_each for part in times for seconds_each in part]) * 1e3
    p50, p99 = np.quantile(latencies, (0.5, 0.99)) if len(latencies) else (float("nan"),) * 2
    return Rate(clients, len(latencies) * batch / took, float(p50), float(p99))
