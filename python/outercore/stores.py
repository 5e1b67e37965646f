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

from outercore.errors import UnsupportedError

if TYPE_CHECKING:
    from outercore.graph import Graph


@dataclass
class NodeAttr(TensorAttr):
    """Names a node array: only ``attr_name`` has to be given; there is one type of nodes."""

    def __init__(self, attr_name: Any = None, index: Any = None) -> None:
        """Name ``attr_name`` (such as ``"x"``), at ``index`` (all rows where ``None``)."""
        super().__init__(group_name=None, attr_name=attr_name, index=index)


class FeatureStore(PyGFeatureStore):
    """Node arrays of a data set; rows are read when they are asked for.

    Cost: ``get_tensor`` with an index reads those rows; without one, the whole array.
    """

    def __init__(self, graph: Graph) -> None:
        """Serve the node arrays of ``graph``."""
        super().__init__(tensor_attr_cls=NodeAttr)
        self._graph = graph

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise UnsupportedError(
            "a data set is read-only here\nhint: add arrays with `outercore import`"
        )

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        name = str(attr.attr_name)
        if attr.index is None or (isinstance(attr.index, slice) and attr.index == slice(None)):
            return torch.from_numpy(self._graph.array(name))
        index = attr.index
        if isinstance(index, slice):
            index = np.arange(*index.indices(self._graph.num_nodes))
        ids = index.numpy() if isinstance(index, Tensor) else np.asarray(index)
        if ids.dtype == np.bool_:
            ids = np.flatnonzero(ids)
        return torch.from_numpy(self._graph.rows(name, ids.astype(np.int64, copy=False)))

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        return tuple(self._graph.arrays[self._graph.key(str(attr.attr_name))]["shape"])

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Every node array."""
        prefix = "nodes/node/"
        return [
            NodeAttr(key[len(prefix) :]) for key in self._graph.arrays if key.startswith(prefix)
        ]


class GraphStore(PyGGraphStore):
    """The topology of a data set, in CSC.

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

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        if edge_attr.layout != EdgeLayout.CSC:
            return None
        sources = self._graph.array("edges/edge/sources").astype(np.int64)
        offsets = self._graph.array("edges/edge/offsets").astype(np.int64)
        return torch.from_numpy(sources), torch.from_numpy(offsets)

    def _edge_to_layout(
        self, attr: EdgeAttr, layout: EdgeLayout, store: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The arcs in a layout, and the edge id of each: what PyG's samplers make ``e_id`` of."""
        row, col, order = super()._edge_to_layout(attr, layout, store)
        if "edges/edge/ids" not in self._graph.arrays:
            return row, col, order
        ids = torch.from_numpy(self._graph.array("edges/edge/ids").astype(np.int64))
        return row, col, ids if order is None else ids[order]

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """The one edge type, in CSC."""
        nodes = self._graph.num_nodes
        return [
            EdgeAttr(edge_type=None, layout=EdgeLayout.CSC, is_sorted=True, size=(nodes, nodes))
        ]
