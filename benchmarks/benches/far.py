"""Far memory: figures 16 to 21 and table 4 of Fargraph+, on a smaller scale."""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from far_plots import page
from limits import Outcome, drop_cached, run_limited
from measure import HERE, Result, Series, Settings, python, say
from product import command, imported, sets

from benches.analytics import busiest
from benches.inputs import workload

ITERATIONS = 5
BUDGET = "1GiB"
"""Budget with room for all edges; the far ratio limits the share in memory."""
RATIOS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
CHUNKS = ("4KiB", "16KiB", "64KiB", "256KiB", "1MiB", "4MiB")
THREADS = (1, 2, 4)
PARTITIONS = (12, 14, 16)
QUEUE_LENGTHS = (10, 40)
QUEUE_THREADS = (1, 2, 4, 8, 16, 32)
WHAT = (
    "R-MAT, both directions of every edge. The memory server runs in a network namespace of its "
    "own behind a pair of virtual links (`tcp`), or shares memory through a Unix socket "
    "(`shared`). Seconds of the algorithm; placing the edges in far memory and reading the kept "
    f"ones comes before and is told apart. PageRank does {ITERATIONS} iterations. Far ratio 0 "
    "keeps all edges in local memory, 1 none."
)


@dataclass(frozen=True)
class Bench:
    """Common data of all cases."""

    result: Result
    settings: Settings
    graph: Path
    source: int
    servers: dict[str, str]
    """Addresses of the memory servers, by transport."""
    token: Path

    def options(self, case: str) -> tuple[object, ...]:
        """Options of the algorithm."""
        return {
            "bfs": ("--source", self.source),
            "pagerank": ("--max-iterations", ITERATIONS, "--tolerance", 0),
            "wcc": (),
            "radii": ("--sources", 16),
        }[case]

    def call(
        self,
        case: str,
        transport: str,
        *more: object,
        graph: Path | None = None,
        memory: str = BUDGET,
    ) -> list[str]:
        """The command of a run with far memory."""
        return command(
            "run", case, graph or self.graph, *self.options(case), "--memory", memory, "--json",
            "--record", "none", "--far", self.servers[transport],
            *sets({"far.token_file": self.token, "far.fallback": False}), *more,
        )  # fmt: skip

    def measure(
        self,
        program: str,
        case: str,
        call: Sequence[str],
        *,
        memory: int | None = None,
        swap: bool = False,
        timeout_s: float | None = None,
        cold: bool = False,
    ) -> Series:
        """Measures the seconds of an algorithm in repeated runs; stores counters as details."""
        series = Series(program, case, "seconds")
        for turn in range(self.settings.repeats):
            if cold:
                drop_cached([self.graph])
            outcome = run_limited(call, memory, swap=swap, timeout_s=timeout_s)
            if outcome.returncode:
                killed = outcome.returncode == -9
                late = killed and timeout_s is not None and outcome.wall_s >= timeout_s
                if late:
                    # A lower bound of the time is a result, too.
                    series.values.append(outcome.wall_s)
                dead = "out of time" if late else "killed, out of memory"
                series.note = dead if killed else outcome.stderr[-300:]
                break
            counters = json.loads(outcome.stdout[outcome.stdout.index("{") :])["counters"]
            say(f"{program} {case} run {turn + 1}: {counters['seconds']:.3f} s")
            series.values.append(counters["seconds"])
            runs = self.result.details.setdefault(f"{program} {case}", [])
            runs.append({**counters, "by_pass": None, "peak": outcome.peak})
        self.result.series.append(series)
        return series

    def add(
        self,
        program: str,
        case: str,
        seconds: float | None,
        outcome: Outcome,
        *,
        at_least: float | None = None,
    ) -> None:
        """Adds the result of a run; `at_least` is the time after which it was stopped."""
        series = Series(program, case, "seconds", [] if seconds is None else [seconds])
        if seconds is None:
            late = outcome.returncode == -9 and at_least is not None
            if late and at_least is not None and outcome.wall_s >= at_least:
                series.values, series.note = [at_least], "out of time"
            else:
                series.note = f"ended with {outcome.returncode}: {outcome.stderr[-300:]}"
        say(f"{program} {case}: {series.values} {series.note}")
        self.result.series.append(series)


def run(settings: Settings) -> Result:
    """Measure all figures, and draw them on a page."""
    result = Result("far", WHAT)
    with opened(result, settings) as bench:
        for figure in (_ratios, _buffering, _queues, _threads, _chunks, _partitions):
            try:
                figure(bench)
            except RuntimeError as failure:
                # A figure that fails must not lose the others.
                say(f"{figure.__name__.strip('_')} did not run: {failure}")
    drawn = page(result, HERE / "results" / "far.html")
    say(f"drawn: {drawn}")
    return result


@contextlib.contextmanager
def opened(result: Result, settings: Settings) -> Iterator[Bench]:
    """The graph, and memory servers while the block runs."""
    work, folder = workload(settings, settings.dense)
    graph = imported(
        folder,
        settings.work / f"{settings.dense}.undirected.outercore",
        undirected=True,
        topology_only=True,
    )
    if not (graph / "grid").exists():
        _regrid(graph)
    source = busiest(folder / "edges.npy", work.nodes)
    token = settings.work / "far.token"
    token.unlink(missing_ok=True)
    run_limited(command("memory-server", "--new-token", token)).check()
    with _servers(settings, token) as servers:
        yield Bench(result, settings, graph, source, servers, token)


def _ratios(bench: Bench) -> None:
    """Figure 18: seconds by far ratio, over both transports."""
    for case in ("bfs", "pagerank"):
        for transport in bench.servers:
            for ratio in RATIOS:
                call = bench.call(case, transport, "--set", f"far_ratio={ratio}")
                bench.measure(transport, f"{case} at {ratio}", call)
        for transport in bench.servers:
            bench.result.compare(
                f"{case} over {transport}: all local over all far",
                (transport, f"{case} at 0.0"),
                (transport, f"{case} at 1.0"),
                1 / 1.3 if transport == "shared" else None,
            )


