"""Splits from files: node ids or one boolean a node, one file each or all in an archive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError
from outercore.sources.npz import NpzMember, member_names, open_member
from outercore.sources.rows import Reading, RowSource, npz_rows, open_rows
from outercore.sources.table import exactly
from outercore.split_names import normal_split
from outercore.storage import missing_file

_NAMES = {
    "train": ("train", "train_idx", "train_mask", "train_id", "train_ids"),
    "valid": ("valid", "val", "valid_idx", "val_idx", "valid_mask", "val_mask", "valid_id"),
    "test": ("test", "test_idx", "test_mask", "test_id", "test_ids"),
}


@dataclass(frozen=True)
class SplitChoice:
    """What the user gave by `--split`."""

    single: tuple[str, ...] = ()
    """`NAME=FILE`."""
    archive: Path | None = None
    """A `.npz` of all splits."""

    @classmethod
    def parse(cls, texts: list[str]) -> SplitChoice:
        """Sorts out what was given.

        Errors: `InvalidError` for several archives, and for what is neither.
        """
        # A path may have the sign too.
        single = [text for text in texts if "=" in text and not Path(text).exists()]
        others = [text for text in texts if text not in single]
        archives = [text for text in others if text.lower().endswith(".npz")]
        neither = [text for text in others if text not in archives]
        if neither:
            raise InvalidError(
                "--split: expected NAME=FILE, such as `train=train.npy`, or an archive FILE.npz; "
                f"found `{neither[0]}`"
            )
        if len(archives) > 1:
            raise InvalidError(f"--split: expected one of {', '.join(archives)}, found both")
        return cls(tuple(single), Path(archives[0]) if archives else None)


def open_split(text: str, reading: Reading | None = None) -> tuple[str, RowSource]:
    """A split given as `NAME=FILE`; `val` and the like are called `valid`."""
    name, equals, file = text.partition("=")
    if not equals or not name:
        raise InvalidError(
            f"--split: expected NAME=FILE, such as `train=train.npy`, found `{text}`"
        )
    rows = open_rows(file, reading)
    if rows.key is not None and rows.dtype.kind != "b":
        raise InvalidError(
            f"`{file}`: expected one column of node ids, or true and false for the ids in column "
            f"`{rows.key}`\nhint: choose the column of ids: `--split {name}={file}:{rows.key}`"
        )
    return normal_split(name), as_ids(rows, reading)


def open_splits(path: Path, reading: Reading | None = None) -> list[tuple[str, RowSource]]:
    """The splits in an archive, by their usual names (`train`, `val_idx`, `test_mask`, ...)."""
    members = split_members(path)
    return [(split, as_ids(npz_rows(member), reading)) for split, member in members]


def split_members(path: Path) -> list[tuple[str, NpzMember]]:
    """Which array of an archive is which split.

    Errors: `InvalidError` where none is called like a split.
    """
    if not path.exists():
        raise missing_file("archive", path)
    found = []
    known = member_names(path)
    for split, names in _NAMES.items():
        member = next((name for name in names if name in known), None)
        if member is not None:
            found.append((split, open_member(path, (member,))))
    if not found:
        listed = ", ".join(f"`{name}`" for name in known)
        raise InvalidError(
            f"archive `{path}`: expected `train`, `valid` or `test`, found {listed}\n"
            f"hint: name them by `--split train={path}:NAME`"
        )
    return found


def as_ids(source: RowSource, reading: Reading | None = None) -> RowSource:
    """Node ids from 0, as integers: those of a file with ids from 1 are moved."""
    first = int(reading.text.one_based) if reading is not None else 0
    is_float = source.dtype.kind == "f"
    if source.dtype.kind == "b" or not (first or is_float):
        return source

    def chunks() -> Iterator[NDArray]:
        row = 0
        for chunk in source.chunks():
            if is_float and len(wrong := np.flatnonzero(chunk.ravel() != np.trunc(chunk.ravel()))):
                row += int(wrong[0]) // (source.width or 1)
                found = chunk.ravel()[wrong[0]]
                raise InvalidError(
                    f"`{source.name}`: row {row}: expected whole numbers, found {found}"
                )
            ids = exactly(chunk, np.dtype(np.int64), f"`{source.name}`", row)
            if first and len(below := np.flatnonzero(ids.ravel() < first)):
                raise InvalidError(
                    f"`{source.name}`: row {row + int(below[0])}: node id {ids.ravel()[below[0]]}, "
                    "expected 1 or more: ids start at 1, as `--one-based` says"
                )
            row += len(chunk)
            yield ids - first

    return replace(source, dtype=np.dtype(np.int64), chunks=chunks, path=None)
