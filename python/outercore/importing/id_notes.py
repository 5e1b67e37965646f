"""Notes on ids of an import that may have another meaning.

Ids may start at 1, have gaps or leading zeros, or differ from the counts in the file's comments.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from outercore.base.sizes import format_size
from outercore.files.large_arrays import blocks, mapped
from outercore.importing.source import GraphSource

_SPARSE, _FEW = 4, 16
"""Ids seem to have gaps if there are more than `_SPARSE` nodes per end of an edge, plus `_FEW`."""
_OFFSET_BYTES, _NOTABLE_BYTES = 8, 1 << 20
_NAMED = ("--ids", "dictionary")


@dataclass(frozen=True)
class IdNote:
    """A note, and the option of an import that gives the ids the other meaning."""

    text: str
    option: tuple[str, ...] = ()


def notes_on_ids(source: GraphSource, graph: Any, summary: dict[str, Any]) -> list[IdNote]:
    """Notes on the assumed meaning of the ids of an import; `summary` is the import's result.

    Cost: reads the sources of the arcs up to the first 0; all of them if node 0 lacks edges.
    """
    notes = _on_zeros(source, summary)
    counted = source.nodes is None and not any(array.role != "split" for array in source.of_nodes)
    is_open = bool(source.edges) and all(edge.is_open for edge in source.edges)
    if not (counted and is_open and graph.num_edges):
        return [*notes, *_on_counts(source, graph, summary)]
    if source.first_id == 0 and not _has_edge_of_first(graph):
        text = (
            "no edge has node 0: if the ids start at 1, import again with `--one-based`; as it "
            "is, node 0 has no edge"
        )
        notes.append(IdNote(text, ("--one-based",)))
        stated = _stated(source)
        if stated is not None and stated[0] == graph.num_nodes - 1:
            return notes
    if on_counts := _on_counts(source, graph, summary):
        return [*notes, *on_counts]
    if graph.num_nodes > _FEW + _SPARSE * 2 * graph.num_edges:
        size = _OFFSET_BYTES * graph.num_nodes
        of_bytes = f", in {format_size(size)}" if size >= _NOTABLE_BYTES else ""
        text = (
            f"{graph.num_nodes:,} nodes, up to the largest id, for {graph.num_edges:,} edges"
            f"{of_bytes}: if ids have gaps, `--ids dictionary` makes nodes of those there are, and "
            "keeps their ids"
        )
        notes.append(IdNote(text, _options_of_names(source)))
    return notes


def _on_zeros(source: GraphSource, summary: dict[str, Any]) -> list[IdNote]:
    count = summary.get("padded_ids", 0) + sum(array.rows.padded for array in source.arrays)
    if not count:
        return []
    text = f"{zeros_in_front(count)}; `--ids dictionary` keeps such ids apart, and as they are"
    return [IdNote(text, _options_of_names(source))]


def zeros_in_front(count: int) -> str:
    """The text of a note on `count` ids with leading zeros."""
    ids = "1 id has zeros" if count == 1 else f"{count:,} ids have zeros"
    return f"{ids} in front: as numbers, `007` and `7` are one node"


def _options_of_names(source: GraphSource) -> tuple[str, ...]:
    """The option that imports ids as names, if every input can have names."""
    of_nodes = [array.rows for array in source.of_nodes if array.role != "names"]
    are_keyed = all(rows.key is not None for rows in of_nodes)
    can_be_named = all(edge.is_open for edge in source.edges) and source.graphs is None
    return _NAMED if are_keyed and can_be_named and source.nodes is None else ()


def _stated(source: GraphSource) -> tuple[int, int] | None:
    """The numbers of nodes and edges in the comments of the edge list, if there is only one."""
    return source.edges[0].stated if len(source.edges) == 1 else None


def _on_counts(source: GraphSource, graph: Any, summary: dict[str, Any]) -> list[IdNote]:
    """A note if the comments of the file have other counts than the graph.

    It is only a note, because a part of a file often keeps the comments of the whole file.
    """
    stated = _stated(source)
    if stated is None:
        return []
    nodes, edges = stated
    found = int(summary.get("input_edges", edges))
    if (nodes, edges) == (graph.num_nodes, found):
        return []
    text = (
        f"{source.edges[0].name}: its comments speak of {nodes:,} nodes and {edges:,} edges, and "
        f"there are {graph.num_nodes:,} nodes and {found:,} edges"
    )
    if found != edges:
        return [IdNote(f"{text}: is the file whole?")]
    if nodes > graph.num_nodes:
        missing = f"{text}: nodes without an edge are missing, and `--nodes {nodes}` adds them"
        return [IdNote(missing, ("--nodes", str(nodes)) if source.nodes is None else ())]
    is_named = any(array.name == "entity.offsets" for array in source.arrays)
    if is_named:
        return [IdNote(text)]
    more = f"{text}: the largest id decides; `--ids dictionary` makes nodes of the ids there are"
    return [IdNote(more, _options_of_names(source))]


def _has_edge_of_first(graph: Any) -> bool:
    offsets, sources = (
        mapped(graph.root, graph.arrays[f"edges/edge/{name}"]) for name in ("offsets", "sources")
    )
    # Arcs are stored by their targets, so the arcs of node 0 come first.
    return bool(offsets[1]) or not all(np.all(block) for _, block in blocks(sources))
