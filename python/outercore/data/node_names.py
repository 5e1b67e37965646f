"""Finds nodes by name: by key, or by id in the imported files. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from outercore.base.likeness import suggestion
from outercore.data.edge_types import EdgeType, edge_type_called
from outercore.data.names import KEY, Names
from outercore.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import ArrayLike, NDArray

    from outercore.data.data_set import DataSet
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
        """Like `names`, as an int64 array; -1 means no node and does not change."""
        if not self.first:
            return positions
        return np.where(positions >= 0, positions + self.first, positions)


class NodeNumbers:
    """Numbers the nodes of a result, ordered by the names of the types, then by id.

    The result for a relation has only the nodes of its source type and target type.

    Example:
        >>> numbers = NodeNumbers({"author": 2, "paper": 3})
        >>> numbers.of("paper", 1), numbers.names(np.array([0, 4]))
        (3, ['author:0', 'paper:2'])
    """

    def __init__(self, counts: Mapping[str, int], names: Mapping[str, Names] | None = None) -> None:
        """Number the nodes of types from their counts. `names` has the keys of types with keys."""
        self._names = dict(names or {})
        self._counts = {name: counts[name] for name in sorted(counts, key=str.encode)}
        self._ends = np.cumsum([*self._counts.values()], dtype=np.int64)

    @classmethod
    def of_graph(cls, graph: DataSet, relation: str | None) -> NodeNumbers:
        """The node numbers of a run on `graph`. `relation` restricts the run to an edge type.

        Errors: `NotFoundError` for an unknown relation.
        """
        counts: dict[str, int] = graph.node_types
        if relation is not None:
            source, _, target = relation_of(graph, relation)
            counts = {name: counts[name] for name in (source, target)}
        names = {name: graph.keys_of(name) for name in counts}
        return cls(counts, {name: keys for name, keys in names.items() if keys is not None})

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def types(self) -> list[str]:
        """The node types, in their order."""
        return [*self._counts]

    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """Each node type, its first number, and its last number plus one."""
        first = 0
        for name, count in self._counts.items():
            yield name, first, first + count
            first += count

    def of(self, node_type: str, node: int) -> int:
        """The number of a node.

        Raises:
            NotFoundError: the type does not exist.
            InvalidError: the node does not exist.
        """
        self._require_type(node_type, node)
        count = self._counts[node_type]
        if not 0 <= node < count:
            raise InvalidError(f"node `{node_type}:{node}`: expected an id from 0 to {count - 1}")
        first = next(first for name, first, _ in self.ranges() if name == node_type)
        return first + node

    def id(self, text: str | int) -> int:
        """The number of the node in a text such as ``paper:17``: the type, and the key or the id.

        Raises:
            InvalidError: the text has another form.
            NotFoundError: the type or the key does not exist.
        """
        node_type, colon, node = str(text).partition(":")
        if colon and node_type in self._names:
            return self.of(node_type, self._names[node_type].id(node))
        if colon and node_type:
            self._require_type(node_type, node)
        if not node_type or not node.isascii() or not node.isdigit():
            example = (
                f"{self.types[0]}:{self.example(self.types[0])}" if self._counts else "TYPE:17"
            )
            raise InvalidError(
                f"node `{text}`: expected the type and the id of a node, such as `{example}`"
            )
        return self.of(node_type, int(node))

    def find(self, text: str | int) -> int | None:
        """The number of the node in a text such as ``paper:17``, or None."""
        node_type, _, node = str(text).partition(":")
        keys = self.keys_of(node_type)
        node_id = None if keys is None else keys.find(node)
        return None if node_id is None else self.of(node_type, node_id)

    def example(self, node_type: str) -> str:
        """An example of a node's key or id in a type, for messages."""
        keys = self.keys_of(node_type)
        return "17" if keys is None or not len(keys) else keys.names([0])[0]

    @property
    def are_named(self) -> bool:
        """Whether nodes of some type have keys."""
        return bool(self._names)

    def keys_of(self, node_type: str) -> Names | None:
        """The keys of the nodes of a type; None for a type without keys."""
        return self._names.get(node_type)

    def split(self, numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The index of each node's type in `types`, and its id within the type; int64 [n]."""
        places = np.searchsorted(self._ends, numbers, side="right")
        firsts = np.concatenate([np.zeros(1, np.int64), self._ends])[places]
        return places.astype(np.int64), np.asarray(numbers, np.int64) - firsts

    def names(self, numbers: NDArray[Any]) -> list[str]:
        """Nodes by type and key, or by type and id, such as ``paper:17``."""
        places, ids = self.split(numbers)
        return [
            f"{node_type}:{node if keys is None else keys.names([node])[0]}"
            for node_type, keys, node in (
                (self.types[place], self.keys_of(self.types[place]), node)
                for place, node in zip(places.tolist(), ids.tolist(), strict=True)
            )
        ]

    def of_pair(self, node_type: str, nodes: Any) -> Any:
        """The number of a node by its type, and its key or id; a list for several nodes.

        Raises:
            NotFoundError, InvalidError: as `of`.
        """
        if np.ndim(nodes):
            return [self.of_pair(node_type, node) for node in nodes]
        if not isinstance(nodes, str):
            return self.of(node_type, index(nodes))
        self._require_type(node_type, nodes)
        if (keys := self.keys_of(node_type)) is not None:
            return self.of(node_type, keys.id(nodes))
        raise InvalidError(f"node `{node_type}:{nodes}`: the type has no keys, expected an id")

    def _require_type(self, node_type: str, node: Any) -> None:
        if node_type not in self._counts:
            raise NotFoundError(
                f"node `{node_type}:{node}`: there is no node type `{node_type}`\n"
                f"hint: {suggestion(node_type, self._counts, otherwise='there are')}"
            )


NamesOfType: TypeAlias = Names | FileIds
"""The names of the nodes of a type: their keys, or their ids in the imported files."""
NodeNames: TypeAlias = NamesOfType | NodeNumbers
"""The names of the nodes of a graph of one type or several."""


def names_of_nodes(graph: DataSet, relation: str | None = None) -> NodeNames:
    """The names of all nodes. With several types, `relation` restricts them to its two types.

    Errors: `NotFoundError` for an unknown relation.
    """
    return NodeNumbers.of_graph(graph, relation) if graph.is_typed else names_of_items(graph)


def names_of_type(graph: DataSet, node_type: str) -> NamesOfType:
    """The names of the nodes of a type."""
    if not graph.is_typed:
        return names_of_items(graph)
    keys = graph.keys_of(node_type)
    return FileIds(0, graph.node_types[node_type]) if keys is None else keys


def names_of_items(items: DataSet | Labelled) -> NamesOfType:
    """The names of the labelled items of a task, or of the nodes of a graph of one type.

    In a graph of several types, the items are the nodes of the labelled type.
    """
    schema, kind = items.schema, f"{items.schema.labelled_type}.{KEY}"
    if schema.is_typed and schema.labelled_type is not None:
        if f"names/{kind}.order" in schema.arrays:
            return Names(Path(items.root), schema.arrays, kind)
        return FileIds(0, schema.num_labelled)
    try:
        names = Names(Path(items.root), schema.arrays, "entity")
    except (NotFoundError, CorruptError):
        names = None
    if names is not None and len(names) == items.num_nodes:
        return names
    return FileIds(schema.first_id, items.num_nodes)


def node_ids(names: NodeNames, value: Any) -> Any:
    """Replaces the names of nodes in an option of an algorithm by node numbers.

    A text is a name. With several types, a name is ``type:id``, and a pair (type, id) or
    (type, ids) also names nodes. Other values do not change.

    Errors: `NotFoundError`, `InvalidError` for an unknown name.
    """
    if isinstance(value, Mapping):
        return {node_ids(names, node): weight for node, weight in value.items()}
    if isinstance(names, NodeNumbers) and _is_pair(value):
        return names.of_pair(*value)
    if isinstance(value, str):
        return names.id(value)
    if isinstance(value, (list, tuple)) or _is_text(value):
        numbers: list[Any] = []
        for item in value:
            number = node_ids(names, item)
            numbers += number if _is_pair(item) and isinstance(number, list) else [number]
        return numbers
    return value


def relation_of(graph: DataSet, relation: str | Sequence[str]) -> EdgeType:
    """The edge type of the option `relation`.

    Errors: `NotFoundError` for an unknown edge type; the message lists the known ones.
    """
    return edge_type_called(relation, graph.edge_types, f"relation of `{Path(graph.root)}`")


def _is_text(value: Any) -> bool:
    """Whether `value` is an array of texts."""
    return isinstance(value, np.ndarray) and value.dtype.kind == "U"


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str)
