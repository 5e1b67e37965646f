"""Opens files of edges, and passes their edges to the importer, natively if the core can read."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Container, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.base.native import Importer
from outercore.data.time_arrays import is_time_name
from outercore.errors import HINT, InvalidError, OutercoreError
from outercore.files.file_spec import FileSpec
from outercore.files.npy import open_npy
from outercore.importing.table.columns import EdgeColumns
from outercore.importing.table.edge_array import EdgeShape, oriented
from outercore.importing.table.file_state import FileState, states
from outercore.importing.table.foreign import refuse_foreign
from outercore.importing.table.npz import NpzMember, member_names, open_member, other_members
from outercore.importing.table.parquet import ParquetTable, is_parquet
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import RowSource, common_type, time_rows
from outercore.importing.table.sparse import is_sparse_matrix, sparse_edges
from outercore.importing.table.table import Table
from outercore.importing.table.text import Convention, TextOptions, TextTable, suffix_of
from outercore.importing.table.times import is_date_column, is_time, times_of

EdgeFormat = Literal["auto", "text", "npy", "npz", "parquet", "mtx", "dimacs"]
_FORMATS: dict[str, EdgeFormat] = {
    ".npy": "npy",
    ".npz": "npz",
    ".mtx": "mtx",
    ".gr": "dimacs",
    ".dimacs": "dimacs",
}
_CHUNK = 1 << 20

Pairs = Iterator[tuple[NDArray[Any], NDArray[Any]]]
"""Batches of sources and targets."""
Batches = Callable[[int | None], Pairs]


@dataclass(frozen=True)
class EdgeSource:
    """Edges of one input."""

    name: str
    batches: Batches
    """Sources and targets from 0; its argument is the number of nodes, if known."""
    native: Callable[[Importer], None] | None = None
    """Lets the core read the file; `None` if the core cannot."""
    others: tuple[str, ...] = ()
    """Columns that are not ends."""
    values: Callable[[list[str], bool], RowSource] | None = None
    """Returns the values of some of these columns. With the flag, one text column may be times."""
    own_weight: str | None = None
    """The column of weights by the definition of the format."""
    notes: list[str] = field(default_factory=list)
    """How the file was understood, to be shown once."""
    nodes: int | None = None
    """Number of nodes in the header of the file."""
    first_id: int = 0
    """Id of the first node in the input."""
    is_open: bool = False
    """Whether the format does not define the ids: they may start at 1, or have gaps."""
    stated: tuple[int, int] | None = None
    """Numbers of nodes and edges in comments of the file."""
    files: tuple[FileState, ...] = ()
    """Its files, in the state in which they were opened."""
    digest: str = ""
    """The `digest_of` an array in memory."""
    dates: tuple[str, ...] = ()
    """The columns among `others` with names of times, or with dates."""

    def feed(self, importer: Importer, nodes: int | None) -> None:
        """Gives the edges to an importer; `nodes` is the number of nodes, if known."""
        if self.native is not None:
            self.native(importer)
            return
        for source, target in self.batches(nodes):
            importer.push_edges(source, target)

    @property
    def identity(self) -> str:
        """A text that changes if the edges change: the name and the state of `files`."""
        return " ".join([self.name, *map(str, self.files), *filter(None, [self.digest])])


def digest_of(array: NDArray) -> str:
    """A digest of an array's values, type and shape.

    An interrupted import of the array resumes only with the same array.
    """
    digest = hashlib.blake2b(f"{array.dtype.str} {array.shape}".encode(), digest_size=16)
    digest.update(np.ascontiguousarray(array).data)
    return digest.hexdigest()


def open_edges(
    text: str,
    kind: EdgeFormat = "auto",
    options: TextOptions | None = None,
    shape: EdgeShape | None = None,
    values: Container[str] = (),
    parts: Parts | None = None,
) -> EdgeSource:
    """Opens the edges of a file. `kind` is its format; by default, the suffix gives the format.

    `shape` distinguishes [2, E] and [E, 2] for an array of shape [2, 2]. `values` are columns that
    are not ends of edges. `parts` are the previous files of the edge list: their header holds for
    this file.

    Errors: `NotFoundError` for a missing file; `UnsupportedError` for files of other tools;
    `InvalidError` for a file that can be read in two ways.
    """
    spec = FileSpec.parse(text)
    path = spec.path
    if kind == "auto":
        refuse_foreign(path)
        kind = "parquet" if is_parquet(path) else _FORMATS.get(suffix_of(path), "text")
    if shape is not None and kind not in ("npy", "npz"):
        raise InvalidError(f"--edge-shape: expected an array, found `{path}`")
    if kind in ("text", "mtx", "dimacs"):
        return text_edges(spec, kind, options, values, parts)
    first = int(options.one_based) if options is not None else 0
    if kind == "npy":
        return replace(_npy_edges(spec, shape, first), is_open=True)
    if kind == "npz":
        names = member_names(path)
        if not spec.columns and is_sparse_matrix(names):
            return _sparse(path)
        usual = next(((name,) for name in ("edge_index", "edges") if name in names), ())
        member = open_member(path, spec.columns or usual)
        found = npz_edges(member, shape, first)
        return replace(found, notes=other_members(member), is_open=True)
    return _parquet_edges(spec, first, values, parts or Parts())


def text_edges(
    spec: FileSpec,
    kind: EdgeFormat,
    options: TextOptions | None,
    values: Container[str] = (),
    parts: Parts | None = None,
) -> EdgeSource:
    """Edges of a text that the core reads. Other columns are read in further passes."""
    conventions: dict[str, Convention] = {"mtx": "matrix_market", "dimacs": "dimacs"}
    files = states(spec.path)
    parts = parts or Parts()
    table = parts.text(
        spec.path,
        "edges",
        options or TextOptions(),
        chosen=spec.columns,
        convention=conventions.get(kind),
    )
    try:
        spec, ends, by_name = parts.edges(spec, table, values)
    except InvalidError as error:
        raise _or_triples(error, spec, table) from None
    places = [table.names.index(name) for name in (ends.source, ends.target)]
    layout = {"dialect": table.dialect, "source": places[0], "target": places[1]}
    own = {"matrix_market": "value", "dimacs": "weight"}.get(table.format)

    def native(importer: Importer) -> None:
        try:
            importer.edges_text(spec.path, layout)
        except InvalidError as error:
            raise _or_triples(error, spec, table) from None

    def batches(_: int | None) -> Pairs:
        for rows in table.numbers([ends.source, ends.target], np.dtype(np.int64), "nan"):
            yield rows[:, 0] - table.first_id, rows[:, 1] - table.first_id

    return edges_of_table(
        spec,
        table,
        ends,
        by_name,
        batches,
        native=native,
        own_weight=own if own in ends.others else None,
        nodes=table.nodes,
        first_id=table.first_id,
        is_open=table.format == "delimited",
        stated=table.stated,
        files=files,
    )


def _or_triples(error: InvalidError, spec: FileSpec, table: TextTable) -> InvalidError:
    """The error. If the text has three columns of words, its hint also suggests `--triples`."""
    if not error.hint or spec.columns or not _may_be_triples(table):
        return error
    triples = "; three columns of head, relation and tail: `--triples`"
    return InvalidError(error.message, f"{HINT}say which: ", *error.hint, triples)


def _may_be_triples(table: TextTable) -> bool:
    """Whether a text has three columns of words.

    Cost: reads its first batch.
    """
    if table.width != 3:
        return False
    batch = next(table.texts(table.names), [])
    return bool(batch) and not any(
        pc.any(pc.match_substring_regex(column, r"^[-+.\d]*$")).as_py() for column in batch
    )


def pushed(name: str, pairs: Callable[[], Pairs], first_id: int = 0, **more: Any) -> EdgeSource:
    """Edges from batches of sources and targets, integers of any type, with ids from `first_id`."""
    return EdgeSource(name, from_zero(name, pairs, first_id), first_id=first_id, **more)


def from_zero(name: str, pairs: Callable[[], Pairs], first_id: int = 0) -> Batches:
    """Converts batches with ids from `first_id` to batches with ids from 0.

    Errors: while batches are read, `InvalidError` for an id that is out of range.
    """

    def batches(nodes: int | None) -> Pairs:
        row = 0
        for batch in pairs():
            source, target = (_from_zero(name, ids, first_id, row, nodes) for ids in batch)
            row += len(source)
            yield source, target

    return batches


def _from_zero(
    name: str, ids: NDArray[Any], first_id: int, row: int, nodes: int | None
) -> NDArray[np.int64]:
    """Node ids from 0 for the core; `row` is the row of the first id in its file.

    Errors: `InvalidError` with the row of an id below `first_id`, beyond int64 or beyond `nodes`.
    """
    # The core checks the ids too, but its row numbers count the rows of all edge lists.
    if len(ids) and int(ids.min()) < first_id:
        place = int(np.argmax(ids < first_id))
        why = ": ids start at 1, as `--one-based` says" if first_id else ""
        raise InvalidError(
            f"`{name}`: row {row + place}: node id {ids[place]}, expected {first_id} or more{why}"
        )
    if ids.dtype == np.uint64 and len(ids) and int(ids.max()) >= 2**63:
        place = int(np.argmax(ids >= 2**63))
        raise InvalidError(
            f"`{name}`: row {row + place}: node id {ids[place]}, expected less than 2^63\n"
            "hint: nodes with sparse numbers: write the edges as text or Parquet, and add --ids "
            "dictionary"
        )
    if nodes is not None and len(ids) and int(ids.max()) >= nodes + first_id:
        place = int(np.argmax(ids >= nodes + first_id))
        raise InvalidError(
            f"`{name}`: row {row + place}: node id {ids[place]} is out of range: the graph has "
            f"{nodes} nodes ({first_id} to {nodes - 1 + first_id})"
        )
    numbers = np.ascontiguousarray(ids).astype(np.int64, copy=False)
    return numbers - first_id if first_id else numbers


def from_edge_index(
    name: str, edge_index: NDArray, first_id: int = 0, files: tuple[FileState, ...] = ()
) -> EdgeSource:
    """Edges of an array [2, E] in memory."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InvalidError(f"{name}: expected [2, edges], found {edge_index.shape}")
    if edge_index.dtype.kind not in "iu":
        raise InvalidError(f"{name}: expected integers, found {edge_index.dtype}")

    return pushed(name, lambda: _columns(edge_index), first_id, files=files)


