"""Graph algorithms written from their definitions, over lists of arcs; only for small graphs.

An edge of an undirected graph is two arcs, a loop is one.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import outercore as oc
from outercore.base.native import Importer


@dataclass(frozen=True)
class Arcs:
    """Arcs of a graph, in the order of the imported edges."""

    nodes: int
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray
    undirected: bool

    def lists(self, direction: str = "out") -> list[list[tuple[int, float]]]:
        """Neighbours of each node with weights, over arcs `out` of it, `in` to it, or `both`."""
        lists: list[list[tuple[int, float]]] = [[] for _ in range(self.nodes)]
        for source, target, weight in zip(
            self.source.tolist(), self.target.tolist(), self.weight.tolist(), strict=True
        ):
            if direction in ("out", "both"):
                lists[source].append((target, weight))
            if direction in ("in", "both"):
                lists[target].append((source, weight))
        return lists

    def neighbours(self) -> list[list[int]]:
        """Neighbours in either direction; every edge is in the lists of both its ends once."""
        lists = self.lists("out" if self.undirected else "both")
        return [[other for other, _ in pairs] for pairs in lists]


def write(
    root: Path,
    nodes: int,
    source: Sequence[int] | np.ndarray,
    target: Sequence[int] | np.ndarray,
    *,
    undirected: bool = False,
    weight: np.ndarray | None = None,
) -> tuple[oc.Graph, Arcs]:
    """A data set of these edges, and its arcs; `weight` becomes the edge array of this name."""
    source, target = np.asarray(source, np.int64), np.asarray(target, np.int64)
    importer = Importer(
        root, {"memory": 64 << 20, "nodes": nodes, "undirected": undirected}, lambda *_: None
    )
    importer.push_edges(source, target)
    importer.finish()
    graph = oc.open(root)
    if weight is not None:
        graph.add_edge_array("weight", weight)
    weight = np.ones(len(source)) if weight is None else weight.astype(np.float64)
    if undirected:
        back = source != target
        source, target, weight = (
            np.concatenate([source, target[back]]),
            np.concatenate([target, source[back]]),
            np.concatenate([weight, weight[back]]),
        )
    return graph, Arcs(nodes, source, target, weight, undirected)


def pagerank(
    arcs: Arcs,
    damping: float,
    iterations: int,
    *,
    teleport: np.ndarray | None = None,
    weighted: bool = False,
    reverse: bool = False,
) -> np.ndarray:
    """Power iteration; the rank of nodes without out-arcs flows to the teleport vector."""
    source, target = (arcs.target, arcs.source) if reverse else (arcs.source, arcs.target)
    weight = arcs.weight if weighted else np.ones(len(source))
    if teleport is None:
        teleport = np.ones(arcs.nodes)
    teleport = teleport / teleport.sum()
    strength = np.bincount(source, weight, arcs.nodes)
    ranks = np.full(arcs.nodes, 1.0 / arcs.nodes)
    for _ in range(iterations):
        flowing = np.where(strength > 0, ranks, 0.0)
        share = np.divide(flowing, strength, out=np.zeros(arcs.nodes), where=strength > 0)
        sums = np.bincount(target, weight * share[source], arcs.nodes)
        stuck = ranks[strength == 0].sum()
        ranks = (1 - damping) * teleport + damping * (sums + stuck * teleport)
    return ranks


def bfs(arcs: Arcs, source: int, direction: str = "out") -> np.ndarray:
    """Levels; -1 for unreachable nodes."""
    lists = arcs.lists(direction)
    levels = np.full(arcs.nodes, -1, np.int32)
    levels[source] = 0
    frontier, level = [source], 0
    while frontier:
        level += 1
        reached = {other for node in frontier for other, _ in lists[node] if levels[other] < 0}
        for node in reached:
            levels[node] = level
        frontier = sorted(reached)
    return levels


def sssp(arcs: Arcs, source: int, direction: str = "out") -> np.ndarray:
    """Distances by Dijkstra; infinity for unreachable nodes."""
    lists = arcs.lists(direction)
    distances = np.full(arcs.nodes, np.inf)
    distances[source] = 0.0
    heap = [(0.0, source)]
    while heap:
        distance, node = heapq.heappop(heap)
        if distance > distances[node]:
            continue
        for other, weight in lists[node]:
            if distance + weight < distances[other]:
                distances[other] = distance + weight
                heapq.heappush(heap, (distance + weight, other))
    return distances


def wcc(arcs: Arcs) -> np.ndarray:
    """The smallest node of each node's component."""
    components = np.full(arcs.nodes, -1, np.int64)
    for node in range(arcs.nodes):
        if components[node] < 0:
            components[bfs(arcs, node, "both") >= 0] = node
    return components


