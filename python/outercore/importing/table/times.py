"""Times of several tables, as whole numbers on one scale."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.data.time_arrays import is_time_name
from outercore.errors import InvalidError
from outercore.importing.table.exact import arrow_array, in_microseconds, is_text
from outercore.importing.table.table import Table
from outercore.importing.table.text import TextTable

TIME = "time"
"""The array of times of nodes and edges, where the user says which column has them."""

ZONED, WITHOUT_ZONE, DAYS = "timestamp[us, tz=UTC]", "timestamp[us]", "date[us]"
"""The types of times, as the manifest has them: they count from 1970 in UTC, from 1970 somewhere,
or are days, stored as their midnight."""
_KIND = re.compile(r"(timestamp|date|date32|date64)\[(?:s|ms|us|ns|day)(?:, tz=(.+))?\]")
"""How Arrow writes the types of dates and times; `date` as the manifest does."""
_ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")
_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([T ]\d{1,2}:\d\d.*)?$"
"""What looks like a date in any notation, also one that is not read."""
_LOOKED_AT = 1000
"""Rows of a text that tell whether a column holds dates."""
_LAYOUTS = "`2013-01-31`, `2013-01-31 17:05:00` or `2013-01-31T17:05:00Z`"


def _stored(kind: str) -> str | None:
    """The type in the manifest of values of an Arrow type; `None` for other values than times."""
    found = _KIND.fullmatch(kind)
    if found is None or found[1] != "timestamp":
        return None if found is None else DAYS
    return WITHOUT_ZONE if found[2] is None else ZONED


def is_time(table: Table, name: str) -> bool:
    """Whether a column holds points in time by its type."""
    return _stored(table.kind(name)) is not None


def has_times(table: Table, name: str) -> bool:
    """Whether a column holds points in time: by its type, or as text with a time in each row.

    Cost: reads a text whose first rows look like dates.
    """
    if is_time(table, name):
        return True
    if table.kind(name) != "text" or not is_date_column(table, name):
        return False
    try:
        for _ in time_values(table, name):
            pass
    except InvalidError:
        return False
    return True


def is_date_column(table: Table, name: str) -> bool:
    """Whether a column holds dates or times by its type, or all of its first values look so.

    Cost: of a text the first batch of rows.
    """
    if not isinstance(table, TextTable):
        return is_time(table, name) or (
            table.kind(name) == "text" and _look_like_dates(table, name)
        )
    return _look_like_dates(table, name)


def _look_like_dates(table: Table, name: str) -> bool:
    try:
        first = next((texts for (texts,) in table.texts([name], "")), None)
    except InvalidError:
        # Reading the file gives the error.
        return False
    return first is not None and look_like_dates(first)


def look_like_dates(texts: pa.Array) -> bool:
    """Whether the first of these texts look like dates in any notation, but for empty ones."""
    head = texts.slice(0, _LOOKED_AT)
    given = head.filter(pc.not_equal(head, ""))
    return len(given) > 0 and bool(pc.all(pc.match_substring_regex(given, _DATE)).as_py())


def times_of(table: Table, name: str, *, in_text: bool) -> str | None:
    """The type that the times of a column have in the data set; `None` for a column of others.

    With `in_text` also texts that look like dates are times.
    """
    if not (is_time(table, name) or (in_text and is_date_column(table, name))):
        return None
    return type_of_times(table, name)


def has_gaps(table: Table, name: str) -> bool:
    """Whether a column holds points in time but for some rows, and is not the array `time`."""
    return name != TIME and is_time(table, name) and table.missing(name) > 0


def type_of_times(table: Table, name: str) -> str | None:
    """The type in the manifest of the times of a column; `None` for whole numbers in the owner's
    unit. The first value of a text tells it.

    Errors: `InvalidError` for a column that holds no times.
    """
    if (stored := _stored(table.kind(name))) is not None:
        return stored
    if table.kind(name) != "text":
        dtype = table.dtype(name)
        if dtype is not None and dtype.kind in "iuf":
            return None
        raise InvalidError(
            f"`{table.path}`: column `{name}`: expected times, found {table.kind(name)}\n"
            f"hint: write whole numbers, or dates such as {_LAYOUTS}"
        )
    found = (_type_of_texts(texts) for (texts,) in table.texts([name], ""))
    return next(filter(None, found), DAYS)


def _type_of_texts(texts: pa.Array) -> str | None:
    """The type in the manifest of times in text, by the first one; `None` where all are empty."""
    given = pc.filter(texts, pc.not_equal(texts, ""))
    if not len(given):
        return None
    text = given[0].as_py()
    if ":" not in text and "T" not in text:
        return DAYS
    return ZONED if _has_zone(text) else WITHOUT_ZONE


def time_values(table: Table, name: str) -> Iterator[NDArray[np.int64]]:
    """[rows] the times of a column: whole numbers as they are, all else in microseconds since 1970.

    Errors: `InvalidError` with the row of a missing time, of a fraction, of a text that is not a
    time, and of a time between two microseconds or beyond int64.
    """
    first = 0
    dtype = table.dtype(name)
    if dtype is not None and dtype.kind == "f":
        for rows in table.numbers([name], dtype, "nan"):
            yield whole_times(f"`{table.path}`: column `{name}`", rows[:, 0], first)
            first += len(rows)
        return
    if table.kind(name) != "text":
        for rows in table.numbers([name], np.dtype(np.int64), "nan"):
            yield np.ascontiguousarray(rows[:, 0])
        return
    has_zone = type_of_times(table, name) == ZONED
    for (texts,) in table.texts([name], ""):
        yield parsed(f"`{table.path}`: column `{name}`", texts, first, has_zone=has_zone)
        first += len(texts)


def _has_zone(text: str) -> bool:
    _, _, clock = text.replace("T", " ").partition(" ")
    return _ZONE.search(clock) is not None


def parsed(where: str, texts: pa.Array, first: int, *, has_zone: bool) -> NDArray[np.int64]:
    """Times in text in microseconds since 1970; `first` is the row of the first one.

    Errors: `InvalidError` with the row of a text that is not a time.
    """
    kind = pa.timestamp("us", "UTC" if has_zone else None)
    try:
        return texts.cast(kind).cast(pa.int64()).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        row = next(at for at, text in enumerate(texts) if not _is(text, kind))
    text = texts[row].as_py()
    where = f"{where}: row {first + row}"
    if text == "":
        raise InvalidError(f"{where} has no value, expected a time\nhint: fill it, or leave it out")
    # A time with a zone after times without, or the other way round.
    if _is(texts[row], pa.timestamp("us", None if has_zone else "UTC")):
        has, others = ("no time zone", "one") if has_zone else ("a time zone", "none")
        raise InvalidError(
            f"{where}: time `{text}` has {has}, the rows before have {others}\n"
            "hint: write all times with a time zone, or all without one"
        )
    raise InvalidError(f"{where}: `{text}` is no time\nhint: write {_LAYOUTS}")


def _is(text: pa.Scalar, kind: pa.DataType) -> bool:
    try:
        text.cast(kind)
    except pa.ArrowInvalid:
        return False
    return True


def whole_times(where: str, values: NDArray[Any], first: int = 0) -> NDArray[np.int64]:
    """Times that a file has as floats, as whole numbers.

    Errors: `InvalidError` with the row of a fraction, or of a missing time.
    """
    with np.errstate(invalid="ignore"):
        whole = values.astype(np.int64)
    wrong = (values != whole) | ~(np.abs(values) < 2.0**63)
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        found = "is missing" if np.isnan(values[row]) else f"is {values[row]}"
        raise InvalidError(
            f"{where} holds fractions or missing values, expected whole numbers: row {first + row} "
            f"{found}"
        )
    return whole


def are_whole(chunks: Iterable[NDArray[Any]]) -> bool:
    """Whether all floats are whole numbers of int64, and none is missing.

    Cost: reads the rows up to the first that is not.
    """
    for values in chunks:
        if not bool(((values == np.trunc(values)) & (np.abs(values) < 2.0**63)).all()):
            return False
    return True


def require_one_scale(arrays: Iterable[tuple[str, str, str | None]]) -> None:
    """Errors: `InvalidError` where some times have a zone and others have none, and where arrays of
    one name hold times here and numbers there: samplers compare arrays of one name.

    `arrays` are what messages call them, their names, and the types of those that are times.
    """
    zones: dict[str, str] = {}
    kinds: dict[str, tuple[bool, str]] = {}
    for where, name, times in arrays:
        if times is not None:
            zones.setdefault(times, where)
        is_other, before = kinds.setdefault(name, (times is not None, where))
        if is_other != (times is not None):
            dates, numbers = (where, before) if times is not None else (before, where)
            raise InvalidError(
                f"{dates} holds times in microseconds since 1970, {numbers} of the same name holds "
                "other numbers\nhint: store both as dates, or both as whole numbers; or call one "
                "otherwise"
            )
    if ZONED in zones and WITHOUT_ZONE in zones:
        raise InvalidError(
            f"{zones[ZONED]} has times with a time zone, {zones[WITHOUT_ZONE]} "
            "without one\nhint: store all times with a time zone, or all without one"
        )


class Times(NamedTuple):
    """A column of times."""

    values: NDArray[np.int64] | None
    """`None` where they cannot be stored."""
    kind: str | None
    """Their type, as the manifest has it; `None` for whole numbers in a unit of the owner's."""
    why: str = ""
    """Why they cannot be stored."""


