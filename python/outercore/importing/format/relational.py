"""Opens a relational database as a graph: rows become nodes, foreign keys become edges.

`tables.yaml` describes the tables: their keys, times and features.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from outercore.base.listing import listed
from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.importing.features import arrays_of_table
from outercore.importing.format.description import Entry, described_file, read_yaml
from outercore.importing.graph_tables import EdgeTable, NodeTable, require_type_name
from outercore.importing.inputs import TypedInputs
from outercore.importing.labels import label_column
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.columns import IDS, is_counting, may_be_ids
from outercore.importing.table.file_state import states
from outercore.importing.table.foreign import refuse_foreign
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import NodeArray, Reading
from outercore.importing.table.table import Table
from outercore.importing.table.times import is_time
from outercore.importing.texts import text_columns
from outercore.importing.typed_graph import typed_source

DESCRIPTION = "tables.yaml"
_TOP = ("tables",)
_OF_TABLE = ("file", "primary_key", "foreign_keys", "time", "features")


@dataclass(frozen=True)
class ForeignKey:
    """Columns whose values are primary keys of a table, which may be their own table."""

    columns: tuple[str, ...]
    table: str

    @property
    def relation(self) -> str:
        """The relation of the edge type that the key becomes."""
        return "_".join(self.columns)


@dataclass(frozen=True)
class TableSchema:
    """The description of one table in `tables.yaml`."""

    name: str
    file: Path
    primary_key: tuple[str, ...]
    foreign_keys: tuple[ForeignKey, ...]
    time: str | None
    features: list[str] | None
    """The columns that become features; `None`: all columns of numbers without another use."""
    without: tuple[str, ...] = ()
    """Columns that do not become features, if `features` is `None`."""

    @property
    def is_link(self) -> bool:
        """Whether the rows are edges: the table has two foreign keys and no primary key."""
        return not self.primary_key and len(self.foreign_keys) == 2

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns that the description names."""
        keys = [name for one in self.foreign_keys for name in one.columns]
        times = [self.time] if self.time is not None else []
        return tuple(
            dict.fromkeys([*self.primary_key, *keys, *times, *(self.features or self.without)])
        )


def is_relational(folder: Path) -> bool:
    """Whether a folder has a `tables.yaml`."""
    return (folder / DESCRIPTION).is_file()


def read_schema(folder: Path, *, outside: bool = False) -> dict[str, TableSchema]:
    """Reads the tables from `tables.yaml`, by name; `outside` as in `described_file`.

    Errors: `InvalidError` names the table and the entry; `NotFoundError` names a missing file.
    """
    top = read_yaml(folder / DESCRIPTION)
    top.fields(_TOP)
    tables = top["tables"]
    if not tables.fields():
        raise InvalidError(f"{top.where}: expected tables below `tables:`, found none")
    found = {
        name: _table(folder, name, Entry(value, f"{top.where}: table `{name}`"), outside)
        for name, value in tables.fields().items()
    }
    for one in found.values():
        for key in one.foreign_keys:
            _require_target(key, one, found, top.where)
    return found


def _table(folder: Path, name: str, entry: Entry, outside: bool) -> TableSchema:
    require_type_name(entry.where, name)
    entry.fields(_OF_TABLE)
    keys = []
    for columns, table in entry["foreign_keys"].fields().items():
        key = Entry(table, f"{entry.where}: foreign key `{columns}`")
        keys.append(ForeignKey(_columns(Entry(columns, key.where)), key.text()))
        require_type_name(entry.where, keys[-1].relation)
    time = entry["time"]
    features, without = _features(entry["features"])
    return TableSchema(
        name,
        described_file(folder, _file(folder, name, entry), entry.where, outside=outside),
        () if entry["primary_key"].is_empty else _columns(entry["primary_key"]),
        tuple(keys),
        None if time.value is None else time.text(),
        features,
        without,
    )


def _features(entry: Entry) -> tuple[list[str] | None, tuple[str, ...]]:
    """The chosen columns (`None` for no choice), and the excluded columns, written as `"!COLUMN"`.

    Errors: `InvalidError` for both kinds in one list.
    """
    if entry.value is None:
        return None, ()
    names = [one.text() for one in entry.items()]
    left_out = tuple(name[1:] for name in names if name.startswith("!"))
    if not left_out:
        return names, ()
    if len(left_out) < len(names):
        raise InvalidError(f"{entry.where}: expected columns, or columns to leave out, found both")
    return None, left_out


