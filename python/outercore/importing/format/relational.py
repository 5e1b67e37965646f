"""A relational database as a graph: rows are nodes, foreign keys are edges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.importing.format.foreign import refuse_foreign
from outercore.importing.format.schema import DESCRIPTION, TableSchema, read_schema
from outercore.importing.graph import ImportOptions, NodeArray
from outercore.importing.table.columns import IDS, is_counting, may_be_ids
from outercore.importing.table.file_state import states
from outercore.importing.table.rows import Reading
from outercore.importing.table.table import (
    ParquetTable,
    Table,
    TextTable,
    is_parquet,
    require_column,
)
from outercore.importing.table.text import TextFile
from outercore.importing.table.times import is_time, require_one_clock
from outercore.importing.typed.features import arrays_of_table
from outercore.importing.typed.graph import TypedInputs, TypedSource, typed_source
from outercore.importing.typed.labels import label_column
from outercore.importing.typed.node_texts import text_columns
from outercore.importing.typed.tables import EdgeTable, NodeTable


def open_relational(folder: Path, inputs: TypedInputs, options: ImportOptions) -> TypedSource:
    """The graph of the tables that `tables.yaml` in a folder describes.

    Each table is a node type, and each foreign key an edge type: from the row that holds it to the
    row that it names. A table with two foreign keys and no primary key is an edge type. The time of
    a row is that of its node and of its edges.

    Errors: `InvalidError` and `NotFoundError` name the table with its column, or the file.
    """
    schema = read_schema(folder, outside=options.outside_files)
    inputs = replace(inputs, is_in_order=True)
    reading = inputs.reading(options)
    tables = {name: _open(one, folder, reading) for name, one in schema.items()}
    nodes = {
        name: _nodes(one, tables[name]) for name, one in sorted(schema.items()) if not one.is_link
    }
    times = [(tables[name], one.time) for name, one in schema.items() if one.time is not None]
    typed = [(table, name) for table in tables.values() for name in table.names]
    require_one_clock(typed, times)
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
    """The table, which has every column that the description names."""
    refuse_foreign(schema.file)
    table: Table
    if is_parquet(schema.file):
        table = ParquetTable(schema.file)
    else:
        # Columns have names, so the first line of a text has them.
        table = TextTable(TextFile.detect(schema.file, "table", reading.text, by_name=True))
    for name in schema.columns:
        try:
            require_column(table, name)
        except NotFoundError as error:
            where = f"`{folder / DESCRIPTION}`: table `{schema.name}`"
            raise NotFoundError(f"{where}: {error}") from None
    return table


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
            # Those to leave out are among the columns that the description names.
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
    """Errors: `InvalidError` for two foreign keys, or one and a table, that make one edge type."""
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
    """The column of labels, by its table.

    Errors: `InvalidError` for a column that edges, times or features would tell.
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
        shown = ", ".join(f"`{name}`" for name in ids)
        notes.append(
            f"columns of `{schema.name}` that are called like ids are left out: {shown}; "
            "`foreign_keys` or `features` would take them"
        )
    return found, notes


def _may_be_ids(table: Table, name: str) -> bool:
    """Whether a column of whole numbers is called like ids, or like numbers of rows."""
    dtype = table.dtype(name)
    is_whole = dtype is not None and dtype.kind in "iu" and not is_time(table, name)
    return is_whole and (name in IDS or may_be_ids(name) or is_counting(name))


def _unused(folder: Path, schema: dict[str, TableSchema]) -> list[str]:
    """What the import leaves aside, to be said."""
    used = {one.file for one in schema.values()}
    others = [
        path.name
        for path in sorted(folder.iterdir())
        if path not in used and path.name != DESCRIPTION and not path.name.startswith(".")
    ]
    notes = []
    if others:
        shown = ", ".join(f"`{name}`" for name in others[:6])
        more = f" and {len(others) - 6} more" if len(others) > 6 else ""
        notes.append(f"not in `{DESCRIPTION}`, so not read: {shown}{more}")
    linked = {key.table for one in schema.values() for key in one.foreign_keys}
    alone = [name for name, one in schema.items() if name not in linked and not one.foreign_keys]
    if alone:
        names = ", ".join(f"`{name}`" for name in alone)
        notes.append(f"tables without a foreign key from or to them have no edges: {names}")
    return notes
