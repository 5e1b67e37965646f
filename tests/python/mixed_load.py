"""Clients that read and change a served graph at the same time, and samples of the server process.

Each writer owns a share of the graph and records the acknowledged updates. So the final graph is
known for any order in which the server took the updates.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.grpc as triton

import outercore as oc
from outercore.errors import BudgetError, NotFoundError

Pair = tuple[int, int]

WRITERS, HTTP_READERS, GRPC_READERS = 3, 3, 2
WRITES_A_SECOND, READS_A_SECOND = 20.0, 25.0
"""Rates of each client. A busy machine with two cores can serve all clients."""
BATCH = 8
KINDS = {"add": 0.3, "remove": 0.3, "batch": 0.1, "join": 0.06, "leave": 0.06, "rows": 0.18}
"""Shares of the kinds of requests. Additions and removals of edges balance."""
RETRY_S = 1.0
"""Seconds before a retry after a refusal, as the guide recommends."""
SAMPLE_S, OPEN_S = 0.25, 4.0


class Share:
    """The acknowledged state of the part of an undirected graph that one writer changes.

    It owns nodes, and the edges whose smaller end is one of them. The ends of its edges are its
    nodes, or nodes that no writer removes.
    """

    def __init__(self, nodes: list[int], pairs: list[Pair], seed: int, columns: int) -> None:
        self.nodes = nodes
        self.counts = Counter(pairs)
        self.rows: dict[int, list[float]] = {}
        self.joined: list[int] = []
        self.removed: list[int] = []
        self.random = np.random.default_rng(seed)
        self._pairs = list(self.counts)
        self._columns = columns

    def draw(self) -> list[dict[str, Any]]:
        """The updates of the next request; they are valid, so the server must accept them."""
        kind = self.random.choice(list(KINDS), p=list(KINDS.values()))
        if kind == "add" or (kind == "leave" and not self.joined):
            return [_edge("add_edge", self._new_pair())]
        if kind == "remove":
            return [_edge("remove_edge", pair) for pair in self._chosen(1)]
        if kind == "batch":
            added = [_edge("add_edge", self._new_pair()) for _ in range(BATCH)]
            gone = self._chosen(BATCH)
            here = {(update["source"], update["target"]) for update in added}
            return added + [_edge("remove_edge", pair) for pair in gone if pair not in here]
        if kind == "join":
            ends = self.random.choice(self.nodes, 3, replace=False).tolist()
            new = {"op": "add_node", "values": {"x": self._row()}}
            return [new, *(_edge("add_edge", (end, {"new": 0})) for end in ends)]
        if kind == "leave":
            place = int(self.random.integers(len(self.joined)))
            return [{"op": "remove_node", "node": self.joined[place]}]
        node = int(self.random.choice(self.nodes))
        return [{"op": "update_node", "node": node, "values": {"x": self._row()}}]

    def apply(self, updates: list[dict[str, Any]], results: list[dict[str, Any]]) -> None:
        """Applies acknowledged updates, and checks the results that the server returned."""
        for update, result in zip(updates, results, strict=True):
            match update["op"]:
                case "add_edge":
                    self._add(update["source"], update["target"])
                case "remove_edge":
                    count = self._drop((update["source"], update["target"]))
                    assert result == {"removed": count}, (update, result, count)
                case "add_node":
                    self.joined.append(result["node"])
                    self.rows[result["node"]] = update["values"]["x"]
                case "remove_node":
                    node = update["node"]
                    count = sum(self._drop(pair) for pair in list(self.counts) if node in pair)
                    assert result == {"removed": count}, (update, result, count)
                    self.joined.remove(node)
                    self.removed.append(node)
                case "update_node":
                    self.rows[update["node"]] = update["values"]["x"]

    def _add(self, source: int, target: int | dict[str, int]) -> None:
        pair = (source, self.joined[-1] if isinstance(target, dict) else target)
        if not self.counts[pair]:
            self._pairs.append(pair)
        self.counts[pair] += 1

    def _drop(self, pair: Pair) -> int:
        self._pairs.remove(pair)
        return self.counts.pop(pair)

    def _row(self) -> list[float]:
        row: list[float] = self.random.standard_normal(self._columns, np.float32).tolist()
        return row

    def _new_pair(self) -> Pair:
        first, second = sorted(self.random.choice(self.nodes, 2, replace=False).tolist())
        return first, second

    def _chosen(self, count: int) -> list[Pair]:
        places = self.random.choice(len(self._pairs), count, replace=False)
        return [self._pairs[place] for place in places]


def _edge(op: str, ends: tuple[int, Any]) -> dict[str, Any]:
    return {"op": op, "source": ends[0], "target": ends[1]}


@dataclass
class Sample:
    """A sample of the server's process and graph."""

    at: float
    """Seconds since the start."""
    resident: int
    files: int
    """Open file descriptors."""
    threads: int
    backlog: int
    """Updates that are not in the arrays."""
    changes: int
    """Bytes of memory for these updates."""
    log: int
    """Bytes of all segments of the log."""
    folds: int

    @classmethod
    def take(cls, at: float, process: int, root: Path, graph: dict[str, Any]) -> Sample:
        lines = Path(f"/proc/{process}/status").read_text().splitlines()
        status = dict(line.split(":", 1) for line in lines)
        return cls(
            at=at,
            resident=int(status["VmRSS"].split()[0]) << 10,
            files=len(list(Path(f"/proc/{process}/fd").iterdir())),
            threads=int(status["Threads"]),
            backlog=graph["lsn"] - graph["compacted_lsn"],
            changes=graph["memory_bytes"],
            log=log_bytes(root),
            folds=graph["compactions"],
        )


