"""The numbers that files have for nodes without names; no PyTorch."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from outercore.data.names import Names
from outercore.data.schema import Schema
from outercore.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from outercore.data.many_graphs import Labelled


class FileIds:
    """The ids of nodes in the files that the data set was made of: `first`, `first + 1`, ...

    It has the methods of `Names`: a text is an id of the files, a number is the position of a node,
    which counts from 0.

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
        """The ids, in words."""
        return f"{self.first} to {self.first + self._count - 1}" if self._count else "no ids"

    def find(self, text: str | int) -> int | None:
        """The position of the node that files call `text`, or None."""
        digits = str(text)
        if not (digits.isascii() and digits.isdigit()):
            return None
        position = int(digits) - self.first
        return position if 0 <= position < self._count else None

    def id(self, text: str | int) -> int:
        """The position of the node that files call `text`.

        Raises:
            InvalidError: no number of a node.
        """
        position = self.find(text)
        if position is None:
            is_number = str(text).lstrip("-").isdigit()
            why = f"the graph has {self._count:,} nodes" if is_number else "the nodes have no names"
            raise InvalidError(f"node `{text}`: {why} ({self.range})")
        return position

    def ids(self, texts: Iterable[str | int]) -> NDArray[np.int64]:
        """The positions of nodes, in their order.

        Raises:
            InvalidError: as `id`.
        """
        return np.fromiter((self.id(text) for text in texts), np.int64)

    def names(self, positions: ArrayLike) -> list[int]:
        """The ids that files have for the nodes at these positions."""
        found: list[int] = self.of(np.asarray(positions, np.int64)).tolist()
        return found

    def of(self, positions: NDArray[np.int64]) -> NDArray[np.int64]:
        """As `names`, as an array; -1 stands for no node and stays."""
        if not self.first:
            return positions
        return np.where(positions >= 0, positions + self.first, positions)


NodeNames: TypeAlias = Names | FileIds
"""What files and texts call the nodes."""


def first_id_of(graph: Labelled) -> int:
    """What the files of a data set of one node type call its first node."""
    return Schema(graph.manifest).first_id


def names_of_nodes(graph: Labelled) -> NodeNames:
    """The names of the nodes where the data set has one of each, else the ids of its files."""
    try:
        names = Names(Path(graph.root), graph.manifest["arrays"], "entity")
    except (NotFoundError, CorruptError):
        names = None
    if names is not None and len(names) == graph.num_nodes:
        return names
    return FileIds(first_id_of(graph), graph.num_nodes)
