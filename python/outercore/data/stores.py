"""Serves a data set as PyG's remote back end: ``FeatureStore`` and ``GraphStore``."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils._pytree import tree_map
from torch_geometric.data.feature_store import AttrView, TensorAttr
from torch_geometric.data.feature_store import FeatureStore as PyGFeatureStore
from torch_geometric.data.graph_store import EdgeAttr, EdgeLayout
from torch_geometric.data.graph_store import GraphStore as PyGGraphStore

from outercore.data.batch_arrays import name_in_storage
from outercore.data.csc import all_links, csc, edge_rows
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.data.forms import rows_in_form
from outercore.data.row_index import chosen_rows
from outercore.data.schema import TOPOLOGY
from outercore.errors import InvalidError, UnsupportedError

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet


UNSET = TensorAttr.attr_name
"""PyG's value for a missing field."""


@dataclass
class ArrayAttr(TensorAttr):
    """The name of an array: ``group_name`` is a node type or an edge type.

    ``store["paper"].x[index]``, ``store["paper", "x"][index]`` and ``store["paper", "x", index]``
    read rows; ``store["paper", "x"]()`` reads all.
    """

    def is_set(self, key: str) -> bool:
        """Whether a field has a value. Unlike PyG's method, it allows a NumPy array as index."""
        return getattr(self, key) is not UNSET


@dataclass
class PlainArrayAttr(ArrayAttr):
    """The name of an array in a graph with one node type; the group is optional.

    ``store["x"][index]`` and ``store["x", index]`` read rows. The group of edge arrays is
    ``("node", "edge", "node")``.
    """

    def __init__(self, attr_name: Any = UNSET, index: Any = UNSET, group_name: Any = None) -> None:
        """Name an array by ``attr_name`` (such as ``"x"``), with an ``index`` of rows."""
        super().__init__(group_name=group_name, attr_name=attr_name, index=index)


class ArrayView(AttrView):
    """An array that is read on use: ``[index]`` reads rows, ``()`` reads the whole array.

    Functions and methods of PyTorch and NumPy read the whole array. The attributes of a group, such
    as ``store["paper"]``, are its arrays.
    """

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Calls the function with the whole arrays."""
        args, kwargs = tree_map(
            lambda argument: argument() if isinstance(argument, cls) else argument, (args, kwargs)
        )
        return function(*args, **(kwargs or {}))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """The whole array."""
        return np.asarray(self().numpy(), dtype)

    def __len__(self) -> int:
        """Number of rows; does not read the array."""
        return int(self.shape[0])

    def __getattr__(self, key: Any) -> Any:
        """The array of this name in a group, or an attribute of an array's tensor."""
        # NumPy and other libraries look for protocol attributes, which would read the array.
        if isinstance(key, str) and (key.startswith("__") or key in ("_attr", "_store")):
            raise AttributeError(key)
        if not isinstance(key, str) or not self._attr.is_set("attr_name"):
            return super().__getattr__(key)
        if key == "shape":
            return torch.Size(self._store.get_tensor_size(self._attr))
        return getattr(self(), key)


