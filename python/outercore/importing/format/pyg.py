"""PyTorch Geometric objects as data sets."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.batch_arrays import RESERVED
from outercore.data.split_names import normal_split
from outercore.errors import InvalidError
from outercore.importing.edge_arrays import EdgeArray
from outercore.importing.edges import digest_of, from_edge_index
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
from outercore.importing.format.pyg_events import is_events, open_events
from outercore.importing.format.typed_pyg import import_hetero
from outercore.importing.graph import GraphSource, ImportOptions, NodeArray, import_graph
from outercore.importing.python_calls import called_from_python
from outercore.importing.table.rows import from_array


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
        [
            EdgeArray(name, lambda _mirrored, rows=rows: rows)  # type: ignore[misc]
            for name, rows in edge_values(data, edge_index)
        ],
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
