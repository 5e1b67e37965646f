"""PyTorch Geometric objects as data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.batch_arrays import RESERVED
from outercore.errors import InvalidError
from outercore.sources.edge_arrays import EdgeArray
from outercore.sources.edges import from_edge_index
from outercore.sources.graph import GraphSource, ImportOptions, NodeArray, import_graph
from outercore.sources.rows import from_array
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
    the masks.

    Errors: `InvalidError` names what does not fit.
    """
    import outercore

    import_graph(open_data(data, splits, arrays, mask_column), out, options)
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
    edge_index = _numpy(data.edge_index)
    for role, name in (("features", "x"), ("labels", "y")):
        value = getattr(data, name, None)
        if value is not None:
            found.append(NodeArray(role, name, from_array(f"data.{name}", _numpy(value))))  # type: ignore[arg-type]
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
        found.append(NodeArray("array", name, from_array(f"data.{name}", _numpy(value))))
    for name, ids in (splits if splits is not None else _masks(data, mask_column)).items():
        rows = from_array(f"split `{name}`", _numpy(ids))
        found.append(NodeArray("split", normal_split(name), rows))
    edges = from_edge_index("data.edge_index", edge_index)
    # PyG's `edge_index` holds both directions of an undirected edge already.
    return GraphSource([edges], found, int(data.num_nodes), False, _edge_arrays(data, edge_index))


def _edge_arrays(data: Any, edge_index: NDArray) -> list[EdgeArray]:
    found = []
    for attribute, name in _EDGE_ATTRIBUTES:
        value = getattr(data, attribute, None)
        if value is None or not hasattr(value, "shape"):
            continue
        values = _numpy(value)
        if len(values) != edge_index.shape[1]:
            raise InvalidError(
                f"data.{attribute}: {len(values)} rows, expected {edge_index.shape[1]}: one for "
                "each column of `edge_index`"
            )
        if name != "attr" and values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        rows = from_array(f"data.{attribute}", values)
        found.append(EdgeArray(name, lambda _mirrored, rows=rows: rows))  # type: ignore[misc]
    return found


def _masks(data: Any, column: int) -> dict[str, NDArray]:
    masks = {}
    for split, names in _MASKS.items():
        value = next((getattr(data, name) for name in names if name in data), None)
        if value is None:
            continue
        mask = _numpy(value)
        if mask.ndim == 2:
            if column >= mask.shape[1]:
                raise InvalidError(
                    f"mask of split `{split}`: expected column {column}, found {mask.shape[1]}"
                )
            mask = np.ascontiguousarray(mask[:, column])
        masks[split] = mask
    return masks


def _numpy(value: Any) -> NDArray:
    if hasattr(value, "is_sparse") and (value.is_sparse or value.layout != _strided()):
        value = value.to_dense()
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        return value.numpy()
    return np.asarray(value)


def _strided() -> Any:
    import torch

    return torch.strided
