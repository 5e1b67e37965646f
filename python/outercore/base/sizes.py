"""Memory sizes as texts: `8GiB`, `512 MB`, `25%`, `auto`."""

from __future__ import annotations

import os
import re
from numbers import Integral

from outercore.errors import InvalidError

_UNITS = {
    "": 1,
    "b": 1,
    "kb": 1000,
    "mb": 1000**2,
    "gb": 1000**3,
    "tb": 1000**4,
    "kib": 1 << 10,
    "mib": 1 << 20,
    "gib": 1 << 30,
    "tib": 1 << 40,
    "k": 1 << 10,
    "m": 1 << 20,
    "g": 1 << 30,
    "t": 1 << 40,
}
_LARGEST = 2**63 - 1
"""Largest number of bytes in the core."""
_SIZE = re.compile(r"^\s*([0-9]+(?:\.[0-9]+)?)\s*([a-zA-Z]*|%)\s*$")


def parse_size(size: str | int, name: str = "memory size") -> int:
    """The size in bytes; `25%` is a share of this machine's memory, `auto` half of the free memory.

    Errors: `InvalidError`, with `name` in its message, for anything but a positive size.

    Example:
        >>> parse_size("2GiB")
        2147483648
        >>> parse_size("1.5kB")
        1500
    """
    if not isinstance(size, str):
        return _bytes(size, name)
    if size.strip().lower() == "auto":
        return _physical_memory("SC_AVPHYS_PAGES") // 2
    match = _SIZE.match(size)
    if match is None or (match[2] != "%" and match[2].lower() not in _UNITS):
        raise InvalidError(
            f"{name}: expected a size such as `8GiB`, `25%` or `auto`, found `{size}`"
        )
    percent = match[2] == "%"
    scale = _physical_memory("SC_PHYS_PAGES") / 100 if percent else _UNITS[match[2].lower()]
    parsed = int(float(match[1]) * scale)
    if parsed <= 0:
        raise InvalidError(f"{name}: expected more than zero bytes, found `{size}`")
    return _countable(parsed, size, name)


def _bytes(size: object, name: str) -> int:
    # NumPy's integers are allowed, too. A float is an error, because it is usually a mistake.
    if not isinstance(size, Integral) or isinstance(size, bool):
        raise InvalidError(
            f"{name}: expected a whole number of bytes, or a size such as `8GiB`, `25%` or "
            f"`auto`, found {size!r}"
        )
    if size <= 0:
        raise InvalidError(f"{name}: expected a positive number of bytes, found {size}")
    return _countable(int(size), size, name)


def _countable(count: int, size: object, name: str) -> int:
    if count > _LARGEST:
        raise InvalidError(f"{name}: expected less than 8,388,608 TiB, found `{size}`")
    return count


def format_size(count: float) -> str:
    """`count` bytes as text, in the largest binary unit for which the number is at least one.

    Example:
        >>> format_size(3 * 1024**2)
        '3.0 MiB'
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def as_option(count: int) -> str:
    """`count` bytes as a value for `--memory`, rounded up.

    `format_size` often rounds down, which gives slightly less than the needed size.

    Example:
        >>> as_option(3 * 1024**2 + 1)
        '4MiB'
    """
    return f"{-(-count // 1024**2)}MiB"


def _physical_memory(pages: str) -> int:
    return os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