def _threads(bench: Bench) -> None:
    """Figures 16 and 17: seconds by threads, all edges far."""
    for case in ("bfs", "wcc", "pagerank", "radii"):
        for threads in THREADS:
            call = bench.call(case, "tcp", "--set", "far_ratio=1", "--threads", threads)
            bench.measure("threads", f"{case} with {threads}", call)


def _chunks(bench: Bench) -> None:
    """Figure 19: seconds by chunk size, all edges far."""
    for case in ("bfs", "pagerank"):
        for transport in bench.servers:
            for chunk in CHUNKS:
                more = sets({"far_ratio": 1, "far.chunk": chunk})
                call = bench.call(case, transport, *more)
                bench.measure(f"chunk, {transport}", f"{case} in {chunk}", call)


def _partitions(bench: Bench) -> None:
    """Figure 20: seconds by partition size and threads, all edges far."""
    for bits in PARTITIONS:
        graph = bench.settings.work / f"{bench.graph.name}.partitions-{bits}"
        if not (graph / "graph.json").exists():
            shutil.rmtree(graph, ignore_errors=True)
            shutil.copytree(bench.graph, graph)
        _regrid(graph, "--partition-log2", bits)
        for case in ("bfs", "pagerank"):
            for threads in (1, 2):
                more = [*sets({"far_ratio": 1}), "--threads", threads]
                call = bench.call(case, "tcp", *more, graph=graph)
                bench.measure(f"partitions of 2^{bits}", f"{case} with {threads}", call)
        shutil.rmtree(graph)


def _buffering(bench: Bench) -> None:
    """Table 4, and the other half of figure 18: the time that read-ahead saves."""
    for case in ("bfs", "pagerank"):
        for transport in bench.servers:
            for ratio in RATIOS:
                more = sets({"far_ratio": ratio, "buffering": False})
                call = bench.call(case, transport, *more)
                bench.measure(f"{transport}, no buffering", f"{case} at {ratio}", call)
            bench.result.compare(
                f"{case} over {transport}: without buffering over with",
                (f"{transport}, no buffering", f"{case} at 1.0"),
                (transport, f"{case} at 1.0"),
            )


def _queues(bench: Bench) -> None:
    """Figure 21: memory of queues and receive buffers, with one pool and with a pool per thread."""
    for length in QUEUE_LENGTHS:
        for threads in QUEUE_THREADS:
            for receive in ("shared", "per_thread"):
                worker = python(
                    "workers/far_queues.py", bench.servers["tcp"], "--token-file", bench.token,
                    "--threads", threads, "--queue-length", length, "--receive", receive,
                )  # fmt: skip
                printed = run_limited(worker).last_json()
                series = Series(
                    f"receive {receive}", f"{threads} threads, length {length}", "bytes"
                )
                series.values.append(printed["memory_bytes"])
                bench.result.series.append(series)
        bench.result.compare(
            f"queue length {length}, {QUEUE_THREADS[-1]} threads: memory one a thread over shared",
            ("receive per_thread", f"{QUEUE_THREADS[-1]} threads, length {length}"),
            ("receive shared", f"{QUEUE_THREADS[-1]} threads, length {length}"),
        )


def _regrid(graph: Path, *options: object) -> None:
    run_limited(command("grid", graph, "--memory", "1GiB", "--overwrite", *options)).check()


@contextlib.contextmanager
def _servers(settings: Settings, token: Path) -> Iterator[dict[str, str]]:
    """A memory server on TCP, in a network namespace if that is allowed, and on a Unix socket."""
    socket = settings.work / "far.sock"
    socket.unlink(missing_ok=True)
    with _namespace() as (prefix, host):
        call = [
            *prefix,
            *command(
                "memory-server", "--size", "4GiB", "--token-file", token, "--listen", f"{host}:0",
                "--listen", f"unix:{socket}", "--json",
            ),
        ]  # fmt: skip
        server = subprocess.Popen(call, stdout=subprocess.PIPE, text=True)
        try:
            ready, _, _ = select.select([server.stdout], [], [], 60)
            if not ready or server.stdout is None:
                raise RuntimeError("the memory server did not start within 60 s")
            addresses = json.loads(server.stdout.readline())["addresses"]
            named = {
                ("shared" if address.startswith("unix:") else "tcp"): address
                for address in addresses
            }
            yield {name: named[name] for name in ("tcp", "shared")}
        finally:
            server.terminate()
            server.wait(30)


@contextlib.contextmanager
def _namespace() -> Iterator[tuple[list[str], str]]:
    """Prefix of commands in a network namespace, and its address; loopback without privileges."""
    name = f"ocfar{os.getpid()}"
    here, there = f"{name}a"[-15:], f"{name}b"[-15:]
    steps = (
        f"ip netns add {name}",
        f"ip link add {here} type veth peer name {there} netns {name}",
        f"ip addr add 10.213.7.1/30 dev {here}",
        f"ip link set {here} up",
        f"ip -n {name} addr add 10.213.7.2/30 dev {there}",
        f"ip -n {name} link set {there} up",
        f"ip -n {name} link set lo up",
    )
    try:
        made = shutil.which("ip") is not None and all(
            subprocess.run(step.split(), capture_output=True).returncode == 0 for step in steps
        )
        if made:
            yield ["ip", "netns", "exec", name], "10.213.7.2"
        else:
            say("no network namespace: the server listens on the loopback")
            yield [], "127.0.0.1"
    finally:
        if shutil.which("ip") is not None:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)
