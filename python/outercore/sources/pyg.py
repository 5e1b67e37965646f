"""PyTorch Geometric objects as data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.sources.edges import from_edge_index
from outercore.sources.graph import GraphSource, ImportOptions, NodeArray, import_graph
from outercore.sources.rows import from_array

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

    Taken are `edge_index`, `x`, `y`, the masks `train_mask`, `val_mask` and `test_mask` (their
    column `mask_column` where they have several), and the node attributes named in `arrays`;
    `splits` maps names to ids or masks and wins over the masks.

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
    found = []
    for role, name in (("features", "x"), ("labels", "y")):
        value = getattr(data, name, None)
        if value is not None:
            found.append(NodeArray(role, name, from_array(f"data.{name}", _numpy(value))))  # type: ignore[arg-type]
    for name in arrays:
        value = getattr(data, name, None)
        if value is None:
            raise InvalidError(f"PyG object: no attribute `{name}`; it has {data.keys()}")
        found.append(NodeArray("array", name, from_array(f"data.{name}", _numpy(value))))
    for name, ids in (splits if splits is not None else _masks(data, mask_column)).items():
        found.append(NodeArray("split", name, from_array(f"split `{name}`", _numpy(ids))))
    edges = from_edge_index("data.edge_index", _numpy(data.edge_index))
    # PyG's `edge_index` holds both directions of an undirected edge already.
    return GraphSource([edges], found, int(data.num_nodes), undirected=False)


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
