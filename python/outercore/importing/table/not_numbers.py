"""What to say of a column that was expected to hold numbers."""

from __future__ import annotations

import numpy as np

from outercore.base.shell import quoted
from outercore.errors import InvalidError
from outercore.importing.table.table import Table, TextTable


def no_numbers(table: Table, name: str, columns: list[str]) -> InvalidError:
    """What to say of a column without numbers, one of `columns`.

    Cost: reads a text up to the first such field.
    """
    found = table.kind(name)
    way = "cast the column to numbers: `column.cast('float64')`"
    if found.startswith(("list", "large_list", "fixed_size_list")):
        way = f"name it alone, with its file: `{quoted(table.path)}:{name}`"
    elif found == "text":
        way = (
            "write numbers such as `1234.5`, nothing for a missing one, 1 and 0 for true and "
            "false; titles and other texts of nodes are kept by `--text NAME=FILE`; names become "
            "numbers by `codes, names = pandas.factorize(column)`"
        )
        found += _first_text(table, name)
    if len(columns) > 1:
        way += f"; choose columns by `{quoted(table.path)}:NAME,NAME`"
    return InvalidError(
        f"`{table.path}`: column `{name}`: expected numbers, found {found}\nhint: {way}"
    )


def _first_text(table: Table, name: str) -> str:
    """Where a text has the first field that is no number, and what it is."""
    if isinstance(table, TextTable):
        try:
            for _ in table.numbers([name], np.dtype(np.float64), "nan"):
                pass
        except InvalidError as error:
            _, _, why = str(error).partition("\n")[0].partition("`: ")
            return f" ({why})"
    return ""
