"""The input nodes of a loader, and their ids. Does not import PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.graph import Graph
from outercore.data.node_names import FileIds, names_of_type
from outercore.errors import InvalidError


class Seeds:
    """The input nodes. A loader reads them each time it opens its data set."""

    def __init__(self, nodes: Any, node_type: str) -> None:
        self.node_type = node_type
        # Not converted to ids here: a converted copy would take memory next to the caller's array.
        nodes = nodes.cpu() if hasattr(nodes, "cpu") else nodes
        try:
            self.nodes = nodes if nodes is None or isinstance(nodes, str) else np.asarray(nodes)
        except ValueError:  # Lists of different lengths.
            raise InvalidError(f"input_nodes: expected integers [n], found {nodes!r:.80}") from None

    @property
    def is_mask(self) -> bool:
        """Whether the caller passed a boolean mask."""
        return isinstance(self.nodes, np.ndarray) and self.nodes.dtype == np.bool_

    def ids(self, graph: Graph) -> NDArray[np.int64] | None:
        """The node ids; ``None`` for every node.

        Errors: `InvalidError` for an empty split, a wrong type or shape, or names without a
        dictionary; also the errors of `Graph.split`.
        """
        if self.nodes is None:
            return None
        if isinstance(self.nodes, str):
            ids = np.ascontiguousarray(graph.split(self.nodes), dtype=np.int64)
            if not len(ids):
                raise InvalidError(
                    f"split `{self.nodes}` is empty: expected at least one node\n"
                    "hint: give another split, node ids, or None for every node"
                )
            return ids
        if self.nodes.dtype.kind == "U":
            return self._named(graph, self.nodes.reshape(-1).tolist())
        return _node_ids(graph.node_types[self.node_type], self.nodes)

    def _named(self, graph: Graph, names: list[str]) -> NDArray[np.int64]:
        """The node ids for these names, or for these ids of the imported files."""
        known = names_of_type(graph, self.node_type)
        if isinstance(known, FileIds) and known.find(names[0]) is None:
            raise InvalidError(
                f"input_nodes: found the name `{names[0]}`, but nodes of type `{self.node_type}` "
                "have no names\nhint: give a split as a text alone, node ids, or a mask"
            )
        return known.ids(names)


def _node_ids(count: int, ids: NDArray[Any]) -> NDArray[np.int64]:
    if ids.dtype == np.bool_:
        if ids.shape != (count,):
            raise InvalidError(f"mask of shape {ids.shape}, expected ({count},)")
        return np.flatnonzero(ids).astype(np.int64)
    if ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or ids.size == 0):
        raise InvalidError(
            f"input nodes of type {ids.dtype} and shape {ids.shape}, expected integers [n]"
        )
    return np.ascontiguousarray(ids, dtype=np.int64)
