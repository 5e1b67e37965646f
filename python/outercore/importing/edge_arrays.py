"""Weights, times and features of edges: columns of the edge lists, or separate files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.listing import listed
from outercore.base.options import Option
from outercore.base.shell import quoted
from outercore.errors import InvalidError, NotFoundError
from outercore.files.file_spec import FileSpec
from outercore.files.input_file import is_there
from outercore.importing.edges import EdgeSource
from outercore.importing.table.columns import IDS, SOURCES, TARGETS, alphanumeric, plain
from outercore.importing.table.exact import exactly
from outercore.importing.table.rows import (
    NodeArray,
    Reading,
    RowSource,
    is_array,
    open_node_table,
    open_rows,
)
from outercore.importing.table.table import Table
from outercore.importing.table.times import require_one_scale, whole_times

WEIGHT, TIME, FEATURES = "weight", "time", "attr"
"""Names of edge arrays that options make; a batch calls them `edge_weight` and so on."""

_EDGE_IDS = frozenset({"edge", "edgeid", "eid"})
"""Names of columns of edge ids, in addition to `IDS`."""


@dataclass(frozen=True)
class EdgeChoice:
    """The user's choice of columns and files for edge arrays, as text."""

    weight: Annotated[
        str | None,
        Option(
            "Take the edge weights from this column of the edges, or from a file with one row per "
            "edge."
        ),
    ] = None
    time: Annotated[
        str | None,
        Option(
            "Take the times of edges from this column of the edges, or from a file. A time is a "
            "whole number, or a date such as `2013-01-31T17:05:00Z`.",
            name="edge_time",
        ),
    ] = None
    features: Annotated[
        str | None,
        Option(
            "Take the features of edges from these columns, separated by commas, or from a file. "
            "`!COLUMN,COLUMN` takes all other columns.",
            name="edge_features",
        ),
    ] = None

    @property
    def names(self) -> set[str]:
        """All names in the choice that may be columns. Such columns are not ends of edges."""
        return {name for one in vars(self).values() if one for name in (one, *one.split(","))}


def edge_arrays(
    sources: list[EdgeSource], choice: EdgeChoice, reading: Reading
) -> tuple[list[NodeArray], list[str]]:
    """The edge arrays of an import, and notes about imported and ignored columns.

    A file whose format has weights (Matrix Market, DIMACS, SciPy) gives the array `weight` unless
    `choice` names another one.

    Errors: `NotFoundError` for a column that an edge list does not have.
    """
    arrays, notes = [], []
    taken: set[str] = set()
    own = {source.own_weight for source in sources}
    for name, text in ((WEIGHT, choice.weight), (TIME, choice.time), (FEATURES, choice.features)):
        if text is None and name == WEIGHT and len(own) == 1 and (only := own.pop()) is not None:
            text = only
            notes.append(f"edge weights: column `{text}`")
        if text is None:
            continue
        columns = text.split(",")
        if name == FEATURES and text.startswith("!") and not is_there(Path(text)):
            columns = _all_but(sources, columns, taken)
        if all(set(columns) <= set(source.others) for source in sources):
            taken.update(columns)
            rows = _columns(sources, columns, name, reading)
        else:
            rows = _file(sources, text, name, reading)
            notes += [f"{note}; row i is edge i" for note in rows.notes]
        arrays.append(NodeArray("edge", name, rows))
    ignored = [name for source in sources for name in source.others if name not in taken]
    if ignored:
        notes.append(
            f"ignored columns of edges: {listed(dict.fromkeys(ignored))} (take them by --weight, "
            "--edge-time or --edge-features)"
        )
    dates = [name for source in sources for name in source.dates if name in ignored]
    if dates and choice.time is None:
        ways = ", ".join(f"`--edge-time {quoted(name)}`" for name in dict.fromkeys(dates))
        notes.append(f"times of edges that are not taken, so samples see the future: {ways}")
    return arrays, notes


def _all_but(sources: list[EdgeSource], names: list[str], taken: set[str]) -> list[str]:
    """The columns of the edge lists, except `names` (of `!COLUMN,COLUMN`) and `taken`.

    Errors: `NotFoundError` for a name that no edge list has; `InvalidError` if no column is left.
    """
    left_out = [name.removeprefix("!") for name in names]
    known = dict.fromkeys(other for source in sources for other in source.others)
    columns_there = listed(known) or "no column beside the ends"
    if missing := [name for name in left_out if name not in known]:
        raise NotFoundError(
            f"--edge-features: {', '.join(f'`{one}`' for one in missing)} is no column of the "
            f"edges; they have {columns_there}"
        )
    columns = [name for name in known if name not in left_out and name not in taken]
    if not columns:
        raise InvalidError(f"--edge-features: no column is left; the edges have {columns_there}")
    return columns


