"""Keys of nodes as texts: `1`, `1.0` and `"1"` are one key."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.importing.table.table import Table, TextTable

_WHOLE = r"^([+-]?[0-9]+)\.0*$"
_MOST = 2.0**53
"""Floats hold all whole numbers below this."""


def key_texts(table: Table, columns: list[str], empty: str | None = None) -> Iterator[list[Any]]:
    """Batches of columns of keys as Arrow's large strings; `empty` stands for nulls.

    A column with gaps comes from pandas as floats, so `1.0` is the key `1`.

    Errors: as `Table.texts`; `InvalidError` for a fraction in a column of floats.
    """
    floats = [name for name in columns if _is_float(table, name)]
    if not floats:
        yield from table.texts(columns, empty)
        return
    streams = [
        _whole_texts(table, name, empty)
        if name in floats
        else (texts for (texts,) in table.texts([name], empty))
        for name in columns
    ]
    for parts in zip(*streams, strict=True):
        yield list(parts)


def padded_in(table: Table, name: str | None) -> int:
    """The whole numbers with zeros in front in a column of texts, such as `007`.

    Cost: reads the column, unless a text was read for its rows.
    """
    if isinstance(table, TextTable):
        return 0 if name is None else table.padded(name)
    if name is None or table.kind(name) != "text":
        return 0
    return sum(
        int(pc.sum(pc.match_substring_regex(texts, "^0[0-9]+$")).as_py() or 0)
        for (texts,) in table.texts([name], "")
    )


def _is_float(table: Table, name: str) -> bool:
    dtype = table.dtype(name)
    return dtype is not None and dtype.kind == "f"


def _whole_texts(table: Table, name: str, empty: str | None) -> Iterator[Any]:
    if isinstance(table, TextTable):
        for (texts,) in table.texts([name], empty):
            yield pc.replace_substring_regex(texts, _WHOLE, r"\1")
        return
    first = 0
    for rows in table.numbers([name], np.dtype(np.float64), "nan"):
        yield _decimals(rows[:, 0], empty, partial(_where, table, name, first))
        first += len(rows)


def _where(table: Table, name: str, first: int, row: int) -> str:
    return f"`{table.path}`: column `{name}`: row {first + row}"


def _decimals(values: NDArray[np.float64], empty: str | None, where: Any) -> Any:
    """Whole numbers as decimals, NaN as `empty`."""
    missing = np.isnan(values)
    if missing.any() and empty is None:
        raise InvalidError(f"{where(int(np.argmax(missing)))} is empty, expected a name")
    wrong = ~missing & ((values != np.trunc(values)) | (np.abs(values) >= _MOST))
    if wrong.any():
        place = int(np.argmax(wrong))
        raise InvalidError(
            f"{where(place)}: {values[place]!s} is no key, expected whole numbers or texts\n"
            "hint: store the keys as integers or as texts"
        )
    numbers = pa.array(np.where(missing, 0, values).astype(np.int64))
    texts = numbers.cast(pa.large_string())
    return pc.if_else(pa.array(missing), pa.scalar(empty, pa.large_string()), texts)
