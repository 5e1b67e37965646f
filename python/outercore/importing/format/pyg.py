"""Converts objects of PyTorch Geometric (PyG): `Data`, `TemporalData` and `HeteroData`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.data.batch_arrays import RESERVED
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.data.graph import Graph
from outercore.data.schema import TOPOLOGY
from outercore.data.split_names import normal_split
from outercore.errors import InvalidError, NotFoundError
from outercore.importing.build.graph import import_graph
from outercore.importing.edges import EdgeSource, digest_of, from_edge_index
from outercore.importing.format.download import CACHE, download_errors, library
from outercore.importing.graph_tables import array_of_edges
from outercore.importing.inputs import Inputs, TypedInputs
from outercore.importing.options import ImportOptions
from outercore.importing.python_calls import called_from_python
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.edge_array import EdgeArrayTable
from outercore.importing.table.exact import arrow_array, is_text
from outercore.importing.table.rows import NodeArray, RowSource, from_array
from outercore.importing.table.times import whole_times
from outercore.importing.texts import text_arrays
from outercore.importing.typed_graph import source_of_arrays

_KNOWN = {"edge_weight": "weight", "edge_time": "time", "edge_attr": "attr"}
"""Edge attributes that are imported with any number of rows, and the edge arrays they become."""
MASKS = {"train": ("train_mask",), "valid": ("val_mask", "valid_mask"), "test": ("test_mask",)}
_EVENTS = {"t": "time", "msg": "attr"}
"""Attributes of events, and the edge arrays that they become. Other attributes keep their names."""
_PYG = {
    "Planetoid": ("Cora", "CiteSeer", "PubMed"),
    "HeterophilousGraphDataset": (
        "Roman-empire",
        "Amazon-ratings",
        "Minesweeper",
        "Tolokers",
        "Questions",
    ),
    "Amazon": ("Computers", "Photo"),
    "Coauthor": ("CS", "Physics"),
    "Twitch": ("DE", "EN", "ES", "FR", "PT", "RU"),
    "Reddit": (),
    "Reddit2": (),
    "Flickr": (),
    "Yelp": (),
    "AmazonProducts": (),
    "WikiCS": (),
    "FacebookPagePage": (),
    "GitHub": (),
    "LastFMAsia": (),
}
"""PyG's classes of data sets with one graph, and names of data sets, for names like `pyg:Cora`."""


@called_from_python
def from_pyg(
    data: Any,
    out: str | Path,
    *,
    splits: dict[str, Any] | None = None,
    arrays: Sequence[str] = (),
    mask_column: int = 0,
    options: ImportOptions | None = None,
) -> Graph:
    """Writes a PyG `Data`, `TemporalData` or `HeteroData` object as a data set and opens it.

    It imports `edge_index`, `x`, `y`, and every attribute with a row for each edge, such as
    `edge_attr`, `edge_type` and `time` (in batches `edge_attr`, `edge_type`, `edge_time`). The
    masks `train_mask`, `val_mask` and `test_mask` become splits; of masks with several columns, it
    uses the column `mask_column`. `splits` maps names to ids or masks, and replaces these masks.
    `arrays` names further node attributes to import, numbers or texts. A warning names the
    attributes that are not imported. `options` are `ImportOptions`.

    Each event of a `TemporalData` becomes an edge. `t` becomes the edge array `time`, and `msg`
    becomes `attr`. Other attributes such as `y` become edge arrays of their names.

    For a `HeteroData`, this holds for each type. `y`, masks and `splits` belong to one node type.

    Errors: `InvalidError` names the attribute with wrong values.
    """
    arrays = (arrays,) if isinstance(arrays, str) else tuple(arrays)
    options = options or ImportOptions()
    if hasattr(data, "edge_types"):
        return written(open_hetero(data, splits, arrays, mask_column, options), out, options)
    return written(open_data(data, splits, arrays, mask_column), out, options)


