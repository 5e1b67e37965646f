"""Numbers of the nodes of a graph with several types, as algorithms count them; no PyTorch."""

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
    """The places of nodes in a result: type after type, in the order of their names.

    A relation alone counts only the nodes of its source and target type.

    Example:
        >>> numbers = NodeNumbers({"author": 2, "paper": 3})
        >>> numbers.of("paper", 1), numbers.names(np.array([0, 4]))
        (3, ['author:0', 'paper:2'])
    """

    def __init__(self, counts: Mapping[str, int], names: Mapping[str, Names] | None = None) -> None:
        """Number the nodes of types with these many nodes; `names` has the keys of some types."""
        self._names = dict(names or {})
        self._counts = {name: counts[name] for name in sorted(counts, key=str.encode)}
        self._ends = np.cumsum([*self._counts.values()], dtype=np.int64)

    @classmethod
    def of_graph(cls, graph: DataSet, relation: str | None) -> NodeNumbers | None:
        """Those of a run on `graph`; `None` in a graph of one type, where an id is a number.

        Errors: `NotFoundError` for a relation that is not there.
        """
        if not graph.is_typed:
            return None
        counts: dict[str, int] = graph.node_types
        if relation is not None:
            source, _, target = relation_of(graph, relation)
            counts = {name: counts[name] for name in (source, target)}
        names = {name: graph.keys_of(name) for name in counts}
        return cls(counts, {name: found for name, found in names.items() if found is not None})

    def __len__(self) -> int:
        return int(self._ends[-1]) if len(self._ends) else 0

    @property
    def types(self) -> list[str]:
        """The node types, in their order."""
        return [*self._counts]

    def ranges(self) -> Iterator[tuple[str, int, int]]:
        """Each node type, its first number and the one after its last."""
        first = 0
        for name, count in self._counts.items():
            yield name, first, first + count
            first += count

    def of(self, node_type: str, node: int) -> int:
        """The number of a node.

        Raises:
            NotFoundError: there is no such type.
            InvalidError: there is no such node.
        """
        self._require_type(node_type, node)
        count = self._counts[node_type]
        if not 0 <= node < count:
            raise InvalidError(f"node `{node_type}:{node}`: expected an id from 0 to {count - 1}")
        first = next(first for name, first, _ in self.ranges() if name == node_type)
        return first + node

    def parse(self, text: str, option: str) -> int:
        """The number of the node that a text such as ``paper:17`` names, by its key or by its id.

        Raises:
            InvalidError: another text.
            NotFoundError: there is no such type, or no such key.
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
        """The number of the node that a text names by type and key, or None."""
        node_type, _, node = text.partition(":")
        keys = self.keys_of(node_type)
        found = None if keys is None else keys.find(node)
        return None if found is None else self.of(node_type, found)

    def shown(self, node_type: str) -> str:
        """What a node of a type may be called."""
        keys = self.keys_of(node_type)
        return "17" if keys is None or not len(keys) else keys.names([0])[0]

    @property
    def are_named(self) -> bool:
        """Whether nodes of some type have keys."""
        return bool(self._names)

    def keys_of(self, node_type: str) -> Names | None:
        """The keys of the nodes of a type; None where they have none."""
        return self._names.get(node_type)

    def split(self, numbers: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The place of each node's type among `types`, and its id within the type; int64 [n]."""
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

    def resolve(self, given: Any) -> Any:
        """Numbers instead of the nodes (type, id), (type, ids) or ``type:id`` in an option.

        A text is a key, a number always the place of the node in its type. Whatever else stays as
        it is.

        Raises:
            NotFoundError, InvalidError: as `of`.
        """
        if isinstance(given, Mapping):
            return {self.resolve(node): weight for node, weight in given.items()}
        if _is_pair(given):
            node_type, ids = given
            if np.ndim(ids) == 0:
                return self._of_pair(node_type, ids)
            return [self._of_pair(node_type, node) for node in ids]
        if isinstance(given, str):
            return self.parse(given, "node")
        if isinstance(given, (list, tuple)) or _is_text(given):
            found: list[Any] = []
            for one in given:
                number = self.resolve(one)
                found += number if isinstance(number, list) else [number]
            return found
        return given

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
    """What files and texts call the nodes of a type."""
    if not graph.is_typed:
        return names_of_nodes(graph)
    keys = graph.keys_of(node_type)
    return FileIds(0, graph.node_types[node_type]) if keys is None else keys


def by_name(ids: NodeNames, given: Any) -> Any:
    """Positions instead of the texts in an option of an algorithm; whatever else stays as it is.

    Errors: `NotFoundError`, `InvalidError` for a text that no node is called by.
    """
    if isinstance(given, str):
        return ids.id(given)
    if isinstance(given, Mapping):
        return {by_name(ids, node): weight for node, weight in given.items()}
    if isinstance(given, (list, tuple)) or _is_text(given):
        return [by_name(ids, one) for one in given]
    return given


def relation_of(graph: DataSet, relation: str | Sequence[str]) -> EdgeType:
    """The edge type that the option `relation` names.

    Errors: `NotFoundError`, with those there are.
    """
    return edge_type_called(relation, graph.edge_types, f"relation of `{Path(graph.root)}`")


def _is_text(given: Any) -> bool:
    """Whether it is an array of texts."""
    return isinstance(given, np.ndarray) and given.dtype.kind == "U"


def _is_pair(given: Any) -> bool:
    return isinstance(given, tuple) and len(given) == 2 and isinstance(given[0], str)
