"""What `outercore embedding` finds, on the terminal, as JSON, or in a file."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from outercore.cli import console
from outercore.outputs import TableWriter, table_file

if TYPE_CHECKING:
    from outercore.embedding.use.embedding import Embedding
    from outercore.embedding.use.neighbours import Nearest
    from outercore.embedding.use.predict import Predictions

_PARTS = ("head", "relation", "tail")
_NAME = pa.large_string()


class Answers:
    """Where answers go as they come; a context manager.

    With `path` to a file, else to the terminal: as tables, or at the end as JSON.
    """

    def __init__(
        self,
        embedding: Embedding,
        path: Path | None,
        *,
        ids: bool = False,
        json: bool = False,
    ) -> None:
        self._embedding = embedding
        self._path, self._ids = path, ids
        self._json = json
        self._found: list[dict[str, Any]] = []
        self._stack = ExitStack()
        self._file: TableWriter | None = None
        self.rows = 0

    def __enter__(self) -> Answers:
        self._stack.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.__exit__(kind, error, traceback)
        if kind is None and self._json and self._path is None:
            console.json_data(self._found)

    def add_neighbours(self, of: Sequence[int], found: Nearest) -> None:
        """Neighbours of the entities `of`: a row for each, to the file."""
        rows, ranks = np.nonzero(found.ids >= 0)
        ids = found.ids[rows, ranks]
        self._append(
            {
                "entity": self._names("entity", np.asarray(of)[rows]),
                "rank": (ranks + 1, pa.int32()),
                "neighbour": self._names("entity", ids),
                "score": (found.scores[rows, ranks], pa.float32()),
                **self._seen("entity", ids),
            }
        )

    def add_predictions(self, found: Predictions) -> None:
        """Completed triples, a row for each answer."""
        rows, ranks = np.nonzero(found.ids >= 0)
        triples = found.questions[rows]
        triples[:, _PARTS.index(found.part)] = found.ids[rows, ranks]
        if self._path is None:
            self._show_predictions(found, rows, ranks, triples)
            return
        columns = {
            name: self._names("relation" if name == "relation" else "entity", triples[:, place])
            for place, name in enumerate(_PARTS)
        }
        asked = np.full(len(triples), found.part)
        self._append(
            {
                **columns,
                "asked": (asked, _NAME),
                "rank": (ranks + 1, pa.int32()),
                "score": (found.scores[rows, ranks], pa.float32()),
                **self._seen(found.part, found.ids[rows, ranks]),
            }
        )

    def _seen(self, part: str, ids: NDArray[np.int64]) -> dict[str, tuple[Any, pa.DataType]]:
        """The column that marks answers which training has not seen."""
        return {"seen": (seen_of(self._embedding, part, ids), pa.bool_())}

    def _show_predictions(
        self,
        found: Predictions,
        rows: NDArray[np.int64],
        ranks: NDArray[np.int64],
        triples: NDArray[np.int64],
    ) -> None:
        place = _PARTS.index(found.part)
        kinds = ["relation" if name == "relation" else "entity" for name in _PARTS]
        for question, parts in enumerate(found.questions):
            here = rows == question
            asked = [
                "?" if spot == place else self._names(kinds[spot], parts[spot : spot + 1])[0][0]
                for spot in range(3)
            ]
            names = ["" if name is None else str(name) for name in asked]
            ids = triples[here, place]
            answers = [str(name) for name in self._names(kinds[place], ids)[0]]
            scores = found.scores[question, ranks[here]].tolist()
            seen = seen_of(self._embedding, found.part, ids)
            if self._json:
                self._found.append(
                    {
                        **dict(zip(_PARTS, names, strict=True)),
                        "answers": _described(ids, answers, scores, seen),
                    }
                )
            else:
                console.table("  ".join(names), _lines(answers, scores, seen))

    def _names(self, kind: str, ids: NDArray[np.int64]) -> tuple[Any, pa.DataType]:
        if (ids < 0).any():
            # Asked without a relation.
            kind_of = pa.int64() if self._ids or not self._embedding.named else _NAME
            return [None] * len(ids), kind_of
        if self._ids or not self._embedding.named:
            return ids, pa.int64()
        names = (
            self._embedding.entity_names(ids)
            if kind == "entity"
            else self._embedding.relation_names(ids)
        )
        return names, _NAME

    def _append(self, columns: dict[str, tuple[Any, pa.DataType]]) -> None:
        assert self._path is not None
        if self._file is None:
            kinds = {name: kind for name, (_, kind) in columns.items()}
            self._file = self._stack.enter_context(table_file(self._path, kinds))
        self._file.append({name: values for name, (values, _) in columns.items()})
        self.rows = self._file.rows


def show_nearest(
    embedding: Embedding,
    of: NDArray[np.int64],
    found: Nearest,
    *,
    ids: bool,
    json: bool,
) -> None:
    """Neighbours on the terminal."""

    def named(numbers: NDArray[np.int64]) -> list[str]:
        return numbers.astype(str).tolist() if ids else embedding.entity_names(numbers)

    shown = []
    for entity, near, scores in zip(of, found.ids, found.scores, strict=True):
        real = near[near >= 0]
        name, names = named(np.array([entity]))[0], named(real)
        values = scores[: len(real)].tolist()
        seen = seen_of(embedding, "entity", real)
        if json:
            answers = _described(real, names, values, seen)
            shown.append(
                {"entity": name, "id": int(entity), "metric": found.metric, "neighbours": answers}
            )
        else:
            console.table(f"{name} ({found.metric})", _lines(names, values, seen))
    if json:
        console.json_data(shown)


def seen_of(embedding: Embedding, part: str, ids: NDArray[np.int64]) -> list[bool | None]:
    """Which answers training has seen; `None` where nobody can tell, and for relations."""
    seen = None if part == "relation" else embedding.seen
    return [None] * len(ids) if seen is None else seen[ids].tolist()


def _described(
    ids: NDArray[np.int64], names: list[str], scores: list[float], seen: list[bool | None]
) -> list[dict[str, Any]]:
    rows = zip(ids.tolist(), names, scores, seen, strict=True)
    return [
        {"id": number, "name": name, "score": score, "seen": known}
        for number, name, score, known in rows
    ]


def _lines(names: list[str], scores: list[float], seen: list[bool | None]) -> list[tuple[str, str]]:
    return [
        (name, f"{score:.4f}" + ("  (never seen in training)" if known is False else ""))
        for name, score, known in zip(names, scores, seen, strict=True)
    ]
