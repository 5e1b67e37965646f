"""Durable single-edge and batched updates of embedded graph stores.

    python benchmarks/peers/stores.py rate|write|edges SYSTEM SETTING DIR [--threads N]
        [--batch N] [--seconds S] [--first K]

`rate` adds edges for some seconds and prints one JSON line. `write` adds edges until it is killed,
and prints the number of each acknowledged edge. `edges` opens the store and prints one JSON line
with the numbers of the stored edges.

Edge `k` is a fixed pair of nodes, different for each `k`, so that stored edges have known numbers.
"""

from __future__ import annotations

import argparse
import json
import os
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

NODES = 1 << 14
STRIDE = 40503
WARM_SHARE = 0.1
"""Share of a run before the measurement."""

Pair = tuple[int, int]


def pair(number: int) -> Pair:
    """Ends of edge `number`; distinct below NODES^2."""
    source = number % NODES
    return source, (source * STRIDE + number // NODES) % NODES


def number(source: int, target: int) -> int:
    """Inverse of `pair`."""
    return (target - source * STRIDE) % NODES * NODES + source


class Ladybug:
    """Cypher; one connection per thread. By default, a second concurrent writer is refused."""

    def __init__(self, root: Path, setting: str) -> None:
        import ladybug

        self._ladybug = ladybug
        self._database = ladybug.Database(
            root / "ladybug", enable_multi_writes=setting == "multi_writes"
        )
        self._local = threading.local()

    def make_nodes(self) -> None:
        self._run("CREATE NODE TABLE N(id INT64 PRIMARY KEY)")
        self._run("CREATE REL TABLE E(FROM N TO N)")
        self._run(f"UNWIND range(0, {NODES - 1}) AS i CREATE (:N {{id: i}})")

    def add(self, pairs: Sequence[Pair]) -> None:
        # One transaction per batch. `UNWIND` of a list of pairs is 15 times slower; `COPY` from a
        # table is equally fast.
        if len(pairs) > 1:
            self._run("BEGIN TRANSACTION")
        query = "MATCH (a:N {id: $s}), (b:N {id: $t}) CREATE (a)-[:E]->(b)"
        for source, target in pairs:
            self._run(query, {"s": source, "t": target})
        if len(pairs) > 1:
            self._run("COMMIT")

    def edges(self) -> list[Pair]:
        rows = self._run("MATCH (a:N)-[:E]->(b:N) RETURN a.id, b.id")
        pairs = []
        while rows.has_next():
            source, target = rows.get_next()
            pairs.append((source, target))
        return pairs

    def _run(self, query: str, values: dict[str, Any] | None = None) -> Any:
        if not hasattr(self._local, "connection"):
            self._local.connection = self._ladybug.Connection(self._database, num_threads=1)
        return self._local.connection.execute(query, values or {})


class OverGraph:
    """Python calls; threads share the handle."""

    def __init__(self, root: Path, setting: str) -> None:
        from overgraph import OverGraph as Store

        self._store = Store.open(str(root / "overgraph"), wal_sync_mode=setting)
        keys = [{"labels": ["N"], "key": str(node)} for node in range(NODES)]
        nodes = self._store.get_nodes_by_keys(keys) if (root / "ready").exists() else []
        self._ids = [node.id for node in nodes if node is not None]

    def make_nodes(self) -> None:
        nodes = [{"labels": ["N"], "key": str(node)} for node in range(NODES)]
        self._ids = list(self._store.batch_upsert_nodes(nodes))
        self._store.sync()

    def add(self, pairs: Sequence[Pair]) -> None:
        ids = self._ids
        if len(pairs) == 1:
            ((source, target),) = pairs
            self._store.upsert_edge(ids[source], ids[target], "E")
        else:
            self._store.batch_upsert_edges(
                [
                    {"from_id": ids[source], "to_id": ids[target], "label": "E"}
                    for source, target in pairs
                ]
            )

    def edges(self) -> list[Pair]:
        places = {node: place for place, node in enumerate(self._ids)}
        edges = self._store.get_edges_by_label("E")
        return [(places[edge.from_id], places[edge.to_id]) for edge in edges]


class Grafeo:
    """Python calls; threads share the handle.

    Its Python interface does not have a sync mode, so `checkpoint` syncs each call.
    """

    def __init__(self, root: Path, setting: str) -> None:
        import grafeo

        self._store = grafeo.GrafeoDB(str(root / "grafeo"))
        self._checkpoint = setting == "checkpoint"
        self._ids = {}
        if (root / "ready").exists():
            for node in self._store.get_nodes_by_label("N"):
                key, node_id = _grafeo_node(node)
                self._ids[key] = node_id

    def make_nodes(self) -> None:
        self._ids = {key: self._store.create_node(["N"], {"k": key}).id for key in range(NODES)}
        self._store.wal_checkpoint()

    def add(self, pairs: Sequence[Pair]) -> None:
        ids = self._ids
        if len(pairs) == 1:
            ((source, target),) = pairs
            self._store.create_edge(ids[source], ids[target], "E")
        else:
            edges = [(ids[source], ids[target], "E") for source, target in pairs]
            self._store.batch_create_edges(edges)
        if self._checkpoint:
            self._store.wal_checkpoint()

    def edges(self) -> list[Pair]:
        rows = self._store.execute("MATCH (a:N)-[:E]->(b:N) RETURN a.k AS s, b.k AS t")
        return [(row["s"], row["t"]) for row in rows]


def _grafeo_node(node: Any) -> tuple[int, int]:
    """Key and id from a node, or from a pair of id and properties."""
    if isinstance(node, tuple):
        return int(node[1]["k"]), int(node[0])
    return int(node.get("k")), int(node.id)


SYSTEMS: dict[str, Any] = {"ladybug": Ladybug, "overgraph": OverGraph, "grafeo": Grafeo}


def opened(system: str, setting: str, root: Path) -> Any:
    """The store in `root`; created with its nodes if it does not exist."""
    root.mkdir(parents=True, exist_ok=True)
    store = SYSTEMS[system](root, setting)
    if not (root / "ready").exists():
        store.make_nodes()
        (root / "ready").touch()
    return store


def in_threads(count: int, work: Callable[[int], None]) -> None:
    """Run `work(0)` to `work(count - 1)` in parallel; raises an exception of a thread."""
    failures: list[BaseException] = []

    def guarded(thread: int) -> None:
        try:
            work(thread)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=guarded, args=(thread,)) for thread in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def rate(store: Any, threads: int, batch: int, seconds: float) -> dict[str, Any]:
    """Edges per second and the latency of a call, with `batch` edges per call."""
    begun = time.perf_counter()
    warm, end = begun + WARM_SHARE * seconds, begun + seconds * (1 + WARM_SHARE)
    times: list[list[float]] = [[] for _ in range(threads)]

    def work(thread: int) -> None:
        turn, before = thread, time.perf_counter()
        while before < end:
            store.add([pair(edge) for edge in range(turn * batch, (turn + 1) * batch)])
            now = time.perf_counter()
            if before >= warm:
                times[thread].append(now - before)
            turn, before = turn + threads, now

    in_threads(threads, work)
    took = time.perf_counter() - warm
    latencies = sorted(latency for part in times for latency in part)
    if not latencies:
        raise RuntimeError(f"not one call ended within {seconds} s")
    return {
        "threads": threads,
        "batch": batch,
        "per_second": len(latencies) * batch / took,
        "p50_ms": latencies[(len(latencies) - 1) // 2] * 1e3,
        "p99_ms": latencies[int((len(latencies) - 1) * 0.99)] * 1e3,
    }


def write(store: Any, threads: int, first: int) -> None:
    """Add edges from `first` on until the process is killed; prints acknowledged edges."""

    def work(thread: int) -> None:
        edge = first + thread
        while True:
            store.add([pair(edge)])
            # A system call per line: after it, a kill cannot lose the line.
            os.write(1, b"%d\n" % edge)
            edge += threads

    os.write(1, b"ready\n")
    in_threads(threads, work)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("act", choices=["rate", "write", "edges"])
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("setting")
    parser.add_argument("root", type=Path)
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    store = opened(options.system, options.setting, options.root)
    if options.act == "rate":
        print(json.dumps(rate(store, options.threads, options.batch, options.seconds)), flush=True)
    elif options.act == "write":
        write(store, options.threads, options.first)
    else:
        print(json.dumps({"edges": [number(*ends) for ends in store.edges()]}), flush=True)
    # Not closed: the test is about edges that were acknowledged without a close.
    os._exit(0)


if __name__ == "__main__":
    main()
