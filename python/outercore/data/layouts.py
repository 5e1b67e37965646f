"""Layouts: second copies of a node array for serving, in another order or as int8."""

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
    """Key of the array that it is a copy of."""
    precision: str
    """`exact` or `int8`."""
    order: str
    """How its rows are ordered: `none`, `glist`, `degree` or `rcm`."""
    stale: bool
    """Whether the array has changed since. It is not used then."""


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

    The array itself stays as it is. A layout that is there and as asked for is left alone; another
    one of the same precision is replaced. Returns sizes and seconds.

    Args:
        graph: an opened graph or the directory of a data set.
        array: a node array, by default the features.
        order: which rows stand next to each other. ``glist`` brings neighbours of important nodes
            together, ``degree`` nodes of high in-degree, ``rcm`` is reverse Cuthill-McKee, ``none``
            keeps the order of the ids.
        precision: ``exact`` copies the values, ``int8`` stores a byte for each, with a scale and an
            offset for each column.
        memory: budget of the build, such as ``2GiB``.
        progress: called as ``progress(phase, done, total, unit)``.

    Cost: an order needs the topology in memory. ``int8`` reads the array twice. Rows are read once
    for each part of them that the budget holds.

    Raises:
        BudgetError: the message says how much memory works.
        InvalidError: with ``int8``, a value that is not finite.
        NotFoundError: there is no such array.

    Source: GLIST 4.2 (the property mapping table) and 4.3.2 (graph reorganisation).

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
    """Convert features to a smaller type, in place; each value becomes the nearest one.

    Everything that reads the features takes the smaller type, and computes in float32. ``float16``
    has 11 significant bits and values up to 65,504; ``bfloat16`` has 8 bits and the range of
    float32. The old values are gone; until the end the data set is as it was.

    Args:
        graph: an opened graph or the directory of a data set.
        to: the type.
        array: a node array, by default the features, of each node type.
        progress: called as ``progress(phase, done, total, unit)``.

    Returns:
        Of each array ``array``, ``from``, ``to``, its bytes ``before`` and ``after``,
        ``largest_change``, the most that a value has changed, and ``layout_removed``: whether
        layouts of the old values were removed. An array that has the type already is not changed.

    Cost: reads and writes the array once; needs room for both on the disk.

    Raises:
        InvalidError: a value that would become infinite, with its row and column; a type that is
            not smaller.
        NotFoundError: there is no such array, or no features.
        UnsupportedError: a data set that takes updates.

    Example:
        >>> import numpy as np
        >>> import outercore as oc
        >>> from outercore.data.layouts import convert
        >>> graph = oc.open(tiny_dataset)
        >>> graph.add_node_array("z", graph.array("x").astype(np.float64), overwrite=True)
        >>> (found,) = convert(graph, "bfloat16", array="z")
        >>> found["from"], found["to"], found["before"] // found["after"]
        ('float64', 'bfloat16', 4)
    """
    opened = graph if isinstance(graph, Graph) else Graph(root_of(graph))
    keys = [opened.key(array)] if array is not None else sorted(opened.schema.all_features)
    if not keys:
        raise NotFoundError(f"data set `{opened.root}` has no features\nhint: name an `array`")
    found = _core.convert_arrays(root_of(graph), keys, to, progress)
    opened.reload()
    return found


def remove_layouts(graph: Source, *, array: str | None = None) -> int:
    """Remove the layouts of an array, by default of the features; return how many there were."""
    removed = _core.remove_layouts(root_of(graph), array)
    if isinstance(graph, Graph):
        graph.reload()
    return removed


def require_int8(graph: Graph, key: str) -> None:
    """Errors: `NotFoundError` where the array `key` has no ``int8`` layout, `InvalidError` where it
    is stale; both with the command that builds it."""
    found = [one for one in layouts(graph) if one.array == key and one.precision == "int8"]
    build = (
        f"hint: build it: `outercore layout {quoted(graph.root)} --array {key} --precision int8`"
    )
    if not found:
        raise NotFoundError(f"array `{key}` has no int8 layout\n{build}")
    if found[0].stale:
        raise InvalidError(f"int8 layout of `{key}`: the array has changed since\n{build}")


def layouts(graph: Graph) -> list[Layout]:
    """The layouts in a data set. Reads their headers."""
    found = []
    for key in graph.arrays:
        if key.startswith(_PREFIX) and key.endswith(_HEADER):
            header = json.loads(bytes(graph.array(key)))
            array = graph.arrays.get(header["array"], {})
            stale = array.get("checksum") != header["checksum"]
            order = header["order"]["method"]
            found.append(Layout(header["array"], header["precision"], order, stale))
    return found
