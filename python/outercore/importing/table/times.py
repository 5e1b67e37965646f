"""Reads times as integers. All tables of a data set must use the same scale."""

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
"""Name of the array of times of nodes or edges, if the user has chosen a column for it."""

ZONED, WITHOUT_ZONE, DAYS = "timestamp[us, tz=UTC]", "timestamp[us]", "date[us]"
"""The types of times in the manifest: microseconds since 1970 in UTC, or in an unknown time zone.
Days are stored as the time of their midnight."""
_KIND = re.compile(r"(timestamp|date|date32|date64)\[(?:s|ms|us|ns|day)(?:, tz=(.+))?\]")
"""Arrow's names of the types of dates and times, and the manifest's name `date`."""
_ZONE = re.compile(r"(Z|[+-]\d\d(:?\d\d)?)$")
_DATE = r"^(\d{4}[-/.]\d{1,2}[-/.]\d{1,2}|\d{1,2}[-/.]\d{1,2}[-/.]\d{4})([T ]\d{1,2}:\d\d.*)?$"
"""Texts that look like dates, also in notations that cannot be read."""
_LOOKED_AT = 1000
"""Number of first rows that decide whether a column of text holds dates."""
_LAYOUTS = "`2013-01-31`, `2013-01-31 17:05:00` or `2013-01-31T17:05:00Z`"


def _stored(kind: str) -> str | None:
    """The manifest's type for an Arrow type of times; `None` for other types."""
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
    """Whether a column has a type of times, or all of its first texts look like dates.

    Cost: reads the first batch of rows of a text.
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
        # The import raises the error when it reads the file.
        return False
    return first is not None and look_like_dates(first)


def look_like_dates(texts: pa.Array) -> bool:
    """Whether the first of these texts look like dates in any notation. Ignores empty texts."""
    head = texts.slice(0, _LOOKED_AT)
    given = head.filter(pc.not_equal(head, ""))
    return len(given) > 0 and bool(pc.all(pc.match_substring_regex(given, _DATE)).as_py())


def times_of(table: Table, name: str, *, in_text: bool) -> str | None:
    """The type of the times of a column in the data set; `None` for a column of other values.

    With `in_text`, texts that look like dates are times, too.
    """
    if not (is_time(table, name) or (in_text and is_date_column(table, name))):
        return None
    return type_of_times(table, name)


def has_gaps(table: Table, name: str) -> bool:
    """Whether a column other than `time` has a type of times, and some values are missing."""
    return name != TIME and is_time(table, name) and table.missing(name) > 0


def type_of_times(table: Table, name: str) -> str | None:
    """The manifest's type for the times of a column; `None` for integers of an unknown unit.

    In a column of texts, the first value decides.

    Errors: `InvalidError` for a column without times.
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
    """The manifest's type for times in text, by the first text; `None` if all are empty."""
    given = pc.filter(texts, pc.not_equal(texts, ""))
    if not len(given):
        return None
    text = given[0].as_py()
    if ":" not in text and "T" not in text:
        return DAYS
    return ZONED if _has_zone(text) else WITHOUT_ZONE


def time_values(table: Table, name: str) -> Iterator[NDArray[np.int64]]:
    """The times of a column in batches, [rows]. Dates become microseconds since 1970.

    Integers do not change.

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
    """Times in text as microseconds since 1970; `first` is the row of the first text.

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
    # Some times have a time zone and others do not.
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
    """Converts times from floats to integers; `first` is the row of the first value.

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
    """Whether all floats are integers within int64, and none is missing.

    Cost: reads the rows up to the first other value.
    """
    for values in chunks:
        if not bool(((values == np.trunc(values)) & (np.abs(values) < 2.0**63)).all()):
            return False
    return True


def require_one_scale(arrays: Iterable[tuple[str, str, str | None]]) -> None:
    """Errors: `InvalidError` if only some times have a time zone.

    Also if an array of one type holds times and an array of the same name holds other numbers,
    because samplers compare arrays of the same name.

    `arrays` have a name for messages, their name, and their type if they hold times.
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
    """The times; `None` if they cannot be stored."""
    kind: str | None
    """The manifest's type; `None` for integers of an unknown unit."""
    why: str = ""
    """The reason why they cannot be stored."""


def times_in_memory(where: str, name: str, column: Any, *, in_text: bool) -> Times | None:
    """The times in a column called `name`; `None` for a column of other values.

    Times are: dates and times; floats without fractions, if the name is typical for times; and with
    `in_text`, texts that look like dates.

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
