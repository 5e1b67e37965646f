"""Sampled edges per second of DGL 2.1 and Outercore, from a graph of several types in memory."""

from __future__ import annotations

import statistics
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from measure import Result, Series, Settings, Trial, by_turns, python, say

from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import TypedInputs
from outercore.importing.typed_graph import open_typed

WHAT = (
    "Sampled edges a second from four node types and eight edge types (four and their reverses, "
    "38 M arcs with skewed ends), fan-out 10,10 for each, batches of 1,024 papers, topology in "
    "memory, the same number of threads. Outercore delivers PyG's `HeteroData`, DGL its blocks."
)
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
NODES = {"author": 1_000_000, "paper": 1_000_000, "venue": 20_000, "field": 60_000}
EDGES = {
    ("author", "writes", "paper"): 5_000_000,
    ("paper", "cites", "paper"): 8_000_000,
    ("paper", "in", "venue"): 1_000_000,
    ("paper", "has", "field"): 5_000_000,
}


def run(settings: Settings) -> Result:
    """Measure the typed samplers of DGL and Outercore."""
    result = Result("typed", WHAT)
    folder = _graph(settings)
    options = ("--epochs", 3, "--threads", settings.threads)
    ours = Series("Outercore", "memory", "edges/s")
    command = python("workers/load_typed.py", folder / "graph", *options)
    trials = [Trial(ours, command, _edges)]
    for name, env in (("DGL 2.1", {}), ("DGL 2.1, passive waiting", PASSIVE)):
        series = Series(name, "memory", "edges/s")
        command = python(
            "peers/dgl_typed.py", folder / "edges.npz", *options, interpreter=settings.dgl_python
        )
        if settings.dgl_python.exists():
            trials.append(Trial(series, command, _edges, env=env))
        else:
            result.series.append(series)
    by_turns(settings, trials)
    result.series += [trial.series for trial in trials]
    for peer in ("DGL 2.1", "DGL 2.1, passive waiting"):
        result.compare(f"Outercore / {peer}", ("Outercore", "memory"), (peer, "memory"), 5)
    return result


def _graph(settings: Settings) -> Path:
    """The data set of the graph, with its edges in a file for DGL."""
    shrink = 20 if settings.quick else 1
    folder = settings.work / f"typed-{shrink}"
    if (folder / "graph" / "graph.json").exists():
        return folder
    say("making a graph of several types")
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    nodes = {name: count // shrink for name, count in NODES.items()}
    arrays, texts = {}, []
    for (source, relation, target), count in EDGES.items():
        ends = [
            (nodes[end] * random.random(count // shrink) ** 2).astype(np.int64)
            for end in (source, target)
        ]
        arrays[f"{source}__{relation}__{target}"] = np.stack(ends)
        path = folder / f"{relation}.parquet"
        pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), path)
        texts.append(f"{source},{relation},{target}={path}:source,target")
    np.savez(folder / "edges.npz", **arrays)
    counts = tuple(f"{name}={count}" for name, count in nodes.items())
    inputs = TypedInputs(counts, tuple(texts), add_reverse=True)
    import_graph(open_typed(inputs), folder / "graph")
    return folder


def _edges(printed: dict) -> float:
    return statistics.median(epoch["edges"] / epoch["seconds"] for epoch in printed["epochs"])
