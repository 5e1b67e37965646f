"""Restores the imported shape and type of features and labels in a batch, without PyTorch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.csc import array_of
from outercore.files.large_arrays import blocks

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet


def features_in_form(x: NDArray[np.float32], stored: str, form: Any) -> NDArray[Any]:
    """Features in their imported shape. `form` is the imported form, `stored` is the stored type.

    Integers get their imported type. Floats stay float32, as in the caches.

    Shapes: `x` float32 [n, F]; result [n, ...].
    """
    if form is None:
        return x
    # `convert` may have changed the stored type after the import.
    is_whole = np.dtype(form["dtype"]).kind in "iub" and stored == form["dtype"]
    rows = x.reshape(len(x), *form["row_shape"])
    return rows.astype(form["dtype"]) if is_whole else rows


def labels_in_form(labels: NDArray[Any], form: Any) -> NDArray[Any]:
    """Labels in their imported shape. Integers are int64, or float32 in labels with columns."""
    if np.issubdtype(labels.dtype, np.integer):
        labels = labels.astype(np.int64)
    return rows_in_form(labels, form)


def rows_in_form(stored: NDArray[Any], form: Any) -> NDArray[Any]:
    """Rows of an array in their imported form. In float labels, NaN marks a missing class."""
    if form is None:
        return stored
    rows = stored
    if np.dtype(form["dtype"]).kind == "f":
        rows = stored.astype(form["dtype"])
        if stored.dtype.kind == "i":
            rows[stored < 0] = np.nan
    return rows.reshape(len(rows), *form["row_shape"])


def compact_labels(graph: DataSet, key: str | None) -> NDArray[Any] | None:
    """Labels of all nodes in the smallest type that can hold them, because they stay in memory."""
    if key is None:
        return None
    if not np.issubdtype(_dtype(graph, key), np.integer):
        return graph.array(key)
    values = array_of(graph, key)
    least = min((int(block.min()) for _, block in blocks(values)), default=0)
    most = max((int(block.max()) for _, block in blocks(values)), default=0)
    fitting = (np.int8, np.int16, np.int32)
    holds = (np.iinfo(kind).min <= least and most <= np.iinfo(kind).max for kind in fitting)
    kind = next((kind for kind, does in zip(fitting, holds, strict=True) if does), values.dtype)
    labels = np.empty(values.shape, kind)
    for first, block in blocks(values):
        labels[first : first + len(block)] = block
    return labels


def _dtype(graph: DataSet, key: str) -> Any:
    """The type of an array in memory: float32 for `bfloat16`, which NumPy does not have."""
    name = graph.arrays[key]["dtype"]
    return np.dtype(np.float32 if name == "bfloat16" else name)
