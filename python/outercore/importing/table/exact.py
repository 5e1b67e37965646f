"""Converts numbers to another type or unit without a change of their values."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.errors import InvalidError


def exactly(values: NDArray[Any], dtype: np.dtype, where: str, first: int = 0) -> NDArray[Any]:
    """Converts `values` to `dtype`; `first` is the row of the first value, for messages.

    Fractions may be rounded to a narrower float, but not to 0 or infinity.

    Errors: `InvalidError` with the first value that would change.
    """
    if values.dtype == dtype:
        return values
    with np.errstate(over="ignore", invalid="ignore"):
        cast = values.astype(dtype)
        if values.dtype.kind == "f" and dtype.kind == "f":
            changed = np.isfinite(values) & (
                ~np.isfinite(cast) | ((cast == 0) & (values != 0)) | _other_integer(values, cast)
            )
        elif values.dtype.kind == "f":
            changed = ~(values == cast)
        elif dtype.kind == "f":
            changed = ~_same_integer(values, cast)
        else:
            changed = _changed_integer(values, cast)
    if changed.any():
        place = np.argwhere(changed)[0]
        value = values[tuple(place)]
        raise InvalidError(
            f"{where}: row {first + int(place[0])}: {value!s} would change as {dtype}\n"
            "hint: store the values in a type that holds them"
        )
    return cast


def _changed_integer(values: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    if np.can_cast(values.dtype, cast.dtype, "safe"):
        return np.zeros(values.shape, bool)
    # Compare as integers of Python: NumPy would compare int64 and uint64 as floats.
    return np.asarray(cast.astype(object) != values.astype(object), bool)


def _other_integer(values: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Mask of the integers in `values`, such as ids, that have changed in `cast`."""
    whole = (values == np.trunc(values)) & (np.abs(values) < 2.0**53)
    return whole & (cast.astype(np.float64) != values)


def _same_integer(values: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    if values.dtype.kind == "b":
        return np.ones(values.shape, bool)
    finite = np.isfinite(cast)
    limit = np.float64(2.0**63)
    wide = np.abs(np.where(finite, cast, 0).astype(np.float64)) < limit
    back = np.where(wide & finite, cast, 0).astype(np.int64)
    return finite & wide & (back == values.astype(np.int64))


def arrow_array(values: Any) -> pa.Array | None:
    """Values in memory as an Arrow array, with nulls for NaN; `None` if Arrow cannot hold them."""
    try:
        return pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return None


def is_text(kind: pa.DataType) -> bool:
    """Whether Arrow values of this type are texts."""
    return (
        pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind)
    )


_MICROSECONDS = {
    "s": Fraction(10**6),
    "ms": Fraction(1000),
    "us": Fraction(1),
    "ns": Fraction(1, 1000),
    "day": Fraction(86_400 * 10**6),
}


def in_microseconds(where: str, column: pa.Array, first: int = 0) -> NDArray[np.int64]:
    """Arrow's dates or times in microseconds since 1970. The values of nulls are undefined.

    Errors: `InvalidError` with the row of a time between two microseconds, or beyond int64.
    """
    unit = getattr(column.type, "unit", "ms")
    if pa.types.is_date32(column.type):
        unit, column = "day", column.cast(pa.int32())
    values: NDArray[np.int64] = column.cast(pa.int64()).fill_null(0).to_numpy()
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
