"""A small imported graph with parallel edges and self-loops."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import outercore as oc
from outercore.cli import run


def rows(nodes: int, edges: int, seed: int = 0) -> np.ndarray:
    """Edges [edges, 2] with many repetitions, in both directions, and loops."""
    random = np.random.default_rng(seed)
    pairs = random.integers(0, nodes, (max(1, edges // 3), 2))
    chosen = pairs[random.integers(0, len(pairs), edges)]
    return np.where(random.random((edges, 1)) < 0.3, chosen[:, ::-1], chosen)


def imported(
    root: Path,
    *,
    nodes: int = 200,
    edges: int = 2000,
    undirected: bool = False,
    self_loops: str = "keep",
) -> oc.Graph:
    """Imports the graph with features, labels and a split `train`."""
    root.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(1)
    inputs = {
        "edges": rows(nodes, edges),
        "x": random.normal(size=(nodes, 4)).astype(np.float32),
        "y": random.integers(0, 3, nodes),
        "train": np.arange(0, nodes, 2),
    }
    files = {}
    for name, array in inputs.items():
        files[name] = root.parent / f"{root.name}.{name}.npy"
        np.save(files[name], array)
    arguments = ["import", files["edges"], "--features", files["x"], "--labels", files["y"]]
    arguments += ["--split", f"train={files['train']}", "--nodes", nodes, "--out", root]
    arguments += ["--self-loops", self_loops, *(["--undirected"] if undirected else [])]
    assert run([str(argument) for argument in arguments]) == 0
    return oc.open(root)
