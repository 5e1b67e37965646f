"""Numbers in another type, without a change."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError


def exactly(values: NDArray[Any], dtype: np.dtype, where: str, first: int = 0) -> NDArray[Any]:
    """`values` as `dtype`.

    Errors: `InvalidError` with the first value that would change; rounding of fractions to a
    narrower float is no change, a number that becomes 0 or infinite is.
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
    # As Python's integers: NumPy would compare int64 and uint64 as floats.
    return np.asarray(cast.astype(object) != values.astype(object), bool)


def _other_integer(values: NDArray[Any], cast: NDArray[Any]) -> NDArray[np.bool_]:
    """Whole numbers, such as ids, that became other ones."""
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