def _columns(edge_index: NDArray) -> Pairs:
    for first in range(0, edge_index.shape[1], _CHUNK):
        part = edge_index[:, first : first + _CHUNK]
        yield part[0], part[1]


def npz_edges(member: NpzMember, shape: EdgeShape | None = None, first_id: int = 0) -> EdgeSource:
    """Edges of an array [2, E] or [E, 2] in a `.npz` file; `shape` if its format defines which."""
    axes = oriented(str(member), member.shape, member.dtype, shape)
    # In Fortran order, the values have the order of the transposed array.
    pairs = (axes == "E,2") != member.fortran
    edges = member.shape[0] * member.shape[1] // 2
    member = member.in_memory_order()

    def columns() -> Pairs:
        # Two readers at once: all sources come before the targets.
        yield from zip(
            member.values(_CHUNK, 0, edges), member.values(_CHUNK, edges, 2 * edges), strict=True
        )

    def rows() -> Pairs:
        for flat in member.values(2 * _CHUNK):
            both = flat.reshape(-1, 2)
            yield both[:, 0], both[:, 1]

    return pushed(member.name, rows if pairs else columns, first_id, files=states(member.archive))


def _npy_edges(spec: FileSpec, shape: EdgeShape | None, first_id: int) -> EdgeSource:
    path = spec.path
    files = states(path)
    array = open_npy(spec, "edge array")
    axes = oriented(f"edge array `{path}`", array.shape, array.dtype, shape)
    as_it_is = array.flags.c_contiguous and array.dtype.isnative and first_id == 0
    as_it_is = as_it_is and array.dtype.itemsize >= 4
    columns = array if axes == "2,E" else array.T
    if array.shape != (2, 2) and as_it_is:
        return EdgeSource(
            str(path),
            lambda _: _columns(columns),
            lambda importer: importer.edges_npy(path),
            first_id=first_id,
            files=files,
        )
    return from_edge_index(str(path), columns, first_id, files)


