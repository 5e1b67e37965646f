"""Traces for cache policies: the feature rows that batches of real graphs need.

A trace is the distinct nodes of each batch of `NeighborSampler`, in the order of the batches.
"""

from __future__ import annotations

import lzma
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import adapters
import numpy as np
from measure import Settings
from numpy.typing import NDArray
from product import imported
from workloads import WORKLOADS, make

import outercore as oc

FAN_OUTS = (10, 5)
CAPACITIES = (0.05, 0.1, 0.25, 0.5)
LARGEST_BATCH = 1024
PRESAMPLED_SHARE, LEAST_PRESAMPLED = 8, 32
"""Pre-sampling as in the loader: an eighth of an epoch, or 32 batches."""

Ids = NDArray[np.int64]


@dataclass(frozen=True)
class GraphEdges:
    """A graph, and the seeds of its epochs."""

    nodes: int
    edges: Ids
    seeds: Ids


@dataclass(frozen=True)
class Trace:
    """Batches of several epochs of a graph."""

    name: str
    graph: oc.Graph
    seeds: Ids
    batch_size: int
    batches: list[Ids]
    """Batches, starting with epoch 1."""
    mirrored: bool
    """Whether each edge leads both ways."""
    presampled: list[Ids]
    """Batches from the end of epoch 0, by which the loader ranks rows."""

    @property
    def nodes(self) -> int:
        """Number of feature rows."""
        return self.graph.num_nodes


def _text_pairs(path: Path, skip: int, delimiter: str | None) -> Ids:
    with lzma.open(path, "rt", encoding="utf-8") as text:
        return np.loadtxt(text, delimiter=delimiter, skiprows=skip, dtype=np.int64)


