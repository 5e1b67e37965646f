"""Files of questions for link prediction and of candidates for answers. No PyTorch."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError, NotFoundError
from outercore.storage import missing_file

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding

PARTS = ("head", "relation", "tail")
_OPEN = "?"


class Group(NamedTuple):
    """Questions that follow each other in a file and have the same open part."""

    lines: list[int]
    """Of each, from 1."""
    given: dict[str, list[str]]
    """The two known parts, each a list."""


def read_questions(path: Path, most: int) -> Iterator[Group]:
    """The questions of a text of `head`, `relation`, `tail` separated by tabs, one of them `?`.

    In their order, at most so many in a group. A blank line ends nothing and is passed over.

    Errors: `NotFoundError`; `InvalidError` names the line.
    """
    pending: list[list[str]] = []
    lines: list[int] = []
    for number, parts in _rows(path):
        full = len(pending) == most
        if pending and (full or parts.index(_OPEN) != pending[0].index(_OPEN)):
            yield _group(lines, pending)
            pending, lines = [], []
        pending.append(parts)
        lines.append(number)
    if not pending:
        raise InvalidError(f"questions `{path}`: expected at least one, found none")
    yield _group(lines, pending)


def _group(lines: list[int], rows: list[list[str]]) -> Group:
    columns = dict(zip(PARTS, map(list, zip(*rows, strict=True)), strict=True))
    return Group(lines, {name: column for name, column in columns.items() if column[0] != _OPEN})


def check_names(path: Path, group: Group, embedding: Embedding, *, by_id: bool) -> None:
    """Looks for a line that names what the embedding does not have.

    Cost: a look-up in the dictionary for every name, so only worth it once something went wrong.

    Errors: those of `Embedding.entity_ids`, with the line.
    """
    for name, column in group.given.items():
        ids = embedding.relation_ids if name == "relation" else embedding.entity_ids
        for line, one in zip(group.lines, column, strict=True):
            try:
                ids(one, by_id=by_id)
            except (InvalidError, NotFoundError) as error:
                raise type(error)(f"questions `{path}`: line {line}: {error}") from None


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _parts(path, number, line.rstrip("\r\n"))
    except FileNotFoundError:
        raise missing_file("questions", path) from None


def _parts(path: Path, number: int, line: str) -> list[str]:
    parts = [part.strip() for part in line.split("\t")]
    if len(parts) != len(PARTS) or parts.count(_OPEN) != 1:
        raise InvalidError(
            f"questions `{path}`: line {number}: expected head, relation and tail separated by "
            f"tabs, one of them `{_OPEN}`; found `{line}`"
        )
    return parts


def read_candidates(embedding: Embedding, path: Path, *, by_id: bool) -> NDArray[np.int64]:
    """The entities that a file lists: a text of one name (or id) a line, or an `.npy` of ids.

    Errors: `NotFoundError`, `InvalidError` name the file and the line.
    """
    try:
        if path.suffix.lower() == ".npy":
            ids = np.load(path, allow_pickle=False)
            return embedding.entity_ids(ids.reshape(-1).tolist(), by_id=True)
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise missing_file("--candidates: file", path) from None
    except (OSError, ValueError) as error:
        raise InvalidError(f"--candidates: `{path}`: {error}") from None
    found = []
    for number, line in enumerate(lines, start=1):
        if line:
            try:
                found.append(embedding.entity_ids([line], by_id=by_id)[0])
            except (InvalidError, NotFoundError) as error:
                raise type(error)(f"--candidates: `{path}`, line {number}: {error}") from None
    return np.array(found, np.int64)
