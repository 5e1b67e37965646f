"""PyTorch Geometric objects with several types of nodes and edges."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Progress
from outercore.data.batch_arrays import RESERVED
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.data.split_names import normal_split
from outercore.errors import InvalidError
from outercore.importing.edges import digest_of
from outercore.importing.format.pyg_attributes import (
    MASKS,
    edge_attributes,
    edge_values,
    masks_of,
    node_arrays,
    numpy_of,
    rows_of,
    splits_of,
)
from outercore.importing.graph import ImportOptions, NodeArray, feed_array, require_place
from outercore.importing.table.rows import from_array
from outercore.importing.typed.importer import refuse_options, typed_importer
from outercore.importing.typed.tables import require_type_name

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
    ends = {key: _edge_index(data, one) for key, one in edges.items()}
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
        for name, rows in edge_values(data[one], ends[key], _where(one)):
            found.append(NodeArray("edge", name, rows, key))
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
    return _not_taken(data, arrays, labelled, are_splits_given=splits is not None)


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


def _edge_index(data: Any, edge_type: EdgeType) -> NDArray[Any]:
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


def _not_taken(
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
