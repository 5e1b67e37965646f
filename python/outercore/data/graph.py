"""A graph on disk: the class that users open, with methods for new arrays and other libraries."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore import _core
from outercore.base import native
from outercore.base.display import html_table
from outercore.base.likeness import missing_attribute, suggestion
from outercore.data.data_set import DataSet
from outercore.data.edge_types import EdgeType, edge_type_called
from outercore.data.schema import EDGE, NODE, TOPOLOGY, TRIPLES
from outercore.data.split_names import find_split
from outercore.data.triples import PARTS
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from outercore.data.stores import FeatureStore, GraphStore


class Graph(DataSet):
    """A graph on disk with its features, labels and splits. Opening it reads only the manifest.

    Example:
        >>> import outercore as oc
        >>> graph = oc.open(tiny_dataset)
        >>> graph
        Graph(nodes=200, edges=..., features=8, classes=4, splits=['test', 'train', 'valid'])
        >>> graph.split("train").dtype
        dtype('int64')
    """

    @property
    def num_node_features(self) -> int | dict[str, int]:
        """Number of feature columns, as in PyG's `Data`; by node type as in `HeteroData`."""
        if not self.is_typed:
            return self.num_features
        keys = {name: self.features_of(name) for name in self.node_types}
        return {name: 0 if key is None else self.schema.width(key) for name, key in keys.items()}

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, for ``to_hetero`` and heterogeneous layers of PyG."""
        return list(self.node_types), self.edge_types

    def add_node_array(
        self,
        name: str,
        values: ArrayLike,
        *,
        overwrite: bool = False,
        origin: str = "",
        node_type: str | None = None,
    ) -> None:
        """Write an array with a row per node into the data set, as ``nodes/<node type>/<name>``.

        Args:
            name: name of the array for :meth:`array`; in a graph with several types, :meth:`array`
                needs the whole key.
            values: real numbers in any form that NumPy accepts, with a row per node.
            overwrite: replace an array of this name.
            origin: source of the values, for the provenance.
            node_type: the node type, in a graph with several types.

        Raises:
            InvalidError: the name is in use (features and labels cannot be overwritten); another
                number of rows; a graph with several types without ``node_type``.
            NotFoundError: the node type does not exist.

        Example:
            >>> import outercore as oc
            >>> graph = oc.open(tiny_dataset)
            >>> graph.add_node_array("half", np.arange(graph.num_nodes) / 2, overwrite=True)
            >>> graph.array("half")[:3].tolist()
            [0.0, 0.5, 1.0]
        """
        self.check_free(name, overwrite=overwrite, node_type=node_type)
        of_type = _node_type_of(self, node_type)
        rows = self.node_types[of_type]
        self._add(f"nodes/{of_type}/{name}", values, rows, "nodes", origin)

    def add_edge_array(
        self,
        name: str,
        values: ArrayLike,
        *,
        overwrite: bool = False,
        origin: str = "",
        edge_type: EdgeType | None = None,
    ) -> None:
        """Write an array with a row per imported edge into the data set, as ``edges/edge/<name>``.

        Args:
            name: name of the array, for example for the option ``weights`` of algorithms.
            values: real numbers in any form that NumPy accepts, in the order of the imported edges.
            overwrite: replace an array of this name.
            origin: source of the values, for the provenance.
            edge_type: the edge type, in a graph with several types; the key is then
                ``edges/author__writes__paper/<name>``.

        Raises:
            InvalidError: the name is in use; another number of rows; a graph with several types
                without ``edge_type``.
            NotFoundError: the edge type does not exist.

        Example:
            >>> import outercore as oc
            >>> graph = oc.open(tiny_dataset)
            >>> graph.add_edge_array("cost", np.ones(graph.num_edge_rows), overwrite=True)
            >>> graph.arrays["edges/edge/cost"]["dtype"]
            'float64'
        """
        of_type, rows = _edge_rows_of(self, edge_type, name)
        if name in TOPOLOGY:
            raise InvalidError(f"edge array `{name}` is the topology\nhint: choose another name")
        key = f"edges/{of_type}/{name}"
        self._check_new(key, overwrite=overwrite)
        self._add(key, values, rows, "edges imported", origin)

    def check_free(
        self, name: str, *, overwrite: bool = False, node_type: str | None = None
    ) -> None:
        """Check that a node array of this name can be written.

        Raises:
            InvalidError: the name is in use or not allowed.
            NotFoundError: the node type does not exist.
        """
        of_type = _node_type_of(self, node_type)
        key = f"nodes/{of_type}/{name}"
        if key == self.features_of(of_type):
            raise InvalidError(f"node array `{name}` has the features\nhint: choose another name")
        if key == self.schema.labels:
            raise InvalidError(f"node array `{name}` has the labels\nhint: choose another name")
        require_one_name(self, of_type, name)
        self._check_new(key, overwrite=overwrite)

    def hotness(self, name: str) -> str:
        """The hotness of a cache in the form of the core: a kind of hotness, or an array's key.

        Raises:
            NotFoundError: neither a kind nor an array has this name.
        """
        return name if name in ("presample", "visits", "in_degree", "none") else self.key(name)

    def _check_new(self, key: str, *, overwrite: bool) -> None:
        _core.check_key(key)
        if key in self.arrays and not overwrite:
            raise InvalidError(
                f"array `{key}` is in the data set already"
                "\nhint: choose another name, or `--overwrite`"
            )

    def _add(self, key: str, values: ArrayLike, rows: int, of_what: str, origin: str) -> None:
        array = _numbers_of(key, values, rows, of_what)
        native.add_array(self.root, key, array, origin)
        self.reload()

    def entity_names(self, ids: ArrayLike | None = None) -> list[str]:
        """The names of entities, in the order of ``ids``; by default all names."""
        return self.entities.names(ids)

    def entity_id(self, name: str | int) -> int:
        """The id of the entity called ``name``.

        Raises:
            NotFoundError: the entity does not exist.
        """
        return self.entities.id(name)

    def relation_names(self, ids: ArrayLike | None = None) -> list[str]:
        """The names of relations, in the order of ``ids``; by default all names."""
        return self.relations.names(ids)

    def relation_id(self, name: str | int) -> int:
        """The id of the relation called ``name``.

        Raises:
            NotFoundError: the relation does not exist.
        """
        return self.relations.id(name)

    def to_pandas(self, **columns: ArrayLike) -> Any:
        """A data frame with a column ``id``, a node's name or its id in the files, and `columns`.

        Args:
            columns: arrays with a row per node, such as the result of an algorithm. An array of
                several columns becomes ``NAME_0``, ``NAME_1``, ...

        Shapes: a row per node, in the order of ids. With several types, ordered by type, with a
        column ``type``.

        Raises:
            InvalidError: another number of rows.
            UnsupportedError: pandas is not installed.

        Example:
            >>> import outercore as oc
            >>> graph = oc.open(tiny_dataset)
            >>> graph.to_pandas(rank=oc.pagerank(graph), label=graph.array("y")).shape
            (200, 3)
        """
        from outercore.data.node_names import names_of_nodes
        from outercore.data.outputs import node_frame

        arrays = {name: np.asarray(values) for name, values in columns.items()}
        return node_frame(names_of_nodes(self), arrays)

    def pyg(self, time_attr: str = "time") -> tuple[FeatureStore, GraphStore]:
        """The stores for PyG's loaders. ``time_attr`` is the node array for temporal sampling."""
        from outercore.data.stores import FeatureStore, GraphStore

        return FeatureStore(self), GraphStore(self, time_attr)

    if not TYPE_CHECKING:  # With it, a type checker would accept any name.

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("the graph", name, dir(type(self)), _instead_of(self, name))

    def _repr_html_(self) -> str:
        title = "Triples" if self.schema.is_knowledge_graph else "Graph"
        return html_table(f"{title} in {self.root}", _described(self))

    def __repr__(self) -> str:
        return _summary(self)


