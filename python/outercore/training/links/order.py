"""In which order an epoch visits the edges: a pure function of seed and epoch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outercore.training.links.negatives import Purpose, generator

_BLOCK = 1 << 10
"""Consecutive edges that stay in one pool: reads of the file are this long, or longer."""
_POOL_ENDS = 1 << 20
"""Ends of edges and negatives in one pool, about."""


@dataclass(frozen=True)
class EpochOrder:
    """Edges in pools, pools in batches.

    Blocks of consecutive edges are shuffled, then the edges within each pool of several hundred
    blocks. A graph that fits one pool is shuffled perfectly. A batch lies within one pool.
    """

    edges: int
    batch_size: int
    """Edges of a batch."""
    ends: int
    """Nodes for each edge of a batch: its own two and those of its negatives."""
    seed: int

    @property
    def batches(self) -> int:
        """Batches of an epoch."""
        return -(-self.edges // self.batch_size)

    @property
    def pool_batches(self) -> int:
        """Batches of a pool, the last one of an epoch excepted."""
        return max(1, _POOL_ENDS // (self.ends * self.batch_size))

    @property
    def pools(self) -> int:
        """Pools of an epoch."""
        return -(-self.batches // self.pool_batches)

    @property
    def pool_bytes(self) -> int:
        """Memory for the ends of a pool: as edges, as seeds, and where they are among the seeds."""
        edges = min(self.edges, self.pool_batches * self.batch_size)
        return 4 * 8 * self.ends * edges

    def pool(self, epoch: int, number: int) -> NDArray[np.int64]:
        """Places of the edges of a pool, int64 [edges], in the order in which they are visited."""
        first = number * self.pool_batches * self.batch_size
        last = min(first + self.pool_batches * self.batch_size, self.edges)
        blocks = -(-self.edges // _BLOCK)
        shuffled = generator(self.seed, Purpose.ORDER, epoch).permutation(blocks)
        sizes = np.full(blocks, _BLOCK)
        sizes[shuffled == blocks - 1] = self.edges - (blocks - 1) * _BLOCK
        stops = np.cumsum(sizes)
        place = np.arange(first, last)
        block = np.searchsorted(stops, place, side="right")
        within = place - (stops[block] - sizes[block])
        edges = shuffled[block] * _BLOCK + within
        return generator(self.seed, Purpose.ORDER, epoch, number + 1).permutation(edges)
