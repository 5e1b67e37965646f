"""The links of a plain graph as triples of one relation; those held out are stored nowhere.

Whether a link is held out is a function of its two nodes, whatever their order, and a seed. The
edge array `weight`, where the graph has one, gives the links their weights.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.embedding.observe import Preparing
from outercore.embedding.triples import PARTS, Part, fill

_CHUNK = 1 << 18
_A_PLACE = 8
"""Bytes that training keeps of a link for its place in the order of batches, and not yet while
links are read."""


@dataclass(frozen=True)
class Links:
    """Links of a part, (source, 0, target); of an undirected graph each once, lower node first.

    Errors: `InvalidError` for shares that leave nothing to train on, and for weights that are not
    one number a row of the edge list; `NotFoundError` for a data set without a topology.
    """

    loops: ClassVar[bool] = False
    """Links join two nodes."""
    path: Path
    """The data set."""
    part: Part = "train"
    valid: float = 0.0
    """Share of the links that is held out for validation."""
    test: float = 0.0
    """Share of the links that is held out for the test."""
    seed: int = 0
    counted: int | None = field(default=None, compare=False)
    """How many there are, if somebody knows."""

    @classmethod
    def divided(
        cls, path: Path, valid: float, test: float, seed: int, told: Preparing | None = None
    ) -> dict[Part, Links]:
        """Those of every part.

        Cost: at most one pass over the graph, to count them, which `told` hears of.
        """
        links = cls(path, "train", valid, test, seed)
        counts = links._core.counts(told)
        return {
            part: replace(links, part=part, counted=count)
            for part, count in zip(PARTS, counts, strict=True)
        }

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.part} links of `{self.path}`"

    @cached_property
    def _core(self) -> _core.GraphLinks:
        return _core.GraphLinks(json.dumps(self._described()))

    @cached_property
    def count(self) -> int:
        """How many there are; one pass over the graph where nobody has told."""
        if self.counted is not None:
            return self.counted
        return self._core.counts(None)[PARTS.index(self.part)]

    @property
    def undivided(self) -> Links:
        """With those of other parts, read in one pass."""
        return Links(self.path)

    @property
    def weighted(self) -> bool:
        """Whether they have weights."""
        return self._core.weighted()

    def chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.int64]]:
        """All of them in order, int64 [up to `rows`, 3] at a time."""
        reader = self._core.reader()
        while len(some := reader.next(rows)):
            yield some

    def read(self) -> NDArray[np.int64]:
        """All of them, int64 [count, 3]."""
        return fill(np.empty((self.count, 3), np.int64), self.chunks())

    def read_weights(self, told: Preparing | None = None) -> NDArray[np.float32] | None:
        """Their weights, float32 [count], `None` where each counts 1.

        Cost: a pass over the graph, and a few over the array, which lies by edge id.
        Errors: `InvalidError` for a weight that is negative or not finite.
        """
        return self._core.weights(self.count, _A_PLACE * self.count, told)

    def to_core(self) -> dict[str, Any]:
        """As a source of a store of partitions."""
        return {"graph": {"links": self._described(), "count": self.count}}

    def _described(self) -> dict[str, Any]:
        held_out = {"valid": self.valid, "test": self.test, "seed": self.seed}
        return {"path": str(Path(self.path).absolute()), "held_out": held_out, "part": self.part}
