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
from outercore.data.outputs import TableWriter, table_file

if TYPE_CHECKING:
    from outercore.embedding import Embedding
    from outercore.embedding.use.neighbours import Nearest
    from outercore.embedding.use.predict import Predictions

_PARTS = ("head", "relation", "tail")
_NAME = pa.large_string()


class Answers:
    """Where answers go as they come; a context manager.

    With `path` to a file, else to the terminal at the end: the same rows as a table or as JSON.
    """

    def __init__(self, embedding: Embedding, path: Path | None, *, ids: bool, json: bool) -> None:
        self._embedding = embedding
        self._path, self._ids = path, ids
        self._json = json
        self._found: list[dict[str, Any]] = []
        self._cells: console.Cells = {}
        self._stack = ExitStack()
        self._file: TableWriter | None = None

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
        if kind is not None:
            return
        if self._path is not None:
            written(0 if self._file is None else self._file.rows, self._path, json=self._json)
        elif self._json:
            console.json_data(self._found)
        else:
            console.columns(self._found, self._cells)

    def add_neighbours(self, of: Sequence[int], found: Nearest) -> None:
        """Neighbours of the entities `of`."""
        rows, ranks = np.nonzero(found.ids >= 0)
        ids = found.ids[rows, ranks]
        self._append(
            {
                "entity": self._names("entity", np.asarray(of)[rows]),
                "rank": (ranks + 1, pa.int32()),
                "neighbour": self._names("entity", ids),
                "score": (found.scores[rows, ranks], pa.float32()),
                "seen": (self._seen("entity", ids), pa.bool_()),
            }
        )

    def add_predictions(self, found: Predictions) -> None:
        """Completed triples, a row for each answer."""
        rows, ranks = np.nonzero(found.ids >= 0)
        answers = found.ids[rows, ranks]
        triples = found.questions[rows]
        triples[:, _PARTS.index(found.part)] = answers
        self._append(
            {
                **{part: self._names(part, triples[:, place]) for place, part in enumerate(_PARTS)},
                "asked": (np.full(len(triples), found.part), _NAME),
                "rank": (ranks + 1, pa.int32()),
                "score": (found.scores[rows, ranks], pa.float32()),
                "seen": (self._seen(found.part, answers), pa.bool_()),
            }
        )

    def _seen(self, part: str, ids: NDArray[np.int64]) -> list[bool | None]:
        """Which answers training has seen; `None` if that is unknown, and for relations."""
        seen = None if part == "relation" else self._embedding.seen
        return [None] * len(ids) if seen is None else seen[ids].tolist()

    def _names(self, part: str, ids: NDArray[np.int64]) -> tuple[Any, pa.DataType]:
        """A column of names, or of ids where there are none or they are asked for."""
        named = (self._embedding.named or self._embedding.typed) and not self._ids
        if (ids < 0).any():
            # Asked without a relation.
            return [None] * len(ids), _NAME if named else pa.int64()
        if not named:
            from_0 = self._ids or part == "relation"
            return ids + (0 if from_0 else self._embedding.first_id), pa.int64()
        if part == "relation":
            return self._embedding.relation_names(ids), _NAME
        return self._embedding.entity_names(ids), _NAME

    def _append(self, columns: dict[str, tuple[Any, pa.DataType]]) -> None:
        kinds = {name: kind for name, (_, kind) in columns.items()}
        values = {name: values for name, (values, _) in columns.items()}
        if self._path is None:
            table = pa.table([pa.array(values[name], kinds[name]) for name in kinds], [*kinds])
            self._found += table.to_pylist()
            self._cells = console.cells_of(kinds)
            return
        if self._file is None:
            self._file = self._stack.enter_context(table_file(self._path, kinds))
        self._file.append(values)


def written(rows: int, path: Path, *, json: bool) -> None:
    """Says how many rows a file has now."""
    if json:
        console.json_data({"rows": rows, "file": str(path)})
    else:
        console.data(f"{rows:,} rows in {path}")
