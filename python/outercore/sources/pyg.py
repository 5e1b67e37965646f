"""PyTorch Geometric objects as data sets."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.batch_arrays import RESERVED
from outercore.errors import InvalidError
from outercore.sources.edge_arrays import EdgeArray
from outercore.sources.edges import from_edge_index
from outercore.sources.graph import GraphSource, ImportOptions, NodeArray, import_graph
from outercore.sources.rows import RowSource, from_array
from outercore.split_names import normal_split

_EDGE_ATTRIBUTES = (("edge_weight", "weight"), ("edge_time", "time"), ("edge_attr", "attr"))
"""Attributes of edges, and the edge arrays they become."""
_MASKS = {"train": ("train_mask",), "valid": ("val_mask", "valid_mask"), "test": ("test_mask",)}


def from_pyg(
    data: Any,
    out: str | Path,
    *,
    splits: dict[str, Any] | None = None,
    arrays: tuple[str, ...] = (),
    mask_column: int = 0,
    options: ImportOptions | None = None,
) -> Any:
    """Writes a PyG `Data` object as a data set and opens it.

    Taken are `edge_index`, `x`, `y`, `edge_attr`, `edge_weight`, `edge_time`, the masks
    `train_mask`, `val_mask` and `test_mask` (their column `mask_column` where they have several),
    and the node attributes named in `arrays`; `splits` maps names to ids or masks and wins over
    the masks. A warning names the attributes that are not taken.

    Errors: `InvalidError` names what does not fit.
    """
    import outercore

    source = open_data(data, splits, arrays, mask_column)
    for note in source.notes:
        warnings.warn(note, stacklevel=2)
    import_graph(source, out, options)
    return outercore.open(out)


def open_data(
    data: Any,
    splits: dict[str, Any] | None = None,
    arrays: tuple[str, ...] = (),
    mask_column: int = 0,
) -> GraphSource:
    """The edges and arrays of a PyG `Data` object; arguments as `from_pyg`."""
    if getattr(data, "edge_index", None) is None:
        raise InvalidError(
            f"PyG object {type(data).__name__}: expected `edge_index`, found none\n"
            "hint: heterogeneous graphs and `adj_t` cannot be imported yet"
        )
    found: list[NodeArray] = []
    edge_index = _numpy("data.edge_index", data.edge_index)
    for role, name in (("features", "x"), ("labels", "y")):
        value = getattr(data, name, None)
        if value is not None:
            found.append(NodeArray(role, name, _rows(f"data.{name}", value)))  # type: ignore[arg-type]
    taken = {array_name for array_name, _ in _EDGE_ATTRIBUTES}
    for name in arrays:
        if name in RESERVED:
            raise InvalidError(
                f"data.{name}: batches have something else under this name\n"
                "hint: `x` and `y` are taken without being named; rename other attributes"
            )
        value = getattr(data, name, None)
        if value is None:
            raise InvalidError(f"PyG object: no attribute `{name}`; it has {data.keys()}")
        if name in taken or (data.is_edge_attr(name) and not data.is_node_attr(name)):
            raise InvalidError(
                f"data.{name}: an attribute of edges, expected one of nodes\n"
                "hint: `edge_attr`, `edge_weight` and `edge_time` are taken without being named"
            )
        found.append(NodeArray("array", name, _rows(f"data.{name}", value)))
    nodes = int(data.num_nodes)
    chosen = _masks(data, mask_column) if splits is None else _splits(splits, nodes)
    for name, ids in chosen.items():
        rows = from_array(f"split `{name}`", ids)
        found.append(NodeArray("split", normal_split(name), rows))
    edges = from_edge_index("data.edge_index", edge_index)
    # PyG's `edge_index` holds both directions of an undirected edge already.
    return GraphSource(
        [edges],
        found,
        nodes,
        False,
        _edge_arrays(data, edge_index),
        notes=_not_taken(data, arrays, splits is not None),
    )


def _not_taken(data: Any, arrays: tuple[str, ...], are_splits_given: bool) -> list[str]:
    """A note that names the attributes nothing is made of."""
    taken = {"edge_index", "x", "y", "num_nodes", *arrays}
    taken.update(attribute for attribute, _ in _EDGE_ATTRIBUTES)
    for names in _MASKS.values():
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


def _edge_arrays(data: Any, edge_index: NDArray) -> list[EdgeArray]:
    found = []
    for attribute, name in _EDGE_ATTRIBUTES:
        value = getattr(data, attribute, None)
        if value is None:
            continue
        where = f"data.{attribute}"
        values = _numpy(where, value)
        count = len(values) if values.ndim else 0
        if count != edge_index.shape[1]:
            raise InvalidError(
                f"{where}: {count} rows, expected {edge_index.shape[1]}: one for each column of "
                "`edge_index`"
            )
        if name != "attr" and values.ndim == 2:
            if values.shape[1] != 1:
                raise InvalidError(f"{where}: {values.shape[1]} columns, expected one")
            values = values[:, 0]
        rows = from_array(where, values)
        if name == "time" and values.dtype.kind not in "iu":
            raise InvalidError(f"{where}: type {values.dtype}, expected whole numbers")
        found.append(EdgeArray(name, lambda _mirrored, rows=rows: rows))  # type: ignore[misc]
    return found


def _masks(data: Any, column: int) -> dict[str, NDArray]:
    masks = {}
    for split, names in _MASKS.items():
        name = next((name for name in names if name in data and data[name] is not None), None)
        if name is None:
            continue
        mask = _numpy(f"data.{name}", data[name])
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
                    f"data.{name}: expected true and false, or 1 and 0, found other values\n"
                    "hint: node ids: `from_pyg(data, out, splits={'train': IDS, ...})`"
                )
            mask = mask.astype(bool)
        masks[split] = mask
    return masks


def _splits(splits: dict[str, Any], nodes: int) -> dict[str, NDArray]:
    """Ids or masks as arrays.

    Errors: `InvalidError` for numbers that may be either.
    """
    found = {}
    for name, value in splits.items():
        ids = _numpy(f"split `{name}`", value)
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


def _rows(where: str, value: Any) -> RowSource:
    return from_array(where, _numpy(where, value))


def _numpy(where: str, value: Any) -> NDArray:
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
