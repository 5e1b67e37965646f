"""Lists of names in messages."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[object], most: int | None = None) -> str:
    """The first `most` names in backticks, separated by commas, and the number of the others.

    Example:
        >>> listed(["x", "y", "z"])
        '`x`, `y`, `z`'
        >>> listed(["x", "y", "z"], most=2)
        '`x`, `y` and 1 more'
    """
    every = [f"`{name}`" for name in names]
    first = every[:most]
    more = f" and {len(every) - len(first)} more" if len(first) < len(every) else ""
    return ", ".join(first) + more