class StoredGraph(Graph):
    """A graph without the updates that are only in the log, not yet in the arrays.

    Opening it writes nothing, so it works on a full disk and in a read-only directory. While a
    server serves the data set, a :class:`Graph` asks the server to fold the log into the arrays; a
    `StoredGraph` does not.
    """

    @staticmethod
    def _opened(place: str, generation: str | None = None) -> Any:
        """Opens the data set in `place` without the log's updates, or in its state `generation`."""
        return _core.DataSet(place, generation, fold=False)

    @property
    def pending_updates(self) -> int:
        """Number of updates in the log that the arrays do not hold.

        Cost: reads the log.

        Raises:
            CorruptError: the log is damaged.
        """
        return int(self._core.pending_updates())


def open(root: str | os.PathLike[str]) -> Graph:
    """Open the data set in the directory ``root``; see :class:`Graph`."""
    return Graph(root)


Source = Graph | str | os.PathLike[str]
"""An opened graph, or the directory of a data set."""


def root_of(graph: Source) -> Path:
    """The directory of a data set."""
    return graph.root if isinstance(graph, Graph) else Path(graph)


def _instead_of(graph: Graph, name: str) -> str:
    """Advice in place of the attribute `name` of PyG's `Data`; empty for other names."""
    if name.startswith("_"):  # While a copy is made, the graph does not have its attributes yet.
        return ""
    if name in ("edge_index", "adj_t"):
        return "`graph.pyg()[1].coo()` reads sources, targets and ids of all edges"
    split = find_split(name.removesuffix("_mask"), graph.splits)
    if split is not None:
        return f'`graph.split("{split}")` gives the ids of the nodes'
    by_role = {"x": graph.schema.features, "y": graph.schema.labels}
    short = [name, name.removeprefix("edge_"), by_role.get(name)]
    keys = [key for key in graph.arrays if key in short or key.split("/", 2)[-1] in short]
    if not keys:
        return ""
    key = keys[0] if graph.is_typed else keys[0].removeprefix("nodes/node/")
    return f'`graph.array("{key}")` reads the array, `graph.rows("{key}", ids)` some rows'


