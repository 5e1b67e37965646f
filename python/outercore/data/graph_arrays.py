"""What a graph tells of its arrays, and takes for one; no PyTorch."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore import _core
from outercore.base.likeness import suggestion
from outercore.base.other_libraries import reader_of
from outercore.base.shell import quoted
from outercore.data.directories import made_by
from outercore.data.edge_types import EdgeType, edge_type_called
from outercore.data.names import Names
from outercore.data.split_names import find_split
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from outercore.data.graph import Graph


NODE = "node"
"""The node type of a graph of one type."""
_OF_NODES = "nodes/node/"
TRIPLES = "triples/train"
"""The triples that a knowledge graph is trained on, and algorithms run on."""


class NodeTypes(dict[str, int]):
    """Number of nodes by type. PyG has a list of types: a place gives the name there, too."""

    def __getitem__(self, one: Any) -> Any:
        return list(self)[one] if isinstance(one, int | slice) else super().__getitem__(one)


def widths_of(graph: Graph) -> dict[str, int]:
    """Columns of the features of each node type, 0 where it has none."""
    widths = {}
    for name in graph.node_types:
        key = graph.features_of(name)
        widths[name] = 0 if key is None else int([*graph.arrays[key]["shape"], 1][1])
    return widths


def instead_of(graph: Graph, name: str) -> str:
    """What gives what PyG's `Data` has as the attribute `name`; empty where nothing does."""
    if name.startswith("_"):  # A copy that is being made has nothing yet to look at.
        return ""
    if name in ("edge_index", "adj_t"):
        return "`graph.pyg()[1].coo()` reads sources, targets and ids of all edges"
    split = find_split(name.removesuffix("_mask"), graph.splits)
    if split is not None:
        return f'`graph.split("{split}")` gives the ids of the nodes'
    roles = graph.manifest.get("roles", {})
    short = [name, name.removeprefix("edge_")]
    short += [roles.get({"x": "features", "y": "labels"}.get(name, ""))]
    keys = [key for key in graph.arrays if key in short or key.split("/", 2)[-1] in short]
    if not keys:
        return ""
    key = keys[0] if graph.is_typed else keys[0].removeprefix("nodes/node/")
    return f'`graph.array("{key}")` reads the array, `graph.rows("{key}", ids)` some rows'


def described(graph: Graph) -> list[tuple[str, str]]:
    """What a notebook shows of a graph."""
    if holds_triples(graph):
        return _of_triples(graph)
    rows = [("nodes", f"{graph.num_nodes:,}"), ("edges", f"{graph.num_edges:,}")]
    if graph.is_typed:
        types = graph.manifest["edge_types"]
        rows += [(f"nodes of {name}", f"{count:,}") for name, count in graph.node_types.items()]
        rows += [(f"edges of {name}", f"{types[name]['count']:,}") for name in sorted(types)]
    rows += [
        ("features", f"{graph.num_features:,}"),
        ("classes", f"{graph.num_classes:,}"),
        ("splits", ", ".join(graph.splits) or "none"),
        ("arrays", ", ".join(sorted(graph.arrays))),
    ]
    return rows


def _of_triples(graph: Graph) -> list[tuple[str, str]]:
    """What a notebook shows of a knowledge graph."""
    names = {"entities": "names/entity.offsets", "relations": "names/relation.offsets"}
    ends = {shown: key for shown, key in names.items() if key in graph.arrays}
    counts = {shown: graph.arrays[key]["shape"][0] - 1 for shown, key in ends.items()}
    parts = {
        f"triples, {key.removeprefix('triples/')}": entry["shape"][0]
        for key, entry in sorted(graph.arrays.items())
        if key.startswith("triples/") and "." not in key
    }
    return [(shown, f"{count:,}") for shown, count in (counts | parts).items()]


def summary(graph: Graph) -> str:
    """What `repr` gives."""
    if holds_triples(graph):
        count = graph.arrays[TRIPLES]["shape"][0]
        return f"Graph(entities={graph.num_nodes}, triples={count})"
    return (
        f"Graph(nodes={graph.num_nodes}, edges={graph.num_edges}, "
        f"features={graph.num_features}, classes={graph.num_classes}, splits={graph.splits})"
    )


