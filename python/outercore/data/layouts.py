"""Builds layouts: second copies of a node array for serving, in another order or as int8."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

from outercore import _core
from outercore.base.native import Progress
from outercore.base.shell import quoted
from outercore.base.sizes import parse_size
from outercore.data.graph import Graph, Source, root_of
from outercore.errors import InvalidError, NotFoundError

_PREFIX, _HEADER = "layout/", "/header"


@dataclass(frozen=True)
class Layout:
    """A layout in a data set."""

    array: str
    """Key of the copied array."""
    precision: str
    """The form of the values: `exact` or `int8`."""
    order: str
    """Order of its rows: `none`, `glist`, `degree` or `rcm`."""
    stale: bool
    """Whether the array has changed since the layout was built. A stale layout is not used."""


def build_layout(
    graph: Source,
    *,
    array: str | None = None,
    order: Literal["none", "glist", "degree", "rcm"] = "glist",
    precision: Literal["exact", "int8"] = "exact",
    memory: str | int = "1GiB",
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write a second copy of the features for `outercore serve`, in another order or as int8.

    The array does not change. An existing layout with the same options stays; a layout of the same
    precision with other options is replaced. Returns sizes and seconds.

    Args:
        graph: an opened graph or the directory of a data set.
        array: copy this node array. The default is the features.
        order: place neighbours of important nodes together (``glist``) or nodes of high in-degree
            together (``degree``), use the reverse Cuthill-McKee order (``rcm``), or keep the order
            of the ids (``none``).
        precision: copy the values (``exact``), or store one byte per value, with a scale and an
            offset for each column (``int8``).
        memory: memory budget of the build, such as ``2GiB``.
        progress: called as ``progress(phase, done, total, unit)``.

    Cost: an order other than ``none`` needs the topology in memory. ``int8`` reads the array once
    more, for the scales. The rows are written in parts that fit in the budget, and the array is
    read at most once for each part.

    Raises:
        BudgetError: the budget is too small; the message has a sufficient budget.
        InvalidError: with ``int8``, a value that is not finite.
        NotFoundError: the array does not exist.

    Source: the GLIST paper, sections 4.2 (the property mapping table) and 4.3.2 (graph
    reorganisation).

    Example:
        >>> from outercore.data.layouts import build_layout
        >>> summary = build_layout(tiny_dataset, precision="int8")
        >>> summary["order"]["method"]
        'glist'
    """
    options = {
        "array": array,
        "order": order,
        "precision": precision,
        "memory": parse_size(memory),
    }
    summary = _core.build_layout(root_of(graph), options, progress)
    if isinstance(graph, Graph):
        graph.reload()
    return summary


def convert(
    graph: Source,
    to: Literal["float16", "bfloat16", "float32"],
    *,
    array: str | None = None,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Convert features to a smaller type, in place. Each value is rounded to the nearest.

    All commands read the smaller type and compute in float32. The data set changes only at the end,
    and the old values are then lost.

    Args:
        graph: an opened graph or the directory of a data set.
        to: convert to ``float16`` (11 significant bits, values up to 65,504), ``bfloat16`` (8
            significant bits, the range of float32), or ``float32``, for features of float64.
        array: convert this node array. The default is the features of each node type.
        progress: called as ``progress(phase, done, total, unit)``.

    Returns:
        For each array: ``array``, ``from``, ``to``, its bytes ``before`` and ``after``,
        ``largest_change``, the largest change of a value, and ``layout_removed``, whether layouts
        of the old values were removed. An array that already has the type does not change.

    Cost: reads and writes the array once; needs disk space for both.

    Raises:
        InvalidError: a value would become infinite (the message has its row and column); the type
            is not smaller.
        NotFoundError: the array does not exist, or the data set has no features.
        UnsupportedError: the data set takes updates.

    Example:
        >>> import numpy as np
        >>> import outercore as oc
        >>> from outercore.data.layouts import convert
        >>> graph = oc.open(tiny_dataset)
        >>> graph.add_node_array("z", graph.array("x").astype(np.float64), overwrite=True)
        >>> (summary,) = convert(graph, "bfloat16", array="z")
        >>> summary["from"], summary["to"], summary["before"] // summary["after"]
        ('float64', 'bfloat16', 4)
    """
    opened = graph if isinstance(graph, Graph) else Graph(root_of(graph))
    keys = [opened.key(array)] if array is not None else sorted(opened.schema.all_features)
    if not keys:
        raise NotFoundError(f"data set `{opened.root}` has no features\nhint: name an `array`")
    converted = _core.convert_arrays(root_of(graph), keys, to, progress)
    opened.reload()
    return converted


def remove_layouts(graph: Source, *, array: str | None = None) -> int:
    """Remove the layouts of an array, by default of the features. Returns their number."""
    removed = _core.remove_layouts(root_of(graph), array)
    if isinstance(graph, Graph):
        graph.reload()
    return removed


def require_int8(graph: Graph, key: str) -> None:
    """Checks that the array `key` has a current ``int8`` layout.

    Errors: `NotFoundError` without a layout, `InvalidError` for a stale layout. The messages have
    the command that builds it.
    """
    matches = [
        layout for layout in layouts(graph) if layout.array == key and layout.precision == "int8"
    ]
    build = (
        f"hint: build it: `outercore layout {quoted(graph.root)} --array {key} --precision int8`"
    )
    if not matches:
        raise NotFoundError(f"array `{key}` has no int8 layout\n{build}")
    if matches[0].stale:
        raise InvalidError(f"int8 layout of `{key}`: the array has changed since\n{build}")


def layouts(graph: Graph) -> list[Layout]:
    """The layouts in a data set.

    Cost: reads the header of each layout.
    """
    stored = []
    for key in graph.arrays:
        if key.startswith(_PREFIX) and key.endswith(_HEADER):
            header = json.loads(bytes(graph.array(key)))
            array = graph.arrays.get(header["array"], {})
            stale = array.get("checksum") != header["checksum"]
            order = header["order"]["method"]
            stored.append(Layout(header["array"], header["precision"], order, stale))
    return stored
