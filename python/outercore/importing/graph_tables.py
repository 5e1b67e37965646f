"""Opens the tables of a graph with several types: one or more files for each type."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from outercore.base.listing import listed
from outercore.base.shell import quoted
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.format.description import count_of
from outercore.importing.table.columns import id_column
from outercore.importing.table.edge_array import ENDS, EdgeArrayTable
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.foreign import refuse_foreign
from outercore.importing.table.parquet import ParquetTable, is_parquet
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import Reading, is_array, open_node_table
from outercore.importing.table.table import Table
from outercore.importing.table.text import PLAIN, TextOptions, TextTable, suffix_of

_NAME = re.compile(r"[\w.+-]+( [\w.+-]+)*")
"""The allowed names of types. They become parts of paths."""


@dataclass(frozen=True)
class NodeTable:
    """The nodes of one type. Row i is node i."""

    node_type: str
    spec: FileSpec | None
    """The file; `None` if the user gave only the number of nodes."""
    table: Table | None
    """The table in the file; `None` for an array of features."""
    key: tuple[str, ...]
    """The columns of the node's key. Without any, edges name a node by its row number."""
    count: int | None
    """The number of nodes, if known without reading."""
    files: tuple[FileState, ...] = ()
    space: str | None = None
    """The set of node types in which keys are unique; `None`: this type alone."""
    first: int = 0
    """The number of the first node among all nodes of the space."""

    @property
    def numbers(self) -> range:
        """The range of this type's nodes among all nodes of the space."""
        return range(self.first, self.first + (self.count or 0))

    @property
    def identity(self) -> str:
        """A text that changes if the input changes."""
        return " ".join([self.node_type, str(self.spec), str(self.key), *map(str, self.files)])


@dataclass(frozen=True)
class EdgeTable:
    """Edges of one type, one for each row of a table."""

    edge_type: EdgeType
    spec: FileSpec
    table: Table
    source: tuple[str, ...]
    """Columns with the key of the source node. Without any, node i is the source of row i."""
    target: tuple[str, ...]
    others: tuple[str, ...]
    """Columns besides the ends."""
    files: tuple[FileState, ...]
    time: str | None = None
    """The column that becomes the array `time`."""
    is_optional: bool = False
    """Whether rows without a key are valid and ignored."""

    @property
    def key(self) -> str:
        """The name of the edge type in keys."""
        return edge_type_key(self.edge_type)

    @property
    def identity(self) -> str:
        """A text that changes if the input changes."""
        columns = [*self.source, "", *self.target, "", *self.others, "", str(self.time)]
        return " ".join([self.key, str(self.spec), *columns, *map(str, self.files)])


def open_node_types(texts: tuple[str, ...], reading: Reading) -> dict[str, NodeTable]:
    """Opens node types, given as `TYPE=FILE`, `TYPE=FILE:KEY` or `TYPE=COUNT`.

    Errors: `InvalidError` for another form, a table without rows, and files of one type that
    cannot be one table.
    """
    found: dict[str, NodeTable] = {}
    parts: dict[str, Parts] = {}
    for text in texts:
        node_type, equals, value = text.partition("=")
        if not equals or not value:
            raise InvalidError(
                f"--nodes: expected TYPE=FILE or TYPE=COUNT, such as `paper=papers.csv`, found "
                f"`{text}`"
            )
        require_type_name("--nodes", node_type)
        of_type = parts.setdefault(node_type, Parts())
        one = _node_table(node_type, value, reading, of_type)
        before = found.get(node_type)
        found[node_type] = one if before is None else _with_part(before, one)
    return dict(sorted(found.items()))


