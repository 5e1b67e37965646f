"""Predictions while updates fill their memory, so that the server folds and exchanges arrays."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from limits import run_limited
from measure import Result, Series, Settings, say
from product import command

import outercore as oc
from benches import int8_sets
from outercore.errors import BudgetError
from outercore.serving.server import Server, ServerConfig

PEOPLE = 2
"""Number of reading clients, and also of writing clients."""
ASKED, ADDED = 4, 50
"""Nodes per request, and edges per batch."""
WHAT = (
    f"{PEOPLE} clients add edges between random nodes in batches of {ADDED}, as fast as they may; "
    f"{PEOPLE} others ask for predictions about {ASKED} random nodes. Changes have an eighth of "
    "the memory; once they fill half of it, they are written into new arrays, which take the place "
    "of those that are read. GraphSAGE, two layers, fan-out 15,10, hidden 64, 128 float32 features."
)


def run(settings: Settings) -> Result:
    """Measure a server for 40 seconds."""
    home = settings.work / "exchanges"
    home.mkdir(parents=True, exist_ok=True)
    nodes, memory, seconds = (20_000, "32MiB", 5) if settings.quick else (1_000_000, "128MiB", 40)
    graph, small = _planted(home / f"{nodes}", nodes), _planted(home / "small", 2000)
    options = "--model sage --hidden 64 --fanout 15,10 --epochs 1"
    model = int8_sets.trained(small, home / "sage", options)
    shutil.rmtree(home / "served", ignore_errors=True)
    shutil.copytree(graph, home / "served")
    result = Result("exchanges", f"{WHAT} {nodes:,} nodes, 20 edges each, memory {memory}.")
    config = ServerConfig(port=0, memory=memory, updates=True, deadline_ms=600_000, most_nodes=64)
    with Server(home / "served", model, config) as server, ThreadPoolExecutor(2 * PEOPLE) as pool:
        end = time.monotonic() + seconds
        asking = [pool.submit(_ask, server, nodes, end, seed) for seed in range(PEOPLE)]
        writing = [pool.submit(_write, server, nodes, end, seed) for seed in range(PEOPLE)]
        waits = np.sort(np.concatenate([future.result() for future in asking]))
        added, refused = np.sum([future.result() for future in writing], axis=0)
        with oc.Client(server.url, server.name) as client:
            exchanges = client.graph()["compactions"]
    for case, unit, value in [
        ("exchanges", "exchanges", exchanges),
        ("predictions", "predictions", len(waits)),
        ("predictions, p99", "s", waits[int(0.99 * len(waits))]),
        ("predictions, longest wait", "s", waits[-1]),
        ("edges added", "edges", added),
        ("batches refused", "batches", refused),
    ]:
        say(f"{case}: {value}")
        result.series.append(Series("Outercore", case, unit, [float(value)]))
    return result


def _planted(out: Path, nodes: int) -> Path:
    """A planted graph, generated once."""
    if not (out / "graph.json").exists():
        shape = ["--nodes", nodes, "--degree", 20, "--features", 128, "--classes", 8, "--seed", 1]
        run_limited(command("generate", "planted", *shape, "--out", out, "--overwrite")).check()
    return out


def _until(end: float, work: Callable[[], None]) -> None:
    while time.monotonic() < end:
        work()


def _ask(server: Server, nodes: int, end: float, seed: int) -> list[float]:
    """Seconds of each prediction."""
    random, waits = np.random.default_rng(seed), []
    with oc.Client(server.url, server.name, timeout_s=600) as client:

        def ask() -> None:
            began = time.monotonic()
            client.predict(random.integers(nodes, size=ASKED))
            waits.append(time.monotonic() - began)

        _until(end, ask)
    return waits


def _write(server: Server, nodes: int, end: float, seed: int) -> tuple[int, int]:
    """Number of added edges, and of refused batches."""
    random, added, refused = np.random.default_rng(100 + seed), 0, 0
    with oc.Client(server.url, server.name, timeout_s=600) as client:

        def write() -> None:
            nonlocal added, refused
            ends = random.integers(nodes, size=(ADDED, 2)).tolist()
            edges = [{"op": "add_edge", "source": a, "target": b} for a, b in ends]
            try:
                client.update(edges)
                added += ADDED
            except BudgetError:
                refused += 1
                time.sleep(0.05)

        _until(end, write)
    return added, refused