def written(source: GraphSource, out: str | Path, options: ImportOptions | None) -> Graph:
    """Writes a data set and opens it. Gives the notes on the source as warnings.

    Only functions with the decorator `called_from_python` may call it: the warnings then name the
    user's line of code.
    """
    import_graph(source, out, options)
    for note in source.notes:
        warnings.warn(note, stacklevel=4)
    return Graph(out)


def open_data(
    data: Any,
    splits: dict[str, Any] | None = None,
    arrays: tuple[str, ...] = (),
    mask_column: int = 0,
) -> GraphSource:
    """Opens a PyG `Data` or `TemporalData` object; arguments as `from_pyg`."""
    # `TemporalData` has `edge_index` too, but is not a `Data`.
    if hasattr(type(data), "num_events"):
        return _open_events(data, splits, arrays)
    edge_index = _edge_index(data)
    nodes = int(data.num_nodes)
    of_edges = edge_attributes(data, edge_index.shape[1])
    for name in arrays:
        if name in RESERVED:
            raise InvalidError(
                f"data.{name}: batches have something else under this name\n"
                "hint: `x` and `y` are taken without being named; rename other attributes"
            )
        if getattr(data, name, None) is None:
            raise InvalidError(f"PyG object: no attribute `{name}`; it has {data.keys()}")
    named = [name for name in arrays if name not in of_edges]
    chosen = _masks_of(data, mask_column) if splits is None else splits_of(splits, nodes)
    others = sorted(_not_taken(data, {"edge_index", "y", *arrays, *of_edges}, splits))
    hint = "arrays of nodes by `arrays=(NAME, ...)`, splits by `splits={NAME: IDS}`"
    return GraphSource(
        [_edges("data.edge_index", edge_index)],
        [
            *_node_attributes(data, "data", named, nodes),
            *_split_arrays(chosen),
            *edge_values(data, edge_index),
        ],
        nodes,
        # `edge_index` holds both directions of an undirected edge already.
        False,
        notes=_notes("PyG object", others, hint),
    )


def _edges(name: str, edge_index: NDArray[Any]) -> EdgeSource:
    return replace(from_edge_index(name, edge_index), digest=digest_of(edge_index))


def _edge_index(data: Any) -> NDArray[Any]:
    """The ends of the edges, [2, edges]; without edges for an object with only nodes.

    Errors: `InvalidError` if the object may store edges in another way, such as `adj_t`.
    """
    if (given := getattr(data, "edge_index", None)) is not None:
        return numpy_of("data.edge_index", given)
    if not hasattr(data, "is_node_attr") or data.get("adj_t") is not None or not data.num_nodes:
        raise InvalidError(
            f"PyG object {type(data).__name__}: expected `edge_index`, found none\n"
            "hint: `adj_t` is not read; a `HeteroData` is written by `outercore.from_pyg`"
        )
    return np.empty((2, 0), np.int64)


def _open_events(data: Any, splits: dict[str, Any] | None, arrays: tuple[str, ...]) -> GraphSource:
    """Opens a `TemporalData` object: each event becomes an edge, as `from_pyg` explains.

    Errors: `InvalidError` if `src`, `dst` or `t` is missing, or if `arrays` is not empty.
    """
    missing = [name for name in ("src", "dst", "t") if getattr(data, name, None) is None]
    if missing:
        raise InvalidError(f"TemporalData: expected `src`, `dst` and `t`, found no `{missing[0]}`")
    if arrays:
        raise InvalidError(
            f"TemporalData: `{arrays[0]}`: it has attributes of events, expected none by `arrays`\n"
            "hint: leave `arrays` out: attributes of events become edge arrays"
        )
    names = [name for name, value in data.to_dict().items() if value is not None]
    columns = {name: numpy_of(f"data.{name}", data[name]) for name in names}
    edge_index = np.stack([columns.pop(name).reshape(-1) for name in ("src", "dst")])
    notes, of_edges = [], []
    for name, values in columns.items():
        is_of_events = values.ndim in (1, 2) and len(values) == edge_index.shape[1]
        if not is_of_events or name in TOPOLOGY:
            notes.append(f"TemporalData: not taken: `{name}`, which has no row for each event")
            continue
        if name == "t":
            values = values.reshape(-1)
            if values.dtype.kind == "f":
                values = whole_times("data.t", values)
        rows = from_array(f"data.{name}", np.ascontiguousarray(values))
        of_edges.append(NodeArray("edge", _EVENTS.get(name, name), rows))
    nodes = int(data.num_nodes)
    return GraphSource(
        [_edges("data.src and data.dst", edge_index)],
        [*_split_arrays(splits_of(splits or {}, nodes)), *of_edges],
        nodes,
        False,
        notes=notes,
    )


