"""Which columns of a table are ids, and which are values."""

from __future__ import annotations

from dataclasses import dataclass

from outercore.errors import InvalidError
from outercore.sources.table import FileSpec, Table

IDS = frozenset({"id", "node", "nodeid", "vertex", "vertexid", "nid", "nodename"})
"""What a column of node ids is called, in lower case and without other signs than letters."""

SOURCES = frozenset({"source", "src", "from", "u", "head", "subject"})
TARGETS = frozenset({"target", "dst", "destination", "to", "v", "tail", "object"})
"""What the ends of an edge are called; `FromNodeId` counts as `from`."""


def plain(name: str) -> str:
    """`FromNodeId` and `from_node_id` as `from`."""
    letters = "".join(letter for letter in name.lower() if letter.isalnum())
    short = letters.removesuffix("id").removesuffix("node")
    return short or letters


def id_column(table: Table) -> str | None:
    """The column that keys the rows of a node table, if its name says so."""
    if not table.is_named:
        return None
    for name in table.names:
        letters = "".join(letter for letter in name.lower() if letter.isalnum())
        if letters in IDS:
            return name
    return None


@dataclass(frozen=True)
class NodeColumns:
    """What is taken from a node table."""

    key: str | None
    """The column whose ids say which node a row is for; `None`: row i is node i."""
    values: list[str]


def node_columns(spec: FileSpec, table: Table) -> NodeColumns:
    """The columns of a node table: those that `spec` chooses, else all but the key.

    Errors: `InvalidError` where nothing but a key is left, or a chosen column comes twice.
    """
    _require_distinct(spec)
    key = id_column(table)
    if spec.columns:
        return NodeColumns(None if key in spec.columns else key, list(spec.columns))
    values = [name for name in table.names if name != key]
    if not values:
        # One column of ids is a list of ids, not a table keyed by them.
        return NodeColumns(None, list(table.names))
    return NodeColumns(key, values)


@dataclass(frozen=True)
class EdgeColumns:
    """The ends of the edges in a table, and what else it holds."""

    source: str
    target: str
    others: list[str]


def edge_columns(spec: FileSpec, table: Table) -> EdgeColumns:
    """The two columns that `spec` chooses, else the first two.

    Errors: `InvalidError` where columns that are called like an edge's ends are elsewhere, or a
    chosen column comes twice.
    """
    names = table.names
    if spec.columns:
        if len(spec.columns) != 2:
            raise InvalidError(
                f"`{spec}`: expected two columns of node ids, found {len(spec.columns)}\n"
                "hint: choose source and target: `FILE:SOURCE,TARGET`"
            )
        _require_distinct(spec)
        source, target = spec.columns
    else:
        if len(names) < 2:
            raise InvalidError(f"`{spec}`: expected two columns of node ids, found {len(names)}")
        if table.is_named:
            _require_ends_first(spec, names)
        source, target = names[:2]
    return EdgeColumns(source, target, [name for name in names if name not in (source, target)])


def _require_distinct(spec: FileSpec) -> None:
    doubles = {name for name in spec.columns if spec.columns.count(name) > 1}
    if doubles:
        raise InvalidError(f"`{spec}`: column `{min(doubles)}` is chosen twice")


def _require_ends_first(spec: FileSpec, names: list[str]) -> None:
    """Errors: `InvalidError` where columns named as an edge's ends are not the first two."""
    short = [plain(name) for name in names]
    ends = [
        next((at for at, name in enumerate(short) if name in kind), None)
        for kind in (SOURCES, TARGETS)
    ]
    source, target = ends
    if source is None or target is None or (source, target) == (0, 1):
        return
    chosen = f"{spec.path}:{names[source]},{names[target]}"
    raise InvalidError(
        f"`{spec.path}`: the first two columns would be taken as source and target, and they are "
        f"`{names[0]}` and `{names[1]}`\nhint: choose the columns: `{chosen}`"
    )
