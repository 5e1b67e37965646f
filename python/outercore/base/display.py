"""Displays results: a few lines of text in a terminal, a table in a notebook."""

from __future__ import annotations

import dataclasses
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Container, Mapping, Sequence
from html import escape
from typing import Any

from outercore.base.sizes import format_size

Rows = Sequence[tuple[str, str]]
"""Pairs of a name and a value, as texts."""
_MOST_ITEMS = 6
_BYTES = frozenset(
    [
        *("budget", "reserved", "staging", "sampled", "delivered", "slots", "state", "pinned"),
        *("index", "output", "scratch", "window", "working", "least", "least_in_memory", "disk"),
    ]
)
"""Names of sizes that do not end in `bytes` or `memory`."""
_SECONDS = re.compile("seconds$|(?<!per)_s$")
"""Names of times."""


class Displayed(ABC):
    """A result that is displayed as a title and a few rows."""

    @abstractmethod
    def _display(self) -> tuple[str, Rows]:
        """The title and the rows of the display."""

    def __repr__(self) -> str:
        title, rows = self._display()
        width = max((len(name) for name, _ in rows), default=0)
        return "\n".join([title, *(f"  {name:{width}}  {value}" for name, value in rows)])

    def _repr_html_(self) -> str:
        return html_table(*self._display())


class ShortRepr:
    """Base class of dataclasses whose `repr` shows arrays by type and shape."""

    def __repr__(self) -> str:
        fields = dataclasses.fields(self)  # type: ignore[arg-type]
        parts = (f"{field.name}={short(getattr(self, field.name))}" for field in fields)
        return f"{type(self).__name__}({', '.join(parts)})"


class Forecast(Displayed, dict[str, Any]):
    """A forecast of epochs. It is a dictionary, and displays seconds, bytes and the bottleneck."""

    def epoch_rows(self) -> list[tuple[str, str]]:
        """Rows for the first epoch and for later epochs."""
        rows = []
        for key, name in (("first_epoch", "first epoch"), ("later_epochs", "later epochs")):
            if forecast := self.get(key):
                time, read = format_duration(forecast["seconds"]), round(forecast["bytes"])
                costs = f"{time}, {format_size(read)} read"
                rows.append((name, f"{costs}, limited by: {forecast['bottleneck']}"))
        return rows

    def _display(self) -> tuple[str, Rows]:
        return f"Forecast, {self.get('batches', 0):,} batches an epoch", self.epoch_rows()


def format_duration(seconds: float) -> str:
    """A time with its unit.

    Example:
        >>> format_duration(0.00287), format_duration(75), format_duration(410)
        ('2.87 ms', '75 s', '6.8 min')
        >>> format_duration(0), format_duration(0.9997), format_duration(9000)
        ('0 s', '1 s', '2.5 h')
    """
    if seconds == 0:
        return "0 s"
    if seconds < 0.9995:
        return f"{seconds * 1000:.3g} ms"
    if seconds < 119.5:
        return f"{seconds:.3g} s"
    return f"{seconds / 60:.1f} min" if seconds < 7170 else f"{seconds / 3600:,.1f} h"


def html_table(title: str, rows: Rows) -> str:
    """An HTML table of names and values with a title. The notebook defines its style."""
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
        if any(_is_array(item) for item in value.values()):
            return f"{{{', '.join(f'{name!r}: {short(item)}' for name, item in value.items())}}}"
        return f"{len(value):,} values" if len(value) > 2 else repr(dict(value))
    if isinstance(value, (list, tuple)):
        return repr(value) if len(value) <= 6 else f"{len(value):,} values"
    return repr(value)


def _is_array(value: Any) -> bool:
    """Whether a value is a NumPy array. Does not import NumPy, because the import takes time."""
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def words(key: str) -> str:
    """A key as words for people. Keys of arrays do not change; edge types get commas.

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
    """A value as text. If the name is usual for bytes or seconds, the text has a unit."""
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


def flat(
    values: Mapping[str, Any], prefix: str = "", *, sizes: Container[str] = ()
) -> list[tuple[str, str]]:
    """Converts nested values to pairs of a name and a value, for people.

    Names in `sizes` are sizes in bytes, in addition to the usual names.

    Example:
        >>> flat({"passes": 3, "reads": {"bytes": 2048, "seconds": 0.5}})
        [('passes', '3'), ('reads: bytes', '2.0 KiB'), ('reads: time', '500 ms')]
    """
    rows: list[tuple[str, str]] = []
    for key, value in values.items():
        name = f"{prefix}{words(key)}"
        if isinstance(value, Mapping):
            rows.extend(flat(value, f"{name}: ", sizes=sizes))
        else:
            is_size = key in sizes and type(value) is int
            rows.append((name, format_size(value) if is_size else value_of(key, value)))
    return rows