def times_in_memory(where: str, name: str, column: Any, *, in_text: bool) -> Times | None:
    """The times in a column called `name`; `None` for a column of anything else.

    These are dates and times; floats that are whole numbers, where the name says that they are
    times; and with `in_text` texts that look like dates.

    Errors: as `in_microseconds`.
    """
    values = column if isinstance(column, np.ndarray) else np.asarray(column)
    if values.ndim != 1:
        return None
    if values.dtype.kind == "f":
        is_whole = len(values) > 0 and is_time_name(name) and are_whole([values])
        return Times(values.astype(np.int64), None) if is_whole else None
    if values.dtype.kind not in "MO":
        return None
    found = arrow_array(values)
    if found is None or not len(found):
        return None
    if (stored := _stored(str(found.type))) is not None:
        if found.null_count:
            row = int(np.flatnonzero(np.asarray(found.is_null()))[0])
            return Times(None, None, f"row {row} has no time")
        return Times(in_microseconds(where, found), stored)
    if not in_text or not is_text(found.type):
        return None
    texts = found.fill_null("").cast(pa.large_string())
    if not look_like_dates(texts):
        return None
    stored = _type_of_texts(texts) or DAYS
    try:
        return Times(parsed(where, texts, 0, has_zone=stored == ZONED), stored)
    except InvalidError as error:
        said = str(error).partition("\n")[0].removeprefix(f"{where}: ")
        return Times(None, None, said.replace("`", "'"))
