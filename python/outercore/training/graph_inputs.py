"""What a network of whole graphs learns from: features, categories, tags or degrees."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import InvalidError, NotFoundError
from outercore.files.large_arrays import blocks, mapped

if TYPE_CHECKING:
    from outercore.data.graph import Graph

TAG, DEGREE = "tag", "degree"
_MOST_DEGREE = 512
"""Larger in-degrees are one category."""
_MOST_CATEGORIES = 1 << 16


@dataclass(frozen=True)
class NodeInputs:
    """What is known about a node.

    Floats are taken as they are. Columns of whole numbers are categories, of which a network learns
    an embedding each; so are tags and, where there is no array, in-degrees.
    """

    key: str | None
    """The array; `None` for in-degrees."""
    width: int
    categories: tuple[int, ...] = ()
    """How many each column has; empty for floats."""

    @property
    def row_bytes(self) -> int:
        """Of a node, as the network takes it."""
        return self.width * (8 if self.categories else 4)

    def tensor(self, values: NDArray[Any], ids: NDArray[np.int64]) -> Tensor:
        """Rows of the nodes `ids` as the network takes them.

        Shapes: result [nodes, width], float32 or int64.
        Errors: `InvalidError` with the node of a value that float32 cannot hold, or of a category
        that the network does not know.
        """
        values = values.reshape(len(values), -1)
        if not self.categories:
            with np.errstate(over="ignore"):
                narrow = values.astype(np.float32)
            if values.dtype == np.float64 and (np.isinf(narrow) & np.isfinite(values)).any():
                node, column = np.argwhere(np.isinf(narrow) & np.isfinite(values))[0]
                raise InvalidError(
                    f"array `{self.key}`: node {ids[node]}, column {column}: "
                    f"{values[node, column]} does not fit float32"
                )
            return torch.from_numpy(narrow)
        if self.key is None:
            values = np.minimum(values, self.categories[0] - 1)
        wide = values.astype(np.int64)
        wrong = np.argwhere((wide < 0) | (wide >= np.array(self.categories)))
        if len(wrong):
            node, column = wrong[0]
            raise InvalidError(
                f"array `{self.key}`: node {ids[node]}, column {column}: category "
                f"{wide[node, column]}, expected 0 to {self.categories[column] - 1}"
            )
        return torch.from_numpy(wide)


def input_name(graph: Graph, features: str) -> str:
    """Which node array to learn from: the one that is asked for; instead of features that are not
    there the tags, or the in-degree where all tags are equal."""
    there = {key.removeprefix("nodes/node/") for key in graph.arrays if key.startswith("nodes/")}
    if features != "x" or features in there:
        return features
    if TAG in there and _varies(graph, f"nodes/node/{TAG}"):
        return TAG
    return DEGREE


def node_inputs(graph: Graph, name: str, known: tuple[int, ...] | None = None) -> NodeInputs:
    """The inputs that the node array `name`, or the in-degree, is.

    `known` are the categories that a trained network has.

    Cost: one pass over an array of categories, unless they are `known`.
    Errors: `NotFoundError` for an array that is not there, `InvalidError` for one of negative or
    very large whole numbers.
    """
    key = f"nodes/node/{name}"
    if key not in graph.arrays:
        if name == DEGREE:
            return NodeInputs(None, 1, known or (_MOST_DEGREE + 1,))
        raise NotFoundError(
            f"data set `{graph.root}`: no node array `{name}`\nhint: choose another by "
            f"`--features`; `{DEGREE}` learns from the in-degrees"
        )
    entry = graph.arrays[key]
    width = int(np.prod(entry["shape"][1:]))
    if "float" in entry["dtype"]:
        return NodeInputs(key, width)
    return NodeInputs(key, width, known or _categories(graph, key, width))


def _categories(graph: Graph, key: str, width: int) -> tuple[int, ...]:
    most = np.zeros(width, np.int64)
    for first, block in blocks(mapped(Path(graph.root), graph.arrays[key])):
        # As floats: what is too large for int64 is too large here, too.
        rows = block.reshape(len(block), width).astype(np.float64)
        bad = np.argwhere((rows < 0) | (rows >= _MOST_CATEGORIES))
        if len(bad):
            row, column = bad[0]
            raise InvalidError(
                f"array `{key}`: node {first + row}, column {column}: {rows[row, column]:g}, "
                f"expected categories from 0 to {_MOST_CATEGORIES - 1}\n"
                "hint: store numbers that are no categories as float32"
            )
        most = np.maximum(most, rows.max(axis=0, initial=0).astype(np.int64))
    return tuple((most + 1).tolist())


def _varies(graph: Graph, key: str) -> bool:
    values = mapped(Path(graph.root), graph.arrays[key])
    return any((block != values[:1]).any() for _, block in blocks(values))
