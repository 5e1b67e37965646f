"""A plain in-memory neighbour loader: only NumPy, with the graph and all features in memory.

It is the baseline of the out-of-core runs: uniform sampling without replacement, duplicates
removed, batches in PyG's layout. It uses NumPy's random numbers, so its batches differ from those
of all other loaders. For bit-exact comparisons, use `tests/python/reference.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import torch
from torch_geometric.data import Data


@dataclass(frozen=True)
class Csc:
    """CSC: the in-neighbours of `v` are `sources[offsets[v]:offsets[v + 1]]`."""

    offsets: np.ndarray
    sources: np.ndarray

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.offsets) - 1


def csc_of(edges: np.ndarray, nodes: int, undirected: bool = True) -> Csc:
    """The CSC of `edges` [E, 2] (source, target); sources ascend within a column.

    Cost: about 32 bytes per arc while it runs.
    """
    width = np.uint64(nodes)
    keys = edges[:, 1].astype(np.uint64) * width + edges[:, 0].astype(np.uint64)
    if undirected:
        real = edges[:, 0] != edges[:, 1]
        back = edges[real, 0].astype(np.uint64) * width + edges[real, 1].astype(np.uint64)
        keys = np.concatenate([keys, back])
    keys.sort()
    offsets = np.searchsorted(keys, np.arange(nodes + 1, dtype=np.uint64) * width)
    return Csc(offsets.astype(np.int64), (keys % width).astype(np.int64))


def picked_positions(degree: np.ndarray, fan_out: int, rng: np.random.Generator) -> np.ndarray:
    """Positions [n, fan_out] of a uniform choice without replacement; -1 fills short rows.

    Floyd's algorithm on all rows at once; rows of at most `fan_out` neighbours take all.
    """
    picks = np.full((len(degree), fan_out), -1, np.int64)
    few = degree <= fan_out
    every = np.arange(fan_out)
    picks[few] = np.where(every < degree[few, None], every, -1)
    many = np.flatnonzero(~few)
    chosen = np.empty((len(many), fan_out), np.int64)
    for turn in range(fan_out):
        last = degree[many] - fan_out + turn
        draw = rng.integers(0, last + 1)
        taken = (chosen[:, :turn] == draw[:, None]).any(axis=1)
        chosen[:, turn] = np.where(taken, last, draw)
    picks[many] = chosen
    return picks


@dataclass
class MemoryLoader:
    """Mini-batches of a node set in PyG's layout, shuffled by (seed, epoch)."""

    graph: Csc
    x: np.ndarray
    y: np.ndarray
    input_nodes: np.ndarray
    num_neighbors: list[int]
    batch_size: int
    seed: int = 0
    shuffle: bool = True
    epoch: int = 0
    _local: np.ndarray = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._local = np.full(self.graph.nodes, -1, np.int64)

    def __len__(self) -> int:
        return -(-len(self.input_nodes) // self.batch_size)

    def __iter__(self) -> Iterator[Data]:
        rng = np.random.default_rng((self.seed, self.epoch))
        order = rng.permutation(len(self.input_nodes)) if self.shuffle else None
        nodes = self.input_nodes if order is None else self.input_nodes[order]
        for begin in range(0, len(nodes), self.batch_size):
            yield self._batch(nodes[begin : begin + self.batch_size], rng)
        self.epoch += 1

    def sample(
        self, seeds: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[int], list[int]]:
        """Nodes, local sources, local targets, and counts of nodes and edges by hop."""
        local, graph = self._local, self.graph
        local[seeds] = np.arange(len(seeds))
        nodes, known, frontier = [seeds], len(seeds), seeds
        sources, targets, node_counts, edge_counts = [], [], [len(seeds)], []
        for fan_out in self.num_neighbors:
            begin = graph.offsets[frontier]
            degree = graph.offsets[frontier + 1] - begin
            width = int(degree.max(initial=0)) if fan_out < 0 else fan_out
            if fan_out < 0:
                target = np.repeat(local[frontier], degree)
                inside = np.arange(len(target)) - np.repeat(np.cumsum(degree) - degree, degree)
                source = graph.sources[np.repeat(begin, degree) + inside]
            else:
                picks = picked_positions(degree, width, rng)
                row, column = np.nonzero(picks >= 0)
                target = local[frontier[row]]
                source = graph.sources[begin[row] + picks[row, column]]
            fresh = np.unique(source[local[source] < 0])
            local[fresh] = known + np.arange(len(fresh))
            known += len(fresh)
            nodes.append(fresh)
            sources.append(local[source])
            targets.append(target)
            node_counts.append(len(fresh))
            edge_counts.append(len(source))
            frontier = fresh
        everyone = np.concatenate(nodes)
        local[everyone] = -1
        return everyone, np.concatenate(sources), np.concatenate(targets), node_counts, edge_counts

    def _batch(self, seeds: np.ndarray, rng: np.random.Generator) -> Data:
        nodes, source, target, node_counts, edge_counts = self.sample(seeds, rng)
        return Data(
            x=torch.from_numpy(self.x[nodes]),
            y=torch.from_numpy(self.y[nodes]),
            edge_index=torch.from_numpy(np.stack([source, target])),
            n_id=torch.from_numpy(nodes),
            batch_size=len(seeds),
            num_sampled_nodes=node_counts,
            num_sampled_edges=edge_counts,
        )
