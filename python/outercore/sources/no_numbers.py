"""Columns that hold no numbers: the first value that is none, and the way to make it one."""

from __future__ import annotations

import re

from outercore.errors import InvalidError
from outercore.sources.table import Table, TextTable

_NAMES = (
    "names become numbers by `codes, names = pandas.factorize(column)`; nodes with names are "
    "for `--ids dictionary`"
)
_WAYS = (
    (r"[+-]?\d{1,3},\d{3}", "a decimal comma, or a comma between thousands: write neither"),
    (r"[+-]?\d*,\d+", "a decimal comma: write a point"),
    (r"[+-]?\d{1,3}([ ,'_\u00a0\u202f]\d{3})+(\.\d*)?", "write no sign between thousands"),
    (r"[+-]?\d{1,3}(\.\d{3})+(,\d*)?", "write no sign between thousands, and a decimal point"),
    (
        r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}.*|\d{1,2}[-/.]\d{1,2}[-/.]\d{2,4}.*",
        "a date: write whole numbers: `pandas.to_datetime(column).astype('int64')`",
    ),
    (r"[$€£¥].*|.*\d\s*[%$€£¥]", "write the number without its unit"),
    (r"(?i)yes|no", "write 1 and 0"),
    (
        r"(?i)[-.?]+|none|nil|missing|unknown|#n/a|#value!|#div/0!",
        "a missing value: leave the field empty, or write `NA`",
    ),
)
"""What a field looks like, and what to do."""
_TYPES = (
    ("decimal", "cast it: `column.cast('float64')`"),
    ("duration", "cast it: `column.cast('int64')`"),
    ("time", "cast it: `column.cast('int64')`, `int32` for time32"),
    ("struct", "write each field as a column: `table.flatten()`"),
    ("null", "the column has no value: leave it out"),
)
"""How Arrow calls a type, and what to do."""


def no_numbers(table: Table, name: str, columns: list[str]) -> InvalidError:
    """What to say of a column without numbers, one of `columns`.

    Cost: reads a text up to the first such field.
    """
    kind = table.kind(name)
    where = ""
    ways = [f"choose columns by `{table.path}:NAME,NAME`"] if len(columns) > 1 else []
    if isinstance(table, TextTable):
        first = table.file.first_text(table.names.index(name))
        if first is None:
            # The core reads `true` as 1, but a column is one or the other.
            ways.insert(0, "true and false beside numbers: write 1 and 0")
        else:
            line, field = first
            where = f"; line {line}: `{field}`"
            ways.insert(0, _way_of(field))
    elif kind == "text":
        ways.insert(0, _NAMES)
    elif kind.startswith(("list", "large_list", "fixed_size_list")):
        ways = [f"name it alone, with its file: `{table.path}:{name}`"]
    else:
        ways = [way for start, way in _TYPES if kind.startswith(start)] + ways
    hint = f"\nhint: {'; '.join(ways)}" if ways else ""
    return InvalidError(
        f"`{table.path}`: column `{name}`: expected numbers, found {kind}{where}{hint}"
    )


def _way_of(field: str) -> str:
    return next((way for form, way in _WAYS if re.fullmatch(form, field)), _NAMES)
