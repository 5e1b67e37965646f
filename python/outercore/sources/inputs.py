"""What the user named on the command line, opened as one source."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import cast

from outercore.errors import InvalidError
from outercore.sources import ogb
from outercore.sources.edges import EdgeFormat, open_edges
from outercore.sources.graph import GraphSource, NodeArray
from outercore.sources.named import is_named, open_named
from outercore.sources.rows import open_rows
from outercore.sources.splits import open_split, open_splits

_FORMATS = ("auto", "text", "npy", "npz", "parquet", "mtx")


@dataclass(frozen=True)
class Inputs:
    """Files and names, still as text."""

    edges: tuple[str, ...]
    format: str = "auto"
    features: str | None = None
    labels: str | None = None
    split: tuple[str, ...] = ()
    splits: Path | None = None
    arrays: tuple[str, ...] = ()
    nodes: int | None = None
    ogb_split: str | None = None


def open_inputs(inputs: Inputs) -> GraphSource:
    """Opens everything that `inputs` names; what is given explicitly wins over a data set's own.

    Errors: `NotFoundError` and `InvalidError` name the file; nothing is written.
    """
    source = _edges(inputs)
    given = _arrays(inputs)
    taken = {(array.role, array.name) for array in given}
    kept = [array for array in source.arrays if (array.role, array.name) not in taken]
    nodes = inputs.nodes if inputs.nodes is not None else source.nodes
    return replace(source, arrays=[*kept, *given], nodes=nodes)


def _edges(inputs: Inputs) -> GraphSource:
    if inputs.format not in _FORMATS:
        raise InvalidError(
            f"--format: expected one of {', '.join(_FORMATS)}; found `{inputs.format}`"
        )
    first, *more = inputs.edges
    whole = is_named(first) or Path(first).is_dir()
    if whole and more:
        raise InvalidError(f"`{first}` is a whole data set; expected nothing beside it")
    if is_named(first):
        return open_named(first)
    if whole:
        return ogb.open_layout(Path(first), inputs.ogb_split)
    kind = cast(EdgeFormat, inputs.format)
    return GraphSource([open_edges(text, kind) for text in inputs.edges])


def _arrays(inputs: Inputs) -> list[NodeArray]:
    arrays = []
    if inputs.features is not None:
        arrays.append(NodeArray("features", "x", open_rows(inputs.features)))
    if inputs.labels is not None:
        arrays.append(NodeArray("labels", "y", open_rows(inputs.labels)))
    for text in inputs.arrays:
        name, equals, file = text.partition("=")
        if not equals or not name:
            raise InvalidError(f"--array: expected NAME=FILE, found `{text}`")
        arrays.append(NodeArray("array", name, open_rows(file)))
    if inputs.splits is not None:
        arrays.extend(NodeArray("split", name, rows) for name, rows in open_splits(inputs.splits))
    single = [open_split(text) for text in inputs.split]
    for name, count in Counter(name for name, _ in single).items():
        if count > 1:
            raise InvalidError(f"--split: `{name}` is given {count} times, expected once")
    for name, rows in single:
        arrays = [array for array in arrays if (array.role, array.name) != ("split", name)]
        arrays.append(NodeArray("split", name, rows))
    return arrays