def _columns(entry: Entry) -> tuple[str, ...]:
    if isinstance(entry.value, list):
        raise InvalidError(
            f"{entry.where}: expected columns with commas between them, such as `shop, till`, "
            "found a list"
        )
    columns = tuple(name.strip() for name in entry.text().split(","))
    if "" in columns or len(set(columns)) < len(columns):
        raise InvalidError(f"{entry.where}: expected different columns with commas between them")
    return columns


def _file(folder: Path, name: str, entry: Entry) -> str:
    """The file of a table: from the description, or else the file with the table's name."""
    if entry["file"].value is not None:
        return entry["file"].text()
    found = sorted(one for one in folder.iterdir() if one.name == name or one.stem == name)
    found = found or sorted(one for one in folder.iterdir() if one.name.startswith(f"{name}."))
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise NotFoundError(
            f"{entry.where}: expected one file that is called `{name}`, such as `{name}.parquet` "
            f"or `{name}.csv`, found {names}\nhint: name it: `file: NAME`"
        )
    return found[0].name


def _require_target(
    key: ForeignKey, one: TableSchema, tables: dict[str, TableSchema], where: str
) -> None:
    at = f"{where}: table `{one.name}`: foreign key `{','.join(key.columns)}`"
    target = tables.get(key.table)
    if target is None:
        raise InvalidError(
            f"{at}: there is no table `{key.table}`\nhint: the tables are {', '.join(tables)}"
        )
    if not target.primary_key:
        raise InvalidError(f"{at}: table `{key.table}` has no `primary_key`")
    if len(target.primary_key) != len(key.columns):
        raise InvalidError(
            f"{at}: {len(key.columns)} columns, but the primary key of table `{key.table}` is "
            f"`{','.join(target.primary_key)}`"
        )


def open_relational(folder: Path, inputs: TypedInputs, options: ImportOptions) -> GraphSource:
    """Opens the graph of the tables that `tables.yaml` in a folder describes.

    Each table becomes a node type. Each foreign key becomes an edge type, from the row with the key
    to the row with that primary key. A table with two foreign keys and no primary key is only an
    edge type. The time of a row belongs to its node and to its edges.

    Errors: `InvalidError` and `NotFoundError` name the table with its column, or the file.
    """
    schema = read_schema(folder, outside=options.outside_files)
    inputs = replace(inputs, is_in_order=True)
    reading = inputs.reading(options)
    tables = {name: _open(one, folder, reading) for name, one in schema.items()}
    nodes = {
        name: _nodes(one, tables[name]) for name, one in sorted(schema.items()) if not one.is_link
    }
    label = _label(inputs.label, schema, nodes)
    edges = [edge for name, one in schema.items() for edge in _edges(one, tables[name])]
    _require_distinct(edges, folder)
    texts = text_columns(inputs.texts, nodes)
    arrays, notes = list[NodeArray](), list[str]()
    for name, one in nodes.items():
        others = {*texts.get(name, ()), *([label[name]] if name in label else [])}
        found, note = _arrays(schema[name], one, others, reading)
        arrays += found
        notes += note
    return typed_source(
        inputs,
        options,
        nodes,
        sorted(edges, key=lambda one: one.key),
        (arrays, [*notes, *_unused(folder, schema)]),
        [str(folder)],
        is_timed=True,
        description=(folder / DESCRIPTION).read_text(encoding="utf-8"),
    )


def _open(schema: TableSchema, folder: Path, reading: Reading) -> Table:
    """Opens a table.

    Errors: `NotFoundError` for a column of the description that the table lacks.
    """
    refuse_foreign(schema.file)
    try:
        return Parts().open(FileSpec(schema.file, schema.columns), reading.text, "table")
    except NotFoundError as error:
        where = f"`{folder / DESCRIPTION}`: table `{schema.name}`"
        raise NotFoundError(f"{where}: ", *error.parts) from None


def _nodes(schema: TableSchema, table: Table) -> NodeTable:
    return NodeTable(
        schema.name,
        FileSpec(schema.file, ()),
        table,
        schema.primary_key,
        table.rows,
        states(schema.file),
    )


