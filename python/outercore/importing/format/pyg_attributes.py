"""The attributes of PyTorch Geometric objects as arrays."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.data.batch_arrays import RESERVED
from outercore.errors import InvalidError
from outercore.importing.graph import NodeArray
from outercore.importing.table.rows import RowSource, from_array
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


def edge_values(data: Any, edge_index: NDArray, where: str = "data") -> list[tuple[str, RowSource]]:
    """The edge arrays of what messages call `where`, with their names.

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
        found.append((name, rows))
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
