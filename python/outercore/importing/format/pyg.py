"""PyTorch Geometric objects as data sets: `Data`, `TemporalData` and `HeteroData`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.base.native import Progress
from outercore.data.batch_arrays import RESERVED
from outercore.data.edge_types import edge_type_key
from outercore.data.graph import EdgeType
from outercore.data.split_names import normal_split
from outercore.errors import InvalidError
from outercore.importing.build.graph import (
    feed_array,
    import_graph,
    refuse_options,
    require_place,
    typed_importer,
)
from outercore.importing.edges import digest_of, from_edge_index
from outercore.importing.graph_tables import require_type_name
from outercore.importing.options import ImportOptions
from outercore.importing.python_calls import called_from_python
from outercore.importing.source import GraphSource
from outercore.importing.table.rows import NodeArray, RowSource, from_array
from outercore.importing.table.times import whole_times
from outercore.importing.texts import text_arrays

_KNOWN = {"edge_weight": "weight", "edge_time": "time", "edge_attr": "attr"}
"""Attributes of edges whatever their length, and the edge arrays they become."""
TOPOLOGY = ("offsets", "sources", "ids")
MASKS = {"train": ("train_mask",), "valid": ("val_mask", "valid_mask"), "test": ("test_mask",)}


def edge_attributes(data: Any, edges: int) -> dict[str, str]:
    """Attributes with a row for each edge, with the edge arrays they become.

    `data` is a `Data`, or the storage of an edge type. An edge array ``type`` comes in batches as
    ``edge_type``, so that an attribute may have the prefix or lack it. Left out are what batches
    have themselves, and the second of two attributes that would be one array.
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
    """Whether an attribute has numbers with a row for each edge, and none for each node."""
    if hasattr(data, "is_edge_attr") and not data.is_edge_attr(attribute):
        return False
    value = data[attribute]
    if not (hasattr(value, "dtype") and hasattr(value, "shape")) or len(value.shape) not in (1, 2):
        return False
    return len(value) == edges and numpy_of(attribute, value).dtype.kind in "biuf"


def edge_values(
    data: Any, edge_index: NDArray, where: str = "data", of_type: str | None = None
) -> list[NodeArray]:
    """The edge arrays of an object that messages call `where`.

    Errors: `InvalidError` for another number of rows than edges, or times that are not whole.
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


def masks_of(data: Any, column: int, where: str = "data") -> dict[str, NDArray]:
    """The splits that are masks of what messages call `where`.

    Errors: `InvalidError` for a mask that is neither true and false nor 1 and 0.
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
            # Older code keeps masks as 0 and 1, which would also be ids.
            if mask.dtype.kind not in "iuf" or not np.isin(mask, (0, 1)).all():
                raise InvalidError(
                    f"{where}.{name}: expected true and false, or 1 and 0, found other values\n"
                    "hint: node ids: `from_pyg(data, out, splits={'train': IDS, ...})`"
                )
            mask = mask.astype(bool)
        masks[split] = mask
    return masks


