"""``loader.data``: the data set of a loader with the attributes of PyG's ``Data``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch_geometric.nn.models import basic_gnn

from outercore.data.csc import all_links, edge_array_key
from outercore.data.edge_types import EdgeType
from outercore.data.graph import Graph
from outercore.data.schema import type_of
from outercore.data.split_names import find_split
from outercore.data.stores import FeatureStore

if TYPE_CHECKING:
    from typing_extensions import Self


class LoaderData(Graph):
    """A `Graph` with the attributes of PyG's ``Data`` or ``HeteroData``.

    Examples are ``x``, ``y``, ``edge_index``, ``edge_weight`` and ``train_mask``.

    Cost: arrays are read on use. ``data.x[ids]`` reads rows, ``data.x.to("cpu")`` the whole array.
    ``edge_index`` and masks are always read completely.

    Example:
        >>> import outercore as oc
        >>> data = oc.NeighborLoader(tiny_dataset, [5], memory="16MiB").data
        >>> data.num_nodes, data.x.shape, data.x[[3, 1]].shape
        (200, torch.Size([200, 8]), torch.Size([2, 8]))
    """

    @classmethod
    def of(cls, graph: Graph) -> Self:
        """The same data set, at the same generation."""
        made = cls.__new__(cls)
        made.__dict__.update(graph.__dict__)
        return made

    def __getitem__(self, of_type: str | EdgeType) -> DataOfType:
        """The attributes of a node type or edge type.

        Raises:
            KeyError: the type is unknown.
        """
        if of_type not in self.node_types and of_type not in self.edge_types:
            raise KeyError(of_type)
        return DataOfType(self, of_type)

    if not TYPE_CHECKING:  # With `__getattr__`, a type checker would accept any name.

        def __getattr__(self, name: str) -> Any:
            if not (name.startswith("_") or self.is_typed):
                edges = self.edge_types[0] if self.edge_types else None
                for of_type in ("node", edges):
                    if of_type and (value := attribute(self, of_type, name)) is not None:
                        return value
            return super().__getattr__(name)


class DataOfType:
    """The attributes of one node type or edge type, read on use."""

    def __init__(self, data: LoaderData, of_type: str | EdgeType) -> None:
        """Binds the attributes of `of_type` in `data`. Nothing is read yet."""
        self._data, self._type = data, of_type

    @property
    def num_nodes(self) -> int:
        """Number of nodes of the type."""
        return self._data.node_types[str(self._type)]

    def __getattr__(self, name: str) -> Any:
        value = None if name.startswith("_") else attribute(self._data, self._type, name)
        if value is None:
            raise AttributeError(f"{self._type!r} has no attribute `{name}`")
        return value


def attribute(graph: Graph, of_type: str | EdgeType, name: str) -> Any:
    """The attribute of a type by its name in PyG; `None` if the type lacks it."""
    if isinstance(of_type, tuple):
        if name == "edge_index":
            return torch.from_numpy(all_links(graph, of_type).astype(np.int64))
        array = name.removeprefix("edge_")
        if name == array or edge_array_key(graph, of_type, array) not in graph.arrays:
            return None
        return FeatureStore(graph).view(group_name=of_type, attr_name=array)
    of_role = {"x": graph.features_of(of_type), "y": graph.schema.labels}.get(name)
    if of_role is not None and type_of(of_role) == of_type:
        name = of_role.split("/", 2)[2]
    if f"nodes/{of_type}/{name}" in graph.arrays:
        return FeatureStore(graph).view(group_name=of_type, attr_name=name)
    split = find_split(name.removesuffix("_mask"), graph.splits)
    if name.endswith("_mask") and split and graph.labelled_type in (None, of_type):
        return _mask(graph, of_type, split)
    return None


def _mask(graph: Graph, node_type: str, split: str) -> Tensor:
    mask = torch.zeros(graph.node_types[node_type], dtype=torch.bool)
    mask[torch.from_numpy(graph.split(split))] = True
    return mask


def take_for_inference(loader: type) -> None:
    """Makes ``model.inference(loader)`` of PyG's models accept loaders of this class, too.

    PyG checks ``isinstance(loader, NeighborLoader)`` with a name in its module. This function
    replaces that name by a class that accepts both loaders. Our loader does not inherit from PyG's
    loader: it would be a ``DataLoader``, which Lightning, Accelerate and others rebuild with
    another sampler.
    """
    theirs = basic_gnn.NeighborLoader

    class Taken(type):
        def __instancecheck__(cls, instance: Any) -> bool:
            return isinstance(instance, (theirs, loader))

    basic_gnn.NeighborLoader = Taken(theirs.__name__, (theirs,), {"__module__": __name__})
