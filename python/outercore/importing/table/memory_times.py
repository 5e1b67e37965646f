"""Columns of times that are in memory, as whole numbers on the scale of every import."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.data.time_arrays import is_time_name
from outercore.errors import InvalidError
from outercore.importing.table.microseconds import KIND, in_microseconds
from outercore.importing.table.times import (
    STORED,
    Clock,
    are_whole,
    clock_of_text,
    look_like_dates,
    parsed,
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
    try:
        found = pa.array(values, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError):
        return None
    if not len(found):
        return None
    if (kind := KIND.fullmatch(str(found.type))) is not None:
        if found.null_count:
            row = int(np.flatnonzero(np.asarray(found.is_null()))[0])
            return Times(None, None, f"row {row} has no time")
        numbers = found.cast(pa.int32()) if kind[1] == "date32" else found
        raw = numbers.cast(pa.int64()).to_numpy()
        unit = "ms" if kind[1] == "date64" else kind[2]
        of_type: Clock = "days" if kind[1] != "timestamp" else "zone" if kind[3] else "no zone"
        return Times(in_microseconds(where, raw, unit), STORED[of_type])
    if not in_text or not (pa.types.is_string(found.type) or pa.types.is_large_string(found.type)):
        return None
    texts = found.fill_null("").cast(pa.large_string())
    if not look_like_dates(texts):
        return None
    clock = clock_of_text(texts) or "days"
    try:
        return Times(parsed(where, texts, 0, has_zone=clock == "zone"), STORED[clock])
    except InvalidError as error:
        said = str(error).partition("\n")[0].removeprefix(f"{where}: ")
        return Times(None, None, said.replace("`", "'"))