def open_hetero(
    data: Any,
    splits: dict[str, Any] | None,
    arrays: tuple[str, ...],
    mask_column: int,
    options: ImportOptions,
    edge_arrays: Mapping[EdgeType, Mapping[str, Any]] | None = None,
) -> GraphSource:
    """Opens a PyG `HeteroData` object; arguments as `from_pyg`.

    `edge_arrays` has further arrays of edges, by edge type and name.

    Errors: `InvalidError` names the type and the attribute with wrong values.
    """
    counts = {name: _count(data, name) for name in sorted(data.node_types)}
    if not counts:
        raise InvalidError("HeteroData: expected node types, found none")
    edge_types = sorted(data.edge_types, key=edge_type_key)
    ends = {one: _ends_of_type(data, one) for one in edge_types}
    labelled = _labelled(data, counts)
    for name in arrays:
        if name in RESERVED:
            raise InvalidError(f"`{name}`: batches have something else under this name")
        if all(data[one].get(name) is None for one in [*counts, *edge_types]):
            raise InvalidError(f"HeteroData: no node type has an attribute `{name}`")
    found, others = [], [f"data.{name}" for name in data._global_store if name != "num_nodes"]
    for node_type, count in counts.items():
        store, where = data[node_type], _where(node_type)
        is_labelled = node_type == labelled
        found += _node_attributes(store, where, arrays, count, node_type, is_labelled=is_labelled)
        own = _not_taken(store, {*arrays, *(["y"] if is_labelled else [])}, splits, is_labelled)
        others += [f"{where}.{name}" for name in own]
    if splits is None:
        chosen = _masks_of(data[labelled], mask_column, _where(labelled)) if labelled else {}
    elif labelled is None:
        raise InvalidError(
            "splits: no node type has labels `y`, so they do not say whose nodes they are"
        )
    else:
        chosen = splits_of(splits, counts[labelled])
    found += _split_arrays(chosen, labelled)
    tables, identities = [], []
    for edge_type, edge_index in ends.items():
        store, where, key = data[edge_type], _where(edge_type), edge_type_key(edge_type)
        found += edge_values(store, edge_index, where, key)
        for name, values in (edge_arrays or {}).get(edge_type, {}).items():
            found.append(NodeArray("edge", name, rows_of(f"{where}.{name}", values), key))
        of_edges = edge_attributes(store, edge_index.shape[1])
        others += [f"{where}.{name}" for name in store if name not in {"edge_index", *of_edges}]
        tables.append(array_of_edges(edge_type, EdgeArrayTable(Path("HeteroData"), edge_index)))
        identities.append(f"HeteroData {key} {digest_of(edge_index)}")
    notes = _notes("HeteroData", others, "arrays of nodes by `arrays=(NAME, ...)`")
    inputs = TypedInputs((), ())
    source = source_of_arrays(Path("HeteroData"), inputs, options, counts, tables, found, notes)
    return replace(source, identities=identities)


def _where(of_type: str | EdgeType) -> str:
    return f"data[{of_type!r}]"


def _count(data: Any, node_type: str) -> int:
    """The number of nodes of a type.

    Errors: `InvalidError` if it is unknown.
    """
    with warnings.catch_warnings():
        # PyG warns and guesses the number from the edges; nodes without edges would be lost.
        warnings.simplefilter("error")
        try:
            count = data[node_type].num_nodes
        except UserWarning:
            count = None
    if count is None:
        where = _where(node_type)
        raise InvalidError(
            f"{where}: the number of nodes is not known\nhint: `{where}.num_nodes = COUNT`"
        )
    return int(count)


