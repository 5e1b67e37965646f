"""The nodes with the largest values, or the largest components, of a result that may be mapped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.analytics.running import COMPONENTS
from outercore.files import large_arrays

_LEAST_COUNTS = 1 << 20
"""Bytes in which sizes of components are counted, however small the budget."""


def largest(algorithm: str, values: NDArray[Any], top: int, memory: int) -> list[tuple[int, float]]:
    """The nodes with the largest finite values, or the components with the most nodes.

    Equals come by their ids. Works in blocks: the result is all that a budget of `memory` bytes has
    room for.
    """
    if top <= 0:
        return []
    best = _Best(top)
    if algorithm in COMPONENTS:
        for first, sizes in _component_sizes(values, memory):
            best.offer(first, sizes, sizes > 0)
    else:
        for first, block in large_arrays.blocks(values):
            best.offer(first, block, np.isfinite(block))
    return best.pairs()


def _component_sizes(values: NDArray[Any], memory: int) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """How many nodes have each name, for as many names at a time as half of what `memory` leaves
    beside the values has room for; goes through the values for each of these windows."""
    resident = 0 if isinstance(values, np.memmap) else values.nbytes
    window = max(memory - resident, 2 * _LEAST_COUNTS) // 2 // 4
    for first in range(0, len(values), window):
        sizes = np.zeros(min(window, len(values) - first), np.uint32)
        for _, block in large_arrays.blocks(values):
            inside = block[(block >= first) & (block < first + len(sizes))]
            names, nodes = np.unique(inside, return_counts=True)
            sizes[names - first] += nodes.astype(np.uint32)
        for offset, block in large_arrays.blocks(sizes):
            yield first + offset, block


class _Best:
    """The largest of some values that come in blocks, by ascending ids."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._ids = np.empty(0, np.int64)
        self._values: NDArray[Any] = np.empty(0)

    def offer(self, first: int, block: NDArray[Any], wanted: NDArray[np.bool_]) -> None:
        """The values of the ids from `first` on, and which of them count."""
        if len(self._values) == self._top:
            # Of equals the smaller ids, which are there already.
            wanted &= block > self._values[-1]
        places = np.flatnonzero(wanted)
        before = self._values.astype(block.dtype)
        ids = np.concatenate([self._ids, first + places])
        values = np.concatenate([before, block[places]])
        order = np.lexsort((ids, -values.astype(np.float64)))[: self._top]
        self._ids, self._values = ids[order], values[order]

    def pairs(self) -> list[tuple[int, float]]:
        """Ids and values, the largest first."""
        found = zip(self._ids, self._values, strict=True)
        return [(int(node), value.item()) for node, value in found]
