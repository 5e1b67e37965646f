"""Nodes as options of algorithms name them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.graph import Graph
from outercore.outputs import names_of_nodes


@dataclass(frozen=True)
class Nodes:
    """Nodes as an option lists them: by name where the data set has names, else by id."""

    option: str
    text: str

    def ids(self, graph: Graph) -> list[int]:
        """Errors: `NotFoundError` for a name that is not there."""
        parts = self.text.split(",")
        names = names_of_nodes(graph)
        if names is not None:
            whole = names.find(self.text)
            return [names.id(part) for part in parts] if whole is None else [whole]
        try:
            return [int(part) for part in parts]
        except ValueError:
            raise InvalidError(
                f"{self.option}: expected nodes such as `3,17`, found `{self.text}`"
            ) from None


def with_ids(chosen: dict[str, Any], data_set: Path) -> dict[str, Any]:
    """What an algorithm takes, with the ids of the nodes that options name."""
    found = dict(chosen)
    for name, value in chosen.items():
        if isinstance(value, Nodes):
            ids = value.ids(Graph(data_set))
            if name == "personalization":
                found[name] = dict.fromkeys(ids, 1.0)
            elif name == "source" and len(ids) == 1:
                found[name] = ids[0]
            else:
                found[name] = ids
    return found


def teleport(text: str | None) -> NDArray[Any] | Nodes | None:
    """A teleport vector from a file, or nodes that are all alike."""
    if text is None:
        return None
    if text.endswith(".npy"):
        try:
            weights: NDArray[Any] = np.load(text)
        except (OSError, ValueError) as error:
            raise InvalidError(f"--personalization: `{text}`: {error}") from None
        return weights
    return Nodes("--personalization", text)
