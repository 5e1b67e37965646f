"""The formats of whole data sets, in the order in which an import tries them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from outercore.importing.format import (
    graph_text,
    graphbolt,
    molecules,
    neo4j,
    ogb,
    processed,
    pyg,
    relational,
    triples,
    tu,
)
from outercore.importing.inputs import Inputs, TypedInputs
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.foreign import refuse_foreign

PlainFormat = Format[Callable[[Path, Inputs, ImportOptions], GraphSource]]
TypedFormat = Format[Callable[[Path, TypedInputs, ImportOptions], GraphSource]]

_TYPED: tuple[TypedFormat, ...] = (
    relational.FORMAT,
    neo4j.FORMAT,
    graphbolt.TYPED,
    processed.MAG240M,
    ogb.TYPED,
    processed.IGB,
)
"""Formats of folders with several node types."""
_PLAIN: tuple[PlainFormat, ...] = (
    pyg.FORMAT,
    triples.FORMAT,
    tu.FORMAT,
    graphbolt.FORMAT,
    molecules.FORMAT,
    graph_text.FORMAT,
    # Takes any folder, and names the expected files.
    ogb.FORMAT,
)
"""Formats of folders, files and named data sets with one node type: one graph, or many."""


def is_named(text: str) -> bool:
    """Whether `text` names a data set of a library rather than a file."""
    return text.startswith(("pyg:", "ogb:"))


def located(text: str) -> Path:
    """The path in `text`; for a name such as `ogb:ogbn-arxiv`, downloads the data set of OGB.

    Errors: as `ogb.directory_of`.
    """
    return ogb.directory_of(text.removeprefix("ogb:")) if text.startswith("ogb:") else Path(text)


def typed_format(path: Path) -> TypedFormat | None:
    """The format of a folder of several types; `None` for anything else."""
    return next((one for one in _TYPED if path.is_dir() and one.matches(path)), None)


def plain_format(path: Path) -> PlainFormat | None:
    """The format of any other whole data set; `None` for files of edges.

    Errors: `UnsupportedError` for a file of a known tool whose format is not supported.
    """
    if path.is_file():
        refuse_foreign(path)
    return next((one for one in _PLAIN if one.matches(path)), None)
