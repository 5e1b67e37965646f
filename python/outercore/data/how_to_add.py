"""Advice for a missing array: the command that adds it to the data set."""

from __future__ import annotations

from pathlib import Path

from outercore.base.shell import quoted
from outercore.data.graph import StoredGraph
from outercore.data.many_graphs import has_graphs
from outercore.errors import OutercoreError


def how_to_add(
    root: Path, option: str, value: str, of_type: str | None = None, what: str = "it"
) -> str:
    """A sentence that tells the user how to add an array to the data set in `root`.

    `option` and `value` are for the command, such as `--split` and `valid=FILE`. `of_type` is the
    type of nodes or edges in a data set of several types; by default the labelled type. `what` is
    the array's name in the sentence.

    `outercore add` cannot add splits and labels of whole graphs, nor arrays to a data set with
    updates; the advice is then a new import.
    """
    added = f"`outercore add {quoted(root)} {option} {quoted(value)}` adds {what}"
    try:
        graph = StoredGraph(root)
    except OutercoreError:
        # The data set of a run may have been removed.
        return added
    of_graphs = has_graphs(graph) and option in ("--split", "--labels")
    if of_graphs or graph.schema.is_live:
        return f"import the data set again with `{option} {quoted(value)}`"
    if not graph.is_typed:
        return added
    labelled = graph.labelled_type
    if option == "--split":
        first = "" if labelled else f" --labels {quoted(f'{min(graph.node_types)}=FILE')}"
        return f"`outercore add {quoted(root)}{first} {option} {quoted(value)}` adds {what}"
    edges = [one.key for one in graph.schema.edges.values()]
    types = edges if option == "--edge-array" else list(graph.node_types)
    chosen = of_type or (labelled if labelled in types else min(types))
    joined = "=" if option in ("--features", "--labels") else "/"
    return (
        f"`outercore add {quoted(root)} {option} {quoted(f'{chosen}{joined}{value}')}` adds {what}"
    )
