"""Nodes as options of algorithms name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

from outercore.analytics import ALGORITHMS, Node
from outercore.base.options import fields
from outercore.data.file_ids import FileIds, names_of_nodes
from outercore.data.graph import Graph
from outercore.data.node_numbers import NodeNumbers
from outercore.errors import InvalidError
from outercore.files.npy import read_npy

_NODES = "NODE,NODE"
METAVARS = {
    **dict.fromkeys(("source", "nodes"), _NODES),
    "personalization": f"{_NODES}|.npy",
}
"""How options are written that name nodes."""


def with_ids(
    algorithm: str, options: dict[str, Any], data_set: Path, relation: str | None
) -> dict[str, Any]:
    """What an algorithm takes, with the positions of the nodes that its options name.

    In a graph with several types nodes are named like `author:17`, by key where the type has keys.

    Errors: `NotFoundError` for a name that is not there; `InvalidError` for another mistake.
    """
    found = dict(options)
    for field in fields(ALGORITHMS[algorithm]):
        text = options.get(field.name)
        if text is None:
            continue
        if field.name == "personalization":
            found[field.name] = _teleport(field.flag, text, data_set, relation)
        elif Sequence[Node] in get_args(field.type):
            ids = _ids(field.flag, text, data_set, relation)
            may_be_one = int in get_args(field.type)
            found[field.name] = ids[0] if may_be_one and len(ids) == 1 else ids
    return found


def _ids(option: str, text: str, data_set: Path, relation: str | None) -> list[int]:
    """Nodes by type and id where there are several types, else by name or by their id in files."""
    graph = Graph(data_set)
    parts = text.split(",")
    numbers = NodeNumbers.of_graph(graph, relation)
    if numbers is not None:
        one = numbers.find(text)
        return [numbers.parse(part, option) for part in parts] if one is None else [one]
    ids = names_of_nodes(graph)
    whole = ids.find(text)
    if whole is not None:
        return [whole]
    if isinstance(ids, FileIds):
        parts = [part.strip() for part in parts]
        if not all(part.lstrip("-").isdigit() for part in parts):
            raise InvalidError(f"{option}: expected nodes such as `3,17`, found `{text}`")
    try:
        return [ids.id(part) for part in parts]
    except InvalidError as error:
        raise InvalidError(f"{option}: {error}") from None


def _teleport(option: str, text: str, data_set: Path, relation: str | None) -> Any:
    """A teleport vector from a file, or nodes that are all alike."""
    if not text.endswith(".npy"):
        return dict.fromkeys(_ids(option, text, data_set, relation), 1.0)
    return read_npy(Path(text), f"{option}: array")