def _sparse(path: Path) -> EdgeSource:
    files = states(path)
    found = sparse_edges(path)

    def values(names: list[str], _as_times: bool) -> RowSource:
        return RowSource(str(path), found.dtype, found.values, width=1)

    return pushed(
        str(path),
        found.edges,
        others=("data",),
        values=values,
        own_weight="data",
        notes=[f"{path}: SciPy {found.format} matrix of {found.nodes:,} nodes"],
        nodes=found.nodes,
        files=files,
    )


def _parquet_edges(
    spec: FileSpec, first_id: int, values: Container[str], parts: Parts
) -> EdgeSource:
    files = states(spec.path)
    table = ParquetTable(spec.path)
    spec, ends, by_name = parts.edges(spec, table, values)
    for name in (ends.source, ends.target):
        dtype = table.dtype(name)
        if dtype is None or dtype.kind not in "iu" or is_time(table, name):
            found = table.kind(name)
            hint = "\nhint: nodes with names: `--ids dictionary`" if found == "text" else ""
            raise InvalidError(
                f"`{spec.path}`: column `{name}`: expected integers, found {found}{hint}"
            )

    def batches() -> Pairs:
        columns = [ends.source, ends.target]
        for rows in table.numbers(columns, np.dtype(np.int64), "nan"):
            yield rows[:, 0], rows[:, 1]

    pairs = from_zero(str(spec), batches, first_id)
    return edges_of_table(
        spec, table, ends, by_name, pairs, first_id=first_id, is_open=True, files=files
    )