def node_type_of(graph: Graph, given: str | None) -> str:
    """The node type that an array is of, where `given` is what a caller says.

    Errors: `InvalidError` for none in a graph of several types; `NotFoundError` for an unknown one.
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


def edge_rows_of(graph: Graph, edge_type: EdgeType | None, name: str) -> tuple[str, int]:
    """The key of the edge type that the edge array `name` is of, and its imported rows.

    Errors: `InvalidError` without an `edge_type` in a graph of several types; `NotFoundError` where
    there is no such type.
    """
    types = graph.manifest["edge_types"]
    keys = dict(zip(graph.edge_types, sorted(types), strict=True))
    if edge_type is None and graph.is_typed:
        raise InvalidError(
            f"edge array `{name}`: the graph has several types, expected an `edge_type`"
            f"\nhint: it has {', '.join(map(str, keys))}"
        )
    if edge_type is not None:
        edge_type = edge_type_called(edge_type, list(keys), f"edge array `{name}`")
    if not graph.is_typed or edge_type is None:
        return "edge", graph.num_edge_rows
    of_type = types[keys[edge_type]]
    return keys[edge_type], int(of_type.get("rows", of_type["count"]))


def key_called(graph: Graph, name: str) -> str:
    """As `Graph.key`."""
    if not isinstance(name, str):
        raise InvalidError(f"array: expected a name such as `x`, found {name!r}")
    prefixes = ("", _OF_NODES, "splits/", "edges/edge/", "nodes/", "edges/")
    for candidate in (prefix + name for prefix in prefixes):
        if candidate in graph.arrays:
            return candidate
    guess = suggestion(name, sorted(graph.arrays), otherwise="it has")
    raise NotFoundError(f"array `{name}` is not in the data set\nhint: {guess}")


def texts_called(graph: Graph, name: str) -> Names | None:
    """The texts of nodes called ``title``, or ``paper/title`` in a graph of several types."""
    if not isinstance(name, str):
        return None
    if any(prefix + name in graph.arrays for prefix in ("", _OF_NODES, "nodes/")):
        return None
    kind = ".".join(name.removeprefix("nodes/").rsplit("/", 1))
    kind = kind if "." in kind and "/" in name else f"node.{name}"
    return Names(graph.root, graph.arrays, kind) if f"names/{kind}.bytes" in graph.arrays else None


def require_directory(root: object) -> None:
    """Errors: `InvalidError` for anything but the directory of a data set."""
    if not isinstance(root, (str, os.PathLike)):
        reader = reader_of(root)
        hint = f"\nhint: `{reader}(graph, DIRECTORY)` makes a data set of it" if reader else ""
        found = type(root).__name__
        raise InvalidError(
            f"data set: expected its directory or an opened graph, found {found}{hint}"
        )
    if not os.fspath(root):
        raise InvalidError("data set: expected its directory, found an empty text")


def refuse_run(root: Path) -> None:
    """Errors: `NotFoundError` for the directory of a run in place of a data set."""
    if (job := made_by(root)) is not None:
        raise NotFoundError(
            f"data set `{root}`: this is a run of `outercore {job}`\n"
            f"hint: `outercore report {quoted(root)}` shows it"
        ) from None


def refuse_several_types(graph: Graph) -> None:
    """Errors: `NotFoundError` where nodes have keys of their types instead of names."""
    if graph.is_typed:
        raise NotFoundError(
            f"data set `{graph.root}` has several types of nodes, whose keys are their names\n"
            f'hint: `graph.keys_of("{min(graph.node_types)}").names()`'
        )


def require_edges(graph: Graph) -> None:
    """Makes sure that there are edges to sample.

    Errors: `InvalidError` for a knowledge graph, with the command that makes a graph of it.
    """
    if holds_triples(graph):
        # The core says what to make of triples.
        _core.DataSet(str(graph.root)).read_array("edges/edge/offsets")


def holds_triples(graph: Graph) -> bool:
    """Whether it is a knowledge graph, without edges beside its triples."""
    return TRIPLES in graph.manifest["arrays"] and not graph.manifest["edge_types"]


def require_one_name(graph: Graph, node_type: str, name: str, *, is_text: bool = False) -> None:
    """Makes sure that an array of nodes does not hide a text of the same name, or the other way
    round.

    Errors: `InvalidError` where the other one is there.
    """
    of_array, of_text = f"nodes/{node_type}/{name}", f"names/{node_type}.{name}.offsets"
    what, other, there = ("text", of_array, "an array") if is_text else ("array", of_text, "a text")
    if other in graph.arrays:
        raise InvalidError(
            f"{what} `{name}`: the nodes have {there} of this name\nhint: choose another name"
        )


def numbers_of(key: str, values: ArrayLike, rows: int, of_what: str) -> NDArray[Any]:
    """The values of the array `key`, which shall have a row for each `of_what`.

    Errors: `InvalidError` for another number of rows, or anything but numbers.
    """
    array = np.ascontiguousarray(values)
    if array.ndim == 0 or len(array) != rows:
        raise InvalidError(
            f"array `{key}`: shape {np.shape(values)}, expected {rows:,} rows: {of_what}"
        )
    if array.dtype.kind not in "biuf":
        raise InvalidError(f"array `{key}`: type {array.dtype}, expected numbers")
    return array
