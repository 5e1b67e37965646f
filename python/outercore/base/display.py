"""How results look where somebody prints them: a few lines of text, a table in a notebook."""

from __future__ import annotations

import dataclasses
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from outercore.base.durations import format_duration
from outercore.base.sizes import format_size

Rows = Sequence[tuple[str, str]]
"""Names and values."""
_MOST_ROWS, _MOST_ITEMS = 8, 6
_BYTES = frozenset(
    [
        *("budget", "reserved", "staging", "sampled", "delivered", "slots", "state", "pinned"),
        *("index", "output", "scratch", "window", "working", "least", "least_in_memory", "disk"),
    ]
)
"""Names of sizes that do not end in `bytes` or `memory`."""
_SECONDS = re.compile("seconds$|(?<!per)_s$")
"""Names of times."""
_FIRST = ("budget", "memory", "least", "seconds", "bottleneck", "hit_ratio", "bytes", "passes")
"""What people look for in a plan."""


class Shown(ABC):
    """A result that is shown as a title and some rows, not as all that it holds."""

    @abstractmethod
    def _shown(self) -> tuple[str, Rows]:
        """Title and rows."""

    def __repr__(self) -> str:
        title, rows = self._shown()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        return html_table(*self._shown())


class ShortRepr:
    """A dataclass whose arrays are shown by type and shape."""

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        parts = (f"{field.name}={short(getattr(self, field.name))}" for field in fields)
        return f"{type(self).__name__}({', '.join(parts)})"


class Plan(Shown, dict[str, Any]):
    """A plan: a dictionary, of which the first rows are shown."""

    def _shown(self) -> tuple[str, Rows]:
        names = [name for name in _FIRST if name in self]
        names += [name for name in self if name not in _FIRST]
        rows = [
            (words(name), value_of(name, self[name])) for name in names if self[name] is not None
        ]
        if len(rows) > _MOST_ROWS:
            rows = [*rows[: _MOST_ROWS - 1], ("...", f"{len(rows) - _MOST_ROWS + 1} more")]
        return "Plan", rows


class Forecast(Shown, dict[str, Any]):
    """What epochs will take: a dictionary, shown by seconds, bytes and the bottleneck."""

    def epoch_rows(self) -> list[tuple[str, str]]:
        """What the first and a later epoch take."""
        rows = []
        for key, name in (("first_epoch", "first epoch"), ("later_epochs", "later epochs")):
            if one := self.get(key):
                taken = (
                    f"{format_duration(one['seconds'])}, {format_size(round(one['bytes']))} read"
                )
                rows.append((name, f"{taken}, limited by: {one['bottleneck']}"))
        return rows

    def _shown(self) -> tuple[str, Rows]:
        return f"Forecast, {self.get('batches', 0):,} batches an epoch", self.epoch_rows()


def html_table(title: str, rows: Rows) -> str:
    """A title above a table of names and values, without any style of its own."""
    cells = "".join(
        f"<tr><th style='text-align: left'>{escape(name)}</th>"
        f"<td style='text-align: left'>{escape(value)}</td></tr>"
        for name, value in rows
    )
    return f"<table><caption>{escape(title)}</caption>{cells}</table>"


def short(value: Any) -> str:
    """A value in a few words: arrays by type and shape, longer collections by their size.

    Example:
        >>> import numpy as np
        >>> short(np.zeros((2, 3))), short([1, 2]), short(list(range(100)))
        ('float64 [2, 3]', '[1, 2]', '100 values')
    """
    if _is_array(value):
        return f"{value.dtype} [{', '.join(f'{size:,}' for size in value.shape)}]"
    if isinstance(value, Mapping):
        if any(_is_array(one) for one in value.values()):
            return f"{{{', '.join(f'{name!r}: {short(one)}' for name, one in value.items())}}}"
        return f"{len(value):,} values" if len(value) > 2 else repr(dict(value))
    if isinstance(value, (list, tuple)):
        return repr(value) if len(value) <= 6 else f"{len(value):,} values"
    return repr(value)


def _is_array(value: Any) -> bool:
    """Whether a value is an array of NumPy, which is not imported for commands without arrays."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def words(key: str) -> str:
    """A key as people read it; the key of an array stays as it is, that of an edge type has commas.

    Example:
        >>> words("bytes_per_arc"), words("epoch_seconds"), words("latency_s")
        ('bytes per arc', 'epoch time', 'latency')
        >>> words("nodes/node/my_label")
        'nodes/node/my_label'
        >>> words("my_author__writes__paper")
        'my_author,writes,paper'
    """
    if "/" in key:
        return key
    if "__" in key:
        return key.replace("__", ",")
    name = key.replace("_", " ")
    if _SECONDS.search(key):
        return name.removesuffix(" s") if key.endswith("_s") else f"{name[:-7]}time"
    return name


def value_of(name: str, value: Any) -> str:
    """A value as people read it; what the name says are bytes or seconds has a unit."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, float)) and _SECONDS.search(name):
        return format_duration(value)
    if isinstance(value, int):
        is_size = name in _BYTES or name.endswith(("bytes", "memory"))
        return format_size(value) if is_size else f"{value:,}"
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, (list, tuple)) and len(value) <= _MOST_ITEMS:
        return ", ".join(map(str, value)) or "none"
    return value if isinstance(value, str) else short(value)
