"""Reads the edges of an input before or after its import, without taking them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.errors import InvalidError, OutercoreError
from outercore.files.file_spec import FileSpec
from outercore.files.npy import open_npy
from outercore.importing.edges import EdgeSource

_CHUNK = 1 << 20
_OUT_OF_RANGE = " is out of range: the graph has "


class EdgeVisitor(ABC):
    """Stands in for an importer, and gets all ends as arrays. Ids are from 0."""

    def visit(self, source: EdgeSource, nodes: int | None = None) -> None:
        """Reads the edges of an input once; `nodes` is as in an import."""
        source.feed(self, nodes)  # type: ignore[arg-type]

    @abstractmethod
    def push_edges(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        """Called with the sources and targets of the next edges."""

    def edges_text(self, path: Path, layout: dict[str, Any]) -> None:
        """Called with a text and how it is written."""
        table = _core.TextTable(path, layout["dialect"])
        first = layout["dialect"]["first_id"]
        columns = [layout["source"], layout["target"]]
        while (flat := table.next(columns, "integers", None)) is not None:
            ends = flat.reshape(-1, 2) - first
            self.push_edges(ends[:, 0], ends[:, 1])

    def edges_npy(self, path: Path) -> None:
        """Called with an array [2, E] or [E, 2]."""
        array = open_npy(FileSpec(path, ()), "edge array")
        columns = array if array.shape[0] == 2 else array.T
        for first in range(0, columns.shape[1], _CHUNK):
            part = columns[:, first : first + _CHUNK]
            self.push_edges(part[0], part[1])


class _Range(EdgeVisitor):
    """The least and the largest id."""

    def __init__(self) -> None:
        self.least, self.largest = np.iinfo(np.int64).max, -1

    def push_edges(self, source: NDArray[Any], target: NDArray[Any]) -> None:
        for ids in (source, target):
            if len(ids):
                self.least = min(self.least, int(ids.min()))
                self.largest = max(self.largest, int(ids.max()))


def with_range(error: InvalidError, source: EdgeSource, nodes: int | None) -> InvalidError:
    """The error of an id beyond the last node, whose hint fits all ids of the input.

    Cost: reads the edges once more.
    """
    said, _, _ = str(error).partition("\nhint: ")
    if _OUT_OF_RANGE not in said:
        return error
    found = _Range()
    try:
        found.visit(source)
    except OutercoreError:
        # Another row has no number, so that this one may be a name as well.
        way = "\nhint: nodes with names: `--ids dictionary`" if source.is_open else ""
        return InvalidError(said + way)
    first = source.first_id
    if source.is_open and first == 0 and found.least > 0 and found.largest == nodes:
        hint = "no edge has node 0, so the ids may start at 1: `--one-based`"
    else:
        gaps = "if ids have gaps: `--ids dictionary`; " if source.is_open else ""
        hint = (
            f"the largest id is {found.largest + first}; {gaps}"
            "there are as many nodes as `--nodes` says, else as the features, labels or other "
            "arrays of nodes have rows: give a row of every node, or raise or leave out `--nodes`"
        )
    return InvalidError(f"{said}\nhint: {hint}")