def log_bytes(root: Path) -> int:
    """Bytes of the log of a data set; segments may be removed during the count."""
    total = 0
    for segment in (root / "live").glob("*.log"):
        try:
            total += segment.stat().st_size
        except FileNotFoundError:
            continue
    return total


@dataclass
class Load:
    """All clients of one server, and their results."""

    url: str
    grpc: str
    model: str
    process: int
    root: Path
    shares: list[Share]
    base_nodes: int
    samples: list[Sample] = field(default_factory=list)
    times: dict[str, list[float]] = field(default_factory=lambda: {"read": [], "write": []})
    """Seconds of each answer."""
    updates: int = 0
    refused: int = 0
    opened: int = 0
    failures: list[BaseException] = field(default_factory=list)
    lsn: int = 0
    """LSN of the last acknowledged update."""
    _stop: threading.Event = field(default_factory=threading.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _began: float = 0.0

    def run(self, seconds: float) -> None:
        """Runs all clients for some seconds, or until one fails."""
        self._began = time.monotonic()
        works: list[Callable[[], None]] = [self._observe, self._open]
        works += [lambda share=share: self._write(share) for share in self.shares]
        works += [lambda seed=seed: self._read_http(seed) for seed in range(HTTP_READERS)]
        works += [lambda seed=seed: self._read_grpc(seed + 100) for seed in range(GRPC_READERS)]
        threads = [threading.Thread(target=self._guard, args=(work,)) for work in works]
        for thread in threads:
            thread.start()
        try:
            self._stop.wait(seconds)
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()

    def _guard(self, work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            self.failures.append(error)
            self._stop.set()

    def _each(self, pause: float, work: Callable[[], None]) -> None:
        """Calls `work` at a steady rate; calls that a late answer delayed are dropped."""
        due = time.monotonic()
        while not self._stop.wait(max(due - time.monotonic(), 0.0)):
            due = max(due + pause, time.monotonic())
            work()

    def _note(self, kind: str, began: float) -> None:
        with self._lock:
            self.times[kind].append(time.monotonic() - began)

    def _observe(self) -> None:
        with oc.Client(self.url, self.model) as client:

            def work() -> None:
                at = time.monotonic() - self._began
                self.samples.append(Sample.take(at, self.process, self.root, client.graph()))

            self._each(SAMPLE_S, work)

    def _open(self) -> None:
        """Opens the data set like another process, and checks for all acknowledged updates."""

        def work() -> None:
            with self._lock:
                lsn = self.lsn
            assert oc.open(self.root).manifest["live"]["lsn"] >= lsn
            self.opened += 1

        self._each(OPEN_S, work)

    def _write(self, share: Share) -> None:
        with oc.Client(self.url, self.model) as client:

            def work() -> None:
                updates = share.draw()
                began = time.monotonic()
                written = self._written(client, updates)
                if written is None:
                    return
                self._note("write", began)
                share.apply(updates, written.results)
                with self._lock:
                    self.lsn = max(self.lsn, written.lsn)
                    self.updates += len(updates)
                self._see(client, updates, written)

            self._each(1 / WRITES_A_SECOND, work)

    def _written(self, client: oc.Client, updates: list[dict[str, Any]]) -> Any:
        """The acknowledgement; `None` if the load ended before the server accepted the updates."""
        while True:
            try:
                return client.update(updates)
            except BudgetError:
                with self._lock:
                    self.refused += 1
                if self._stop.wait(RETRY_S):
                    return None

    def _see(self, client: oc.Client, updates: list[dict[str, Any]], written: Any) -> None:
        """Checks that a writer sees the nodes it has added, and no removed nodes."""
        if updates[0]["op"] == "add_node":
            node = written.results[0]["node"]
            assert client.predict([node], min_lsn=written.lsn).lsn >= written.lsn
        elif updates[0]["op"] == "remove_node":
            try:
                client.predict([updates[0]["node"]], min_lsn=written.lsn)
            except NotFoundError:
                return
            raise AssertionError(f"node {updates[0]['node']} was removed and is answered for")

    def _question(self, random: np.random.Generator) -> tuple[list[int], int]:
        """Some nodes, and the LSN that the answer must have seen."""
        nodes = random.integers(self.base_nodes, size=int(random.choice([1, 2, 16])))
        with self._lock:
            return nodes.tolist(), self.lsn if random.random() < 0.5 else 0

    def _read_http(self, seed: int) -> None:
        random, seen = np.random.default_rng(seed), 0
        with oc.Client(self.url, self.model) as client:

            def work() -> None:
                nonlocal seen
                nodes, lsn = self._question(random)
                began = time.monotonic()
                prediction = client.predict(nodes, seed=seed, min_lsn=lsn)
                self._note("read", began)
                seen = _checked(prediction.probability, prediction.lsn, len(nodes), max(lsn, seen))

            self._each(1 / READS_A_SECOND, work)

    def _read_grpc(self, seed: int) -> None:
        random, seen = np.random.default_rng(seed), 0
        with triton.InferenceServerClient(self.grpc) as client:

            def work() -> None:
                nonlocal seen
                nodes, lsn = self._question(random)
                tensor = triton.InferInput("node_ids", [len(nodes)], "INT64")
                tensor.set_data_from_numpy(np.array(nodes))
                began = time.monotonic()
                answer = client.infer(self.model, [tensor], parameters={"min_lsn": lsn})
                self._note("read", began)
                at = answer.get_response().parameters["lsn"].int64_param
                probability = answer.as_numpy("probability")
                seen = _checked(probability, at, len(nodes), max(lsn, seen))

            self._each(1 / READS_A_SECOND, work)


def _checked(probability: np.ndarray, lsn: int, nodes: int, least: int) -> int:
    """The LSN of an answer; asserts that it is not older than requested or than the last answer."""
    assert lsn >= least, f"an answer of update {lsn}, expected {least} or newer"
    assert len(probability) == nodes
    np.testing.assert_allclose(probability.sum(axis=1), 1, rtol=0, atol=1e-5)
    return lsn
