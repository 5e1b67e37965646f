"""Candidates: entities among which answers are looked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from outercore.errors import InvalidError, NotFoundError
from outercore.storage import missing_file

if TYPE_CHECKING:
    from outercore.embedding.use.approximate import Index
    from outercore.embedding.use.embedding import Embedding


class Among:
    """Some entities, or all of them."""

    def __init__(
        self, embedding: Embedding, candidates: ArrayLike | None, index: Index | None = None
    ) -> None:
        """`candidates` are ids.

        Errors: `InvalidError` for an id that is none, no candidate, or an index beside them.
        """
        self._others: Tensor | None = None
        if candidates is None:
            return
        if index is not None:
            raise InvalidError(
                "candidates: an index looks among all entities\n"
                "hint: leave out `--approximate`, or the candidates"
            )
        ids = embedding.entity_ids(np.asarray(candidates).reshape(-1).tolist(), by_id=True)
        if not len(ids):
            raise InvalidError("candidates: expected at least one entity, found none")
        self._others = torch.ones(embedding.num_entities, dtype=torch.bool)
        self._others[torch.from_numpy(ids)] = False

    def hide_others(self, scores: Tensor, first: int) -> None:
        """Takes what is no candidate out of this block of scores, [questions, entities]."""
        if self._others is not None:
            scores[:, self._others[first : first + scores.size(1)]] = -torch.inf


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


def without_empty(
    ids: NDArray[np.int64], scores: NDArray[np.float32]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Both without the last columns where no question has an answer."""
    width = int((ids >= 0).any(axis=0).sum())
    return ids[:, :width], scores[:, :width]