def _with_part(nodes: NodeTable, part: NodeTable) -> NodeTable:
    """Adds the text file `part` to the text files of a node type.

    Errors: `InvalidError` for arrays and Parquet, and for files with different columns or keys.
    """
    what = f"--nodes: `{nodes.node_type}` is given twice"
    if part.spec is not None and part.spec.path in {one.path for one in nodes.files}:
        raise InvalidError(f"{what} by the same file, `{part.spec.path}`")
    if not (isinstance(nodes.table, TextTable) and isinstance(part.table, TextTable)):
        raise InvalidError(
            f"{what}, and only texts can be parts of one table\n"
            "hint: Parquet files of one type may lie in a directory: `--nodes TYPE=DIRECTORY`"
        )
    if sorted(part.table.names) != sorted(nodes.table.names):
        raise InvalidError(
            f"{what}: `{part.spec}` has other columns than `{nodes.spec}`: "
            f"{', '.join(part.table.names)}\nhint: give all parts of a table the same columns"
        )
    if part.key != nodes.key:
        raise InvalidError(
            f"{what}: `{part.spec}` has keys in {_listed(part.key)}, `{nodes.spec}` in "
            f"{_listed(nodes.key)}\nhint: name one column of keys for both: `TYPE=FILE:KEY`"
        )
    table = nodes.table.followed_by(part.table)
    files = nodes.files + part.files
    return replace(nodes, table=table, count=table.rows, files=files)


def _listed(columns: tuple[str, ...]) -> str:
    return listed(columns) or "no column"


def _node_table(node_type: str, value: str, reading: Reading, parts: Parts) -> NodeTable:
    if value.isdecimal():
        count = count_of(value, f"--nodes {node_type}")
        return NodeTable(node_type, None, None, (), count)
    spec = FileSpec.parse(value)
    files = states(spec.path)
    if is_array(spec):
        return NodeTable(node_type, spec, None, (), None, files)
    if len(spec.columns) > 1:
        raise InvalidError(
            f"--nodes {node_type}: expected one column of keys, found {', '.join(spec.columns)}"
        )
    table = open_node_table(spec, reading, may_be_empty=True, parts=parts)
    parts.remember(table, ())
    key = spec.columns[0] if spec.columns else id_column(table)
    return NodeTable(node_type, spec, table, (key,) if key else (), table.rows, files)


def open_edge_types(
    texts: tuple[str, ...], nodes: dict[str, NodeTable], reading: Reading
) -> list[EdgeTable]:
    """Opens edge types, given as `SOURCE,RELATION,TARGET=FILE`; sorts them by their keys.

    Errors: `InvalidError` for another form, and for an unknown node type.
    """
    found = []
    of_types: dict[EdgeType, Parts] = {}
    for text in texts:
        triple, equals, value = text.partition("=")
        parts = triple.split(",")
        if not equals or len(parts) != 3:
            raise InvalidError(
                "--edges: expected SOURCE,RELATION,TARGET=FILE, such as "
                f"`author,writes,paper=writes.csv`, found `{text}`"
            )
        source, relation, target = parts
        require_type_name("--edges", relation)
        for end in (source, target):
            if end not in nodes:
                raise InvalidError(
                    f"--edges {triple}: there is no node type `{end}`\n"
                    f"hint: the node types are {', '.join(nodes)}; say `--nodes {end}=FILE`"
                )
        edge_type = source, relation, target
        before = of_types.setdefault(edge_type, Parts())
        found.append(_edge_table(edge_type, value, nodes, reading, before))
    return sorted(found, key=lambda one: one.key)


def _edge_table(
    edge_type: EdgeType, value: str, nodes: dict[str, NodeTable], reading: Reading, parts: Parts
) -> EdgeTable:
    spec = FileSpec.parse(value)
    refuse_foreign(spec.path)
    if suffix_of(spec.path) == ".npy":
        return array_of_edges(edge_type, EdgeArrayTable.open(spec))
    if is_array(spec):
        raise InvalidError(f"`{spec}`: expected edges in text, Parquet or `.npy`")
    files = states(spec.path)
    is_table = is_parquet(spec.path)
    ends = nodes[edge_type[0]], nodes[edge_type[2]]
    table = ParquetTable(spec.path) if is_table else _text_edges(spec, ends, reading.text, parts)
    spec, columns, _ = parts.edges(spec, table)
    others = tuple(columns.others)
    ends_of = (columns.source,), (columns.target,)
    return EdgeTable(edge_type, spec, table, *ends_of, others, files)


