"""The other arrays of batches, besides features and labels, and their names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from outercore.base.likeness import suggestion
from outercore.data.schema import TOPOLOGY
from outercore.errors import InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet
    from outercore.data.sample_rules import SampleRules

_TOPOLOGY = {f"edges/edge/{name}" for name in TOPOLOGY}

_OF_EVERY_BATCH = frozenset(
    (
        *("x", "y", "edge_index", "n_id", "e_id", "input_id", "batch_size", "num_nodes"),
        *("num_edges", "num_sampled_nodes", "num_sampled_edges", "batch", "ptr", "indptr"),
        *("indices", "arrays"),
    )
)
_OF_WEIGHTED_HOPS = frozenset(("edge_norm",))
"""LADIES: the weights of the sampled edges."""
_OF_TIMES = frozenset(("seed_time",))
_OF_LINKS = frozenset(
    (
        *("edge_label_index", "edge_label", "edge_label_time", "src_index", "dst_pos_index"),
        *("dst_neg_index", "seed_time"),
    )
)
RESERVED = _OF_EVERY_BATCH | _OF_WEIGHTED_HOPS | _OF_TIMES | _OF_LINKS
"""Names that batches of some kind use; the import refuses node arrays with these names.

An edge array ``norm`` is allowed. It is refused only in batches with another ``edge_norm``.
"""


def own_names(rules: SampleRules, *, of_links: bool) -> frozenset[str]:
    """The names of `RESERVED` that batches use if they are sampled by these rules."""
    names = _OF_EVERY_BATCH
    if rules.method == "ladies":
        names |= _OF_WEIGHTED_HOPS
    if rules.time_attr is not None:
        names |= _OF_TIMES
    return names | _OF_LINKS if of_links else names


def batch_arrays(
    graph: DataSet,
    names: Sequence[str] | None,
    *,
    besides: Iterable[str | None],
    taken: Collection[str] = _OF_EVERY_BATCH,
) -> dict[str, str]:
    """The key of each array by its name in a batch: ``year`` of nodes, ``edge_weight`` of edges.

    With several types, by its key.

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
    return chosen


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
    """Names of the edge arrays among keys: weights, times, features and others.

    In a graph with several types, the names begin with the edge type.

    Example:
        >>> edge_array_names(["edges/edge/sources", "edges/edge/weight", "nodes/node/x"])
        ['weight']
    """
    edges = sorted(key for key in arrays if key.startswith("edges/") and key not in _TOPOLOGY)
    return [key.removeprefix("edges/").removeprefix("edge/") for key in edges]


def _results(graph: DataSet) -> set[str]:
    """Node arrays that commands such as `run --save` have added; the manifest has their origin."""
    return {key for key in graph.schema.import_options if key.startswith("nodes/")}


def _requested(graph: DataSet, known: list[str], names: Sequence[str]) -> list[str]:
    """The keys of these names. With several types, an array is named by its key.

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
