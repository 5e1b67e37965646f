"""The names of entities and relations, looked up where they lie."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.likeness import hint_like
from outercore.mapped import mapped

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

_Key = tuple[int, bytes]
_COMPARED = 20_000
"""Names that are all compared with a mistyped one, which takes a third of a second."""
_LETTERS = 2
"""Letters by which names may be longer or shorter than a mistyped one."""
_BESIDE = 1000
"""Names on either side of its place that are compared with it, for each length."""


class Names:
    """A dictionary on disk: names by id, ids by name.

    Cost: maps the arrays; a name takes two places of them, an id about ``2 log2 n``.
    """

    def __init__(self, root: Path, arrays: dict[str, dict[str, Any]], kind: str) -> None:
        """The names of ``kind`` (``entity``, ``relation``) in the data set in ``root``.

        Raises:
            NotFoundError: the data set has no such names.
        """
        self._kind = kind
        keys = [f"names/{kind}.{part}" for part in ("offsets", "bytes", "order")]
        for key in keys[:2]:
            if key not in arrays:
                raise NotFoundError(
                    f"array `{key}` is not in the data set `{root}`"
                    "\nhint: names come from `outercore import --triples`"
                )
        self._offsets = mapped(root, arrays[keys[0]])
        self._bytes = mapped(root, arrays[keys[1]])
        # Where ids are not in the order of the names, this says which are.
        self._order = mapped(root, arrays[keys[2]]) if keys[2] in arrays else None
        if len(self._offsets) == 0:
            raise CorruptError(f"array `{keys[0]}` is empty, expected at least one offset")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        return f"Names({len(self):,} of kind {self._kind!r})"

    def names(self, ids: ArrayLike | None = None) -> list[str]:
        """The names of ``ids``, in their order; of all without it.

        Raises:
            InvalidError: an id that is none; the message names the first.
        """
        if ids is None:
            return [self._name(number).decode() for number in range(len(self))]
        wanted = np.asarray(ids)
        if wanted.size and wanted.dtype.kind not in "iu":
            raise InvalidError(f"{self._kind} ids: type {wanted.dtype}, expected integers")
        wanted = wanted.reshape(-1).astype(np.int64)
        bad = wanted[(wanted < 0) | (wanted >= len(self))]
        if bad.size:
            raise InvalidError(f"{self._kind} {bad[0]}: expected 0 to {len(self) - 1}")
        return [self._name(number).decode() for number in wanted.tolist()]

    def block(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The names of the ids ``start`` to ``stop``: where each ends, and the bytes of all.

        Shapes: offsets int64 [stop - start + 1], the first is 0; bytes uint8.

        Raises:
            CorruptError: offsets that contradict each other.
        """
        offsets = np.array(self._offsets[start : stop + 1], np.int64)
        wrong = (np.diff(offsets) < 0) | (offsets[1:] > len(self._bytes)) | (offsets[:-1] < 0)
        if wrong.any():
            # Reports the row and what is wrong with it.
            self._name(start + int(np.flatnonzero(wrong)[0]))
        return offsets - offsets[0], np.array(self._bytes[offsets[0] : offsets[-1]])

    def ranked(self, start: int, stop: int) -> NDArray[np.int64]:
        """The ids at the places ``start`` to ``stop`` in the order of names."""
        if self._order is None:
            return np.arange(start, stop)
        ids = np.array(self._order[start:stop]).astype(np.int64)
        bad = ids[(ids < 0) | (ids >= len(self))]
        if bad.size:
            raise CorruptError(f"array `names/{self._kind}.order`: {bad[0]} is no id")
        return ids

    def place(self, name: bytes) -> int:
        """Where ``name`` is in the order of names, or would be."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if _key(self._name(self._ranked(middle))) < _key(name):
                low = middle + 1
            else:
                high = middle
        return low

    def id(self, name: str | int) -> int:
        """The id of a name.

        Raises:
            NotFoundError: no such name.
        """
        number = self.find(name)
        if number is None:
            guess = hint_like(str(name), self._near(str(name))) or self._example()
            raise NotFoundError(f"{self._kind} `{name}` is not in the data set{guess}")
        return number

    def _example(self) -> str:
        return f"\nhint: a name there is `{self.names([0])[0]}`" if len(self) else ""

    def _near(self, name: str) -> list[str]:
        """Names to compare a mistyped one with: all, or those near it in the order of names.

        That order is by length, then by letters. So a letter too many or too few is found among
        the names of another length that begin alike.
        """
        if len(self) <= _COMPARED:
            return self.names()
        typed, ranks = name.encode(), set[int]()
        for length in range(max(len(typed) - _LETTERS, 1), len(typed) + _LETTERS + 1):
            place = self.place(typed[:length].ljust(length, b"~"))
            ranks.update(range(max(place - _BESIDE, 0), min(place + _BESIDE, len(self))))
        return [self._name(self._ranked(rank)).decode() for rank in sorted(ranks)]

    def ids(self, names: Iterable[str | int]) -> NDArray[np.int64]:
        """The ids of names, in their order.

        Raises:
            NotFoundError: a name that is not there; the message names the first.
        """
        return np.fromiter((self.id(name) for name in names), np.int64)

    def find(self, name: str | int) -> int | None:
        """The id of a name, or None."""
        wanted = str(name).encode()
        place = self.place(wanted)
        if place < len(self) and self._name(self._ranked(place)) == wanted:
            return self._ranked(place)
        return None

    def lookup(
        self, offsets: NDArray[np.int64], characters: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        """The ids of many names, given as `block` gives them; -1 for one that is not there.

        Cost: about `log2 n` places of the dictionary for each name, and one search for each length.
        """
        lengths = np.diff(offsets)
        found = np.full(len(lengths), -1, np.int64)
        if self._order is not None:
            # Appended names are not in the order of their lengths.
            for place in range(len(lengths)):
                name = bytes(characters[offsets[place] : offsets[place + 1]])
                number = self.find(name.decode())
                found[place] = -1 if number is None else number
            return found
        for length in np.unique(lengths[lengths > 0]).tolist():
            first, last = self._of_length(length), self._of_length(length + 1)
            if first == last:
                continue
            start, end = int(self._offsets[first]), int(self._offsets[last])
            if end - start != (last - first) * length or end > len(self._bytes):
                raise CorruptError(
                    f"array `names/{self._kind}.offsets`: rows {first} to {last} are not in the "
                    "order of names\nhint: run `outercore check`"
                )
            places = np.flatnonzero(lengths == length)
            rows = characters[offsets[places][:, None] + np.arange(length)]
            # Texts of one length are compared byte by byte.
            wanted = np.ascontiguousarray(rows).view(f"S{length}").ravel()
            known = np.asarray(self._bytes[start:end]).view(f"S{length}")
            at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
            found[places] = np.where(known[at] == wanted, first + at, -1)
        return found

    def _of_length(self, length: int) -> int:
        """The first id whose name has `length` bytes or more."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            if int(self._offsets[middle + 1]) - int(self._offsets[middle]) < length:
                low = middle + 1
            else:
                high = middle
        return low

    def _ranked(self, rank: int) -> int:
        return rank if self._order is None else int(self._order[rank])

    def _name(self, number: int) -> bytes:
        if not 0 <= number < len(self):
            raise CorruptError(f"array `names/{self._kind}.order`: {number} is no id")
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        if not start <= end <= len(self._bytes):
            raise CorruptError(
                f"array `names/{self._kind}.offsets`: row {number}: bytes {start} to {end}, "
                f"expected them in 0 to {len(self._bytes)}\nhint: run `outercore check`"
            )
        return bytes(self._bytes[start:end])


def _key(name: bytes) -> _Key:
    """Names are sorted by their length, then by their bytes."""
    return len(name), name
