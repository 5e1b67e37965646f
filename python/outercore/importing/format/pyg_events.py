"""Events of PyTorch Geometric's `TemporalData` as edges with times."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.split_names import normal_split
from outercore.errors import InvalidError
from outercore.importing.edge_arrays import EdgeArray
from outercore.importing.edges import digest_of, from_edge_index
from outercore.importing.format.pyg_attributes import numpy_of, splits_of
from outercore.importing.graph import GraphSource, NodeArray
from outercore.importing.table.rows import from_array
from outercore.importing.table.times import whole_times

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


def _array(name: str, values: NDArray[Any]) -> EdgeArray:
    where = f"data.{name}"
    if name == "t":
        values = values.reshape(-1)
        if values.dtype.kind == "f":
            values = whole_times(where, values)
    rows = from_array(where, np.ascontiguousarray(values))
    return EdgeArray(_ARRAYS.get(name, name), lambda _mirrored: rows)