def _ends_of_type(data: Any, edge_type: EdgeType) -> NDArray[Any]:
    """The ends of the edges of a type, [2, edges]; without edges for a type without attributes.

    Errors: `InvalidError` for an array of another shape or type.
    """
    where = f"{_where(edge_type)}.edge_index"
    value = data[edge_type].get("edge_index")
    if value is None and not len(data[edge_type]):
        return np.empty((2, 0), np.int64)
    if value is None:
        raise InvalidError(f"{where}: expected an array, found none; `adj_t` is not read")
    ends = numpy_of(where, value)
    if ends.ndim != 2 or ends.shape[0] != 2:
        raise InvalidError(f"{where}: expected [2, edges], found {ends.shape}")
    if ends.dtype.kind not in "iu":
        raise InvalidError(f"{where}: expected integers, found {ends.dtype}")
    return ends


def _labelled(data: Any, counts: dict[str, int]) -> str | None:
    """The node type with labels.

    Errors: `InvalidError` if several types have labels or masks, and masks do not decide.
    """
    with_labels = [name for name in counts if data[name].get("y") is not None]
    masks = [mask for names in MASKS.values() for mask in names]
    with_masks = [name for name in counts if any(mask in data[name] for mask in masks)]
    found = with_labels or with_masks
    if len(found) > 1:
        found = [name for name in found if name in with_masks]
    if len(found) == 1 or not (with_labels or with_masks):
        return found[0] if found else None
    several = with_labels or with_masks
    raise InvalidError(
        f"HeteroData: node types {', '.join(several)} have labels or masks; a data set has those "
        f"of one\nhint: `del data[{several[0]!r}].y`, and import that type's labels into another"
    )


def _node_attributes(
    store: Any,
    where: str,
    names: Sequence[str],
    count: int,
    of_type: str | None = None,
    *,
    is_labelled: bool = True,
) -> list[NodeArray]:
    """Features, labels and the attributes `names` of `count` nodes; missing ones are skipped."""
    found: list[NodeArray] = []
    if (value := store.get("x")) is not None:
        found.append(NodeArray("features", "x", rows_of(f"{where}.x", value), of_type))
    if is_labelled and (value := store.get("y")) is not None:
        found.append(NodeArray("labels", "y", rows_of(f"{where}.y", value), of_type))
    for name in names:
        if (value := store.get(name)) is not None:
            found += node_arrays(f"{where}.{name}", name, value, count, of_type)
    return found


def _split_arrays(splits: dict[str, NDArray[Any]], of_type: str | None = None) -> list[NodeArray]:
    return [
        NodeArray("split", normal_split(name), from_array(f"split `{name}`", ids), of_type)
        for name, ids in splits.items()
    ]


def _not_taken(
    store: Any, taken: set[str], splits: Mapping[str, Any] | None, has_masks: bool = True
) -> list[str]:
    """The node attributes outside `taken`. Of several masks for a split, only the first is used."""
    taken = taken | {"x", "num_nodes"}
    for names in MASKS.values() if has_masks else ():
        there = [name for name in names if name in store]
        taken.update(there if splits is not None else there[:1])
    return [name for name in store.keys() if name not in taken and store[name] is not None]  # noqa: SIM118


def _notes(what: str, others: list[str], hint: str) -> list[str]:
    return [f"{what}: not taken: {listed(others)} ({hint})"] if others else []


def edge_attributes(data: Any, edges: int) -> dict[str, str]:
    """Attributes with a row for each edge, and the names of the edge arrays they become.

    `data` is a `Data`, or the storage of an edge type. A batch delivers the edge array ``type`` as
    ``edge_type``. So the attributes ``type`` and ``edge_type`` both become this array, and only the
    first is taken. Names that batches use in another way are left out.
    """
    found = {one: name for one, name in _KNOWN.items() if data.get(one) is not None}
    for attribute in data.keys():  # noqa: SIM118  # A storage iterates over its values.
        name = attribute.removeprefix("edge_")
        is_taken = name in TOPOLOGY or (f"edge_{name}" in RESERVED and name != "norm")
        if is_taken or name in found.values() or not _has_rows(data, attribute, edges):
            continue
        found[attribute] = name
    return found