def _text_edges(
    spec: FileSpec, ends: tuple[NodeTable, NodeTable], options: TextOptions, parts: Parts
) -> TextTable:
    """Opens a text of edges. `ends` are the tables of its source nodes and target nodes.

    If it is unclear whether the first line is a header, the keys of the nodes decide.

    Errors: as `Parts.text`.
    """

    def opened(said: TextOptions) -> TextTable:
        return parts.text(spec.path, "named_edges", said, chosen=spec.columns)

    error = None
    try:
        as_data = opened(options)
        if options.header is not None or as_data.is_named or not _are_words(as_data):
            return as_data
    except InvalidError as unclear:
        if options.header is not None or not unclear.names("header"):
            raise
        error = unclear
        as_data = opened(replace(options, header=False))
    first = next(iter(as_data.texts(as_data.names[:2])), None)
    if first is not None and len(first) >= 2 and len(first[0]) >= 2:
        known = [
            _has_keys(end, [names[0], names[1]]) for end, names in zip(ends, first, strict=True)
        ]
        if all(one == [False, True] for one in known):
            return opened(replace(options, header=True))
        if all(one == [True, True] for one in known):
            return as_data
    if error is not None:
        raise error
    return as_data


def _are_words(table: TextTable) -> bool:
    """Whether both ends are columns of text, so that the first row may be a header."""
    return all(table.kind(name) == "text" for name in table.names[:2])


def _has_keys(nodes: NodeTable, wanted: list[Any]) -> list[bool]:
    if nodes.table is None or not nodes.key:
        return [False] * len(wanted)
    found = pa.array([False] * len(wanted))
    keys = pa.array([key.as_py() for key in wanted], pa.large_string())
    for (texts,) in nodes.table.texts(list(nodes.key), ""):
        found = pc.or_(found, pc.is_in(keys, value_set=texts))
    return found.to_pylist()


def array_of_edges(edge_type: EdgeType, table: EdgeArrayTable) -> EdgeTable:
    """The edges of one type from an array."""
    (source, target), spec = ENDS, FileSpec(table.path, ())
    return EdgeTable(edge_type, spec, table, (source,), (target,), (), table.files)


def text_of_edges(edge_type: EdgeType, path: Path) -> EdgeTable:
    """The edges of one type from a text with two columns of node numbers and no header.

    Errors: `InvalidError` for another number of columns.
    """
    table = TextTable.detect(path, "table", PLAIN)
    if len(table.names) != 2:
        raise InvalidError(f"`{path}`: {len(table.names)} columns, expected source and target")
    source, target = table.names
    return EdgeTable(edge_type, FileSpec(path, ()), table, (source,), (target,), (), states(path))


def require_type_name(option: str, name: str) -> None:
    """Errors: `InvalidError` for a type name that cannot be part of a path and a key."""
    if not _NAME.fullmatch(name) or name.startswith(".") or "__" in name:
        raise InvalidError(
            f"{option}: `{name}` cannot name a type\n"
            "hint: use letters, digits, `_`, `-` and dots, but not `__`"
        )


def refuse_keys(option: str, file: str, nodes: NodeTable, reading: Reading) -> None:
    """Errors: `InvalidError` for a table with a column of keys.

    Its rows may be in another order than the nodes.
    """
    spec = FileSpec.parse(file, may_leave_out=True)
    if not nodes.key or is_array(spec):
        return
    table = open_node_table(spec, reading)
    key = id_column(table, nodes.key[0])
    if key is None or key in spec.columns:
        return
    of_type = nodes.node_type
    rename = "" if id_column(table) == key else f"call column `{key}` `id`, "
    raise InvalidError(
        f"{option} {of_type}: `{spec.path}`: column `{key}` holds keys, expected rows in the order "
        f"of the nodes of type `{of_type}`\n"
        f"hint: {rename}import without the table, then join it by key: "
        f"`outercore add DATASET {option} {quoted(f'{of_type}={file}')}`; or put its columns into "
        "the table of nodes"
    )
