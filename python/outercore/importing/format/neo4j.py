"""A folder of CSV files for `neo4j-admin database import` as a typed graph."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from outercore.data.edge_types import EdgeType
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks
from outercore.importing.format.neo4j_files import ExportFile, open_files
from outercore.importing.format.neo4j_header import Role
from outercore.importing.graph import ImportOptions
from outercore.importing.table.selection import Part, Selection
from outercore.importing.table.times import require_one_clock
from outercore.importing.typed.edges import EdgesOfType, Ends, with_reverse
from outercore.importing.typed.features import arrays_of_table
from outercore.importing.typed.graph import (
    TypedInputs,
    TypedSource,
    require_kinds,
    typed_source,
)
from outercore.importing.typed.keys import Column, Keys, column_of
from outercore.importing.typed.node_texts import columns_besides
from outercore.importing.typed.tables import EdgeTable, NodeTable, require_type_name

_ROWS = 1 << 20


@dataclass(frozen=True)
class _Relation:
    """Relationships of one type in one file; the types of their ends differ from row to row."""

    name: str
    table: EdgeTable
    """Its edge type has no node types yet."""
    ends: tuple[list[NodeTable], list[NodeTable]]
    """The node types that the sources, and the targets, may be of."""


def open_neo4j(folder: Path, inputs: TypedInputs, options: ImportOptions) -> TypedSource:
    """The graph in a folder of node and relationship files.

    The first label of a node is its type; without one it is the name of the file. So are the types
    of relationships. Numbers are features and edge arrays, dates are arrays of their own.

    Errors: `InvalidError` names the file with its field, or the key that no node has.
    """
    if inputs.text.comment is None:
        # A `#` begins no comment in these files.
        inputs = replace(inputs, text=replace(inputs.text, comment=""))
    inputs = replace(inputs, is_in_order=True)
    files, notes = open_files(folder, inputs.text, outside=options.outside_files)
    nodes, left_out = _node_types([one for one in files if one.header.is_nodes])
    notes += left_out
    relations = [
        relation
        for one in files
        if not one.header.is_nodes
        for relation in _relations(one, list(nodes.values()))
    ]
    tables = [
        *(one.table for one in nodes.values() if one.table is not None),
        *(one.table.table for one in relations),
    ]
    require_one_clock((table, name) for table in tables for name in table.names)
    require_kinds(nodes, [one.table for one in relations])
    besides = columns_besides(inputs.label, inputs.texts, nodes)
    arrays = []
    for node_type, one in nodes.items():
        own = besides.get(node_type, set())
        found, more = arrays_of_table(one, own, inputs.reading(options))
        arrays += found
        notes += more
    description = " ".join(str(state) for one in files for state in one.files)
    source = typed_source(
        inputs, options, nodes, [], (arrays, notes), [str(folder)], description=description
    )
    return replace(
        source,
        edge_keys=[use for one in relations for use in _uses(one)],
        find_edges=partial(_find_edges, relations, add_reverse=inputs.add_reverse),
    )


def _node_types(files: list[ExportFile]) -> tuple[dict[str, NodeTable], list[str]]:
    """The node types, with the numbers of their nodes among all that share their keys; and notes
    about properties that not all files of a type have.

    Errors: `InvalidError` for a type in two spaces.
    """
    if not files:
        raise InvalidError("expected a file with a field `:ID`, found relationships only")
    parts: dict[str, list[tuple[ExportFile, Part]]] = {}
    for one in files:
        for name, part in one.by_value:
            require_type_name(f"`{one.path}`: label", name)
            parts.setdefault(name, []).append((one, part))
    found, firsts, notes = dict[str, NodeTable](), dict[str, int](), list[str]()
    for name, own in sorted(parts.items()):
        spaces = {one.header.space_of("key") for one, _ in own}
        if len(spaces) > 1:
            listed = " and ".join(f"`{one.path}`" for one, _ in own[:2])
            raise InvalidError(f"{listed}: nodes of type `{name}` have keys of different spaces")
        space, table = spaces.pop(), _selection(own, ("key",))
        first, count = firsts.get(space, 0), table.rows
        firsts[space] = first + count
        keys = own[0][0].columns_of("key")
        states = tuple(state for one, _ in own for state in one.files)
        spec = FileSpec(own[0][0].path, ())
        found[name] = NodeTable(name, spec, table, keys, count, states, space, first)
        properties = {field.name for one, _ in own for field in one.header.properties}
        if left := sorted(properties - set(table.names)):
            listed = ", ".join(f"`{one}`" for one in left)
            notes.append(
                f"properties of `{name}` that some of its files lack are left out: {listed}"
            )
    return found, notes


def _selection(own: list[tuple[ExportFile, Part]], keys: tuple[Role, ...]) -> Selection:
    """Rows of several files as one table, of the columns that all have.

    Errors: `InvalidError` for a property of two types.
    """
    file = own[0][0]
    types = dict.fromkeys((name for key in keys for name in file.columns_of(key)), None)
    shared: dict[str, np.dtype | None] = dict(types)
    times, vectors = set(), {}
    for field in file.header.properties:
        same = [
            other for one, _ in own for other in one.header.properties if other.name == field.name
        ]
        if len(same) < len(own):
            continue
        if any((one.role, one.dtype) != (field.role, field.dtype) for one in same):
            listed = " and ".join(f"`{one.path}`" for one, _ in own)
            raise InvalidError(f"{listed}: property `{field.name}` has different types")
        shared[field.name] = field.dtype if field.role == "number" else None
        if field.role == "time":
            times.add(field.name)
        if field.role == "numbers" and field.dtype is not None:
            vectors[field.name] = field.dtype
    return Selection(tuple(part for _, part in own), shared, frozenset(times), vectors)


def _relations(file: ExportFile, nodes: list[NodeTable]) -> list[_Relation]:
    """The relationships of a file, by their types.

    Errors: `InvalidError` for keys of a space that no node has.
    """
    roles: tuple[Role, Role] = ("source", "target")
    ends = []
    for role in roles:
        space = file.header.space_of(role)
        types = [one for one in nodes if one.space == space]
        if not types:
            known = ", ".join(sorted({f"`:ID({one.space})`" for one in nodes}))
            raise InvalidError(
                f"`{file.path}`: field `{file.columns_of(role)[0]}`: no node has keys of this "
                f"space\nhint: nodes have {known}"
            )
        if len(types[0].key) != len(file.columns_of(role)):
            raise InvalidError(
                f"`{file.path}`: {len(file.columns_of(role))} fields `{file.columns_of(role)[0]}`, "
                f"but `{types[0].spec}` has {len(types[0].key)} fields `:ID`"
            )
        ends.append(types)
    source, target = (file.columns_of(role) for role in roles)
    found = []
    for name, part in file.by_value:
        require_type_name(f"`{file.path}`: relationship type", name)
        table = _selection([(file, part)], roles)
        others = tuple(field.name for field in file.header.properties)
        edges = EdgeTable(
            ("", name, ""), FileSpec(file.path, ()), table, source, target, others, file.files
        )
        found.append(_Relation(name, edges, (ends[0], ends[1])))
    return found


def _uses(relation: _Relation) -> list[Column]:
    """The keys of the sources and of the targets."""
    table = relation.table
    return [
        column_of(types[0].node_type, table.table, columns, may_be_empty=True, space=types[0].space)
        for types, columns in zip(relation.ends, (table.source, table.target), strict=True)
    ]


def _find_edges(relations: list[_Relation], keys: Keys, *, add_reverse: bool) -> list[EdgesOfType]:
    """The edge types that the rows have, in the order of their keys."""
    ends: dict[EdgeType, list[Ends]] = {}
    for number, one in enumerate(relations):
        uses = (2 * number, 2 * number + 1)
        pairs = _pairs(one, keys, uses)
        for place, (source, target) in enumerate(pairs):
            edge_type = source.node_type, one.name, target.node_type
            parts = tuple(_part(end) for end in (source, target))
            table = replace(one.table, edge_type=edge_type)
            own = Ends(table, uses, (parts[0], parts[1]), is_counting=place == 0)
            ends.setdefault(edge_type, []).append(own)
    return with_reverse(ends, add_reverse=add_reverse)


def _part(nodes: NodeTable) -> range:
    assert nodes.count is not None
    return range(nodes.first, nodes.first + nodes.count)


def _pairs(
    relation: _Relation, keys: Keys, uses: tuple[int, int]
) -> list[tuple[NodeTable, NodeTable]]:
    """The node types between which there are edges; the first ones where there are none."""
    sources = keys.rows(uses[0])
    starts = [np.array([one.first for one in types]) for types in relation.ends]
    found = set()
    for first, block in blocks(sources, _ROWS):
        other = keys.part(uses[1], slice(first, first + len(block)))
        both = (block >= 0) & (other >= 0)
        come = np.searchsorted(starts[0], block[both], "right") - 1
        to = np.searchsorted(starts[1], other[both], "right") - 1
        found |= set(np.unique(come * len(starts[1]) + to).tolist())
    pairs = [divmod(pair, len(starts[1])) for pair in sorted(found)] or [(0, 0)]
    return [(relation.ends[0][come], relation.ends[1][to]) for come, to in pairs]