def _has_rows(data: Any, attribute: str, edges: int) -> bool:
    """Whether an attribute has numbers with a row for each edge, and is not a node attribute."""
    if hasattr(data, "is_edge_attr") and not data.is_edge_attr(attribute):
        return False
    value = data[attribute]
    if not (hasattr(value, "dtype") and hasattr(value, "shape")) or len(value.shape) not in (1, 2):
        return False
    return len(value) == edges and numpy_of(attribute, value).dtype.kind in "biuf"


def edge_values(
    data: Any, edge_index: NDArray, where: str = "data", of_type: str | None = None
) -> list[NodeArray]:
    """The edge arrays of an object; `where` is its name in messages.

    Errors: `InvalidError` for another number of rows than edges, or times that are not integers.
    """
    found = []
    for attribute, name in edge_attributes(data, edge_index.shape[1]).items():
        value = data[attribute]
        place = f"{where}.{attribute}"
        values = numpy_of(place, value)
        count = len(values) if values.ndim else 0
        if count != edge_index.shape[1]:
            raise InvalidError(
                f"{place}: {count} rows, expected {edge_index.shape[1]}: one for each column of "
                "`edge_index`"
            )
        is_column = name in ("weight", "time") and values.ndim == 2
        if is_column:
            if values.shape[1] != 1:
                raise InvalidError(f"{place}: {values.shape[1]} columns, expected one")
            values = values[:, 0]
        rows = replace(from_array(place, values), keeps_form=True, is_column=is_column)
        if attribute == "edge_time" and values.dtype.kind not in "iu":
            raise InvalidError(f"{place}: type {values.dtype}, expected whole numbers")
        found.append(NodeArray("edge", name, rows, of_type))
    return found


def _masks_of(data: Any, column: int, where: str = "data") -> dict[str, NDArray]:
    """The masks of the splits; `where` is the name of `data` in messages.

    `column` is the column of a mask with several.

    Errors: `InvalidError` for a mask with other values than true and false, or 1 and 0.
    """
    masks = {}
    for split, names in MASKS.items():
        name = next((name for name in names if name in data and data[name] is not None), None)
        if name is None:
            continue
        mask = numpy_of(f"{where}.{name}", data[name])
        if mask.ndim == 2:
            if not 0 <= column < mask.shape[1]:
                raise InvalidError(
                    f"mask of split `{split}`: expected column {column}, found {mask.shape[1]}"
                )
            mask = np.ascontiguousarray(mask[:, column])
        if mask.dtype.kind != "b":
            # Older code stores masks as 0 and 1, which would be valid ids.
            if mask.dtype.kind not in "iuf" or not np.isin(mask, (0, 1)).all():
                raise InvalidError(
                    f"{where}.{name}: expected true and false, or 1 and 0, found other values\n"
                    "hint: node ids: `from_pyg(data, out, splits={'train': IDS, ...})`"
                )
            mask = mask.astype(bool)
        masks[split] = mask
    return masks


def splits_of(splits: dict[str, Any], nodes: int) -> dict[str, NDArray]:
    """The given ids or masks as arrays; `nodes` is the number of nodes.

    Errors: `InvalidError` for numbers that may be ids or a mask.
    """
    found = {}
    for name, value in splits.items():
        ids = numpy_of(f"split `{name}`", value)
        if not ids.size and ids.ndim == 1:
            # NumPy converts an empty list to floats.
            ids = ids.astype(np.int64)
        # A split does not repeat an id, so 0 and 1 for more than two nodes are a mask. For two
        # nodes, they are a mask if the type has one byte.
        narrow = ids.dtype.itemsize == 1 and nodes == 2
        is_whole = ids.dtype.kind in "iu" and ids.shape == (nodes,)
        if is_whole and (nodes > 2 or narrow) and np.isin(ids, (0, 1)).all():
            raise InvalidError(
                f"split `{name}`: one 0 or 1 for each node, which looks like a mask; expected "
                "true and false, or ids\nhint: a mask: `mask.astype(bool)`, in PyTorch "
                "`mask.bool()`"
            )
        found[name] = ids
    return found


