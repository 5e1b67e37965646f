"""Finds arrays and columns that are points in time, by the manifest and by their names."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from outercore.data.data_set import DataSet

_LAST_WORDS = frozenset({"ts", "time", "timestamp", "date", "datetime", "year", "unixtime", "when"})
_CALENDAR = frozenset({"day", "month", "week", "quarter", "hour", "weekday"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")


def is_time_name(name: str) -> bool:
    """Whether the name of a column is typical for points in time.

    Example:
        >>> [is_time_name(name) for name in ("ts", "order_date", "createdAt", "Year", "timestamp2")]
        [True, True, True, True, True]
        >>> [is_time_name(name) for name in ("runtime", "user_id", "at", "status")]
        [False, False, False, False]
    """
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    return words[-1] in _LAST_WORDS or (len(words) > 1 and words[-1] == "at")


def is_calendar_name(name: str) -> bool:
    """Whether a name is typical for points in time or parts of the calendar: `day`, `year`."""
    words = [word.lower() for word in _WORD.findall(name)]
    return is_time_name(name) or (bool(words) and words[-1] in _CALENDAR)


def time_arrays(graph: DataSet) -> list[tuple[str, str]]:
    """The node type or edge type, and the name, of each array of times, nodes first.

    These are the arrays that the import read as times, and integers with a name typical for times.

    Example:
        >>> import numpy as np, outercore as oc, pandas as pd
        >>> edges = pd.DataFrame({"source": [0, 1], "target": [1, 0], "time": [7, 9]})
        >>> time_arrays(oc.from_pandas(edges, tmp_path / "messages"))
        [('edge', 'time')]
    """
    arrays = []
    for of in ("nodes", "edges"):
        for key, entry in graph.arrays.items():
            parts = key.split("/", 2)
            if len(parts) < 3 or parts[0] != of or len(entry["shape"]) != 1:
                continue
            if key in graph.schema.times or ("int" in entry["dtype"] and is_time_name(parts[2])):
                arrays.append((parts[1], parts[2]))
    return arrays
