"""A data set on disk, opened for reading."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore import _core
from outercore.base import native
from outercore.base.display import html_table
from outercore.base.likeness import missing_attribute, suggestion
from outercore.data.edge_types import EdgeType as EdgeType
from outercore.data.edge_types import edge_type_described
from outercore.data.file_ids import first_id_of
from outercore.data.graph_arrays import (
    NodeTypes,
    described,
    edge_rows_of,
    holds_triples,
    instead_of,
    key_called,
    node_type_of,
    numbers_of,
    refuse_run,
    refuse_several_types,
    require_directory,
    require_one_name,
    summary,
    texts_called,
    widths_of,
)
from outercore.data.names import KEY, Names
from outercore.data.row_index import chosen_rows
from outercore.data.split_names import find_split
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from outercore.data.stores import FeatureStore, GraphStore

_TOPOLOGY = ("offsets", "sources", "ids")


class Graph:
    """A graph on disk with its features, labels and splits. Opening it reads only the manifest.

    Example:
        >>> import outercore as oc
        >>> graph = oc.open(tiny_dataset)
        >>> graph
        Graph(nodes=200, edges=..., features=8, classes=4, splits=['test', 'train', 'valid'])
        >>> graph.split("train").dtype
        dtype('int64')
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Open the data set in the directory ``root``.

        Raises:
            NotFoundError: there is no data set, or the file of an array is missing.
            CorruptError: an array has another length than the manifest says.
            VersionError: a newer Outercore wrote it.
            InvalidError: ``root`` is no directory: an empty text, or a graph in memory.
        """
        require_directory(root)
        self.root = Path(root)
        self._generation: str | None = None
        # A copy in another process may have another working directory.
        self._place = os.fspath(self.root.absolute())
        try:
            self._core = self._opened(os.fspath(root))
        except NotFoundError:
            refuse_run(self.root)
            raise

    @cached_property
    def _core(self) -> Any:
        """The opened data set; of a copy, opened when it is first used."""
        return self._opened(self._place, self._generation)

    @staticmethod
    def _opened(place: str, generation: str | None = None) -> Any:
        """The data set in `place` at its last acknowledged update, or as it was in `generation`."""
        return _core.DataSet(place, generation)

    def __getstate__(self) -> dict[str, Any]:
        """Where the data set is: a copy, pickled or not, opens it again.

        The copy opens the same state while some process has it open. Otherwise it opens the newest
        state.
        """
        root = Path(self._place)
        return {"root": root, "_place": self._place, "_generation": self.generation}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest ``graph.json``: arrays, roles, types and provenance."""
        return dict(json.loads(self._core.manifest()))

    @property
    def generation(self) -> str:
        """A name for the state of the data set that this graph has open."""
        return str(self._core.generation())

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self._core.num_nodes())

    @property
    def first_id(self) -> int:
        """What the imported files call node 0; arrays and numbers are positions from 0."""
        return first_id_of(self)

    @property
    def num_edges(self) -> int:
        """Number of arcs in the CSC; an undirected edge counts twice."""
        return int(self._core.num_edges())

    def __fspath__(self) -> str:
        """The directory: a graph may stand where one is expected."""
        return os.fspath(self.root)

    @property
    def node_types(self) -> dict[str, int]:
        """Number of nodes of each type, in the order of their names; ``[0]`` is the first name."""
        types = self.manifest["node_types"]
        return NodeTypes({name: int(types[name]["count"]) for name in sorted(types)})

    @property
    def edge_types(self) -> list[EdgeType]:
        """Edge types as (source type, relation, target type), in the order of their keys."""
        types = self.manifest["edge_types"]
        return [edge_type_described(key, types[key]) for key in sorted(types)]

    @property
    def is_typed(self) -> bool:
        """Whether there are other types than ``node`` and ``edge`` (a heterogeneous graph)."""
        nodes, edges = set(self.manifest["node_types"]), set(self.manifest["edge_types"])
        return bool(nodes - {"node"} or edges - {"edge"})

    @property
    def labelled_type(self) -> str | None:
        """The node type that labels and splits belong to; ``None`` without labels."""
        key = self._role("labels")
        return None if key is None else key.split("/")[1]

    def features_of(self, node_type: str) -> str | None:
        """The key of the features of a node type; ``None`` where it has none."""
        roles = self.manifest.get("roles", {})
        found: str | None = roles.get("typed_features", {}).get(node_type)
        if found is None and (key := roles.get("features")) is not None:
            return str(key) if key.split("/")[1] == node_type else None
        return found

    @property
    def num_features(self) -> int:
        """Columns of the feature array, 0 without one."""
        key = self._role("features")
        if key is None:
            return 0
        shape = self.manifest["arrays"][key]["shape"]
        return int(shape[1]) if len(shape) == 2 else 1

    @property
    def num_node_features(self) -> int | dict[str, int]:
        """As `Data` and `HeteroData` of PyG have it: in a graph of several types by node type."""
        return widths_of(self) if self.is_typed else self.num_features

    def metadata(self) -> tuple[list[str], list[EdgeType]]:
        """Node types and edge types, as ``to_hetero`` and heterogeneous layers of PyG take them."""
        return list(self.node_types), self.edge_types

    @property
    def num_classes(self) -> int:
        """Classes of the labels (columns of multi-label ones), 0 without labels or for numbers."""
        key = self._role("labels")
        if key is None or self.manifest["arrays"][key]["dtype"] == "float64":
            return 0
        _, *columns = self.manifest["arrays"][key]["shape"]
        return int(columns[0] if columns else self.manifest["roles"].get("classes") or 0)

    @property
    def splits(self) -> list[str]:
        """Names of the splits, sorted."""
        return sorted(self.manifest.get("roles", {}).get("splits", {}))

    @property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """Every array by key, as the manifest describes it."""
        arrays: dict[str, dict[str, Any]] = self.manifest["arrays"]
        return arrays

    def key(self, name: str) -> str:
        """The key of an array by its short name: ``x`` is ``nodes/node/x``, of several types
        ``paper/x`` is ``nodes/paper/x``.

        Raises:
            NotFoundError: no array has this name.
            InvalidError: the name is no text.
        """
        return key_called(self, name)

    def hotness(self, name: str) -> str:
        """What the core is told of a cache's hotness: one of its own kinds, or an array's key.

        Raises:
            NotFoundError: neither a kind nor an array has this name.
        """
        return name if name in ("presample", "visits", "in_degree", "none") else self.key(name)

    def array(self, name: str) -> NDArray[Any]:
        """A whole array in memory; ``bfloat16`` comes as ``float32``, texts as objects ``str``.

        Raises:
            NotFoundError: no array has this name.
        """
        if (texts := texts_called(self, name)) is not None:
            return np.array(texts.names(), object)
        array: NDArray[Any] = self._core.read_array(self.key(name))
        return array

    def split(self, name: str) -> NDArray[np.int64]:
        """The node ids of a split, in the order in which they were imported; ``val`` is ``valid``.

        Raises:
            NotFoundError: there is no such split; the message lists those that there are.
        """
        if (found := find_split(name, self.splits)) is None:
            guess = suggestion(name, self.splits, otherwise="it has")
            raise NotFoundError(f"split `{name}` is not in the data set\nhint: {guess}")
        ids: NDArray[np.int64] = self._core.read_array(self.manifest["roles"]["splits"][found])
        return ids

    def rows(self, name: str, ids: Any) -> NDArray[Any]:
        """Rows of a node array, in the order of ``ids``; repetitions are allowed.

        Shapes: ``ids`` whole numbers [n], a slice, or a mask [nodes]; result [n] or [n, columns].

        Raises:
            NotFoundError: no array has this name.
            InvalidError: an id that is no row of the array; the message names it.
        """
        if (texts := texts_called(self, name)) is not None:
            return np.array(texts.names(chosen_rows(ids, len(texts), name)), object)
        key = self.key(name)
        wanted = chosen_rows(ids, int(self.arrays[key]["shape"][0]), key)
        rows: NDArray[Any] = self._core.read_rows(key, np.atleast_1d(wanted))
        return rows

    @property
    def num_edge_rows(self) -> int:
        """Rows of the imported edge list: an undirected edge counts once.

        Raises:
            InvalidError: the data set does not say.
        """
        rows = self.manifest["edge_types"]["edge"].get("rows")
        if rows is None and "edges/edge/ids" not in self.arrays:
            rows = self.num_edges
        if rows is None:
            raise InvalidError(
                f"data set `{self.root}` does not say how many edges were imported"
                "\nhint: import it again"
            )
        return int(rows)

    def add_node_array(
        self,
        name: str,
        values: ArrayLike,
        *,
        overwrite: bool = False,
        origin: str = "",
        node_type: str | None = None,
    ) -> None:
        """Write an array with a row a node into the data set, as ``nodes/<node type>/<name>``.

        Args:
            name: what :meth:`array` shall find it by; with several types that is the whole key.
            values: anything real that NumPy takes, with a row a node.
            overwrite: replace an array of this name.
            origin: what made it, for the provenance.
            node_type: whose nodes, in a graph with several types.

        Raises:
            InvalidError: the name is taken, by features or labels for good; another number of rows;
                a graph with several types without ``node_type``.
            NotFoundError: there is no such node type.

        Example:
            >>> import outercore as oc
            >>> graph = oc.open(tiny_dataset)
            >>> graph.add_node_array("half", np.arange(graph.num_nodes) / 2, overwrite=True)
            >>> graph.array("half")[:3].tolist()
            [0.0, 0.5, 1.0]
        """
        self.check_free(name, overwrite=overwrite, node_type=node_type)
        of_type = node_type_of(self, node_type)
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
        """Write an array with a value a row of the imported edge list, as ``edges/edge/<name>``.

        Args:
            name: what the algorithms take as ``weights``.
            values: anything real that NumPy takes, in the order in which the edges were imported.
            overwrite: replace an array of this name.
            origin: what made it, for the provenance.
            edge_type: whose edges, in a graph with several types; the key is then
                ``edges/author__writes__paper/<name>``.

        Raises:
            InvalidError: the name is taken; another number of rows; a graph with several types
                without ``edge_type``.
            NotFoundError: there is no such edge type.

        Example:
            >>> import outercore as oc
            >>> graph = oc.open(tiny_dataset)
            >>> graph.add_edge_array("cost", np.ones(graph.num_edge_rows), overwrite=True)
            >>> graph.arrays["edges/edge/cost"]["dtype"]
            'float64'
        """
        of_type, rows = edge_rows_of(self, edge_type, name)
        if name in _TOPOLOGY:
            raise InvalidError(f"edge array `{name}` is the topology\nhint: choose another name")
        key = f"edges/{of_type}/{name}"
        self._check_new(key, overwrite=overwrite)
        self._add(key, values, rows, "edges imported", origin)

    def check_free(
        self, name: str, *, overwrite: bool = False, node_type: str | None = None
    ) -> None:
        """Whether a node array of this name may be written.

        Raises:
            InvalidError: it may not; the message says why.
            NotFoundError: there is no such node type.
        """
        of_type = node_type_of(self, node_type)
        key = f"nodes/{of_type}/{name}"
        if key == self.features_of(of_type):
            raise InvalidError(f"node array `{name}` has the features\nhint: choose another name")
        if key == self._role("labels"):
            raise InvalidError(f"node array `{name}` has the labels\nhint: choose another name")
        require_one_name(self, of_type, name)
        self._check_new(key, overwrite=overwrite)

    def reload(self) -> None:
        """Look at the data set again, which somebody may have changed."""
        self._adopt(self._opened(self._place))
        # The files that only the old state needed.
        _core.tidy(self._place)

    def take_additions(self) -> None:
        """Take over arrays that were added since the graph was opened, such as a grid.

        Where anything else has changed meanwhile, the graph stays as it is: its nodes and values do
        not change while it is used.
        """
        if (newest := self._core.with_additions()) is not None:
            self._adopt(newest)

    def _adopt(self, opened: Any) -> None:
        self._core = opened
        for cached in ("manifest", "entities", "relations"):
            self.__dict__.pop(cached, None)

    def _check_new(self, key: str, *, overwrite: bool) -> None:
        _core.check_key(key)
        if key in self.arrays and not overwrite:
            raise InvalidError(
                f"array `{key}` is in the data set already"
                "\nhint: choose another name, or `--overwrite`"
            )

    def _add(self, key: str, values: ArrayLike, rows: int, of_what: str, origin: str) -> None:
        array = numbers_of(key, values, rows, of_what)
        native.add_array(self.root, key, array, origin)
        self.reload()

    @cached_property
    def entities(self) -> Names:
        """The names of the entities of a knowledge graph; their ids are the node ids.

        Raises:
            NotFoundError: the data set has no names.
        """
        refuse_several_types(self)
        return Names(self.root, self.arrays, "entity")

    @cached_property
    def relations(self) -> Names:
        """The names of the relations of a knowledge graph.

        Raises:
            NotFoundError: the data set has no names.
        """
        return Names(self.root, self.arrays, "relation")

    def keys_of(self, node_type: str) -> Names | None:
        """The keys by which the nodes of a type were imported; ``None`` where they have none."""
        kind = f"{node_type}.{KEY}"
        if not self.is_typed or f"names/{kind}.order" not in self.arrays:
            return None
        return Names(self.root, self.arrays, kind)

    def entity_names(self, ids: ArrayLike | None = None) -> list[str]:
        """The names of entities, in the order of ``ids``; of all without it."""
        return self.entities.names(ids)

    def entity_id(self, name: str | int) -> int:
        """The id of the entity called ``name``.

        Raises:
            NotFoundError: there is none.
        """
        return self.entities.id(name)

    def relation_names(self, ids: ArrayLike | None = None) -> list[str]:
        """The names of relations, in the order of ``ids``; of all without it."""
        return self.relations.names(ids)

    def relation_id(self, name: str | int) -> int:
        """The id of the relation called ``name``.

        Raises:
            NotFoundError: there is none.
        """
        return self.relations.id(name)

    def to_pandas(self, **columns: ArrayLike) -> Any:
        """Values of all nodes as a frame: ``id``, a node's name or its id in files, and columns.

        Args:
            columns: arrays with a row a node, such as the result of an algorithm. One of several
                columns becomes ``NAME_0``, ``NAME_1``, ...

        Shapes: a row a node, in the order of ids; of several types by type, with a column ``type``.

        Raises:
            InvalidError: another number of rows.
            UnsupportedError: pandas is not installed.

        Example:
            >>> import outercore as oc
            >>> graph = oc.open(tiny_dataset)
            >>> graph.to_pandas(rank=oc.pagerank(graph), label=graph.array("y")).shape
            (200, 3)
        """
        from outercore.data.node_numbers import NodeNumbers
        from outercore.data.outputs import node_frame

        arrays = {name: np.asarray(values) for name, values in columns.items()}
        return node_frame(self, arrays, numbers=NodeNumbers.of_graph(self, None))

    def pyg(self, time_attr: str = "time") -> tuple[FeatureStore, GraphStore]:
        """The stores for PyG's loaders; ``time_attr`` are node times of their temporal sampling."""
        from outercore.data.stores import FeatureStore, GraphStore

        return FeatureStore(self), GraphStore(self, time_attr)

    if not TYPE_CHECKING:  # Else a type checker would accept any name.

        def __getattr__(self, name: str) -> Any:
            raise missing_attribute("the graph", name, dir(type(self)), instead_of(self, name))

    def _role(self, role: str) -> str | None:
        key: str | None = self.manifest.get("roles", {}).get(role)
        return key

    def _repr_html_(self) -> str:
        title = "Triples" if holds_triples(self) else "Graph"
        return html_table(f"{title} in {self.root}", described(self))

    def __repr__(self) -> str:
        return summary(self)


def open(root: str | os.PathLike[str]) -> Graph:
    """Open the data set in the directory ``root``; see :class:`Graph`."""
    return Graph(root)


Source = Graph | str | os.PathLike[str]
"""An opened graph, or the directory of a data set."""


def root_of(graph: Source) -> Path:
    """The directory of a data set."""
    return graph.root if isinstance(graph, Graph) else Path(graph)
