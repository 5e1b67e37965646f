"""A data set as PyG's remote back end: ``FeatureStore`` and ``GraphStore``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.data.feature_store import FeatureStore as PyGFeatureStore
from torch_geometric.data.feature_store import TensorAttr
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.graph_store import GraphStore as PyGGraphStore

from outercore.csc import csc, edge_rows
from outercore.edge_types import EdgeType, edge_type_key
from outercore.errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from outercore.graph import Graph


_TOPOLOGY = ("offsets", "sources", "ids")


@dataclass
class ArrayAttr(TensorAttr):
    """Names an array: ``group_name`` is a node type or an edge type.

    In a graph of one type of nodes it is left out for their arrays, and
    ``("node", "edge", "node")`` for those of edges. ``store["paper"].x`` names one, too.
    """

    def __init__(
        self,
        group_name: Any = None,
        attr_name: Any = TensorAttr.attr_name,
        index: Any = None,
    ) -> None:
        """Name ``attr_name`` (such as ``"x"``), at ``index`` (all rows where ``None``)."""
        super().__init__(group_name=group_name, attr_name=attr_name, index=index)


class FeatureStore(PyGFeatureStore):
    """Arrays of a data set by type; rows are read when they are asked for.

    Rows of edge arrays are in the order of the imported edges, so their index is ``e_id``.

    Cost: ``get_tensor`` with an index reads those rows; without one, the whole array.
    """

    def __init__(self, graph: Graph) -> None:
        """Serve the arrays of ``graph``."""
        super().__init__(tensor_attr_cls=ArrayAttr)
        self._graph = graph

    @property
    def graph(self) -> Graph:
        """The data set."""
        return self._graph

    def add_edge_arrays(self, batch: Any) -> Any:
        """The batch with the edge arrays of the data set, as ``edge_NAME`` by type.

        PyG's loaders over stores deliver node arrays only. Pass this as their ``transform``.

        Cost: a read of each array's rows of the batch.

        Raises:
            InvalidError: sampled edges without ``e_id``.
        """
        edge_types = {edge_type_key(one): one for one in self._graph.edge_types}
        for key in self._graph.arrays:
            kind, _, rest = key.partition("/")
            of_type, _, name = rest.partition("/")
            if kind != "edges" or (of_type == "edge" and name in _TOPOLOGY):
                continue
            store = batch[edge_types[of_type]] if self._graph.is_typed else batch
            if "edge_index" not in store:
                continue
            if "e_id" not in store:
                raise InvalidError(
                    f"array `{key}`: the batch has no `e_id`, which says which rows are its own\n"
                    "hint: let the sampler return edge ids"
                )
            store[f"edge_{name}"] = torch.from_numpy(self._graph.rows(key, store.e_id.numpy()))
        return batch

    def _key(self, attr: TensorAttr) -> str:
        group, name = attr.group_name, str(attr.attr_name)
        if group is None:
            return self._graph.key(name)
        if isinstance(group, tuple):
            plain = not self._graph.is_typed
            return self._graph.key(f"edges/{'edge' if plain else edge_type_key(group)}/{name}")
        return self._graph.key(f"nodes/{group}/{name}")

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise UnsupportedError(
            "a data set is read-only here\nhint: add arrays with `outercore import`"
        )

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        key = self._key(attr)
        if attr.index is None or (isinstance(attr.index, slice) and attr.index == slice(None)):
            return torch.from_numpy(self._graph.array(key))
        index = attr.index
        if isinstance(index, slice):
            index = np.arange(*index.indices(int(self._graph.arrays[key]["shape"][0])))
        ids = index.numpy() if isinstance(index, Tensor) else np.asarray(index)
        if ids.dtype == np.bool_:
            ids = np.flatnonzero(ids)
        return torch.from_numpy(self._graph.rows(key, ids.astype(np.int64, copy=False)))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        return tuple(self._graph.arrays[self._key(attr)]["shape"])

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Every node array. PyG's loaders deliver all of these, by node ids."""
        found: list[TensorAttr] = []
        for key in self._graph.arrays:
            kind, _, rest = key.partition("/")
            group, _, name = rest.partition("/")
            if kind == "nodes":
                found.append(ArrayAttr(group if self._graph.is_typed else None, name))
        return found


class GraphStore(PyGGraphStore):
    """The topology of a data set by edge type, in CSC.

    ``coo``, ``csr`` and ``csc`` return the edge id of each arc beside the topology. PyG's samplers
    take it for ``edge_permutation``, so that ``e_id`` is the row of the imported edge list; a
    custom sampler has to do the same.

    Cost: PyG's samplers work on the whole topology in memory, so ``get_edge_index`` loads it: 8
    bytes an arc and 8 a node, and while it is converted as much as the arrays take on disk; edge
    ids take another 8 bytes an arc. Outercore's own loader does not.
    """

    def __init__(self, graph: Graph) -> None:
        """Serve the topology of ``graph``."""
        super().__init__()
        self._graph = graph

    @property
    def graph(self) -> Graph:
        """The data set."""
        return self._graph

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        edge_type = self._edge_type(edge_attr)
        if edge_type is None:
            return None
        offsets, sources = csc(self._graph, edge_type)
        if edge_attr.layout == EdgeLayout.CSC:
            return torch.from_numpy(sources), torch.from_numpy(offsets)
        if edge_attr.layout == EdgeLayout.COO:
            targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
            return torch.from_numpy(sources), torch.from_numpy(targets)
        return None

    def _edge_type(self, attr: EdgeAttr) -> EdgeType | None:
        """The edge type of the data set; ``None`` where it has none such."""
        if not self._graph.is_typed:
            return self._graph.edge_types[0]
        given = tuple(attr.edge_type or ())
        return next((one for one in self._graph.edge_types if one == given), None)

    def _edge_to_layout(
        self, attr: EdgeAttr, layout: EdgeLayout, store: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The arcs in a layout, and the edge id of each: what PyG's samplers make ``e_id`` of."""
        row, col, order = super()._edge_to_layout(attr, layout, store)
        edge_type = self._edge_type(attr)
        rows = None if edge_type is None else edge_rows(self._graph, edge_type)
        if rows is None:
            return row, col, order
        ids = torch.from_numpy(rows)
        return row, col, ids if order is None else ids[order]

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Every edge type, in CSC."""
        counts, typed = self._graph.node_types, self._graph.is_typed
        return [
            EdgeAttr(
                edge_type=one if typed else None,
                layout=EdgeLayout.CSC,
                is_sorted=True,
                size=(counts[one[0]], counts[one[2]]),
            )
            for one in self._graph.edge_types
        ]
