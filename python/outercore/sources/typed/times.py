"""Times of several tables, as whole numbers on one scale."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.sources.table import Table

_KIND = re.compile(r"(timestamp|date32|date64)\[(s|ms|us|ns|day)(?:, tz=(.+))?\]")
_MICROSECONDS = {
    "s": Fraction(10**6),
    "ms": Fraction(1000),
    "us": Fraction(1),
    "ns": Fraction(1, 1000),
    "day": Fraction(86_400 * 10**6),
}


def is_time(table: Table, name: str) -> bool:
    """Whether a column holds points in time."""
    return _KIND.fullmatch(table.kind(name)) is not None


def in_microseconds(
    table: Table, name: str, values: NDArray[np.int64], first: int
) -> NDArray[np.int64]:
    """Times of a column in microseconds since 1970, whatever unit the file has.

    Errors: `InvalidError` with the row of a time between two microseconds, or beyond int64.
    """
    found = _KIND.fullmatch(table.kind(name))
    assert found is not None
    factor = _MICROSECONDS[found[2]]
    if factor < 1:
        wrong = values % factor.denominator != 0
        scaled = values // factor.denominator
    else:
        limit = np.iinfo(np.int64).max // factor.numerator
        wrong = np.abs(values) > limit
        scaled = np.where(wrong, 0, values) * factor.numerator
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise InvalidError(
            f"`{table.path}`: column `{name}`: row {first + row}: time {int(values[row])} "
            f"{found[2]} is no whole number of microseconds\n"
            "hint: round the column before, or store it as whole numbers of a unit of your own"
        )
    return scaled


def require_one_clock(columns: Iterable[tuple[Table, str]]) -> None:
    """Errors: `InvalidError` where some times have a time zone and others have none.

    Times with a zone count from 1970 in UTC; without one nobody knows.
    """
    seen: dict[bool, str] = {}
    for table, name in columns:
        found = _KIND.fullmatch(table.kind(name))
        if found is None or found[1] != "timestamp":
            continue
        seen.setdefault(found[3] is not None, f"`{table.path}`: column `{name}`")
    if len(seen) == 2:
        raise InvalidError(
            f"{seen[True]} has a time zone, {seen[False]} has none\n"
            "hint: store all times with a time zone, or all without one"
        )