def _half(nodes: int) -> Ids:
    chosen = np.random.default_rng(0).permutation(nodes)[: nodes // 2]
    return np.sort(chosen).astype(np.int64)


def _adapted(name: str) -> Callable[[Path], GraphEdges]:
    def read(root: Path) -> GraphEdges:
        data = adapters.load(name, root)
        return GraphEdges(data.nodes, data.edges, data.splits["train"])

    return read


def _musae(name: str) -> Callable[[Path], GraphEdges]:
    def read(root: Path) -> GraphEdges:
        edges = _text_pairs(root / name / "edges.csv.xz", 1, ",")
        nodes = int(edges.max()) + 1
        return GraphEdges(nodes, edges, _half(nodes))

    return read


def _ogbl_ddi(root: Path) -> GraphEdges:
    with np.load(root / "ogbl-ddi" / "ogbl_ddi.npz") as parts:
        return GraphEdges(4267, parts["train"].astype(np.int64), _half(4267))


def _typed(name: str, files: str, labelled: int) -> Callable[[Path], GraphEdges]:
    """Relations between papers and the other node types; labelled nodes are seeds."""

    def read(root: Path) -> GraphEdges:
        relations = [_text_pairs(root / name / f"{file}.txt.xz", 0, None) for file in files.split()]
        first = max(int(pairs[:, 0].max()) for pairs in relations) + 1
        starts, edges = [0], []
        for pairs in relations:
            starts.append(first)
            edges.append(pairs + np.array([0, first]))
            first += int(pairs[:, 1].max()) + 1
        labels = len(np.load(root / name / "labels.npy"))
        seeds = starts[labelled] + np.arange(labels, dtype=np.int64)
        return GraphEdges(first, np.concatenate(edges), seeds)

    return read


REAL: dict[str, Callable[[Path], GraphEdges]] = {
    "cora": _adapted("cora"),
    "lastfm-asia": _musae("lastfm-asia"),
    "tolokers": _adapted("tolokers"),
    "twitch-musae": _adapted("twitch-musae"),
    "github-musae": _musae("github-musae"),
    "ogbl-ddi": _ogbl_ddi,
    "hetero-dblp": _typed("hetero-dblp", "pa pc pt", 1),
    "hetero-aminer": _typed("hetero-aminer", "pa pr", 0),
    "facebook100": _adapted("facebook100"),
}
"""Real sets by name. All node types count as one type, and each edge leads both ways."""


def opened(settings: Settings, name: str) -> tuple[oc.Graph, Ids]:
    """The data set of a graph, imported once, and its seeds."""
    folder, out = settings.work / "traces" / name, settings.work / "traces" / f"{name}.outercore"
    if name in WORKLOADS:
        folder = settings.work / name
        make(WORKLOADS[name], folder)
        imported(folder, out, topology_only=True, extra=f"--nodes {WORKLOADS[name].nodes}")
        return oc.open(out), np.load(folder / "splits.npz")["train"]
    if not (out / "graph.json").exists():
        graph = REAL[name](adapters.data_root())
        folder.mkdir(parents=True, exist_ok=True)
        np.save(folder / "edges.npy", np.ascontiguousarray(graph.edges))
        np.save(folder / "seeds.npy", graph.seeds)
        extra = f"--nodes {graph.nodes}"
        imported(folder, out, undirected=True, topology_only=True, extra=extra)
    return oc.open(out), np.load(folder / "seeds.npy")


def recorded(settings: Settings, name: str, batches: int, batch_size: int | None = None) -> Trace:
    """`batches` batches of a graph, after the batches by which the loader ranks rows.

    The default batch size is the largest power of two for which two batches fit into the smallest
    cache.
    """
    graph, seeds = opened(settings, name)
    size = batch_size or _fitting(graph, seeds)
    sampler = _sampler(graph, seeds, size)
    first = [np.sort(batch.n_id) for batch in sampler]
    count = min(max(len(first) // PRESAMPLED_SHARE, LEAST_PRESAMPLED), len(first))
    trace: list[Ids] = []
    while len(trace) < batches:
        for batch in sampler:
            trace.append(np.sort(batch.n_id))
            if len(trace) == batches:
                break
    return Trace(name, graph, seeds, size, trace, name not in WORKLOADS, first[-count:])


def _sampler(graph: oc.Graph, seeds: Ids, size: int) -> oc.NeighborSampler:
    return oc.NeighborSampler(graph, FAN_OUTS, seeds, batch_size=size, shuffle=True, seed=1)


def _fitting(graph: oc.Graph, seeds: Ids) -> int:
    room = graph.num_nodes * CAPACITIES[0] / 2
    size = LARGEST_BATCH
    while size > 1:
        batches = (len(batch.n_id) for batch in islice(_sampler(graph, seeds, size), 8))
        if max(batches) <= room:
            break
        size //= 2
    return size


def write(trace: list[Ids], path: Path) -> Path:
    """Writes a trace for the example `policies` of the crate `outercore-cache`."""
    lengths = [len(rows) for rows in trace]
    words = np.concatenate([[len(trace)], lengths, *trace])
    words.astype("<u8").tofile(path)
    return path


def visits(trace: Trace) -> NDArray[np.float64]:
    """Expected visits of each node in an epoch, as `hotness="visits"` defines them."""
    offsets = trace.graph.array("edges/edge/offsets").astype(np.int64)
    sources = trace.graph.array("edges/edge/sources").astype(np.int64)
    nodes, degree = trace.nodes, np.diff(offsets)
    targets = np.repeat(np.arange(nodes), degree)
    now = np.bincount(trace.seeds, minlength=nodes).astype(float)
    total, came = now.copy(), np.zeros(nodes)
    for fan_out in FAN_OUTS:
        share = np.minimum(fan_out / np.maximum(degree, 1), 1)
        fresh = now[targets]
        if trace.mirrored:
            fresh = np.maximum(fresh - came[sources], 0)
        came = now * share
        now = np.bincount(sources, weights=fresh * share[targets], minlength=nodes)
        total += now
    return total


def rankings(trace: Trace) -> dict[str, NDArray[np.float64]]:
    """Hotness of each row by several rules; a larger value is hotter."""
    graph, nodes = trace.graph, trace.nodes
    jumps = np.bincount(trace.seeds, minlength=nodes).astype(float)
    counted = np.bincount(np.concatenate(trace.presampled), minlength=nodes)
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    return {
        "presample": counted.astype(float),
        "visits": visits(trace),
        "PageRank": oc.pagerank(graph, reverse=True, personalization=jumps, memory="1GiB"),
        "in_degree": np.diff(offsets).astype(float),
        "best": np.bincount(np.concatenate(trace.batches), minlength=nodes).astype(float),
    }
