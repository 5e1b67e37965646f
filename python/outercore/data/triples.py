"""Triples (head, relation, tail): an array of triples or the links of a graph, or a part of them.

The parts are `train`, `valid` and `test`. The part of a triple is not stored. It is a function of a
seed and of the triple, or of a link's two nodes in any order. The core reads and divides triples
(`crates/outercore-embed/src/buckets`). Does not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.base.native import Progress
from outercore.errors import CorruptError

_Number = TypeVar("_Number", bound=np.generic)
Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
QUESTION_COLUMNS: dict[str, tuple[int, int, int]] = {
    "tail": (0, 1, 2),
    "head": (2, 1, 0),
    "relation": (0, 2, 1),
}
"""Columns of a triple by the part to predict: two known columns, and the predicted column."""
_CHUNK = 1 << 18
_A_PLACE = 8
"""Bytes per triple for the order of batches in training. They are free while weights are read."""


@dataclass(frozen=True)
class HeldOut:
    """The shares of triples to hold out.

    Equal triples are in the same part. The part of a triple does not depend on other triples.
    """

    valid: float = 0.0
    """Share of the triples for validation."""
    test: float = 0.0
    """Share of the triples for the test."""
    seed: int = 0


@dataclass(frozen=True)
class Triples:
    """Triples on disk, int64 [count, 3], and optional weights, float32 [count].

    Errors: `InvalidError` if the shares leave no triples to train on, or if weights are not one
    number per triple; `NotFoundError` for a missing file or topology.
    """

    path: Path
    """A `.npy` file of triples, or the directory of a data set, for its links: (source, 0, target).
    Each link of an undirected graph counts once, with the lower node first. With several types, the
    relation is the index of the edge type, and nodes are numbered type after type."""
    weights: Path | None = None
    """A `.npy` file with the weights of the array; links use the edge array `weight`."""
    held_out: HeldOut = HeldOut()
    part: Part = "train"
    counted: int | None = field(default=None, compare=False)
    """Number of triples, if it is known."""
    key: str | None = None
    """Key of the array in its data set; `None` for links."""
    generation: str = field(default="", compare=False)
    """For links: the opened state of the data set; empty for the newest state."""

    @property
    def name(self) -> str:
        """The name of the triples in messages."""
        if self.key is None:
            return f"{self.part} links of `{self.path}`"
        return self.key if self.held_out == HeldOut() else f"{self.part} triples of `{self.key}`"

    @property
    def loops(self) -> bool:
        """Whether an entity can be its own neighbour. False for links, which join two nodes."""
        return self.key is not None

    @cached_property
    def count(self) -> int:
        """Number of triples.

        Cost: one pass over all triples, unless the number is known.
        """
        if self.counted is not None:
            return self.counted
        return self._core.counts(None)[PARTS.index(self.part)]

    @property
    def undivided(self) -> Triples:
        """The triples of all parts, to read them in one pass."""
        return replace(self, held_out=HeldOut(), part="train", counted=None)

    @property
    def weighted(self) -> bool:
        """Whether the triples have weights."""
        return self._core.weighted()

    def divided(self, held_out: HeldOut, progress: Progress | None = None) -> dict[Part, Triples]:
        """Divides the triples into parts. Empty parts are left out.

        Cost: at most one pass over the triples, reported to `progress`.
        """
        whole = replace(self, held_out=held_out)
        counts = whole._core.counts(progress)
        return {
            part: replace(whole, part=part, counted=count)
            for part, count in zip(PARTS, counts, strict=True)
            if count
        }

    def chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.int64]]:
        """All triples in order, in chunks of int64 [up to `rows`, 3]."""
        reader = self._core.reader()
        while len(chunk := reader.next(rows)):
            yield chunk

    def read(self) -> NDArray[np.int64]:
        """All triples, int64 [count, 3]."""
        return fill(np.empty((self.count, 3), np.int64), self.chunks())

    def read_weights(self, progress: Progress | None = None) -> NDArray[np.float32] | None:
        """The weights, float32 [count]; `None` if the triples have no weights.

        Cost: one pass over the triples. For links, a few passes over the array, which is ordered by
        edge id.
        Errors: `InvalidError` for a weight that is negative or not finite.
        """
        return self._core.weights(_A_PLACE * self.count, progress)

    def to_core(self, identity: str = "") -> dict[str, Any]:
        """The triples in the form of the core. `identity` is a text that changes with the array."""
        path = str(self.path.absolute())
        weights = None if self.weights is None else str(self.weights.absolute())
        array = {"array": {"path": path, "weights": weights}}
        graph = {"graph": {"path": path, "generation": self.generation}}
        return {
            "of": graph if self.key is None else array,
            "held_out": asdict(self.held_out),
            "part": self.part,
            "count": self.counted,
            "identity": f"{identity or path} {self.part} of {self.held_out}",
        }

    @cached_property
    def _core(self) -> _core.TripleSource:
        return _core.TripleSource(self.to_core())


def fill(rows: NDArray[_Number], chunks: Iterable[NDArray[_Number]]) -> NDArray[_Number]:
    """Copies the rows of the chunks into `rows`, and returns it.

    Errors: `CorruptError` if the number of rows differs.
    """
    start = 0
    for chunk in chunks:
        rows[start : start + len(chunk)] = chunk[: len(rows) - start]
        start += len(chunk)
    if start != len(rows):
        raise CorruptError(
            f"triples: found {start:,}, expected {len(rows):,}\nhint: run `outercore check`"
        )
    return rows
