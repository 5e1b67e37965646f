"""Names as messages list them."""

from __future__ import annotations

from collections.abc import Iterable


def listed(names: Iterable[object], most: int | None = None) -> str:
    """Names in backticks, with commas between them; of more than `most` the first, and how many.

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
