"""Names of splits, and their synonyms in other libraries."""

from __future__ import annotations

from collections.abc import Iterable

TRAIN, VALID, TEST = KNOWN = ("train", "valid", "test")
"""The names of the splits that training uses."""

_ALSO = {
    "training": TRAIN,
    "val": VALID,
    "dev": VALID,
    "validation": VALID,
    "validate": VALID,
    "eval": VALID,
    "testing": TEST,
}


def normal_split(name: str) -> str:
    """Outercore's name for a split with a known synonym; other names do not change.

    Example:
        >>> normal_split("val"), normal_split("Validation"), normal_split("holdout")
        ('valid', 'valid', 'holdout')
    """
    lower = name.lower()
    return lower if lower in KNOWN else _ALSO.get(lower, name)


def find_split(name: str, splits: Iterable[str]) -> str | None:
    """The split in `splits` with this name or a synonym of it, or None.

    Example:
        >>> find_split("valid", ["train", "val"]), find_split("val", ["valid", "val"])
        ('val', 'val')
        >>> find_split("test", ["train"])
    """
    names = list(splits)
    if name in names:
        return name
    return next((split for split in names if normal_split(split) == normal_split(name)), None)