def node_arrays(
    where: str, name: str, value: Any, count: int, node_type: str | None = None
) -> list[NodeArray]:
    """An attribute of `count` nodes as an array of numbers, or as texts.

    Errors: as `numpy_of`; `InvalidError` for another number of texts than nodes.
    """
    texts = _texts_of(value)
    if texts is None:
        return [NodeArray("array", name, rows_of(where, value), node_type)]
    if len(texts) != count:
        raise InvalidError(f"{where}: {len(texts)} texts, expected {count}: one for each node")
    return text_arrays(name, node_type, where, lambda: iter([texts]))


def _texts_of(value: Any) -> pa.Array | None:
    """A list of texts as large strings, with an empty text for `None`; `None` for anything else."""
    if not isinstance(value, list | tuple | np.ndarray):
        return None
    found = arrow_array(value)
    if found is None or not is_text(found.type):
        return None
    return found.cast(pa.large_string()).fill_null("")


def rows_of(where: str, value: Any) -> RowSource:
    """An attribute as a source of rows; `where` is its name in messages.

    Errors: as `numpy_of`.
    """
    return replace(from_array(where, numpy_of(where, value)), keeps_form=True)


def numpy_of(where: str, value: Any) -> NDArray:
    """An attribute as a NumPy array; `where` is its name in messages.

    Errors: `InvalidError` for a value that NumPy cannot convert.
    """
    if hasattr(value, "is_sparse") and (value.is_sparse or value.layout != _strided()):
        value = value.to_dense()
    try:
        if hasattr(value, "detach"):
            value = value.detach().cpu()
            # NumPy lacks these types; float32 holds all their values.
            if str(value.dtype).startswith(("torch.bfloat16", "torch.float8")):
                value = value.float()
            return value.numpy()
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        found = getattr(value, "dtype", type(value).__name__)
        raise InvalidError(
            f"{where}: expected an array of numbers, found {found}: {error}"
        ) from None


def _strided() -> Any:
    import torch

    return torch.strided


def _open_named(path: Path, _: Inputs, _options: ImportOptions) -> GraphSource:
    """Opens a data set that PyG downloads: `pyg:Cora`, `pyg:Class/Name`.

    Errors: `UnsupportedError` if PyG is not installed; `DeviceError` if the download fails.
    """
    return open_data(_pyg_data(str(path).removeprefix("pyg:"), CACHE.expanduser() / "pyg"))


def _pyg_data(name: str, directory: Path) -> Any:
    datasets = library(
        "torch_geometric.datasets", "torch-geometric", 'pip install "outercore[torch]"'
    )
    kind, member = _pyg_class(name)
    if not hasattr(datasets, kind):
        raise NotFoundError(f"PyG has no data set `{name}`\nhint: give it as `pyg:Class/Name`")
    arguments = {"name": member} if member else {}
    root = directory / kind if not member else directory / kind / member
    with download_errors(f"pyg:{name}"):
        return getattr(datasets, kind)(root=str(root), **arguments)[0]


def _pyg_class(name: str) -> tuple[str, str | None]:
    if "/" in name:
        kind, _, member = name.partition("/")
        return kind, member
    known: dict[str, tuple[str, str | None]] = {kind.lower(): (kind, None) for kind in _PYG}
    for kind, members in _PYG.items():
        known |= {member.lower(): (kind, member) for member in members}
    return known.get(name.lower(), (name, None))


FORMAT = Format("a data set of PyG", lambda path: str(path).startswith("pyg:"), _open_named)
