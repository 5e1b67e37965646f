"""Nodes as options of algorithms name them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import numpy as np

from outercore.analytics import ALGORITHMS
from outercore.config.options import fields
from outercore.errors import InvalidError
from outercore.graph import Graph
from outercore.outputs import names_of_nodes

_NODES = "NODE,NODE"
METAVARS = {
    **dict.fromkeys(("source", "nodes"), _NODES),
    "personalization": f"{_NODES}|.npy",
}
"""How options are written that name nodes."""


def with_ids(algorithm: str, options: dict[str, Any], data_set: Path) -> dict[str, Any]:
    """What an algorithm takes, with the ids of the nodes that its options name.

    Errors: `NotFoundError` for a name that is not there; `InvalidError` for another mistake.
    """
    found = dict(options)
    for field in fields(ALGORITHMS[algorithm]):
        text = options.get(field.name)
        if text is None:
            continue
        if field.name == "personalization":
            found[field.name] = _teleport(field.flag, text, data_set)
        elif Sequence[int] in (field.type, *get_args(field.type)):
            ids = _ids(field.flag, text, data_set)
            may_be_one = field.type != Sequence[int]
            found[field.name] = ids[0] if may_be_one and len(ids) == 1 else ids
    return found


def _ids(option: str, text: str, data_set: Path) -> list[int]:
    """Nodes by name where the data set has names, else by id."""
    names = names_of_nodes(Graph(data_set))
    parts = text.split(",")
    if names is not None:
        whole = names.find(text)
        return [names.id(part) for part in parts] if whole is None else [whole]
    try:
        return [int(part) for part in parts]
    except ValueError:
        raise InvalidError(f"{option}: expected nodes such as `3,17`, found `{text}`") from None


def _teleport(option: str, text: str, data_set: Path) -> Any:
    """A teleport vector from a file, or nodes that are all alike."""
    if not text.endswith(".npy"):
        return dict.fromkeys(_ids(option, text, data_set), 1.0)
    try:
        return np.load(text)
    except (OSError, ValueError) as error:
        raise InvalidError(f"{option}: `{text}`: {error}") from None