class FeatureStore(PyGFeatureStore):
    """The arrays of a data set by type. Rows are read on request.

    Rows of edge arrays are in the order of the imported edges, so their index is ``e_id``.

    ``store["x"]`` is read on use: ``store["x"][index]`` reads rows, ``store["x"]()`` and functions
    of PyTorch read the whole array. In a graph of several types, write ``store["paper", "x"]``. An
    index is a tensor, an array, a list, a slice, a mask or a number.

    Cost: ``get_tensor`` reads the rows of the index; without an index it reads the whole array.

    Raises:
        NotFoundError: no array has this name; also a ``KeyError``.
        InvalidError: an index is not a row.
    """

    def __init__(self, graph: DataSet) -> None:
        """Serve the arrays of ``graph``."""
        super().__init__(tensor_attr_cls=ArrayAttr if graph.is_typed else PlainArrayAttr)
        self._graph = graph

    @property
    def graph(self) -> DataSet:
        """The data set."""
        return self._graph

    def add_edge_arrays(self, batch: Any) -> Any:
        """Add the edge arrays of the data set to a batch, as ``edge_NAME`` by type.

        PyG's loaders over stores deliver only node arrays. Pass this method as their
        ``transform``.

        Cost: reads the batch's rows of each array.

        Raises:
            InvalidError: sampled edges without ``e_id``; the batch already uses a name.
        """
        edge_types = {edge_type_key(edge_type): edge_type for edge_type in self._graph.edge_types}
        for key in self._graph.arrays:
            kind, _, rest = key.partition("/")
            of_type, _, name = rest.partition("/")
            if kind != "edges" or (of_type == "edge" and name in TOPOLOGY):
                continue
            store = batch[edge_types[of_type]] if self._graph.is_typed else batch
            if "edge_index" not in store:
                continue
            if "e_id" not in store:
                raise InvalidError(
                    f"array `{key}`: the batch has no `e_id`, which says which rows are its own\n"
                    "hint: let the sampler return edge ids"
                )
            if (own := name_in_storage(key)) in store:
                raise InvalidError(
                    f"array `{key}`: the batch has something else under the name `{own}`\n"
                    "hint: import the array under another name"
                )
            rows = self._graph.rows(key, store.e_id.numpy())
            store[own] = torch.from_numpy(rows_in_form(rows, self._form(key)))
        return batch

    def view(self, *args: Any, **kwargs: Any) -> ArrayView:
        """An array that is read on use, or a group of arrays."""
        return ArrayView(self, self._tensor_attr_cls.cast(*args, **kwargs))

    def get_tensor(self, *args: Any, convert_type: bool = False, **kwargs: Any) -> Any:
        """Rows of an array: ``attr_name``, ``group_name`` and ``index``, or PyG's ``TensorAttr``.

        Without ``index``, it reads all rows. Without ``group_name``, it reads a node array of a
        graph of one type.

        Shapes: a tensor in its imported form: [rows, ...], or [...] if the index is a number.
        """
        attr = self._with_defaults(self._tensor_attr_cls.cast(*args, **kwargs))
        return super().get_tensor(attr, convert_type=convert_type)

    def multi_get_tensor(
        self, attrs: Sequence[TensorAttr], convert_type: bool = False
    ) -> list[Any]:
        """`get_tensor` for each of `attrs`."""
        return [self.get_tensor(attr, convert_type=convert_type) for attr in attrs]

    def _with_defaults(self, given: TensorAttr) -> TensorAttr:
        attr = copy.copy(given)
        if attr.group_name is UNSET and not self._graph.is_typed:
            attr.group_name = None
        if attr.index is UNSET:
            attr.index = None
        return ArrayAttr(attr.group_name, attr.attr_name, attr.index)

    def _key(self, given: TensorAttr) -> str:
        attr = self._with_defaults(given)
        group, name = attr.group_name, attr.attr_name
        if not isinstance(name, str):
            raise InvalidError(
                f"attr_name: expected the name of an array, found {type(name).__name__}\n"
                "hint: in a graph of several types write `store[node_type, name][index]`"
            )
        if group is None:
            return self._graph.key(name)
        if isinstance(group, tuple):
            plain = not self._graph.is_typed
            return self._graph.key(f"edges/{'edge' if plain else edge_type_key(group)}/{name}")
        return self._graph.key(f"nodes/{group}/{name}")

    def _put_tensor(self, tensor: Any, attr: TensorAttr) -> bool:
        raise UnsupportedError(
            "a data set is read-only here\n"
            "hint: `outercore add DATASET --array NAME=FILE` adds an array"
        )

    def _remove_tensor(self, attr: TensorAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _get_tensor(self, attr: TensorAttr) -> Tensor | None:
        key = self._key(attr)
        if attr.index is None or (isinstance(attr.index, slice) and attr.index == slice(None)):
            return torch.from_numpy(rows_in_form(self._graph.array(key), self._form(key)))
        ids = chosen_rows(attr.index, int(self._graph.arrays[key]["shape"][0]), key, from_end=True)
        rows = torch.from_numpy(rows_in_form(self._graph.rows(key, ids), self._form(key)))
        return rows if ids.ndim else rows[0]

    def _form(self, key: str) -> Any:
        return self._graph.schema.forms.get(key)

    def _get_tensor_size(self, attr: TensorAttr) -> tuple[int, ...]:
        key = self._key(attr)
        shape, form = self._graph.arrays[key]["shape"], self._form(key)
        return tuple(shape) if form is None else (shape[0], *form["row_shape"])

    def get_all_tensor_attrs(self) -> list[TensorAttr]:
        """Every node array. PyG's loaders deliver all of them, by node ids."""
        attrs: list[TensorAttr] = []
        for key in self._graph.arrays:
            kind, _, rest = key.partition("/")
            group, _, name = rest.partition("/")
            if kind == "nodes":
                attrs.append(ArrayAttr(group if self._graph.is_typed else None, name, None))
        return attrs


class GraphStore(PyGGraphStore):
    """The topology of a data set by edge type, in CSC.

    ``coo`` is in the order of the imported edges, so edge labels match it. ``coo``, ``csr`` and
    ``csc`` also return the edge id of each arc. PyG's samplers use it as ``edge_permutation``, so
    that ``e_id`` is the row of the imported edge list; a custom sampler has to do the same.

    Cost: PyG's samplers need the whole topology in memory, so ``get_edge_index`` loads it. It takes
    8 bytes per arc and 8 per node, and during the conversion also the size of the arrays on disk.
    Edge ids take another 8 bytes per arc. Outercore's `NeighborLoader` does not load it.
    """

    def __init__(self, graph: DataSet, time_attr: str = "time") -> None:
        """Serve the topology of ``graph``.

        If the source nodes have an array ``time_attr``, the sources of a node ascend by it in CSC.
        """
        super().__init__()
        self._graph, self._time_attr = graph, time_attr

    @property
    def graph(self) -> DataSet:
        """The data set."""
        return self._graph

    def _put_edge_index(self, edge_index: Any, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _remove_edge_index(self, edge_attr: EdgeAttr) -> bool:
        raise UnsupportedError("a data set is read-only here")

    def _get_edge_index(self, edge_attr: EdgeAttr) -> tuple[Tensor, Tensor] | None:
        edge_type = self._edge_type(edge_attr)
        return None if edge_type is None else self._arcs(edge_type, edge_attr.layout)[:2]

    def _edge_type(self, attr: EdgeAttr) -> EdgeType | None:
        """The edge type of an attribute; ``None`` if the data set does not have it."""
        if not self._graph.is_typed:
            return self._graph.edge_types[0]
        wanted = tuple(attr.edge_type or ())
        return next(
            (edge_type for edge_type in self._graph.edge_types if edge_type == wanted), None
        )

    def _edge_to_layout(
        self, attr: EdgeAttr, layout: EdgeLayout, store: bool = False
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The arcs in a layout, and the edge id of each arc, for ``e_id`` of PyG's samplers."""
        edge_type = self._edge_type(attr)
        if edge_type is None:
            raise KeyError(attr.edge_type)
        return self._arcs(edge_type, layout)

    def _arcs(
        self, edge_type: EdgeType, layout: EdgeLayout
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        ids = edge_rows(self._graph, edge_type)
        if layout == EdgeLayout.COO:
            row, col = torch.from_numpy(all_links(self._graph, edge_type).astype(np.int64))
            return row, col, None if ids is None else torch.from_numpy(np.sort(ids))
        offsets, sources = csc(self._graph, edge_type)
        targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        order: NDArray[np.int64] | None
        if layout == EdgeLayout.CSR:
            order = np.argsort(sources, kind="stable")
        else:
            order = self._by_time(edge_type, sources, targets)
        if order is not None:
            ids = order if ids is None else ids[order]
            sources, targets = sources[order], targets[order]
        ends: tuple[NDArray[np.int64], NDArray[np.int64]] = (sources, targets)
        if layout == EdgeLayout.CSC:
            ends = (sources, offsets)
        elif layout == EdgeLayout.CSR:
            counts = np.bincount(sources, minlength=self._graph.node_types[edge_type[0]])
            ends = (np.concatenate([[0], np.cumsum(counts)]), targets)
        row, col = (torch.from_numpy(end) for end in ends)
        return row, col, None if ids is None else torch.from_numpy(ids)

    def _by_time(
        self, edge_type: EdgeType, sources: NDArray[np.int64], targets: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """The order of arcs in which each target's sources ascend by time; `None` without times.

        PyG's temporal sampling expects this order.
        """
        key = f"nodes/{edge_type[0]}/{self._time_attr}"
        if key not in self._graph.arrays:
            return None
        return np.lexsort((self._graph.array(key)[sources], targets))

    def get_all_edge_attrs(self) -> list[EdgeAttr]:
        """Every edge type, in CSC."""
        counts, typed = self._graph.node_types, self._graph.is_typed
        return [
            EdgeAttr(
                edge_type=edge_type if typed else None,
                layout=EdgeLayout.CSC,
                is_sorted=True,
                size=(counts[edge_type[0]], counts[edge_type[2]]),
            )
            for edge_type in self._graph.edge_types
        ]
