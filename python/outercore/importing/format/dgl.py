"""Graphs of DGL as data sets."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from outercore.base.listing import listed
from outercore.data.batch_arrays import RESERVED
from outercore.data.edge_types import EdgeType
from outercore.data.graph import Graph
from outercore.data.schema import TOPOLOGY
from outercore.importing.format.frames import MemoryGraph
from outercore.importing.format.pyg import MASKS, numpy_of, open_hetero, written
from outercore.importing.options import ImportOptions
from outercore.importing.python_calls import called_from_python, require_kind
from outercore.importing.source import GraphSource


@called_from_python
def from_dgl(
    graph: Any,
    out: str | Path,
    *,
    features: str | None = "feat",
    labels: str | None = "label",
    splits: Mapping[str, Any] | None = None,
    options: ImportOptions | None = None,
) -> Graph:
    """Write a graph of DGL as a data set and open it.

    Edges keep their order, so edge ids are the same in the graph and in the data set. In a graph
    with several types, only one type may have labels and masks.

    Args:
        graph: a ``DGLGraph``. Further data of nodes and edges become arrays of their names.
        out: directory of the data set.
        features: name of the node data with the features. The graph may lack them.
        labels: name of the node data with the labels. The graph may lack them.
        splits: for each name, ids of nodes or a mask; by default the masks ``train_mask``,
            ``val_mask`` and ``test_mask``.
        options: :class:`ImportOptions`, such as ``ImportOptions(overwrite=True)``.

    Raises:
        InvalidError: node or edge data that cannot be imported, such as a wrong number of rows.
    """
    require_kind("from_dgl", "graph", graph, "is_homogeneous", "a graph of DGL")
    if not graph.is_homogeneous:
        source = _open_typed(graph, {features: "x", labels: "y"}, splits, options)
        return written(source, out, options)
    source, target = (ends.cpu().numpy() for ends in graph.edges(order="eid"))
    nodes = {name: numpy_of(f"ndata[{name!r}]", value) for name, value in graph.ndata.items()}
    masks = {
        split: nodes.pop(name) for split, names in MASKS.items() for name in names if name in nodes
    }
    chosen = splits if splits is not None else {name: mask != 0 for name, mask in masks.items()}
    found = MemoryGraph(
        "from_dgl",
        source,
        target,
        {name: numpy_of(f"edata[{name!r}]", value) for name, value in graph.edata.items()},
        nodes=nodes,
        num_nodes=int(graph.num_nodes()),
        features=(features,) if features is not None and features in nodes else (),
        labels=labels if labels in nodes else None,
        splits=chosen,
        keeps_form=True,
    )
    return written(found.opened(options), out, options)


class _Store(dict[str, Any]):
    """Data of one type, with the interface of PyG's stores."""

    def __getattr__(self, name: str) -> Any:
        return self.get(name)


class _Stores(dict[Any, _Store]):
    """A graph of DGL with several types, with the interface of PyG's `HeteroData`."""

    _global_store: tuple[str, ...] = ()

    @property
    def node_types(self) -> list[str]:
        return [of_type for of_type in self if isinstance(of_type, str)]

    @property
    def edge_types(self) -> list[EdgeType]:
        return [of_type for of_type in self if not isinstance(of_type, str)]


def _open_typed(
    graph: Any,
    names: Mapping[str | None, str],
    splits: Mapping[str, Any] | None,
    options: ImportOptions | None,
) -> GraphSource:
    """Opens a graph of DGL with several types. `names` maps DGL's names of node data to PyG's."""
    masks = {name for several in MASKS.values() for name in several}
    stores = _Stores()
    further, not_taken = dict[str, None](), list[str]()
    for node_type in graph.ntypes:
        stores[node_type] = store = _Store(num_nodes=int(graph.num_nodes(node_type)))
        for name, values in graph.nodes[node_type].data.items():
            if name in names or name in masks:
                store[names.get(name, name)] = values
            elif name in RESERVED:
                not_taken.append(f"{node_type}.{name}")
            else:
                store[name], further[name] = values, None
    edge_arrays: dict[EdgeType, dict[str, Any]] = {}
    for edge_type in graph.canonical_etypes:
        ends = graph.edges(etype=edge_type, order="eid")
        stores[edge_type] = _Store(edge_index=np.stack([end.cpu().numpy() for end in ends]))
        edge_arrays[edge_type] = {}
        for name, values in graph.edges[edge_type].data.items():
            if name in TOPOLOGY:
                not_taken.append(f"{','.join(edge_type)}.{name}")
            else:
                edge_arrays[edge_type][name] = values
    chosen = None if splits is None else dict(splits)
    options = options or ImportOptions()
    source = open_hetero(stores, chosen, tuple(further), 0, options, edge_arrays)
    if not_taken:
        source.notes.append(
            f"from_dgl: not taken: {listed(not_taken)}: a batch has something else under the name"
        )
    return source
