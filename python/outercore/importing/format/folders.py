"""Which folders describe a graph of several types, and who reads them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from outercore.importing.format.graphbolt import is_typed_graphbolt
from outercore.importing.format.neo4j import open_neo4j
from outercore.importing.format.neo4j_files import is_neo4j
from outercore.importing.format.ogb import is_hetero_layout
from outercore.importing.format.processed import is_igb, is_mag240m, open_igb, open_mag240m
from outercore.importing.format.relational import open_relational
from outercore.importing.format.schema import DESCRIPTION, is_relational
from outercore.importing.format.typed_graphbolt import open_graphbolt
from outercore.importing.format.typed_ogb import open_hetero_layout
from outercore.importing.graph import ImportOptions
from outercore.importing.typed.graph import TypedInputs, TypedSource


@dataclass(frozen=True)
class Folder:
    """A folder of a known form."""

    what: str
    """What messages call it."""
    open: Callable[[TypedInputs, ImportOptions], TypedSource]
    options: tuple[str, ...] = ()
    """What `outercore import` takes for it besides what all folders have."""


def folder_of(path: Path) -> Folder | None:
    """The form of a folder; `None` for anything else."""
    if not path.is_dir():
        return None
    if is_relational(path):
        return Folder(f"a `{DESCRIPTION}`", partial(open_relational, path))
    if is_neo4j(path):
        return Folder("an export for Neo4j", partial(open_neo4j, path), ("header",))
    if is_typed_graphbolt(path):
        return Folder("a directory of GraphBolt", partial(open_graphbolt, path))
    if is_mag240m(path):
        return Folder("a directory of MAG240M", partial(open_mag240m, path))
    if is_hetero_layout(path):
        what = "a heterogeneous data set of OGB"
        return Folder(what, partial(open_hetero_layout, path), ("ogb_split",))
    if is_igb(path):
        return Folder("a directory of IGBH", partial(open_igb, path))
    return None
