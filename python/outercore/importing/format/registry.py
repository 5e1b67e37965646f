"""The formats: data sets by name, folders and files of other tools, and who reads each."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from outercore.errors import DeviceError, InvalidError, NotFoundError, UnsupportedError
from outercore.importing.format.foreign import refuse_foreign
from outercore.importing.format.graph_text import is_graph_text, open_graph_text
from outercore.importing.format.graphbolt import is_typed_graphbolt, open_graphbolt
from outercore.importing.format.molecules import is_molecules, open_molecules
from outercore.importing.format.neo4j import is_neo4j, open_neo4j
from outercore.importing.format.ogb import is_hetero_layout, open_hetero_layout, open_layout
from outercore.importing.format.processed import is_igb, is_mag240m, open_igb, open_mag240m
from outercore.importing.format.pyg import open_data
from outercore.importing.format.relational import DESCRIPTION, is_relational, open_relational
from outercore.importing.options import ImportOptions
from outercore.importing.source import GraphSource, TypedSource
from outercore.importing.table.text import suffix_of
from outercore.importing.typed_inputs import TypedInputs

CACHE = Path("~/.cache/outercore")
"""Where downloads are kept, by default."""

_PYG = {
    "Planetoid": ("Cora", "CiteSeer", "PubMed"),
    "HeterophilousGraphDataset": (
        "Roman-empire",
        "Amazon-ratings",
        "Minesweeper",
        "Tolokers",
        "Questions",
    ),
    "Amazon": ("Computers", "Photo"),
    "Coauthor": ("CS", "Physics"),
    "Twitch": ("DE", "EN", "ES", "FR", "PT", "RU"),
    "Reddit": (),
    "Reddit2": (),
    "Flickr": (),
    "Yelp": (),
    "AmazonProducts": (),
    "WikiCS": (),
    "FacebookPagePage": (),
    "GitHub": (),
    "LastFMAsia": (),
}


def is_named(text: str) -> bool:
    """Whether `text` names a data set rather than a file."""
    return text.startswith(("pyg:", "ogb:"))


def open_named(text: str, cache: Path = CACHE, *, split: str | None = None) -> GraphSource:
    """A data set of PyG (`pyg:Cora`, `pyg:Class/Name`) or OGB (`ogb:ogbn-arxiv`).

    Errors: `UnsupportedError` where the library is not installed, `DeviceError` where it cannot
    reach its data.
    """
    library, _, name = text.partition(":")
    directory = cache.expanduser() / library
    if library == "ogb":
        root, both_ways = _ogb_directory(name, directory)
        return open_layout(root, split, undirected=both_ways)
    return open_data(_pyg_data(name, directory))


def hetero_directory(text: str, cache: Path = CACHE) -> Path | None:
    """The directory of the heterogeneous OGB data set that `text` names; `None` for all else.

    Errors: as `open_named`.
    """
    root = Path(text)
    if text.startswith("ogb:"):
        root, _ = _ogb_directory(text.removeprefix("ogb:"), cache.expanduser() / "ogb")
    return root if is_hetero_layout(root) else None


def _pyg_data(name: str, directory: Path) -> Any:
    datasets = _library(
        "torch_geometric.datasets", "torch-geometric", 'pip install "outercore[torch]"'
    )
    kind, member = _pyg_class(name)
    if not hasattr(datasets, kind):
        raise NotFoundError(f"PyG has no data set `{name}`\nhint: give it as `pyg:Class/Name`")
    arguments = {"name": member} if member else {}
    root = directory / kind if not member else directory / kind / member
    with _reaching(f"pyg:{name}"):
        return getattr(datasets, kind)(root=str(root), **arguments)[0]


def _pyg_class(name: str) -> tuple[str, str | None]:
    if "/" in name:
        kind, _, member = name.partition("/")
        return kind, member
    for kind, members in _PYG.items():
        for member in members:
            if member.lower() == name.lower():
                return kind, member
        if kind.lower() == name.lower():
            return kind, None
    return name, None


def _ogb_directory(name: str, directory: Path) -> tuple[Path, bool]:
    """The raw files of an OGB data set, downloaded and unpacked, but not processed in memory; and
    whether each edge counts in both directions (`add_inverse_edge`)."""
    ogb = _library("ogb.nodeproppred", "ogb", "pip install ogb")
    urls = importlib.import_module("ogb.utils.url")
    import pyarrow.csv

    table = pyarrow.csv.read_csv(Path(ogb.__file__).with_name("master.csv")).to_pydict()
    listed = [key for key in table if key]
    if name not in listed:
        raise NotFoundError(f"OGB has no node data set `{name}`; it has {', '.join(listed)}")
    described = dict(zip(next(iter(table.values())), table[name], strict=True))
    unpacked = directory / described["download_name"]
    if not (unpacked / "raw").exists():
        directory.mkdir(parents=True, exist_ok=True)
        with _reaching(f"ogb:{name}"):
            archive = urls.download_url(described["url"], str(directory))
            urls.extract_zip(archive, str(directory))
    return unpacked, str(described.get("add_inverse_edge")) == "True"


def _library(module: str, package: str, install: str) -> Any:
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"package `{package}` is not installed\nhint: {install}") from error


class _reaching:  # noqa: N801 - reads as the statement `with _reaching(...)`
    """Turns a failed download into an error that says so."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, OSError):
            raise DeviceError(
                f"{self._what}: cannot be downloaded: {error}\n"
                "hint: fetch its files elsewhere and import those"
            ) from error
        if isinstance(error, (ValueError, AssertionError, TypeError)):
            raise InvalidError(f"{self._what}: {error}") from error


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
        return Folder("an export for Neo4j", partial(open_neo4j, path))
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


_TEXTS = (".txt", ".dat", "")


def open_graph_file(text: str, task: str | None) -> GraphSource | None:
    """A file of many graphs; `None` for what does not look like one."""
    path = Path(text)
    if not path.is_file():
        return None
    refuse_foreign(path)
    suffix = suffix_of(path)
    if suffix == ".npz" and is_molecules(path):
        return open_molecules(path, task)
    if suffix in _TEXTS and is_graph_text(path):
        return open_graph_text(path)
    return None