def scc(arcs: Arcs) -> np.ndarray:
    """The smallest node of each node's strongly connected component."""
    components = np.full(arcs.nodes, -1, np.int64)
    for node in range(arcs.nodes):
        if components[node] < 0:
            components[(bfs(arcs, node, "out") >= 0) & (bfs(arcs, node, "in") >= 0)] = node
    return components


def radii(arcs: Arcs, sources: Sequence[int], direction: str = "out") -> np.ndarray:
    """The largest distance from the sources that reach a node; -1 if none does."""
    return np.max([bfs(arcs, source, direction) for source in sources], axis=0)


def betweenness(arcs: Arcs, sources: Sequence[int], *, normalized: bool) -> np.ndarray:
    """Brandes' algorithm, over paths from the sources; parallel arcs are different paths."""
    lists = arcs.lists("out")
    total = np.zeros(arcs.nodes)
    for source in sources:
        levels = bfs(arcs, source)
        order = np.argsort(levels, kind="stable")
        order = order[levels[order] >= 0]
        paths, credit = np.zeros(arcs.nodes), np.zeros(arcs.nodes)
        paths[source] = 1.0
        for node in order:
            for other, _ in lists[node]:
                if levels[other] == levels[node] + 1:
                    paths[other] += paths[node]
        for node in order[::-1]:
            for other, _ in lists[node]:
                if levels[other] == levels[node] + 1:
                    credit[node] += paths[node] / paths[other] * (1.0 + credit[other])
        credit[source] = 0.0
        total += credit
    n = arcs.nodes
    if normalized:
        scale = 1.0 / ((n - 1) * (n - 2)) if n > 2 else 1.0
    else:
        scale = 0.5 if arcs.undirected else 1.0
    return total * scale


def kcore(arcs: Arcs) -> np.ndarray:
    """Core numbers, by removing nodes with fewer than k neighbours one after the other."""
    lists = [
        [other for other in neighbours if other != node]
        for node, neighbours in enumerate(arcs.neighbours())
    ]
    cores = np.zeros(arcs.nodes, np.int64)
    here = [True] * arcs.nodes
    k = 0
    while any(here):
        k += 1
        while True:
            gone = [
                node
                for node in range(arcs.nodes)
                if here[node] and sum(here[other] for other in lists[node]) < k
            ]
            if not gone:
                break
            for node in gone:
                here[node] = False
        cores[np.array(here)] = k
    return cores


def label_propagation(arcs: Arcs, iterations: int) -> np.ndarray:
    """Synchronous label propagation: most frequent label of the neighbours, ties the smallest."""
    lists = arcs.neighbours()
    labels = list(range(arcs.nodes))
    for _ in range(iterations):
        labels = [
            min(
                (-count, label)
                for label, count in Counter(labels[other] for other in neighbours).items()
            )[1]
            if neighbours
            else labels[node]
            for node, neighbours in enumerate(lists)
        ]
    return np.array(labels, np.int64)


def triangles(arcs: Arcs) -> np.ndarray:
    """Triangles of each node: half its closed walks of length three, in the simple graph."""
    matrix = np.zeros((arcs.nodes, arcs.nodes), np.int64)
    matrix[arcs.source, arcs.target] = 1
    matrix |= matrix.T
    np.fill_diagonal(matrix, 0)
    return np.diag(matrix @ matrix @ matrix) // 2


def degrees(arcs: Arcs, which: str) -> np.ndarray:
    """Arcs into each node, out of it, or both; an undirected edge counts once."""
    into = np.bincount(arcs.target, minlength=arcs.nodes)
    out = np.bincount(arcs.source, minlength=arcs.nodes)
    return {"in": into, "out": out, "total": into if arcs.undirected else into + out}[which]