def _columns(
    sources: list[EdgeSource], columns: list[str], name: str, reading: Reading
) -> RowSource:
    as_times = name == TIME and len(columns) == 1
    values = [source.values(columns, as_times) for source in sources if source.values is not None]
    require_one_scale(
        (f"`{source.name}`: column `{columns[0]}`", name, one.times)
        for source, one in zip(sources, values, strict=True)
    )
    dtype = values[0].dtype
    if any(one.dtype != dtype for one in values):
        dtype = np.result_type(*(one.dtype for one in values))
    if name == TIME and dtype.kind not in "iuf":
        raise _no_times(f"--edge-time: column `{columns[0]}`", dtype, reading)
    if name != FEATURES and len(columns) > 1:
        raise InvalidError(f"edge array `{name}`: expected one column, found {len(columns)}")
    width = len(columns) if name == FEATURES else None

    named = f"edge columns {listed(columns)}"

    def chunks(*, is_mirrored: bool) -> Iterator[NDArray[Any]]:
        for source, one in zip(sources, values, strict=True):
            first = 0
            stored = one.mirrored if is_mirrored and one.mirrored is not None else one.chunks
            for chunk in stored():
                part = exactly(chunk, dtype, f"`{source.name}`: {named}", first)
                if dtype.kind == "f" and not reading.keeps_gaps and name != TIME:
                    # An entry of a symmetric file stands for two edges.
                    row = None if source.own_weight is not None else first
                    part = _without_gaps(part, reading.fill, source.name, columns, row)
                first += len(part)
                yield np.ascontiguousarray(part[:, 0]) if width is None else part

    rows = RowSource(
        named,
        dtype,
        partial(chunks, is_mirrored=False),
        width=width,
        times=values[0].times,
        mirrored=partial(chunks, is_mirrored=True),
    )
    if name != TIME:
        return rows
    return _whole_times(rows, f"--edge-time: column `{columns[0]}`", reading)


def _whole_times(rows: RowSource, where: str, reading: Reading) -> RowSource:
    """Times as integers; floats are converted.

    Errors: while the rows are read, `InvalidError` for fractions and missing times.
    """
    if rows.dtype.kind in "iu":
        return rows

    def whole(chunk: NDArray[Any], first: int) -> NDArray[Any]:
        try:
            return whole_times(where, chunk.reshape(len(chunk)), first)
        except InvalidError as error:
            raise InvalidError(*error.parts, _hint_on_fill(reading)) from None

    return rows.changed(whole, dtype=np.dtype(np.int64), width=None)


def _without_gaps(
    values: NDArray[Any], fill: float | None, source: str, columns: list[str], first: int | None
) -> NDArray[Any]:
    """`values` with `fill` instead of NaN.

    `first` is the file's row number of the first value, if known; `source` and `columns` are for
    messages.

    Errors: `InvalidError` with the row of a missing value if `fill` is `None`.
    """
    gaps = np.isnan(values)
    if not gaps.any():
        return values
    if fill is None:
        row, place = np.argwhere(gaps)[0]
        where = "" if first is None else f"row {first + int(row)}: "
        raise InvalidError(
            f"`{source}`: {where}column `{columns[place]}` has no value\n"
            "hint: `--fill VALUE` fills missing values, `--fill nan` keeps them"
        )
    return np.where(gaps, np.array(fill, values.dtype), values)


def _file(sources: list[EdgeSource], text: str, name: str, reading: Reading) -> RowSource:
    option = {WEIGHT: "--weight", TIME: "--edge-time", FEATURES: "--edge-features"}[name]
    try:
        spec = FileSpec.parse(text, may_leave_out=True)
    except NotFoundError:
        columns = text.split(",")
        having = [source for source in sources if set(columns) <= set(source.others)]
        if having:
            lacking = next(source for source in sources if source not in having)
            raise NotFoundError(
                f"{option}: `{lacking.name}` has no column `{text}`, as `{having[0].name}` has\n"
                "hint: every edge list needs the column; or give a file with a row for each edge"
            ) from None
        known = dict.fromkeys(other for source in sources for other in source.others)
        columns_there = listed(known) or "no column beside the ends"
        raise NotFoundError(
            f"{option}: `{text}` is neither a column of the edges nor a file; the edges have "
            f"{columns_there}"
        ) from None
    if name == TIME:
        reading = replace(reading, takes_times=True, fill=None)
    source = edge_rows(option, spec, reading)
    if name == TIME and source.dtype.kind not in "iuf":
        raise _no_times(f"{option}: `{text}`", source.dtype, reading)
    if name != FEATURES and (source.width or 1) > 1:
        raise InvalidError(f"{option}: `{text}` holds {source.width} columns, expected one")
    return _whole_times(source, f"{option}: `{text}`", reading) if name == TIME else source


def edge_rows(option: str, spec: FileSpec, reading: Reading) -> RowSource:
    """The rows of a file that has a row for each edge, in the order of the edges.

    Errors: as `open_rows`; `InvalidError` for a table with columns of ids.
    """
    if not is_array(spec):
        _refuse_ids(option, spec, open_node_table(spec, reading))
    return open_rows(spec, replace(reading, rows_of="edges"))


def _refuse_ids(option: str, spec: FileSpec, table: Table) -> None:
    """Errors: `InvalidError` for a table with ids of nodes or edges.

    Its rows may be in any order. Ids of nodes cannot give the order if two edges have equal ends.
    """
    others = [column for column in table.names if column not in spec.columns]
    ids = [column for column in others if table.is_named and _is_id(column)]
    if not ids:
        return
    way = "leave the ids out"
    if len(ids) > 1:
        way = f"import `{spec.path}` itself as the edge list, or leave the ids out"
    raise InvalidError(
        f"{option}: `{spec.path}`: row i is taken for edge i, and the file has ids in "
        f"{listed(ids)}\nhint: {way}, with a row for each edge in the order of the edge list"
    )


def _is_id(column: str) -> bool:
    return alphanumeric(column) in IDS | _EDGE_IDS or plain(column) in SOURCES | TARGETS


def _no_times(where: str, dtype: np.dtype, reading: Reading) -> InvalidError:
    return InvalidError(f"{where} holds {dtype}, expected whole numbers{_hint_on_fill(reading)}")


def _hint_on_fill(reading: Reading) -> str:
    if reading.fill is None and not reading.keeps_gaps:
        return ""
    return "\nhint: write a time in each row; `--fill` does not apply to times"
