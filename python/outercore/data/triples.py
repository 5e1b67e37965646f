"""Triples (head, relation, tail): an array of them, or the links of a plain graph; or one part.

To which part a triple belongs is stored nowhere: it is a function of the triple, or of a link's two
nodes in whatever order, and of a seed. The core reads and divides them
(`crates/outercore-embed/src/buckets`). Needs no PyTorch.
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
ASKED: dict[str, tuple[int, int, int]] = {
    "tail": (0, 1, 2),
    "head": (2, 1, 0),
    "relation": (0, 2, 1),
}
"""Columns of a triple by the part that is asked for: two that are asked with, and the answer."""
_CHUNK = 1 << 18
_A_PLACE = 8
"""Bytes that training keeps of a triple for its place in the order of batches, and not yet while
weights are read."""


@dataclass(frozen=True)
class HeldOut:
    """Which triples are held out: equal ones together, whatever else there is."""

    valid: float = 0.0
    """Share that is held out for validation."""
    test: float = 0.0
    """Share that is held out for the test."""
    seed: int = 0


@dataclass(frozen=True)
class Triples:
    """Triples on disk, int64 [count, 3], and perhaps their weights, float32 [count].

    Errors: `InvalidError` for shares that leave nothing to train on, and for weights that are not
    one number a triple; `NotFoundError` for a missing file or topology.
    """

    path: Path
    """A `.npy` file, or the directory of a data set, whose links are meant: (source, 0, target), of
    an undirected graph each once, with the lower node first. With several types the relation is the
    place of the edge type, and nodes are counted type after type."""
    weights: Path | None = None
    """A `.npy` file with those of an array. Links have those of the edge array `weight`."""
    held_out: HeldOut = HeldOut()
    part: Part = "train"
    counted: int | None = field(default=None, compare=False)
    """How many there are, where that is known."""
    key: str | None = None
    """Of the array in its data set; `None` for links."""
    generation: str = field(default="", compare=False)
    """Of links: the state of the data set that their graph has open; empty for the current one."""

    @property
    def name(self) -> str:
        """For messages."""
        if self.key is None:
            return f"{self.part} links of `{self.path}`"
        return self.key if self.held_out == HeldOut() else f"{self.part} triples of `{self.key}`"

    @property
    def loops(self) -> bool:
        """Whether an entity can be its own neighbour; links join two nodes."""
        return self.key is not None

    @cached_property
    def count(self) -> int:
        """How many there are; one pass over all of them where nothing has counted them."""
        if self.counted is not None:
            return self.counted
        return self._core.counts(None)[PARTS.index(self.part)]

    @property
    def undivided(self) -> Triples:
        """With those of other parts, which are read in one pass."""
        return replace(self, held_out=HeldOut(), part="train", counted=None)

    @property
    def weighted(self) -> bool:
        """Whether they have weights."""
        return self._core.weighted()

    def divided(self, held_out: HeldOut, progress: Progress | None = None) -> dict[Part, Triples]:
        """Their parts, those that are empty left out.

        Cost: at most one pass over them, of which `progress` hears.
        """
        whole = replace(self, held_out=held_out)
        counts = whole._core.counts(progress)
        return {
            part: replace(whole, part=part, counted=count)
            for part, count in zip(PARTS, counts, strict=True)
            if count
        }

    def chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.int64]]:
        """All of them in order, int64 [up to `rows`, 3] at a time."""
        reader = self._core.reader()
        while len(some := reader.next(rows)):
            yield some

    def read(self) -> NDArray[np.int64]:
        """All of them, int64 [count, 3]."""
        return fill(np.empty((self.count, 3), np.int64), self.chunks())

    def read_weights(self, progress: Progress | None = None) -> NDArray[np.float32] | None:
        """Their weights, float32 [count], `None` where each counts 1.

        Cost: a pass over the triples; of links a few over the array, which lies by edge id.
        Errors: `InvalidError` for a weight that is negative or not finite.
        """
        return self._core.weights(_A_PLACE * self.count, progress)

    def to_core(self, identity: str = "") -> dict[str, Any]:
        """As the core takes them; `identity` tells those of an array from others."""
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


def fill(found: NDArray[_Number], chunks: Iterable[NDArray[_Number]]) -> NDArray[_Number]:
    """`found` with the rows of the chunks, one after the other.

    Errors: `CorruptError` where they are not as many as it has.
    """
    start = 0
    for some in chunks:
        found[start : start + len(some)] = some[: len(found) - start]
        start += len(some)
    if start != len(found):
        raise CorruptError(
            f"triples: found {start:,}, expected {len(found):,}\nhint: run `outercore check`"
        )
    return found
