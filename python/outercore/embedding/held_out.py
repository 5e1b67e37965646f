"""Triples of a knowledge graph that brings none for validation or test: some of them are held out.

Whether a triple is held out is a function of its three ids and a seed, so nothing is stored. Needs
no PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from outercore.embedding.observe import Preparing, watched
from outercore.embedding.triples import PARTS, Part, Triples, fill

_CHUNK = 1 << 16
_STREAM = int.from_bytes(b"held out", "big")
"""Tells these draws from others of the same seed."""


@dataclass(frozen=True)
class Draw:
    """Which triples are held out: equal ones together, whatever else there is.

    Example:
        >>> triples = np.array([[7, 0, 3]] * 2 + [[head, 1, 2] for head in range(1000)])
        >>> parts = Draw(valid=0.1, test=0.2, seed=4).parts_of(triples)
        >>> bool(parts[0] == parts[1])
        True
        >>> [bool(np.mean(parts == number).round(1) == share) for number, share in enumerate(
        ...     [0.7, 0.1, 0.2])]
        [True, True, True]
    """

    valid: float
    """Share of the triples that is held out for validation."""
    test: float
    """Share of the triples that is held out for the test."""
    seed: int

    def parts_of(self, triples: NDArray[np.int64]) -> NDArray[np.uint8]:
        """The place in `PARTS` of each triple's part. `triples` int64 [m, 3]."""
        words = np.full(len(triples), self.seed ^ _STREAM, np.uint64)
        for column in triples.T:
            words = _mix(words) ^ column.astype(np.uint64)
        # As many bits as a float64 holds: 0 or more, less than 1.
        draws = (_mix(words) >> np.uint64(11)) * 2.0**-53
        parts = np.full(len(triples), PARTS.index("train"), np.uint8)
        parts[draws < self.test + self.valid] = PARTS.index("valid")
        parts[draws < self.test] = PARTS.index("test")
        return parts


@dataclass(frozen=True)
class TriplePart:
    """One part of an array of triples that is divided by a draw."""

    loops: ClassVar[bool] = True
    of: Triples
    part: Part
    draw: Draw
    count: int
    """How many of the array are in the part."""

    @property
    def name(self) -> str:
        """For messages."""
        return f"{self.part} triples of `{self.of.name}`"

    @property
    def undivided(self) -> Triples:
        """With those of other parts that are stored together with them."""
        return self.of

    @property
    def weighted(self) -> bool:
        """Whether they have weights."""
        return self.of.weighted

    def chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.int64]]:
        """All of them in order, int64 [up to `rows`, 3] at a time."""
        for triples in self.of.chunks(rows):
            yield triples[self._mine(triples)]

    def weight_chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.float32]]:
        """Their weights in the same pieces; nothing where each counts 1."""
        weights = self.of.weight_chunks(rows)
        # The weights first: where there are none, no triples are read.
        for some, triples in zip(weights, self.of.chunks(rows), strict=False):
            yield some[self._mine(triples)]

    def read(self) -> NDArray[np.int64]:
        """All of them, int64 [count, 3]."""
        return fill(np.empty((self.count, 3), np.int64), self.chunks())

    def read_weights(self, told: Preparing | None = None) -> NDArray[np.float32] | None:
        """Their weights, `None` where each counts 1."""
        if not self.weighted:
            return None
        weights = watched(self.weight_chunks(), "read weights", self.count, told)
        return fill(np.empty(self.count, np.float32), weights)

    def to_core(self) -> dict[str, Any]:
        """As a part of the array's triples."""
        held_out = {"valid": self.draw.valid, "test": self.draw.test, "seed": self.draw.seed}
        return {"held_out": held_out, "part": self.part, "count": self.count}

    def _mine(self, triples: NDArray[np.int64]) -> NDArray[np.bool_]:
        mine: NDArray[np.bool_] = self.draw.parts_of(triples) == PARTS.index(self.part)
        return mine


def divided(triples: Triples, draw: Draw, told: Preparing | None = None) -> dict[Part, TriplePart]:
    """The parts that are not empty.

    Cost: one read of the triples.
    """
    counts = np.zeros(len(PARTS), np.int64)
    for chunk in watched(triples.chunks(_CHUNK), "hold out triples", triples.count, told):
        counts += np.bincount(draw.parts_of(chunk), minlength=len(PARTS))
    return {
        part: TriplePart(triples, part, draw, count)
        for part, count in zip(PARTS, counts.tolist(), strict=True)
        if count
    }


def _mix(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64: a bijection in which every bit depends on all."""
    words = words + np.uint64(0x9E37_79B9_7F4A_7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58_476D_1CE4_E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D0_49BB_1331_11EB)
    return words ^ (words >> np.uint64(31))


@dataclass(frozen=True)
class ArraySource:
    """Triples in a `.npy` file, int64 [m, 3], and perhaps weights in another, float32 [m]."""

    path: Path
    weights: Path | None = None
    identity: str = ""
    """What tells them from other triples, the data set's fingerprint for instance."""
    part: TriplePart | None = None
    """Of which only these are meant."""

    def to_core(self) -> dict[str, Any]:
        """As the core takes it."""
        weights = None if self.weights is None else str(self.weights.absolute())
        path = str(self.path.absolute())
        part = None if self.part is None else self.part.to_core()
        identity = self.identity or path
        return {"array": {"path": path, "weights": weights, "identity": identity, "part": part}}