def _edges(schema: TableSchema, table: Table) -> list[EdgeTable]:
    spec, files = FileSpec(schema.file, ()), states(schema.file)
    if schema.is_link:
        source, target = schema.foreign_keys
        others = schema.features
        if others is None:
            # `schema.columns` includes the excluded columns.
            others = [name for name in table.names if name not in schema.columns]
        edge_type = source.table, schema.name, target.table
        ends = source.columns, target.columns
        return [EdgeTable(edge_type, spec, table, *ends, tuple(others), files, schema.time)]
    return [
        EdgeTable(
            (schema.name, key.relation, key.table),
            spec,
            table,
            (),
            key.columns,
            (),
            files,
            schema.time,
            is_optional=True,
        )
        for key in schema.foreign_keys
    ]


def _require_distinct(edges: list[EdgeTable], folder: Path) -> None:
    """Errors: `InvalidError` if two foreign keys or tables give the same edge type."""
    keys = [one.key for one in edges]
    for one in edges:
        if keys.count(one.key) > 1:
            source, relation, target = one.edge_type
            raise InvalidError(
                f"`{folder / DESCRIPTION}`: two edge types would be called "
                f"{source},{relation},{target}\n"
                "hint: call a table otherwise, or give a table that links two a `primary_key`"
            )


def _label(
    text: str | None, schema: dict[str, TableSchema], nodes: dict[str, NodeTable]
) -> dict[str, str]:
    """The column of labels, by its table; `text` is the option `--label`.

    Errors: `InvalidError` for a column that is also a key, the time or a feature, because the model
    would see the label.
    """
    if text is None or "=" in text:
        return {}
    for name, one in schema.items():
        if one.is_link and text.startswith(f"{name}."):
            raise InvalidError(
                f"--label {text}: the rows of table `{name}` are edges: it has two foreign keys "
                "and no `primary_key`\nhint: give it a `primary_key`, and its rows are nodes"
            )
    name, column = label_column(text, nodes)
    one = schema[name]
    foreign = [key for key in one.foreign_keys if column in key.columns]
    uses = {
        "a foreign key, so edges would tell the label": bool(foreign),
        "the primary key": column in one.primary_key,
        "the time": column == one.time,
        "among the `features`": column in (one.features or []),
    }
    for use, is_so in uses.items():
        if is_so:
            raise InvalidError(
                f"--label {text}: the column is {use}\n"
                f"hint: leave it out of table `{name}` in `{DESCRIPTION}`, or choose another label"
            )
    return {name: column}


def _arrays(
    schema: TableSchema, nodes: NodeTable, others: set[str], reading: Reading
) -> tuple[list[NodeArray], list[str]]:
    table = nodes.table
    assert table is not None
    besides = others | {name for key in schema.foreign_keys for name in key.columns}
    used = besides | {*schema.primary_key, schema.time}
    ids = [name for name in table.names if name not in used and _may_be_ids(table, name)]
    besides |= set(schema.without)
    if schema.features is None:
        besides |= set(ids)
    found, notes = arrays_of_table(
        nodes, besides, reading, chosen=schema.features, time=schema.time
    )
    if schema.features is None and ids:
        notes.append(
            f"columns of `{schema.name}` that are called like ids are left out: {listed(ids)}; "
            "`foreign_keys` or `features` would take them"
        )
    return found, notes


def _may_be_ids(table: Table, name: str) -> bool:
    """Whether a column of integers has a name that is usual for ids or row numbers."""
    dtype = table.dtype(name)
    is_whole = dtype is not None and dtype.kind in "iu" and not is_time(table, name)
    return is_whole and (name in IDS or may_be_ids(name) or is_counting(name))


def _unused(folder: Path, schema: dict[str, TableSchema]) -> list[str]:
    """Notes on files and tables that the import leaves out."""
    used = {one.file for one in schema.values()}
    others = [
        path.name
        for path in sorted(folder.iterdir())
        if path not in used and path.name != DESCRIPTION and not path.name.startswith(".")
    ]
    notes = []
    if others:
        notes.append(f"not in `{DESCRIPTION}`, so not read: {listed(others, most=6)}")
    linked = {key.table for one in schema.values() for key in one.foreign_keys}
    alone = [name for name, one in schema.items() if name not in linked and not one.foreign_keys]
    if alone:
        notes.append(f"tables without a foreign key from or to them have no edges: {listed(alone)}")
    return notes


FORMAT = Format(f"a `{DESCRIPTION}`", is_relational, open_relational)
