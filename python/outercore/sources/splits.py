"""Splits from files: node ids or one boolean a node, one file each or all in an archive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.sources.npz import member_names, open_member
from outercore.sources.rows import Reading, RowSource, npz_rows, open_rows
from outercore.split_names import normal_split
from outercore.storage import missing_file

_NAMES = {
    "train": ("train", "train_idx", "train_mask", "train_id", "train_ids"),
    "valid": ("valid", "val", "valid_idx", "val_idx", "valid_mask", "val_mask", "valid_id"),
    "test": ("test", "test_idx", "test_mask", "test_id", "test_ids"),
}


def open_split(text: str, reading: Reading | None = None) -> tuple[str, RowSource]:
    """A split given as `NAME=FILE`; `val` and the like are called `valid`."""
    name, equals, file = text.partition("=")
    if not equals or not name:
        raise InvalidError(f"split: expected NAME=FILE, such as `train=train.npy`, found `{text}`")
    return normal_split(name), as_ids(open_rows(file, reading), reading)


def open_splits(path: Path) -> list[tuple[str, RowSource]]:
    """The splits in an archive, by their usual names (`train`, `val_idx`, `test_mask`, ...)."""
    if not path.exists():
        raise missing_file("splits", path)
    found = []
    known = member_names(path)
    for split, names in _NAMES.items():
        member = next((name for name in names if name in known), None)
        if member is not None:
            found.append((split, npz_rows(open_member(path, (member,)))))
    if not found:
        listed = ", ".join(f"`{name}`" for name in known)
        raise InvalidError(
            f"splits `{path}`: expected `train`, `valid` or `test`, found {listed}\n"
            f"hint: name them by `--split train={path}:NAME`"
        )
    return found


def as_ids(source: RowSource, reading: Reading | None = None) -> RowSource:
    """Node ids from 0, as integers: those of a file with ids from 1 are moved."""
    first = int(reading.text.one_based) if reading is not None else 0
    if first and source.dtype.kind in "iu":

        def moved() -> Iterator[NDArray]:
            for chunk in source.chunks():
                yield chunk.astype(np.int64) - first

        return replace(source, dtype=np.dtype(np.int64), chunks=moved, path=None)
    if not np.issubdtype(source.dtype, np.floating):
        return source

    def chunks() -> Iterator[NDArray]:
        for chunk in source.chunks():
            ids = chunk.astype(np.int64)
            wrong = np.flatnonzero(ids != chunk)
            if len(wrong):
                raise InvalidError(
                    f"{source.name}: expected whole numbers, found {chunk[wrong[0]]}"
                )
            yield ids

    return replace(source, dtype=np.dtype(np.int64), chunks=chunks, path=None)
