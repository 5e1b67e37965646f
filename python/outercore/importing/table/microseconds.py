"""Points in time of any unit as microseconds since 1970."""

from __future__ import annotations

import re
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError

KIND = re.compile(r"(timestamp|date32|date64)\[(s|ms|us|ns|day)(?:, tz=(.+))?\]")
"""How Arrow writes the types of dates and times."""
_MICROSECONDS = {
    "s": Fraction(10**6),
    "ms": Fraction(1000),
    "us": Fraction(1),
    "ns": Fraction(1, 1000),
    "day": Fraction(86_400 * 10**6),
}


def in_microseconds(
    where: str, values: NDArray[np.int64], unit: str, first: int = 0
) -> NDArray[np.int64]:
    """Times of a column in microseconds since 1970; `unit` is the one that the file has.

    Errors: `InvalidError` with the row of a time between two microseconds, or beyond int64.
    """
    factor = _MICROSECONDS[unit]
    if factor == 1:
        return values
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
            f"{where}: row {first + row}: time {int(values[row])} "
            f"{unit} is no whole number of microseconds\n"
            "hint: round the column before, or store it as whole numbers of a unit of your own"
        )
    return scaled