def _described(graph: Graph) -> list[tuple[str, str]]:
    """Rows of the table that a notebook shows for a graph."""
    if graph.schema.is_knowledge_graph:
        return triple_counts(graph)
    rows = [("nodes", f"{graph.num_nodes:,}"), ("edges", f"{graph.num_edges:,}")]
    if graph.is_typed:
        edges = graph.schema.edges.values()
        rows += [(f"nodes of {name}", f"{count:,}") for name, count in graph.node_types.items()]
        rows += [
            (f"edges of {edges_of_type.key}", f"{edges_of_type.count:,}") for edges_of_type in edges
        ]
    rows += [
        ("features", f"{graph.num_features:,}"),
        ("classes", f"{graph.num_classes:,}"),
        ("splits", ", ".join(graph.splits) or "none"),
        ("arrays", ", ".join(sorted(graph.arrays))),
    ]
    return rows


def triple_counts(graph: Graph) -> list[tuple[str, str]]:
    """Numbers of entities, relations, and triples of each part, as pairs of a name and a text."""
    rows = [("entities", f"{graph.num_nodes:,}")]
    if (relations := graph.arrays.get("names/relation.offsets")) is not None:
        # There is one more offset than names, for the end of the last name.
        rows.append(("relations", f"{relations['shape'][0] - 1:,}"))
    parts = [(part, graph.arrays.get(f"triples/{part}")) for part in PARTS]
    return rows + [(f"triples, {part}", f"{entry['shape'][0]:,}") for part, entry in parts if entry]


def _summary(graph: Graph) -> str:
    """The text of `repr`."""
    if graph.schema.is_knowledge_graph:
        count = graph.arrays[TRIPLES]["shape"][0]
        return f"Graph(entities={graph.num_nodes}, triples={count})"
    return (
        f"Graph(nodes={graph.num_nodes}, edges={graph.num_edges}, "
        f"features={graph.num_features}, classes={graph.num_classes}, splits={graph.splits})"
    )


def _node_type_of(graph: Graph, given: str | None) -> str:
    """The node type of a new array; `given` is the caller's argument.

    Errors: `InvalidError` for a missing type in a graph of several types; `NotFoundError` for an
    unknown type.
    """
    if given is None and graph.is_typed:
        known = " and ".join(graph.node_types)
        raise InvalidError(
            f"the graph has several types, expected a `node_type`\nhint: it has {known}"
        )
    if given is not None and given not in graph.node_types:
        guess = suggestion(given, graph.node_types, otherwise="there are")
        raise NotFoundError(f"there is no node type `{given}`\nhint: {guess}")
    return NODE if given is None else given


def _edge_rows_of(graph: Graph, edge_type: EdgeType | None, name: str) -> tuple[str, int]:
    """The key of the edge type for the edge array `name`, and its number of imported rows.

    Errors: `InvalidError` without an `edge_type` in a graph of several types; `NotFoundError` for
    an unknown type.
    """
    if edge_type is None and graph.is_typed:
        raise InvalidError(
            f"edge array `{name}`: the graph has several types, expected an `edge_type`"
            f"\nhint: it has {', '.join(map(str, graph.edge_types))}"
        )
    if edge_type is not None:
        edge_type = edge_type_called(edge_type, graph.edge_types, f"edge array `{name}`")
    if not graph.is_typed or edge_type is None:
        return EDGE, graph.num_edge_rows
    edges = graph.schema.edges[edge_type]
    return edges.key, edges.count if edges.rows is None else edges.rows


def require_one_name(graph: Graph, node_type: str, name: str, *, is_text: bool = False) -> None:
    """Checks that an array and a text of the nodes do not have the same name.

    `is_text`: the new array is a text.

    Errors: `InvalidError` if the other kind of array exists under this name.
    """
    of_array, of_text = f"nodes/{node_type}/{name}", f"names/{node_type}.{name}.offsets"
    what, other, there = ("text", of_array, "an array") if is_text else ("array", of_text, "a text")
    if other in graph.arrays:
        raise InvalidError(
            f"{what} `{name}`: the nodes have {there} of this name\nhint: choose another name"
        )


def _numbers_of(key: str, values: ArrayLike, rows: int, of_what: str) -> NDArray[Any]:
    """The values of the array `key` as a NumPy array, checked for its number of rows.

    Errors: `InvalidError` for another number of rows, or anything but numbers; `of_what` tells the
    user what the rows are.
    """
    array = np.ascontiguousarray(values)
    if array.ndim == 0 or len(array) != rows:
        raise InvalidError(
            f"array `{key}`: shape {np.shape(values)}, expected {rows:,} rows: {of_what}"
        )
    if array.dtype.kind not in "biuf":
        raise InvalidError(f"array `{key}`: type {array.dtype}, expected numbers")
    return array
