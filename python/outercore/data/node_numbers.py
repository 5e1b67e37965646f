"""Node numbers of algorithms in a graph with several types. Does not import PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore.base.likeness import suggestion
from outercore.data.edge_types import EdgeType, edge_type_called
from outercore.data.file_ids import FileIds, NodeNames, names_of_nodes
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from outercore.data.data_set import DataSet
    from outercore.data.names import Names


class NodeNumbers:
    """The positions of nodes in a result, ordered by the names of the types, then by id.

    The result for a relation has only the nodes of its source type and target type.

    Example:
        >>> numbers = NodeNumbers({"author": 2, "paper": 3})
        >>> numbers.of("paper", 1), numbers.names(np.array([0, 4]))
        (3, ['author:0', 'paper:2'])
    """

    def __init__(self, counts: Mapping[str, int], names: Mapping[str, Names] | None = None) -> None:
        """Number the nodes of types by their counts; `names` holds the keys of some types."""
        self._names = dict(names or {})
        self._counts = {name: counts[name] for name in sorted(counts, key=str.encode)}
        self._ends = np.cumsum([*self._counts.values()], dtype=np.int64)

    @classmethod
    def of_graph(cls, graph: DataSet, relation: str | None) -> NodeNumbers | None:
        """The node numbers of a run on `graph`; `None` in a graph of one type, as ids are numbers.

        Errors: `NotFoundError` for an unknown relation.
        """
        if not graph.is_typed:
            return None
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

    def parse(self, text: str, option: str) -> int:
        """The number of the node in a text such as ``paper:17``: its type, and its key or its id.

        Raises:
            InvalidError: the text has another form.
            NotFoundError: the type or the key does not exist.
        """
        node_type, colon, node = text.partition(":")
        if colon and node_type in self._names:
            return self.of(node_type, self._names[node_type].id(node))
        if colon and node_type:
            self._require_type(node_type, node)
        if not node_type or not node.isascii() or not node.isdigit():
            example = f"{self.types[0]}:{self.shown(self.types[0])}" if self._counts else "TYPE:17"
            raise InvalidError(
                f"{option}: expected the type and the id of a node, such as `{example}`, found "
                f"`{text}`"
            )
        return self.of(node_type, int(node))

    def find(self, text: str) -> int | None:
        """The number of the node in a text of type and key, or None."""
        node_type, _, node = text.partition(":")
        keys = self.keys_of(node_type)
        node_id = None if keys is None else keys.find(node)
        return None if node_id is None else self.of(node_type, node_id)

    def shown(self, node_type: str) -> str:
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

    def resolve(self, value: Any) -> Any:
        """Replaces the nodes (type, id), (type, ids) or ``type:id`` in an option by numbers.

        A text is a key; a number is the id of the node in its type. Other values do not change.

        Raises:
            NotFoundError, InvalidError: as `of`.
        """
        if isinstance(value, Mapping):
            return {self.resolve(node): weight for node, weight in value.items()}
        if _is_pair(value):
            node_type, ids = value
            if np.ndim(ids) == 0:
                return self._of_pair(node_type, ids)
            return [self._of_pair(node_type, node) for node in ids]
        if isinstance(value, str):
            return self.parse(value, "node")
        if isinstance(value, (list, tuple)) or _is_text(value):
            numbers: list[Any] = []
            for item in value:
                number = self.resolve(item)
                numbers += number if isinstance(number, list) else [number]
            return numbers
        return value

    def _of_pair(self, node_type: str, node: Any) -> int:
        """The number of a node by its type, and its key or its id."""
        if not isinstance(node, str):
            return self.of(node_type, index(node))
        self._require_type(node_type, node)
        if (keys := self.keys_of(node_type)) is not None:
            return self.of(node_type, keys.id(node))
        raise InvalidError(f"node `{node_type}:{node}`: the type has no keys, expected an id")

    def _require_type(self, node_type: str, node: Any) -> None:
        if node_type not in self._counts:
            raise NotFoundError(
                f"node `{node_type}:{node}`: there is no node type `{node_type}`\n"
                f"hint: {suggestion(node_type, self._counts, otherwise='there are')}"
            )


def node_names(graph: DataSet, node_type: str) -> NodeNames:
    """The names of the nodes of a type, or their ids in the files."""
    if not graph.is_typed:
        return names_of_nodes(graph)
    keys = graph.keys_of(node_type)
    return FileIds(0, graph.node_types[node_type]) if keys is None else keys


def by_name(ids: NodeNames, value: Any) -> Any:
    """Replaces names in an option of an algorithm by positions; other values do not change.

    Errors: `NotFoundError`, `InvalidError` for an unknown name.
    """
    if isinstance(value, str):
        return ids.id(value)
    if isinstance(value, Mapping):
        return {by_name(ids, node): weight for node, weight in value.items()}
    if isinstance(value, (list, tuple)) or _is_text(value):
        return [by_name(ids, item) for item in value]
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
