"""Ids of nodes without names in the imported files. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from outercore.data.names import KEY, Names
from outercore.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from outercore.data.many_graphs import Labelled


class FileIds:
    """The ids of nodes in the imported files: `first`, `first + 1`, ...

    It has the methods of `Names`. A text is an id of the files; a number is the position of a node,
    from 0.

    Example:
        >>> ids = FileIds(1, 3)
        >>> ids.id("3"), ids.names([0, 2])
        (2, [1, 3])
    """

    def __init__(self, first: int, count: int) -> None:
        self.first, self._count = first, count

    def __len__(self) -> int:
        return self._count

    @property
    def range(self) -> str:
        """The range of the ids as a text, for messages."""
        return f"{self.first} to {self.first + self._count - 1}" if self._count else "no ids"

    def find(self, text: str | int) -> int | None:
        """The position of the node with the id `text` in the files, or None."""
        digits = str(text)
        if not (digits.isascii() and digits.isdigit()):
            return None
        position = int(digits) - self.first
        return position if 0 <= position < self._count else None

    def id(self, text: str | int) -> int:
        """The position of the node with the id `text` in the files.

        Raises:
            InvalidError: no node has this id.
        """
        position = self.find(text)
        if position is None:
            is_number = str(text).lstrip("-").isdigit()
            why = f"the graph has {self._count:,} nodes" if is_number else "the nodes have no names"
            raise InvalidError(f"node `{text}`: {why} ({self.range})")
        return position

    def ids(self, texts: Iterable[str | int]) -> NDArray[np.int64]:
        """The positions of nodes, int64, in the order of `texts`.

        Raises:
            InvalidError: as `id`.
        """
        return np.fromiter((self.id(text) for text in texts), np.int64)

    def names(self, positions: ArrayLike) -> list[int]:
        """The ids in the files of the nodes at these positions."""
        ids: list[int] = self.of(np.asarray(positions, np.int64)).tolist()
        return ids

    def of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """`names` as an int64 array; -1 means no node and does not change."""
        if not self.first:
            return positions
        return np.where(positions >= 0, positions + self.first, positions)


NodeNames: TypeAlias = Names | FileIds
"""Names of the nodes, or their ids in the imported files."""


def names_of_nodes(graph: Labelled) -> NodeNames:
    """The names of the nodes if each node has a name, otherwise their ids in the files.

    In a graph of several types, the keys of the labelled type are the names of its nodes.
    """
    schema, kind = graph.schema, f"{graph.schema.labelled_type}.{KEY}"
    if schema.is_typed and schema.labelled_type is not None:
        if f"names/{kind}.order" in schema.arrays:
            return Names(Path(graph.root), schema.arrays, kind)
        return FileIds(0, schema.num_labelled)
    try:
        names = Names(Path(graph.root), graph.schema.arrays, "entity")
    except (NotFoundError, CorruptError):
        names = None
    if names is not None and len(names) == graph.num_nodes:
        return names
    return FileIds(graph.schema.first_id, graph.num_nodes)
