"""Names of splits: what others call the validation split is understood."""

from __future__ import annotations

from collections.abc import Iterable

TRAIN, VALID, TEST = KNOWN = ("train", "valid", "test")
"""What training looks for."""

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
    """The name that Outercore uses for a split, whatever others call it; other names stay.

    Example:
        >>> normal_split("val"), normal_split("Validation"), normal_split("holdout")
        ('valid', 'valid', 'holdout')
    """
    lower = name.lower()
    return lower if lower in KNOWN else _ALSO.get(lower, name)


def find_split(name: str, splits: Iterable[str]) -> str | None:
    """Which of `splits` is meant by `name`: itself, or one that others call so.

    Example:
        >>> find_split("valid", ["train", "val"]), find_split("val", ["valid", "val"])
        ('val', 'val')
        >>> find_split("test", ["train"])
    """
    there = list(splits)
    if name in there:
        return name
    return next((one for one in there if normal_split(one) == normal_split(name)), None)
