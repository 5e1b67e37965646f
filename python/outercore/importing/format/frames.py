"""Frames of pandas, graphs of NetworkX, and matrices of SciPy as data sets."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from numbers import Integral, Number
from pathlib import Path
from typing import Any

import numpy as np

from outercore.data.graph import Graph
from outercore.data.time_arrays import is_calendar_name
from outercore.errors import InvalidError
from outercore.importing.graph import ImportOptions
from outercore.importing.memory_graph import MemoryGraph, write
from outercore.importing.python_calls import called_from_python, require_kind
from outercore.importing.table.columns import IDS, SOURCES, TARGETS, other_ends, plain


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

    Ids may be texts or whole numbers. Whole numbers that leave none out from 0 on are the node ids;
    others become names, which results give back.

    Args:
        edges: a frame with a row for each edge. Columns of numbers beside the ends become edge
            arrays of their names, such as ``weight``.
        out: directory of the data set.
        nodes: a frame with a row for each node, by its column ``id``, else by its index. Columns of
            numbers and of texts become node arrays of their names.
        ends: the columns of sources and targets. By default those called so, such as ``source`` and
            ``target``, else the first two.
        features: columns of ``nodes`` that become the features.
        labels: the column of ``nodes`` that becomes the labels. Texts become classes, numbered in
            the order of their names.
        splits: by name, ids of nodes, a mask with a row for each row of ``nodes``, or the name of a
            column of true and false.
        options: :class:`ImportOptions`, such as ``ImportOptions(overwrite=True)``.

    Raises:
        InvalidError: a column does not fit; the message names it.
        NotFoundError: there is no such column or node.

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
    return write(graph, out, options)


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

    Ids, attributes and arguments are as for :func:`from_pandas`, with attributes instead of
    columns. An edge without a ``weight`` has 1, as in NetworkX, where others have one.

    Raises:
        InvalidError: nodes that are neither whole numbers nor texts; an attribute does not fit.

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
        # A node without a label has none; an edge without a weight has 1.
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
    return write(found, out, options)


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
        splits: by name, ids of nodes or masks.
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
    return write(graph, out, options)


def _require_frame(what: str, value: Any) -> None:
    """Errors: `InvalidError` for anything but a frame."""
    hint = f"`{what}=pandas.DataFrame({what})`" if what == "nodes" else "`pandas.DataFrame(edges)`"
    require_kind("from_pandas", what, value, "iloc", "a frame of pandas", hint)


def _rename_hint(nodes: Any) -> str:
    """How the first column of texts of a frame without ids becomes its ids."""
    texts = (name for name, dtype in nodes.dtypes.items() if dtype.kind == "O")
    first = next(texts, None)
    column = "COLUMN" if first is None else repr(first)
    return (
        "`nodes` has no column `id`, so its index has the ids; by a column: "
        f"`nodes=nodes.set_index({column})`"
    )


def _ends(edges: Any, ends: tuple[str, str] | None) -> tuple[Any, Any]:
    """The columns of sources and targets."""
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
        listed = "; ".join(f"{why}: `ends={tuple(chosen)}`" for chosen, why in ways)
        raise InvalidError(
            f"from_pandas: column `{times[0]}` holds times and would be taken as an end of edges\n"
            f"hint: {listed}"
        )
    return names[0], names[1]


def _is_id(name: Any) -> bool:
    return "".join(letter for letter in str(name).lower() if letter.isalnum()) in IDS


def _objects(values: list[Any]) -> Any:
    """A list as an array of one dimension, whatever is in it."""
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _gaps(
    of: str, rows: list[dict[Any, Any]], filled: Collection[str | None], whole: Collection[Any]
) -> dict[str, str]:
    """Notes about attributes with fractions that some nodes or edges lack, by their names.

    Attributes in `filled` have values anyway. Those in `whole` are features, which all nodes need.

    Errors: `InvalidError` for an attribute of whole numbers: NaN would make fractions of them.
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