def edges_of_table(
    spec: FileSpec, table: Table, ends: EdgeColumns, note: str, batches: Batches, **more: Any
) -> EdgeSource:
    """Edges of a table, with its other columns. `ends` are its columns of sources and targets.

    Cost: reads the first batch of rows of each other column of a text.
    """

    def values(names: list[str], as_times: bool) -> RowSource:
        if as_times and times_of(table, names[0], in_text=True) is not None:
            rows = time_rows(table, names[0])
            return rows.changed(lambda times, _: times[:, None], width=1)
        return _values(table, ends, names)

    return EdgeSource(
        str(spec),
        batches,
        others=tuple(ends.others),
        values=values,
        notes=[f"{spec.path}: {table.described()}{note}"],
        dates=tuple(
            name
            for name in ends.others
            if (table.is_named and is_time_name(name)) or is_date_column(table, name)
        ),
        **more,
    )


def _values(table: Table, ends: EdgeColumns, names: list[str]) -> RowSource:
    for name in names:
        if table.kind(name).startswith(("list", "large_list", "fixed_size_list")):
            raise InvalidError(
                f"`{table.path}`: column `{name}`: expected numbers, found {table.kind(name)}\n"
                "hint: write each value of the lists as a column of its own"
            )
    dtype = common_type(table, names)
    mirror = table.mirror if isinstance(table, TextTable) else "no"
    # The sign of the reverse entry that a symmetric file leaves out.
    sign = {"no": 0, "same": 1, "negated": -1}[mirror]

    def chunks() -> Iterator[NDArray[Any]]:
        return table.numbers(names, dtype, "nan")

    def mirrored() -> Iterator[NDArray[Any]]:
        ids = table.numbers([ends.source, ends.target], np.dtype(np.int64), "nan")
        for rows, both in zip(chunks(), ids, strict=True):
            twice = 1 + (both[:, 0] != both[:, 1])
            out = np.repeat(rows, twice, axis=0)
            if sign < 0:
                reverse = np.cumsum(twice)[twice == 2] - 1
                out[reverse] = -out[reverse]
            yield out

    more = mirrored if sign else None
    return RowSource(str(table.path), dtype, chunks, width=len(names), mirrored=more)


_OUT_OF_RANGE = " is out of range: the graph has "


def with_range(error: InvalidError, source: EdgeSource, nodes: int | None) -> InvalidError:
    """The error for an id beyond the last node, with a hint that considers all ids of the input.

    Cost: reads the edges once more.
    """
    said = error.message
    if _OUT_OF_RANGE not in said:
        return error
    least, largest = np.iinfo(np.int64).max, -1
    try:
        for ids in itertools.chain.from_iterable(source.batches(None)):
            if len(ids):
                least, largest = min(least, int(ids.min())), max(largest, int(ids.max()))
    except OutercoreError:
        # Another row is not a number, so the ids may be names.
        way = "\nhint: nodes with names: `--ids dictionary`" if source.is_open else ""
        return InvalidError(said + way)
    first = source.first_id
    if source.is_open and first == 0 and least > 0 and largest == nodes:
        hint = "no edge has node 0, so the ids may start at 1: `--one-based`"
    else:
        gaps = "if ids have gaps: `--ids dictionary`; " if source.is_open else ""
        hint = (
            f"the largest id is {largest + first}; {gaps}"
            "there are as many nodes as `--nodes` says, else as the features, labels or other "
            "arrays of nodes have rows: give a row of every node, or raise or leave out `--nodes`"
        )
    return InvalidError(f"{said}\nhint: {hint}")
