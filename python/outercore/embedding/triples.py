"""Triples on disk, and the parts that they are divided into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from outercore.embedding.observe import Preparing
from outercore.errors import CorruptError, NotFoundError

_Number = TypeVar("_Number", bound=np.generic)
Part = Literal["train", "valid", "test"]
PARTS: tuple[Part, ...] = ("train", "valid", "test")
_CHUNK = 1 << 18


@dataclass(frozen=True)
class Triples:
    """An array of triples on disk, int64 [count, 3], and perhaps weights, float32 [count]."""

    loops: ClassVar[bool] = True
    """Whether an entity can be its own neighbour."""
    name: str
    path: Path
    offset: int
    count: int
    weights: Path | None = None
    weights_offset: int = 0

    @property
    def undivided(self) -> Triples:
        """With those of other parts that are stored together with them."""
        return self

    @property
    def weighted(self) -> bool:
        """Whether they have weights."""
        return self.weights is not None

    def read(self) -> NDArray[np.int64]:
        """All of them, [count, 3]."""
        return _rows(self.path, self.offset, np.dtype(np.int64), 3 * self.count).reshape(-1, 3)

    def read_weights(self, told: Preparing | None = None) -> NDArray[np.float32] | None:
        """Their weights, `None` where each counts 1."""
        if self.weights is None:
            return None
        return _rows(self.weights, self.weights_offset, np.dtype(np.float32), self.count)

    def chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.int64]]:
        """All of them in order, so many at a time."""
        for start in range(0, self.count, rows):
            some = min(rows, self.count - start)
            offset = self.offset + 24 * start
            yield _rows(self.path, offset, np.dtype(np.int64), 3 * some).reshape(-1, 3)

    def weight_chunks(self, rows: int = _CHUNK) -> Iterator[NDArray[np.float32]]:
        """Their weights in the same pieces; nothing where each counts 1."""
        if self.weights is None:
            return
        for start in range(0, self.count, rows):
            offset = self.weights_offset + 4 * start
            some = min(rows, self.count - start)
            yield _rows(self.weights, offset, np.dtype(np.float32), some)


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


def _rows(path: Path, offset: int, dtype: np.dtype[Any], count: int) -> NDArray[Any]:
    try:
        found = np.fromfile(path, dtype, count, offset=offset)
    except OSError as error:
        raise NotFoundError(f"array `{path}`: {error.strerror}") from error
    if len(found) != count:
        raise CorruptError(
            f"array `{path}`: expected {count * dtype.itemsize:,} bytes from byte {offset}, "
            f"found {found.nbytes:,}\nhint: run `outercore check`"
        )
    return found
