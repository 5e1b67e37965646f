"""Looks up the names of entities and relations on disk."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore.base.likeness import hint_like
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.files.large_arrays import mapped

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

KEY = "key"
"""Name of the text array with the keys of nodes, in a graph of several types."""
_Key = tuple[int, bytes]
_COMPARED = 20_000
"""With at most this number of names, a mistyped name is compared with all. It takes 0.3 seconds."""
_LETTERS = 2
"""Largest difference in length between a mistyped name and a suggestion."""
_GATHERED = 4 << 20
"""Number of bytes of names that are compared at a time."""
_BESIDE = 1000
"""Number of names to compare before and after the place of a mistyped name, for each length."""


_HINT = "hint: run `outercore check`"


class Names:
    """A dictionary on disk. It finds names by id, and ids by name.

    Cost: maps the arrays. Looking up a name by id reads 2 places in them; looking up an id by name
    reads about ``2 log2 n`` places.
    """

    def __init__(self, root: Path, arrays: dict[str, dict[str, Any]], kind: str) -> None:
        """Open the names of ``kind`` (``entity``, ``relation``) in the data set in ``root``.

        Raises:
            NotFoundError: the data set has no such names.
        """
        self._kind = kind
        self._what = kind.removesuffix(f".{KEY}")
        keys = [f"names/{kind}.{part}" for part in ("offsets", "bytes", "order")]
        for key in keys[:2]:
            if key not in arrays:
                raise NotFoundError(
                    f"array `{key}` is not in the data set `{root}`"
                    "\nhint: names come from `outercore import --triples`"
                )
        self.keys = [key for key in keys if key in arrays]
        """The arrays that hold the names."""
        self._offsets = mapped(root, arrays[keys[0]])
        self._bytes = mapped(root, arrays[keys[1]])
        # The ids in the order of the names, if they do not ascend in this order.
        self._order = mapped(root, arrays[keys[2]]) if keys[2] in arrays else None
        if len(self._offsets) == 0:
            raise CorruptError(f"array `{keys[0]}` is empty, expected at least one offset\n{_HINT}")

    def __len__(self) -> int:
        return len(self._offsets) - 1

    def __repr__(self) -> str:
        return f"Names({len(self):,} of kind {self._kind!r})"

    def names(self, ids: ArrayLike | None = None) -> list[str]:
        """The names of ``ids``, in their order; by default all names.

        Raises:
            InvalidError: an id is out of range; the message has the first such id.
        """
        if ids is None:
            return [self._name(number).decode() for number in range(len(self))]
        numbers = np.asarray(ids)
        if numbers.size and numbers.dtype.kind not in "iu":
            raise InvalidError(f"{self._kind} ids: type {numbers.dtype}, expected integers")
        numbers = numbers.reshape(-1).astype(np.int64)
        bad = numbers[(numbers < 0) | (numbers >= len(self))]
        if bad.size:
            raise InvalidError(f"{self._kind} {bad[0]}: expected 0 to {len(self) - 1}")
        return [self._name(number).decode() for number in numbers.tolist()]

    def block(self, start: int, stop: int) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """The names of the ids ``start`` to ``stop``: offsets of the names, and their bytes.

        Shapes: offsets int64 [stop - start + 1], the first is 0; bytes uint8.

        Raises:
            CorruptError: the offsets descend or exceed the bytes.
        """
        offsets = np.array(self._offsets[start : stop + 1], np.int64)
        wrong = (np.diff(offsets) < 0) | (offsets[1:] > len(self._bytes)) | (offsets[:-1] < 0)
        if wrong.any():
            # This call raises an error with the row and its offsets.
            self._name(start + int(np.flatnonzero(wrong)[0]))
        return offsets - offsets[0], np.array(self._bytes[offsets[0] : offsets[-1]])

    def ranked(self, start: int, stop: int) -> NDArray[np.int64]:
        """The ids at the places ``start`` to ``stop`` in the order of names."""
        if self._order is None:
            return np.arange(start, stop)
        ids = np.array(self._order[start:stop]).astype(np.int64)
        bad = ids[(ids < 0) | (ids >= len(self))]
        if bad.size:
            raise CorruptError(f"array `names/{self._kind}.order`: {bad[0]} is no id\n{_HINT}")
        return ids

    def place(self, name: bytes) -> int:
        """The place of ``name`` in the order of names, or the place to insert it."""
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
            NotFoundError: the name does not exist; the message suggests similar names.
        """
        number = self.find(name)
        if number is None:
            guess = hint_like(str(name), self._near(str(name))) or self._example()
            raise NotFoundError(f"{self._what} `{name}` is not in the data set{guess}")
        return number

    def _example(self) -> str:
        return f"\nhint: a name there is `{self.names([0])[0]}`" if len(self) else ""

    def _near(self, name: str) -> list[str]:
        """Names to compare with a mistyped name: all, or its neighbours in the order of names.

        Names are ordered by length, then by letters. So each length is searched separately, for
        names with the same first letters.
        """
        if len(self) <= _COMPARED:
            return self.names()
        typed, ranks = name.encode(), set[int]()
        for length in range(max(len(typed) - _LETTERS, 1), len(typed) + _LETTERS + 1):
            place = self.place(typed[:length].ljust(length, b"~"))
            ranks.update(range(max(place - _BESIDE, 0), min(place + _BESIDE, len(self))))
        return [self._name(self._ranked(rank)).decode() for rank in sorted(ranks)]

    def ids(self, names: Iterable[str | int]) -> NDArray[np.int64]:
        """The ids of names, int64, in the order of `names`.

        Raises:
            NotFoundError: a name does not exist; the message has the first such name.
        """
        return np.fromiter((self.id(name) for name in names), np.int64)

    def find(self, name: str | int) -> int | None:
        """The id of a name, or None."""
        text = str(name).encode()
        place = self.place(text)
        if place < len(self) and self._name(self._ranked(place)) == text:
            return self._ranked(place)
        return None

    def lookup(
        self, offsets: NDArray[np.int64], characters: NDArray[np.uint8]
    ) -> NDArray[np.int64]:
        """The ids of many names, in the form of `block`; -1 for unknown names.

        Shapes: `offsets` int64 [n + 1], `characters` uint8; result int64 [n].
        Cost: reads about `log2 n` places of the dictionary per name, with one search per length.
        """
        lengths = np.diff(offsets)
        ids = np.full(len(lengths), -1, np.int64)
        for length in np.unique(lengths[lengths > 0]).tolist():
            first, last = self._of_length(length), self._of_length(length + 1)
            if first == last:
                continue
            search = self._searched if self._order is None else self._searched_in_order
            of_length = np.flatnonzero(lengths == length)
            step = max(_GATHERED // length, 1)
            for start in range(0, len(of_length), step):
                places = of_length[start : start + step]
                # Texts of equal length are compared by NumPy, byte by byte.
                ids[places] = search(
                    _of_one_length(characters, offsets[places], length), first, last
                )
        return ids

    def _searched(self, texts: NDArray[np.bytes_], first: int, last: int) -> NDArray[np.int64]:
        """The ids of texts of one length among the names `first` to `last`; -1 if unknown."""
        length = texts.dtype.itemsize
        start, end = int(self._offsets[first]), int(self._offsets[last])
        if end - start != (last - first) * length or end > len(self._bytes):
            raise CorruptError(
                f"array `names/{self._kind}.offsets`: rows {first} to {last} are not in the "
                f"order of names\n{_HINT}"
            )
        known = np.asarray(self._bytes[start:end]).view(f"S{length}")
        at = np.minimum(np.searchsorted(known, texts), len(known) - 1)
        return np.where(known[at] == texts, first + at, -1)

    def _searched_in_order(
        self, texts: NDArray[np.bytes_], first: int, last: int
    ) -> NDArray[np.int64]:
        """Like `_searched`, for a dictionary with `order`; `first` to `last` are places in it."""
        low, high = np.full(len(texts), first), np.full(len(texts), last)
        while (low < high).any():
            middle = np.minimum((low + high) // 2, last - 1)
            _, known = self._at_places(middle, texts.dtype.itemsize)
            # Finished searches do not change `low` and `high`.
            is_less = (known < texts) & (low < high)
            high = np.where(is_less | (low >= high), high, middle)
            low = np.where(is_less, middle + 1, low)
        ids, known = self._at_places(np.minimum(low, last - 1), texts.dtype.itemsize)
        return np.where(known == texts, ids, -1)

    def _at_places(
        self, places: NDArray[np.int64], length: int
    ) -> tuple[NDArray[np.int64], NDArray[np.bytes_]]:
        """The ids at places in the order of names, and their names of `length` bytes."""
        assert self._order is not None
        ids = np.asarray(self._order[places]).astype(np.int64)
        if len(ids) and not (ids.min() >= 0 and ids.max() < len(self)):
            raise CorruptError(f"array `names/{self._kind}.order`: {ids.max()} is no id\n{_HINT}")
        starts = np.asarray(self._offsets[ids]).astype(np.int64)
        ends = np.asarray(self._offsets[ids + 1]).astype(np.int64)
        if (ends - starts != length).any() or (len(ends) and ends.max() > len(self._bytes)):
            raise CorruptError(
                f"array `names/{self._kind}.order` is not in the order of names\n{_HINT}"
            )
        return ids, _of_one_length(self._bytes, starts, length)

    def _of_length(self, length: int) -> int:
        """The first place in the order of names whose name has `length` bytes or more."""
        low, high = 0, len(self)
        while low < high:
            middle = (low + high) // 2
            number = self._ranked(middle)
            if int(self._offsets[number + 1]) - int(self._offsets[number]) < length:
                low = middle + 1
            else:
                high = middle
        return low

    def _ranked(self, rank: int) -> int:
        if self._order is None:
            return rank
        number = int(self._order[rank])
        if not 0 <= number < len(self):
            raise CorruptError(f"array `names/{self._kind}.order`: {number} is no id\n{_HINT}")
        return number

    def _name(self, number: int) -> bytes:
        if not 0 <= number < len(self):
            raise CorruptError(f"array `names/{self._kind}.order`: {number} is no id\n{_HINT}")
        start, end = int(self._offsets[number]), int(self._offsets[number + 1])
        if not start <= end <= len(self._bytes):
            raise CorruptError(
                f"array `names/{self._kind}.offsets`: row {number}: bytes {start} to {end}, "
                f"expected them in 0 to {len(self._bytes)}\n{_HINT}"
            )
        return bytes(self._bytes[start:end])


def _of_one_length(
    characters: NDArray[np.uint8], starts: NDArray[np.int64], length: int
) -> NDArray[np.bytes_]:
    """The texts of `length` bytes that begin at `starts`."""
    rows = np.lib.stride_tricks.sliding_window_view(characters, length)[starts]
    return np.ascontiguousarray(rows).view(f"S{length}").ravel()


def _key(name: bytes) -> _Key:
    """The sort key of a name: its length, then its bytes."""
    return len(name), name
