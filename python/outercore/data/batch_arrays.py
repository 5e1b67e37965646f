"""The values of a batch: their names, and which of them are arrays of the data set."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

from outercore.base.likeness import suggestion
from outercore.data.schema import TOPOLOGY
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet
    from outercore.data.sample_rules import SampleRules

_TOPOLOGY = {f"edges/edge/{name}" for name in TOPOLOGY}

Storage: TypeAlias = Literal["nodes", "edges", "seeds", "links", "batch"]


@dataclass(frozen=True)
class Value:
    """A value that a batch may have."""

    storage: Storage
    """The part of a `HeteroData` with the value: each node type, each edge type, the type of the
    seeds (which may be links), or the types of the links. `batch`: the batch object itself."""
    origin: Literal["core", "loader", "object"]
    """Its source: the core delivers it, the loader adds it, or the batch object defines it."""
    rows: Literal["nodes", "edges", ""] = ""
    """Whether the value has a row for each node or edge, or neither."""
    only: tuple[Literal["ladies", "times", "links"], ...] = ()
    """The kinds of batches that have the value; empty: every batch may have it."""


BATCH: Mapping[str, Value] = {
    "x": Value("nodes", "loader", "nodes"),
    "y": Value("nodes", "loader", "nodes"),
    "n_id": Value("nodes", "core", "nodes"),
    "batch": Value("nodes", "core", "nodes"),
    "num_nodes": Value("nodes", "loader"),
    "num_sampled_nodes": Value("nodes", "core"),
    "edge_index": Value("edges", "core"),
    "e_id": Value("edges", "core", "edges"),
    "edge_norm": Value("edges", "core", "edges", only=("ladies",)),
    "num_sampled_edges": Value("edges", "core"),
    "input_id": Value("seeds", "core"),
    "batch_size": Value("seeds", "core"),
    "seed_time": Value("seeds", "loader", only=("times", "links")),
    "edge_label_index": Value("links", "loader", only=("links",)),
    "edge_label": Value("links", "loader", only=("links",)),
    "edge_label_time": Value("links", "loader", only=("links",)),
    "src_index": Value("links", "loader", only=("links",)),
    "dst_pos_index": Value("links", "loader", only=("links",)),
    "dst_neg_index": Value("links", "loader", only=("links",)),
    "indptr": Value("batch", "core"),
    "indices": Value("batch", "core"),
    "arrays": Value("batch", "core"),
    "num_edges": Value("batch", "object"),
    "ptr": Value("batch", "object"),
}
"""Every possible value of a batch by its name. Other values cannot be delivered."""

RESERVED = frozenset(BATCH)
"""Names that batches of some kind use; the import refuses node arrays with these names.

An edge array ``norm`` is allowed. It is refused only in batches with another ``edge_norm``.
"""
EDGE_ROWS = frozenset(name for name, value in BATCH.items() if value.rows == "edges")
"""Values with a row for each edge, besides edge arrays."""


def own_names(rules: SampleRules, *, of_links: bool) -> frozenset[str]:
    """The names that batches use under these rules of sampling; `of_links`: the seeds are links."""
    kinds = {"ladies": rules.method == "ladies", "times": rules.time_attr is not None}
    kinds["links"] = of_links
    return frozenset(
        name
        for name, value in BATCH.items()
        if not value.only or any(kinds[kind] for kind in value.only)
    )


def batch_arrays(
    graph: DataSet,
    names: Sequence[str] | None,
    *,
    besides: Iterable[str | None],
    taken: Collection[str],
) -> list[str]:
    """The keys of the further arrays of a batch.

    Args:
        graph: the data set.
        names: arrays by their names in a batch, or by key. ``None``: every array of edges, and
            every array of nodes but features, labels, ``besides`` and results of Outercore.
        besides: keys to leave out because the batch delivers or uses them in another way.
        taken: names that these batches use, from `own_names`.

    Raises:
        NotFoundError: no array has this name.
        InvalidError: two arrays have the same name, or the batch uses the name.
    """
    if isinstance(names, str) or not (names is None or isinstance(names, Iterable)):
        raise InvalidError(f"arrays: expected a list of names, found {names!r}")
    for name in names or ():
        if not isinstance(name, str):
            raise InvalidError(f"arrays: expected a list of names, found {name!r} in it")
    known = [
        key
        for key in sorted(graph.arrays)
        if key.startswith(("nodes/", "edges/")) and key not in _TOPOLOGY
    ]
    if names is None:
        left_out = {*besides, *graph.schema.all_features, graph.schema.labels, *_results(graph)}
        keys = [key for key in known if key not in left_out]
    else:
        keys = _requested(graph, known, names)
    chosen: dict[str, str] = {}
    for key in keys:
        name = name_in_storage(key)
        # With several types, each array is in the storage of its type.
        place = key if graph.is_typed else name
        if chosen.get(place, key) != key:
            raise _is_taken(key, f"array `{chosen[place]}`", name)
        if name in taken:
            raise _is_taken(key, "something else", name)
        chosen[place] = key
    return list(chosen.values())


def _is_taken(key: str, by: str, name: str) -> InvalidError:
    return InvalidError(
        f"array `{key}`: a batch has {by} under the name `{name}`\n"
        "hint: list the arrays to deliver by `arrays=[...]`; `arrays=[]` delivers none"
    )


def name_in_storage(key: str) -> str:
    """The name of an array in PyG's storage of its node type or edge type.

    Example:
        >>> name_in_storage("nodes/paper/year"), name_in_storage("edges/author__writes__paper/norm")
        ('year', 'edge_norm')
    """
    of, _, name = key.split("/", 2)
    return f"edge_{name}" if of == "edges" else name


def edge_array_names(arrays: Iterable[str]) -> list[str]:
    """The names of the edge arrays among the keys `arrays`: weights, times, features and others.

    In a graph with several types, the names begin with the edge type.

    Example:
        >>> edge_array_names(["edges/edge/sources", "edges/edge/weight", "nodes/node/x"])
        ['weight']
    """
    edges = sorted(key for key in arrays if key.startswith("edges/") and key not in _TOPOLOGY)
    return [key.removeprefix("edges/").removeprefix("edge/") for key in edges]


def _results(graph: DataSet) -> set[str]:
    """Keys of node arrays that commands such as `run --save` added, from the manifest's origins."""
    return {key for key in graph.schema.import_options if key.startswith("nodes/")}


def _requested(graph: DataSet, known: list[str], names: Sequence[str]) -> list[str]:
    """The keys of the arrays `names`. With several types, each name must be a key.

    Errors: `NotFoundError` for an unknown name; `InvalidError` for the name of several arrays.
    """
    by_name: dict[str, list[str]] = {}
    for key in () if graph.is_typed else known:
        by_name.setdefault(name_in_storage(key), []).append(key)
    keys = []
    for name in names:
        matches = [name] if name in known else by_name.get(name, [])
        if not matches:
            guess = f"give a key; it has {', '.join(known) or 'none'}"
            if not graph.is_typed:
                have = [name for name in by_name if name not in RESERVED]
                guess = suggestion(name, have, otherwise="it has")
            raise NotFoundError(f"array `{name}` is not in data set `{graph.root}`\nhint: {guess}")
        if len(matches) > 1:
            raise InvalidError(
                f"array `{name}`: expected one, found {', '.join(matches)}\nhint: give the key"
            )
        keys += matches
    return keys
