"""Files of questions for link prediction: one a line, the open part being `?`. No PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from outercore.errors import InvalidError, NotFoundError

PARTS = ("head", "relation", "tail")
_OPEN = "?"


class Group(NamedTuple):
    """Questions that follow each other in a file and have the same open part."""

    first: int
    """The first one's line, from 1."""
    given: dict[str, list[str]]
    """The two known parts, each a list."""


def read_questions(path: Path, most: int) -> Iterator[Group]:
    """The questions of a text of `head`, `relation`, `tail` separated by tabs, in their order.

    At most so many in a group. A blank line ends nothing and is passed over.

    Errors: `NotFoundError`; `InvalidError` names the line.
    """
    pending: list[list[str]] = []
    first, found = 0, False
    for number, parts in _rows(path):
        full = len(pending) == most
        if pending and (full or parts.index(_OPEN) != pending[0].index(_OPEN)):
            yield _group(first, pending)
            pending = []
        if not pending:
            first = number
        pending.append(parts)
        found = True
    if not found:
        raise InvalidError(f"questions `{path}`: expected at least one, found none")
    yield _group(first, pending)


def _group(first: int, rows: list[list[str]]) -> Group:
    columns = dict(zip(PARTS, map(list, zip(*rows, strict=True)), strict=True))
    return Group(first, {name: column for name, column in columns.items() if column[0] != _OPEN})


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _parts(path, number, line.rstrip("\r\n"))
    except FileNotFoundError:
        raise NotFoundError(f"questions `{path}`: no such file") from None


def _parts(path: Path, number: int, line: str) -> list[str]:
    parts = [part.strip() for part in line.split("\t")]
    if len(parts) != len(PARTS) or parts.count(_OPEN) != 1:
        raise InvalidError(
            f"questions `{path}`: line {number}: expected head, relation and tail separated by "
            f"tabs, one of them `{_OPEN}`; found `{line}`"
        )
    return parts
