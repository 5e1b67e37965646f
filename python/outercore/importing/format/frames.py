"""Converts graphs in memory: frames of pandas, graphs of NetworkX, matrices of SciPy."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from numbers import Integral, Number
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.data.batch_arrays import RESERVED
from outercore.data.graph import Graph
from outercore.data.schema import TOPOLOGY
from outercore.data.split_names import normal_split
from outercore.data.time_arrays import is_calendar_name, is_time_name
from outercore.errors import InvalidError, NotFoundError
from outercore.importing.edges import digest_of, from_edge_index
from outercore.importing.format.pyg import numpy_of, splits_of, written
from outercore.importing.labels import class_arrays
from outercore.importing.options import ImportOptions
from outercore.importing.python_calls import called_from_python, require_kind
from outercore.importing.source import GraphSource
from outercore.importing.table.columns import IDS, SOURCES, TARGETS, alphanumeric, other_ends, plain
from outercore.importing.table.exact import arrow_array, exactly, is_text
from outercore.importing.table.rows import NodeArray, RowSource, from_array, name_arrays
from outercore.importing.table.times import times_in_memory
from outercore.importing.texts import text_arrays

_ABSENT = {"f": np.nan, "O": ""}
"""The value of a node without a row, by type. For other types, each node needs a row."""


@dataclass
class MemoryGraph:
    """Edges and nodes with the ids of the source: integers or texts."""

    name: str
    """The name in messages."""
    source: Any
    target: Any
    edges: Mapping[str, Any] = field(default_factory=dict)
    """Columns with a row for each edge."""
    node_ids: Any = None
    """The node of each row of `nodes`; `None`: row i is node i."""
    nodes: Mapping[str, Any] = field(default_factory=dict)
    """Columns with a row for each node."""
    num_nodes: int | None = None
    """Number of nodes. If it is given, ids are integers below it."""
    undirected: bool = False
    features: Sequence[str] = ()
    labels: str | None = None
    """The column of `nodes` with the labels."""
    splits: Mapping[str, Any] = field(default_factory=dict)
    """Ids, masks with a row for each row of `nodes`, or the names of such columns."""
    column: str = "column"
    """The word for a column in messages."""
    keeps_form: bool = False
    """Whether features and labels keep their shape and type, as tensors do; columns do not."""
    ids_hint: str = ""
    """Hint for node ids that are of another type than the ids in edges."""
    names_hint: str = ""
    """Hint for ids that are neither integers nor texts, or are too large."""
    with_gaps: frozenset[str] = frozenset()
    """Columns of numbers, of nodes or edges, in which NaN marks a missing value."""
    notes: Sequence[str] = ()
    """Notes on values of the graph that were changed, to be shown once."""
    _not_taken: dict[str, str] = field(default_factory=dict, init=False)
    """Columns that are not imported, with the reason."""
    _names: pa.Array | None = field(default=None, init=False)

    def opened(self, options: ImportOptions | None) -> GraphSource:
        """Opens the graph as a source. A note names the columns that are not imported.

        Errors: `InvalidError` names the invalid column or ids.
        """
        if isinstance(self.features, str):
            self.features = [self.features]
        for what, names in (("features", self.features), ("labels", [self.labels])):
            if not all(isinstance(name, str | None) for name in names):
                raise InvalidError(
                    f"{self.name}: {what}: expected names of {self.column}s of nodes, found "
                    f"other values\nhint: make them a {self.column} of the nodes, and give its name"
                )
        self._keeps_gaps = options is not None and options.allow_nan
        columns = {"source ids": self.source, "target ids": self.target}
        if self.node_ids is not None:
            columns["node ids"] = self.node_ids
        ids = {
            what: _ids(f"{self.name}: {what}", values, self.names_hint)
            for what, values in columns.items()
        }
        if len(ids["source ids"]) != len(ids["target ids"]):
            raise InvalidError(
                f"{self.name}: {len(ids['source ids'])} sources, {len(ids['target ids'])} targets"
            )
        numbers, self._count = self._numbered(ids)
        edge_index = np.stack(numbers[:2])
        self._rows = numbers[2] if len(numbers) > 2 else None
        if self._rows is not None and len(np.unique(self._rows)) != len(self._rows):
            twice = np.flatnonzero(np.bincount(self._rows) > 1)[0]
            place = int(np.flatnonzero(self._rows == twice)[1])
            raise InvalidError(f"{self.name}: node `{ids['node ids'][place]}` has several rows")
        edges = from_edge_index(f"{self.name}: edges", edge_index)
        edges = replace(edges, digest=digest_of(edge_index))
        stored = [] if self._names is None else name_arrays("entity", self._names, "names")
        arrays = [*stored, *self._node_arrays(), *self._splits(), *self._edge_arrays()]
        notes = [*self.notes]
        if self._not_taken:
            others = ", ".join(f"`{name}` ({why})" for name, why in self._not_taken.items())
            notes.append(f"{self.name}: not taken: {others}")
        return GraphSource([edges], arrays, self._count, self.undirected, notes=notes)

    def _numbered(self, named: dict[str, pa.Array]) -> tuple[list[NDArray[np.int64]], int]:
        """Node numbers from 0 for each of the `named` columns of ids, and the number of nodes."""
        ids = list(named.values())
        kinds = {pa.types.is_integer(one.type) for one in ids if len(one)}
        are_numbers = kinds <= {True}
        if self.num_nodes is not None and not are_numbers:
            raise InvalidError(f"{self.name}: expected whole numbers as ids, found texts")
        if are_numbers:
            numbers = [one.to_numpy(zero_copy_only=False).astype(np.int64) for one in ids]
            count = self.num_nodes
            found = np.unique(np.concatenate(numbers))
            count = len(found) if count is None else count
            is_dense = len(found) == 0 or (found[0] >= 0 and found[-1] < count)
            if is_dense:
                return numbers, count
            if self.num_nodes is not None:
                wrong = found[0] if found[0] < 0 else found[-1]
                raise InvalidError(f"{self.name}: node id {wrong}, expected 0 to {count - 1}")
        elif len(kinds) > 1:
            raise self._mixed(named)
        every = pa.chunked_array([one.cast(pa.large_string()) for one in ids])
        encoded = every.combine_chunks().dictionary_encode()
        names = encoded.dictionary
        # The order of names: by their length in bytes, then by their bytes.
        sizes = pa.table({"size": pc.binary_length(names), "name": names})
        order = pc.sort_indices(sizes, [("size", "ascending"), ("name", "ascending")])
        rank = np.empty(len(names), np.int64)
        rank[order.to_numpy()] = np.arange(len(names))
        self._names = names.take(order)
        ends = np.cumsum([len(one) for one in ids])[:-1]
        ranked = rank[encoded.indices.to_numpy(zero_copy_only=False)]
        return np.split(ranked, ends), len(names)

    def _mixed(self, ids: dict[str, pa.Array]) -> InvalidError:
        kinds = [
            f"{what} are {'numbers' if pa.types.is_integer(one.type) else 'texts'}"
            for what, one in ids.items()
            if len(one)
        ]
        hint = f"\nhint: {self.ids_hint}" if self.ids_hint else ""
        return InvalidError(
            f"{self.name}: some ids are numbers and some are texts: {', '.join(kinds)}{hint}"
        )

    def _node_arrays(self) -> list[NodeArray]:
        found = []
        for name in [*self.features, *([self.labels] if self.labels else [])]:
            if name not in self.nodes:
                known = listed(self.nodes) or "none"
                raise NotFoundError(
                    f"{self.name}: no {self.column} `{name}` of nodes; there are {known}"
                )
        if self.features:
            found.append(NodeArray("features", "x", self._features()))
        if self.labels:
            found += self._labels(self.labels)
        used = {*self.features, self.labels}
        used |= {value for value in self.splits.values() if isinstance(value, str)}
        others = {name: column for name, column in self.nodes.items() if name not in used}
        for name, where, values, times in self._columns("nodes", others):
            ordered = self._in_order(where, values)
            if values.dtype.kind == "O":
                texts = pa.array(ordered, pa.large_string())
                found += text_arrays(name, None, f"texts `{name}`", partial(iter, [texts]))
            else:
                found.append(NodeArray("array", name, self._of_values(where, name, ordered, times)))
        return found

    def _edge_arrays(self) -> list[NodeArray]:
        return [
            NodeArray("edge", name, self._of_values(where, name, values, times))
            for name, where, values, times in self._columns("edges", self.edges)
        ]

    def _columns(
        self, of: Literal["nodes", "edges"], columns: Mapping[str, Any]
    ) -> Iterator[tuple[str, str, NDArray[Any], str | None]]:
        """Columns that become arrays: name, name in messages, values, and the type of times."""
        is_of_edges = of == "edges"
        for name, column in columns.items():
            where = f"{self.name}: {self.column} `{name}` of {of}"
            in_text = is_of_edges or is_time_name(name)
            times = times_in_memory(where, name, column, in_text=in_text)
            values = None if times is None else times.values
            kind = None if times is None or values is None else times.kind
            if values is None and (times is None or not is_of_edges):
                values = _values(where, column)
            if values is None:
                self._not_taken[name] = times.why if times else "neither numbers nor texts"
            elif values.dtype.kind == "O" and is_of_edges:
                self._not_taken[name] = "texts of edges are not kept"
            elif name in (TOPOLOGY if is_of_edges else RESERVED):
                owner = "a data set has" if is_of_edges else "batches have"
                self._not_taken[name] = f"{owner} something else under the name"
            else:
                yield name, where, values, kind

    def _of_values(
        self, where: str, name: str, values: NDArray[Any], times: str | None
    ) -> RowSource:
        has_gaps = name in self.with_gaps
        return replace(from_array(where, values), has_gaps=has_gaps, times=times)

    def _features(self) -> RowSource:
        parts = [self._numbers(name) for name in self.features]
        if self.keeps_form and len(parts) == 1:
            return replace(from_array("features", parts[0]), keeps_form=True)
        rows = np.concatenate([one.reshape(len(one), -1) for one in parts], axis=1)
        if rows.dtype.kind != "f":
            rows = exactly(rows, np.dtype(np.float32), f"{self.name}: features")
        return from_array("features", rows)

    def _of_nodes(self, name: str) -> str:
        return f"{self.name}: {self.column} `{name}` of nodes"

    def _labels(self, name: str) -> list[NodeArray]:
        """The labels. Texts become classes."""
        where = self._of_nodes(name)
        values = _values(where, self.nodes[name])
        if values is None:
            raise InvalidError(f"{where}: expected numbers or texts")
        ordered = self._in_order(where, values, absent=-1)
        if values.dtype.kind != "O":
            # A column has no shape to keep, unless each value is a list.
            keeps_form = self.keeps_form or ordered.ndim == 2
            rows = replace(from_array("labels", ordered), keeps_form=keeps_form)
            return [NodeArray("labels", "y", rows)]
        return class_arrays(where, pa.array(ordered, pa.large_string()))

    def _numbers(self, name: str) -> NDArray[Any]:
        where = self._of_nodes(name)
        values = _values(where, self.nodes[name])
        if values is None or values.dtype.kind == "O":
            found = "other values" if values is None else "texts"
            hint = "leave it out of `features`, and its texts are kept" if found == "texts" else ""
            raise InvalidError(
                f"{where}: expected numbers, found {found}" + (f"\nhint: {hint}" if hint else "")
            )
        return self._in_order(where, values)

    def _in_order(self, where: str, values: NDArray[Any], absent: Any = None) -> NDArray[Any]:
        """The rows in the order of the nodes. Nodes without a row get `absent`."""
        rows = np.arange(self._count) if self._rows is None else self._rows
        if len(values) != len(rows):
            raise InvalidError(f"{where}: {len(values)} rows, expected {len(rows)}")
        if len(rows) < self._count and absent is None and values.dtype.kind in "biu":
            if not self._keeps_gaps:
                raise InvalidError(
                    f"{where}: {self._count - len(rows)} nodes have no row\nhint: give every node "
                    "a row; or `options=oc.ImportOptions(allow_nan=True)`, and they have NaN"
                )
            values = values.astype(np.float64)
        absent = _ABSENT.get(values.dtype.kind, absent)
        if len(rows) < self._count and absent == -1 and values.dtype.kind in "bu":
            # These types cannot hold -1.
            values = values.astype(np.int64)
        filled = 0 if absent is None else absent
        ordered = np.full((self._count, *values.shape[1:]), filled, values.dtype)
        ordered[rows] = values
        return ordered

    def _splits(self) -> list[NodeArray]:
        found = []
        for name, value in self.splits.items():
            rows = from_array(f"split `{name}`", self._split(name, value))
            found.append(NodeArray("split", normal_split(name), rows))
        return found

    def _split(self, name: str, value: Any) -> NDArray[np.int64]:
        where = f"{self.name}: split `{name}`"
        if isinstance(value, str):
            if value not in self.nodes:
                raise NotFoundError(f"{where}: no {self.column} `{value}` of nodes")
            value = np.asarray(self.nodes[value])
            if value.dtype.kind != "b":
                raise InvalidError(f"{where}: expected a column of true and false")
        values = numpy_of(where, value)
        if values.dtype.kind == "b":
            rows = np.arange(self._count) if self._rows is None else self._rows
            if len(values) != len(rows):
                raise InvalidError(f"{where}: {len(values)} rows, expected {len(rows)}")
            return rows[values]
        if self._names is None:
            return splits_of({name: values}, self._count)[name]
        ids = _ids(where, values).cast(pa.large_string())
        places = pc.index_in(ids, self._names)
        if places.null_count:
            first = int(np.flatnonzero(np.asarray(places.is_null()))[0])
            raise NotFoundError(f"{where}: node `{ids[first]}` is not in the graph")
        return places.to_numpy().astype(np.int64)


def _ids(where: str, values: Any, hint: str = "") -> pa.Array:
    """Ids as Arrow integers or large strings. `where` names them in messages.

    Errors: `InvalidError` for ids that are missing, empty or of another type.
    """
    mend = f"\nhint: {hint}" if hint else ""
    wrong = InvalidError(f"{where}: expected whole numbers or texts{mend}")
    try:
        ids = pa.array(np.asarray(values), from_pandas=True)
    except OverflowError:
        largest = max((one for one in np.asarray(values).flat if isinstance(one, int)), key=abs)
        raise InvalidError(
            f"{where}: {largest} does not fit into 64 bits, expected whole numbers below 2^63, or "
            f"texts{mend}"
        ) from None
    except (pa.ArrowException, TypeError, ValueError):
        raise wrong from None
    if not len(ids):
        return pa.array([], pa.int64())
    if ids.null_count:
        first = int(np.flatnonzero(np.asarray(ids.is_null()))[0])
        raise InvalidError(f"{where}: row {first} has no id")
    if pa.types.is_integer(ids.type):
        return ids
    if not is_text(ids.type):
        raise wrong
    if (empty := pc.index(ids, "").as_py()) >= 0:
        raise InvalidError(f"{where}: row {empty} has an empty text as its id")
    return ids.cast(pa.large_string())


def _values(where: str, column: Any) -> NDArray[Any] | None:
    """A column as numbers, or as texts in an array of objects; `None` for anything else."""
    values = numpy_of(where, column)
    if values.dtype.kind in "biuf":
        return values
    found = arrow_array(values)
    if found is None:
        return None
    if is_text(found.type):
        return np.array(found.fill_null("").to_pylist(), object)
    if pa.types.is_integer(found.type) and not found.null_count:
        return found.to_numpy()
    if pa.types.is_integer(found.type) or pa.types.is_floating(found.type):
        return found.cast(pa.float64()).to_numpy(zero_copy_only=False)
    if pa.types.is_boolean(found.type) and not found.null_count:
        return found.to_numpy(zero_copy_only=False)
    try:
        rows = np.asarray(found.to_pylist())
    except ValueError:
        return None
    return rows if rows.ndim == 2 and rows.dtype.kind in "biuf" else None


@called_from_python
def from_pandas(
    edges: Any,
    out: str | Path,
    *,
    nodes: Any = None,
    ends: tuple[str, str] | None = None,
    features: Sequence[str] = (),
    labels: str | None = None,
    splits: Mapping[str, Any] | None = None,
    options: ImportOptions | None = None,
) -> Graph:
    """Write frames of pandas as a data set and open it.

    Ids may be texts or integers. Integers from 0 without gaps are the node ids. Other ids become
    names, and results use these names.

    Args:
        edges: a frame with a row for each edge. Further columns of numbers become edge arrays of
            their names, such as ``weight``.
        out: directory of the data set.
        nodes: a frame with a row for each node, by its column ``id``, else by its index. Columns of
            numbers and of texts become node arrays of their names.
        ends: the columns of sources and targets. By default columns with usual names, such as
            ``source`` and ``target``, or else the first two columns.
        features: columns of ``nodes`` that become the features.
        labels: the column of ``nodes`` that becomes the labels. Texts become classes, numbered in
            the order of their names.
        splits: for each name, ids of nodes, a mask with a value for each row of ``nodes``, or the
            name of a Boolean column.
        options: :class:`ImportOptions`, such as ``ImportOptions(overwrite=True)``.

    Raises:
        InvalidError: a column has wrong values; the message names it.
        NotFoundError: a column or a node is missing.

    Example:
        >>> import outercore as oc, pandas as pd, tempfile
        >>> edges = pd.DataFrame({"source": ["ann", "bob"], "target": ["bob", "carol"]})
        >>> graph = oc.from_pandas(edges, tempfile.mkdtemp() + "/follows")
        >>> graph.entity_names()
        ['ann', 'bob', 'carol']
    """
    _require_frame("edges", edges)
    source, target = _ends(edges, ends)
    node_ids, columns, ids_hint = None, {}, ""
    if nodes is not None:
        _require_frame("nodes", nodes)
        key = next((name for name in nodes.columns if _is_id(name)), None)
        node_ids = (nodes.index if key is None else nodes[key]).to_numpy()
        columns = {str(name): nodes[name].to_numpy() for name in nodes.columns if name != key}
        if key is None:
            ids_hint = _rename_hint(nodes)
    graph = MemoryGraph(
        "from_pandas",
        edges[source].to_numpy(),
        edges[target].to_numpy(),
        {
            str(name): edges[name].to_numpy()
            for name in edges.columns
            if name not in (source, target)
        },
        node_ids,
        columns,
        ids_hint=ids_hint,
        names_hint="number the nodes first: `codes, names = pandas.factorize(ids)`",
        features=features,
        labels=labels,
        splits=splits or {},
    )
    return written(graph.opened(options), out, options)


@called_from_python
def from_networkx(
    graph: Any,
    out: str | Path,
    *,
    features: Sequence[str] = (),
    labels: str | None = None,
    splits: Mapping[str, Any] | None = None,
    options: ImportOptions | None = None,
) -> Graph:
    """Write a graph of NetworkX as a data set and open it.

    Ids and arguments are as for :func:`from_pandas`, with attributes instead of columns. If some
    edges have a ``weight``, edges without one get weight 1, as in NetworkX.

    Raises:
        InvalidError: nodes that are neither integers nor texts; an attribute with wrong values.

    Example:
        >>> import networkx, outercore as oc, tempfile
        >>> graph = oc.from_networkx(networkx.karate_club_graph(), tempfile.mkdtemp() + "/karate")
        >>> graph.num_nodes, graph.num_edge_rows
        (34, 78)
    """
    require_kind(
        "from_networkx",
        "graph",
        graph,
        "adjacency",
        "a graph of NetworkX",
        "pairs become one by `networkx.Graph(pairs)`",
    )
    ids, of_nodes = [*graph.nodes], [attributes for _, attributes in graph.nodes(data=True)]
    edges = [*graph.edges(data=True)]
    of_edges = [attributes for _, _, attributes in edges]
    gaps: dict[str, str] = {}
    if options is None or not options.allow_nan:
        # A node may lack its label; an edge without a weight gets 1.
        gaps = _gaps(
            "nodes", of_nodes, (labels,), [features] if isinstance(features, str) else features
        )
        gaps |= _gaps("edges", of_edges, ("weight",), ())
    found = MemoryGraph(
        "from_networkx",
        _objects([source for source, _, _ in edges]),
        _objects([target for _, target, _ in edges]),
        _attributes(of_edges, {"weight": 1}),
        _objects(ids),
        _attributes(of_nodes, {}),
        undirected=not graph.is_directed(),
        ids_hint="make all of them texts: `graph = networkx.relabel_nodes(graph, str)`",
        names_hint="number the nodes: `graph = networkx.convert_node_labels_to_integers(graph)`",
        with_gaps=frozenset(gaps),
        notes=[*gaps.values()],
        column="attribute",
        features=features,
        labels=labels,
        splits=splits or {},
    )
    return written(found.opened(options), out, options)


@called_from_python
def from_scipy(
    matrix: Any,
    out: str | Path,
    *,
    features: Any = None,
    labels: Any = None,
    splits: Mapping[str, Any] | None = None,
    options: ImportOptions | None = None,
) -> Graph:
    """Write a sparse matrix of SciPy as a data set and open it.

    Row i, column j is an edge from i to j; its value is its ``weight``. Every row is a node.

    Args:
        matrix: a square matrix or array in any sparse form.
        out: directory of the data set.
        features: an array with a row for each node.
        labels: an array with a label for each node.
        splits: for each name, ids of nodes or a mask.
        options: :class:`ImportOptions`, such as ``ImportOptions(overwrite=True)``.

    Raises:
        InvalidError: a matrix that is not square, or an array with another number of rows.

    Example:
        >>> import outercore as oc, scipy.sparse, tempfile
        >>> ring = scipy.sparse.csr_array(([2.0, 3.0], ([0, 1], [1, 0])))
        >>> oc.from_scipy(ring, tempfile.mkdtemp() + "/ring").array("weight").tolist()
        [2.0, 3.0]
    """
    require_kind(
        "from_scipy",
        "matrix",
        matrix,
        "tocoo",
        "a sparse matrix of SciPy",
        "a dense one becomes sparse by `scipy.sparse.csr_array(matrix)`",
    )
    found = matrix.tocoo()
    rows, columns = (int(extent) for extent in found.shape)
    if rows != columns:
        raise InvalidError(
            f"from_scipy: the matrix is {rows} x {columns}, expected a square one (one row and "
            "column a node)"
        )
    nodes = {"features": features, "labels": labels}
    graph = MemoryGraph(
        "from_scipy",
        found.row,
        found.col,
        {"weight": found.data},
        nodes={name: values for name, values in nodes.items() if values is not None},
        num_nodes=rows,
        features=() if features is None else ("features",),
        labels=None if labels is None else "labels",
        splits=splits or {},
        keeps_form=True,
    )
    return written(graph.opened(options), out, options)


def _require_frame(what: str, value: Any) -> None:
    """Errors: `InvalidError` for anything but a data frame; `what` names the value."""
    hint = f"`{what}=pandas.DataFrame({what})`" if what == "nodes" else "`pandas.DataFrame(edges)`"
    require_kind("from_pandas", what, value, "iloc", "a frame of pandas", hint)


def _rename_hint(nodes: Any) -> str:
    """A hint that shows how to make the first text column the ids of a frame without ids."""
    texts = (name for name, dtype in nodes.dtypes.items() if dtype.kind == "O")
    first = next(texts, None)
    column = "COLUMN" if first is None else repr(first)
    return (
        "`nodes` has no column `id`, so its index has the ids; by a column: "
        f"`nodes=nodes.set_index({column})`"
    )


def _ends(edges: Any, ends: tuple[str, str] | None) -> tuple[Any, Any]:
    names = [*edges.columns]
    if ends is not None:
        missing = [name for name in ends if name not in names]
        if len(ends) != 2 or missing:
            raise InvalidError(f"from_pandas: ends {ends}: expected two columns of {names}")
        return ends[0], ends[1]
    found = [
        next((name for name in names if plain(str(name)) in words), None)
        for words in (SOURCES, TARGETS)
    ]
    if None not in found:
        return found[0], found[1]
    if len(names) < 2:
        raise InvalidError(f"from_pandas: columns {names}, expected sources and targets")
    times = [
        str(name)
        for name in names[:2]
        if is_calendar_name(str(name)) or edges.dtypes[name].kind == "M"
    ]
    if times:
        ways = [*other_ends([str(name) for name in names], times), (names[:2], "as nodes")]
        hints = "; ".join(f"{why}: `ends={tuple(chosen)}`" for chosen, why in ways)
        raise InvalidError(
            f"from_pandas: column `{times[0]}` holds times and would be taken as an end of edges\n"
            f"hint: {hints}"
        )
    return names[0], names[1]


def _is_id(name: Any) -> bool:
    return alphanumeric(str(name)) in IDS


def _objects(values: list[Any]) -> Any:
    """A list as a one-dimensional array of objects."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _gaps(
    of: str, rows: list[dict[Any, Any]], filled: Collection[str | None], whole: Collection[Any]
) -> dict[str, str]:
    """Notes about float attributes that some nodes or edges (`of`) lack, by attribute.

    Attributes in `filled` have default values. Attributes in `whole` are features, which all nodes
    must have.

    Errors: `InvalidError` for an integer attribute, because NaN would turn it into floats.
    """
    notes: dict[str, str] = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        values = [row[name] for row in rows if row.get(name) is not None]
        lacking = len(rows) - len(values)
        is_number = all(isinstance(one, Number) and not isinstance(one, bool) for one in values)
        if not lacking or name in filled or not values or not is_number:
            continue
        where = f"from_networkx: attribute `{name}`: {lacking} of {len(rows)} {of} have none"
        if all(isinstance(one, Integral) for one in values) or name in whole:
            function = f"set_{of.removesuffix('s')}_attributes"
            lack = f"{{one: 0 for one in graph.{of} if graph.{of}[one].get({name!r}) is None}}"
            raise InvalidError(
                f"{where}, expected a value for each\n"
                f"hint: `networkx.{function}(graph, {lack}, {name!r})` gives the others 0; "
                "by `options=oc.ImportOptions(allow_nan=True)` they have NaN"
            )
        notes[str(name)] = f"{where}, which is NaN"
    return notes


def _attributes(rows: list[dict[Any, Any]], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes of nodes or edges as columns; missing values are `None`."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {
        str(name): _objects([row.get(name, defaults.get(str(name))) for row in rows])
        for name in names
    }
