"""Pairs of nodes without an edge; what is drawn is a function of its place and of nothing else."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.training.config import LinkConfig
from outercore.training.links.adjacency import Adjacency, among, pair_keys

_ROUNDS = 16
"""How often a pair of a batch that has an edge is drawn again; the last draw stays."""
_HELD_OUT_ROUNDS = 200


class Purpose(IntEnum):
    """What draws are for. The numbers are part of every result: keep them."""

    ORDER = 1
    NEGATIVES = 2
    VALID = 3
    TEST = 4


def generator(seed: int, purpose: Purpose, *place: int) -> np.random.Generator:
    """Random numbers for one purpose at one place, such as (epoch, batch)."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence((seed, purpose, *place))))


class Negatives:
    """Draws the negatives of training batches: pairs without an edge to train on."""

    def __init__(self, config: LinkConfig, seed: int, nodes: int, edges: Adjacency) -> None:
        self._config, self._seed, self._nodes, self._edges = config, seed, nodes, edges

    @property
    def ends(self) -> int:
        """Nodes drawn for each edge of a batch."""
        both = 2 if self._config.loss == "binary" else 1
        return both * self._config.negatives

    def draw(self, epoch: int, batch: int, pairs: NDArray[np.int64]) -> NDArray[np.int64]:
        """Negatives int64 [n x negatives, 2] for the edges `pairs` [n, 2] of a batch.

        `binary` draws both ends; `triplet` keeps the source of the edge. A pair that is an edge or
        one node twice is drawn again, up to 16 times: in a dense graph a few may remain.
        """
        random = generator(self._seed, Purpose.NEGATIVES, epoch, batch)
        drawn = np.repeat(pairs, self._config.negatives, axis=0)
        columns = [0, 1] if self._config.loss == "binary" else [1]
        wrong = np.arange(len(drawn))
        for _ in range(_ROUNDS):
            for column in columns:
                drawn[wrong, column] = self._nodes_drawn(random, len(wrong))
            again = drawn[wrong]
            wrong = wrong[self._edges.joined(again) | (again[:, 0] == again[:, 1])]
            if not len(wrong):
                break
        return drawn

    def _nodes_drawn(self, random: np.random.Generator, count: int) -> NDArray[np.int64]:
        if self._config.negative_ends == "degree":
            return self._edges.ends_by_degree(random.random(count))
        return random.integers(self._nodes, size=count)


def held_out_negatives(
    count: int,
    random: np.random.Generator,
    nodes: int,
    edges: Adjacency,
    held_out: NDArray[np.int64],
) -> NDArray[np.int64]:
    """Pairs int64 [count, 2], uniform among those of two nodes that no edge joins.

    `edges` are those of the whole data set; `held_out` the keys of edges that it may not have.

    Errors: `InvalidError` where there are hardly any such pairs.
    """
    found: list[NDArray[np.int64]] = []
    missing = count
    for _ in range(_HELD_OUT_ROUNDS):
        pairs = random.integers(nodes, size=(missing, 2))
        known = edges.joined(pairs) | among(pair_keys(pairs, nodes), held_out)
        found.append(pairs[~known & (pairs[:, 0] != pairs[:, 1])])
        missing -= len(found[-1])
        if not missing:
            return np.concatenate(found)
    raise InvalidError(
        f"negatives: found {count - missing} pairs of nodes without an edge, expected {count}\n"
        "hint: the graph has an edge between nearly every two nodes; there is nothing to predict"
    )