def splits_of(splits: dict[str, Any], nodes: int) -> dict[str, NDArray]:
    """Ids or masks as arrays.

    Errors: `InvalidError` for numbers that may be either.
    """
    found = {}
    for name, value in splits.items():
        ids = numpy_of(f"split `{name}`", value)
        if not ids.size and ids.ndim == 1:
            # An empty list has no type; NumPy makes it floats.
            ids = ids.astype(np.int64)
        # Twice the same id is no split; with two nodes only the narrow type tells.
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
    try:
        found = pa.array(value, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    if not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
        return None
    return found.cast(pa.large_string()).fill_null("")


def rows_of(where: str, value: Any) -> RowSource:
    """An attribute as rows.

    Errors: as `numpy_of`.
    """
    return replace(from_array(where, numpy_of(where, value)), keeps_form=True)


def numpy_of(where: str, value: Any) -> NDArray:
    """An attribute as an array.

    Errors: `InvalidError` for what NumPy has no array of.
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


_ENDS = ("src", "dst")
_ARRAYS = {"t": "time", "msg": "attr"}
"""Attributes of events, and the edge arrays that they become; others keep their names."""
_TOPOLOGY = ("offsets", "sources", "ids")


def is_events(data: Any) -> bool:
    """Whether an object of PyG holds events; these are no `Data`, though they have `edge_index`."""
    return hasattr(type(data), "num_events")


def open_events(data: Any, splits: dict[str, Any] | None, arrays: tuple[str, ...]) -> GraphSource:
    """Each event as an edge: `t` becomes the edge array `time`, `msg` becomes `attr`, and other
    attributes with a row for each event, such as `y`, edge arrays of their names.

    Errors: `InvalidError` for an attribute of nodes, of which there are none, and for one with
    another number of rows.
    """
    missing = [name for name in ("src", "dst", "t") if getattr(data, name, None) is None]
    if missing:
        raise InvalidError(f"TemporalData: expected `src`, `dst` and `t`, found no `{missing[0]}`")
    if arrays:
        raise InvalidError(
            f"TemporalData: `{arrays[0]}`: it has attributes of events, expected none by `arrays`\n"
            "hint: leave `arrays` out: attributes of events become edge arrays"
        )
    columns = {name: numpy_of(f"data.{name}", data[name]) for name in _names(data)}
    edge_index = np.stack([columns.pop(name).reshape(-1) for name in _ENDS])
    events, notes, found = edge_index.shape[1], [], []
    for name, values in columns.items():
        if not values.ndim or len(values) != events or values.ndim > 2 or name in _TOPOLOGY:
            notes.append(f"TemporalData: not taken: `{name}`, which has no row for each event")
            continue
        found.append(_array(name, values))
    nodes = int(data.num_nodes)
    given = splits_of(splits or {}, nodes)
    edges = from_edge_index("data.src and data.dst", edge_index)
    edges = replace(edges, digest=digest_of(edge_index))
    return GraphSource(
        [edges],
        [
            NodeArray("split", normal_split(name), from_array(f"split `{name}`", ids))
            for name, ids in given.items()
        ],
        nodes,
        False,
        found,
        notes=notes,
    )


def _names(data: Any) -> list[str]:
    return [name for name, value in data.to_dict().items() if value is not None]


def _array(name: str, values: NDArray[Any]) -> NodeArray:
    where = f"data.{name}"
    if name == "t":
        values = values.reshape(-1)
        if values.dtype.kind == "f":
            values = whole_times(where, values)
    rows = from_array(where, np.ascontiguousarray(values))
    return NodeArray("edge", _ARRAYS.get(name, name), rows)


_ROWS = 1 << 20


def import_hetero(
    data: Any,
    out: Path,
    splits: dict[str, Any] | None = None,
    arrays: tuple[str, ...] = (),
    mask_column: int = 0,
    options: ImportOptions | None = None,
    progress: Progress = lambda *_: None,
    *,
    edge_arrays: Mapping[EdgeType, Mapping[str, Any]] | None = None,
) -> list[str]:
    """Writes a PyG `HeteroData` object; arguments as `from_pyg`. Returns what was not taken.

    `edge_arrays` are further arrays of edges, by their names.

    Errors: `InvalidError` names the type and the attribute that does not fit.
    """
    options = options or ImportOptions()
    refuse_options(options)
    counts = {name: _count(data, name) for name in sorted(data.node_types)}
    if not counts:
        raise InvalidError("HeteroData: expected node types, found none")
    edges = dict(sorted((edge_type_key(one), one) for one in data.edge_types))
    for relation in data.edge_types:
        require_type_name("HeteroData", relation[1])
    ends = {key: _ends_of_type(data, one) for key, one in edges.items()}
    labelled = _labelled(data, counts)
    found = _node_arrays(data, counts, arrays, labelled)
    if splits is None:
        chosen = masks_of(data[labelled], mask_column, _where(labelled)) if labelled else {}
    elif labelled is None:
        raise InvalidError(
            "splits: no node type has labels `y`, so they do not say whose nodes they are"
        )
    else:
        chosen = splits_of(splits, counts[labelled])
    for name, ids in chosen.items():
        rows = from_array(f"split `{name}`", ids)
        found.append(NodeArray("split", normal_split(name), rows, labelled))
    for key, one in edges.items():
        found += edge_values(data[one], ends[key], _where(one), key)
        for name, values in (edge_arrays or {}).get(one, {}).items():
            found.append(NodeArray("edge", name, rows_of(f"{_where(one)}.{name}", values), key))
    require_place(found, options)
    with typed_importer(
        out,
        options,
        progress,
        inputs=["HeteroData"],
        identities=[f"HeteroData {key} {digest_of(ends[key])}" for key in edges],
        nodes=counts,
        edges=list(edges.values()),
    ) as importer:
        for key in edges:
            importer.begin_edge_type(key)
            for first in range(0, ends[key].shape[1], _ROWS):
                source, target = ends[key][:, first : first + _ROWS].astype(np.int64)
                importer.push_edges(source, target)
        for array in found:
            feed_array(importer, array, options, progress)
        importer.finish()
    return _not_taken_of_types(data, arrays, labelled, are_splits_given=splits is not None)


def _where(of_type: str | EdgeType) -> str:
    return f"data[{of_type!r}]"


def _count(data: Any, node_type: str) -> int:
    """The number of nodes.

    Errors: `InvalidError` where nothing says it.
    """
    require_type_name("HeteroData", node_type)
    with warnings.catch_warnings():
        # PyG guesses from the edges, and nodes without edges would be lost.
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


def _edges(store: Any) -> int:
    """The edges of a type."""
    value = store.get("edge_index")
    return 0 if value is None else int(value.shape[1])


def _ends_of_type(data: Any, edge_type: EdgeType) -> NDArray[Any]:
    """[2, edges] the ends of the edges; none where a type has no attribute at all.

    Errors: `InvalidError` for an array of another form, and an end that is no node.
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
    for row, node_type in enumerate((edge_type[0], edge_type[2])):
        if node_type not in data.node_types:
            raise InvalidError(f"{where}: there is no node type `{node_type}`")
        count = int(data[node_type].num_nodes)
        wrong = np.flatnonzero((ends[row] < 0) | (ends[row] >= count))
        if len(wrong):
            raise InvalidError(
                f"{where}: edge {wrong[0]}: `{node_type}` {ends[row][wrong[0]]}, expected a number "
                f"below {count}"
            )
    return ends


def _labelled(data: Any, counts: dict[str, int]) -> str | None:
    """The node type with labels.

    Errors: `InvalidError` where more than one has some and masks do not tell.
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


def _node_arrays(
    data: Any, counts: dict[str, int], names: tuple[str, ...], labelled: str | None
) -> list[NodeArray]:
    """Features, labels and the arrays in `names`.

    Errors: `InvalidError` for a name that no node type has, or that batches use themselves.
    """
    found = []
    for node_type in counts:
        store, where = data[node_type], _where(node_type)
        if store.get("x") is not None:
            rows = rows_of(f"{where}.x", store["x"])
            found.append(NodeArray("features", "x", rows, node_type))
        if node_type == labelled and store.get("y") is not None:
            found.append(NodeArray("labels", "y", rows_of(f"{where}.y", store["y"]), node_type))
    for name in names:
        if name in RESERVED:
            raise InvalidError(f"`{name}`: batches have something else under this name")
        having = [one for one in counts if data[one].get(name) is not None]
        of_edges = any(data[one].get(name) is not None for one in data.edge_types)
        if not having and not of_edges:
            raise InvalidError(f"HeteroData: no node type has an attribute `{name}`")
        for node_type in having:
            where, value = f"{_where(node_type)}.{name}", data[node_type][name]
            found += node_arrays(where, name, value, counts[node_type], node_type)
    return found


def _not_taken_of_types(
    data: Any, arrays: tuple[str, ...], labelled: str | None, *, are_splits_given: bool
) -> list[str]:
    """A note that names the attributes nothing is made of."""
    others = [f"data.{name}" for name in data._global_store if name != "num_nodes"]
    for node_type in sorted(data.node_types):
        taken = {"x", "num_nodes", *arrays}
        if node_type == labelled:
            taken.add("y")
            for names in MASKS.values():
                there = [name for name in names if name in data[node_type]]
                taken.update(there if are_splits_given else there[:1])
        others += [f"{_where(node_type)}.{name}" for name in data[node_type] if name not in taken]
    for edge_type in sorted(data.edge_types):
        store = data[edge_type]
        of_edges = edge_attributes(store, _edges(store))
        known = {"edge_index", *of_edges}
        others += [f"{_where(edge_type)}.{name}" for name in store if name not in known]
    if not others:
        return []
    listed = ", ".join(f"`{name}`" for name in others)
    return [f"HeteroData: not taken: {listed} (arrays of nodes by `arrays=(NAME, ...)`)"]


@called_from_python
def from_pyg(
    data: Any,
    out: str | Path,
    *,
    splits: dict[str, Any] | None = None,
    arrays: Sequence[str] = (),
    mask_column: int = 0,
    options: ImportOptions | None = None,
) -> Any:
    """Writes a PyG `Data` or `HeteroData` object as a data set and opens it.

    Taken are `edge_index`, `x`, `y`, every attribute with a row for each edge, such as `edge_attr`,
    `edge_type` and `time` (in batches `edge_attr`, `edge_type`, `edge_time`), the masks
    `train_mask`, `val_mask` and `test_mask` (their column `mask_column` where they have several),
    and the node attributes named in `arrays`, numbers or texts. `splits` maps names to ids or masks
    and wins over the masks. A warning names the attributes that are not taken. `options` are
    `ImportOptions`.

    Each event of a `TemporalData` becomes an edge: `t` the edge array `time`, `msg` the edge array
    `attr`, other attributes such as `y` edge arrays of their names.

    Of a `HeteroData` the same is taken from each type; `y`, masks and `splits` are those of one
    node type.

    Errors: `InvalidError` names what does not fit.
    """
    import outercore

    arrays = (arrays,) if isinstance(arrays, str) else tuple(arrays)
    if hasattr(data, "edge_types"):
        notes = import_hetero(data, Path(out), splits, arrays, mask_column, options)
    else:
        source = open_data(data, splits, arrays, mask_column)
        notes = source.notes
        import_graph(source, out, options)
    for note in notes:
        warnings.warn(note, stacklevel=3)
    return outercore.open(out)


def open_data(
    data: Any,
    splits: dict[str, Any] | None = None,
    arrays: tuple[str, ...] = (),
    mask_column: int = 0,
) -> GraphSource:
    """The edges and arrays of a PyG `Data` object; arguments as `from_pyg`."""
    if is_events(data):
        return open_events(data, splits, arrays)
    found: list[NodeArray] = []
    edge_index = _edge_index(data)
    for role, name in (("features", "x"), ("labels", "y")):
        value = getattr(data, name, None)
        if value is not None:
            found.append(NodeArray(role, name, rows_of(f"data.{name}", value)))  # type: ignore[arg-type]
    nodes = int(data.num_nodes)
    of_edges = edge_attributes(data, edge_index.shape[1])
    for name in arrays:
        if name in RESERVED:
            raise InvalidError(
                f"data.{name}: batches have something else under this name\n"
                "hint: `x` and `y` are taken without being named; rename other attributes"
            )
        value = getattr(data, name, None)
        if value is None:
            raise InvalidError(f"PyG object: no attribute `{name}`; it has {data.keys()}")
        if name in of_edges:
            continue
        found += node_arrays(f"data.{name}", name, value, nodes)
    chosen = masks_of(data, mask_column) if splits is None else splits_of(splits, nodes)
    for name, ids in chosen.items():
        rows = from_array(f"split `{name}`", ids)
        found.append(NodeArray("split", normal_split(name), rows))
    edges = replace(from_edge_index("data.edge_index", edge_index), digest=digest_of(edge_index))
    # PyG's `edge_index` holds both directions of an undirected edge already.
    return GraphSource(
        [edges],
        found,
        nodes,
        False,
        edge_values(data, edge_index),
        notes=_not_taken(data, edge_index.shape[1], arrays, splits is not None),
    )


def _edge_index(data: Any) -> NDArray[Any]:
    """[2, edges] the ends; none of an object with nodes alone.

    Errors: `InvalidError` where edges may be elsewhere.
    """
    if (given := getattr(data, "edge_index", None)) is not None:
        return numpy_of("data.edge_index", given)
    if not hasattr(data, "is_node_attr") or data.get("adj_t") is not None or not data.num_nodes:
        raise InvalidError(
            f"PyG object {type(data).__name__}: expected `edge_index`, found none\n"
            "hint: `adj_t` is not read; a `HeteroData` is written by `outercore.from_pyg`"
        )
    return np.empty((2, 0), np.int64)


def _not_taken(data: Any, edges: int, arrays: tuple[str, ...], are_splits_given: bool) -> list[str]:
    """A note that names the attributes nothing is made of."""
    of_edges = edge_attributes(data, edges)
    taken = {"edge_index", "x", "y", "num_nodes", *arrays, *of_edges}
    for names in MASKS.values():
        there = [name for name in names if name in data]
        taken.update(there if are_splits_given else there[:1])
    known = data.keys()
    others = sorted(name for name in known if name not in taken and data[name] is not None)
    if not others:
        return []
    listed = ", ".join(f"`{name}`" for name in others)
    return [
        f"PyG object: not taken: {listed} (arrays of nodes by `arrays=(NAME, ...)`, splits by "
        "`splits={NAME: IDS}`)"
    ]
