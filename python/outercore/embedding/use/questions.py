"""Reads files of questions and candidates for link prediction. Does not need PyTorch.

A question is a triple with one open part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outercore.errors import InvalidError, NotFoundError
from outercore.files.atomic import missing_file
from outercore.files.npy import read_npy

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding

COLUMNS = ("head", "relation", "tail")
"""Columns of a line with a question. One of them is open."""
_OPEN = "?"


def read_questions(
    path: Path, embedding: Embedding, most: int, *, by_id: bool
) -> Iterator[dict[str, NDArray[np.int64]]]:
    """Reads questions: lines of `head`, `relation`, `tail` separated by tabs, one of them `?`.

    It yields the ids of the two known columns for groups of at most `most` questions, in the order
    of the file. The questions of a group have the same open column. Blank lines are skipped.

    Errors: `NotFoundError`; `InvalidError` names the line.
    """
    pending: dict[int, list[str]] = {}
    first: list[str] = []
    for number, parts in _rows(path):
        full = len(pending) == most
        if pending and (full or parts.index(_OPEN) != first.index(_OPEN)):
            yield _known(path, embedding, pending, by_id=by_id)
            pending = {}
        first = parts
        pending[number] = parts
    if not pending:
        raise InvalidError(f"questions `{path}`: expected at least one, found none")
    yield _known(path, embedding, pending, by_id=by_id)


def read_candidates(embedding: Embedding, path: Path, *, by_id: bool) -> NDArray[np.int64]:
    """Reads entities from a file: text with one name or id per line, or an `.npy` of ids.

    Errors: `NotFoundError` and `InvalidError` name the file and the line.
    """
    if path.suffix.lower() == ".npy":
        ids = read_npy(path, "--candidates: file")
        first = 0 if by_id else embedding.first_id
        return embedding.entity_ids((ids.reshape(-1) - first).tolist(), by_id=True)
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except FileNotFoundError:
        raise missing_file("--candidates: file", path) from None
    except (OSError, ValueError) as error:
        raise InvalidError(f"--candidates: `{path}`: {error}") from None
    names = {number: line for number, line in enumerate(lines, start=1) if line}
    return _ids(f"--candidates: `{path}`", names, partial(embedding.entity_ids, by_id=by_id))


def _known(
    path: Path, embedding: Embedding, rows: dict[int, list[str]], *, by_id: bool
) -> dict[str, NDArray[np.int64]]:
    """The ids of the known columns of some lines. `rows` maps line numbers to lines."""
    known = {}
    for place, part in enumerate(COLUMNS):
        names = {line: parts[place] for line, parts in rows.items()}
        if _OPEN not in names.values():
            ids = embedding.relation_ids if part == "relation" else embedding.entity_ids
            known[part] = _ids(f"questions `{path}`", names, partial(ids, by_id=by_id))
    return known


def _ids(
    what: str, names: dict[int, str], ids: Callable[[list[str]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """Ids for the names of some lines, by line number. An error has the first wrong line."""
    try:
        return ids(list(names.values()))
    except (InvalidError, NotFoundError):
        for line, name in names.items():
            try:
                ids([name])
            except (InvalidError, NotFoundError) as error:
                raise type(error)(f"{what}: line {line}: ", *error.parts) from None
        raise


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield number, _parts(path, number, line.rstrip("\r\n"))
    except FileNotFoundError:
        raise missing_file("questions", path) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(f"questions `{path}`: {error}") from None


def _parts(path: Path, number: int, line: str) -> list[str]:
    parts = [part.strip() for part in line.split("\t")]
    if len(parts) != len(COLUMNS) or parts.count(_OPEN) != 1:
        raise InvalidError(
            f"questions `{path}`: line {number}: expected head, relation and tail separated by "
            f"tabs, one of them `{_OPEN}`; found `{line}`"
        )
    return parts
