"""Import of knowledge graphs: triples of names from text or Parquet, streaming."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from outercore._native import Names, Progress, TripleImporter
from outercore.errors import InvalidError
from outercore.sizes import parse_size
from outercore.sources.rows import FileSpec, kind_of, table_batches

_BATCH = 1 << 16


@dataclass(frozen=True)
class TripleOptions:
    """How triples become a data set."""

    columns: str = "hrt"
    """A letter a column: `h` head, `r` relation, `t` tail, `w` weight, `_` anything else."""
    header: bool | None = None
    """Whether the first line of a text names the columns; found out by default."""
    unknown: Literal["error", "drop", "keep"] = "error"
    """What happens to names of valid and test that train does not have."""
    duplicates: Literal["keep", "drop"] = "keep"
    memory: str | int = "1GiB"
    overwrite: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        for name, choices in (
            ("unknown", ("error", "drop", "keep")),
            ("duplicates", ("keep", "drop")),
        ):
            value = getattr(self, name)
            if value not in choices:
                known = ", ".join(choices)
                raise InvalidError(f"{name}: expected one of {known}; found `{value}`")

    @classmethod
    def parse(cls, **values: Any) -> TripleOptions:
        """Options from text that may be wrong; `InvalidError` says what is expected."""
        return cls(**values)


def _silent(phase: str, done: int, total: int, unit: str) -> None:
    """Shows nothing."""


def import_triples(
    train: str | Path | list[str],
    out: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    options: TripleOptions | None = None,
    progress: Progress = _silent,
) -> dict[str, Any]:
    """Writes a data set of triples and returns the summary.

    Each file is text (tabs, commas, semicolons or blanks; also `.gz`, `.zst`) or Parquet;
    `FILE:HEAD,RELATION,TAIL` names its columns. Stopped in between, the same call goes on where
    it stopped; the data set appears only when it is complete.

    Cost: within `options.memory`, whatever the size of the inputs.
    Errors: `InvalidError` names the file with its line; `NoSpaceError`; `InvalidError` for names
    that train does not have, and where `out` holds a data set and `overwrite` is not given, or
    somebody else writes to it.
    """
    options = options or TripleOptions()
    trains = train if isinstance(train, list) else [train]
    files = [("train", str(text)) for text in trains]
    files += [(part, str(text)) for part, text in (("valid", valid), ("test", test)) if text]
    specs = [(part, FileSpec.parse(text)) for part, text in files]
    with TripleImporter(
        Path(out),
        {
            "memory": parse_size(options.memory),
            "columns": options.columns,
            "header": options.header,
            "unknown": options.unknown,
            "duplicates": options.duplicates,
            "overwrite": options.overwrite,
            "command": options.command,
            "inputs": [f"{part}={spec}" for part, spec in specs],
        },
        progress,
    ) as importer:
        for part, spec in specs:
            if kind_of(spec.path) in (".npy", ".npz"):
                raise InvalidError(
                    f"`{spec.path}`: triples are taken from text or Parquet, not from NumPy's files"
                    "\nhint: write three columns with `pyarrow.parquet.write_table`"
                )
            if kind_of(spec.path) != ".parquet" and not spec.columns:
                importer.text(part, spec.path)
                continue
            done = 0
            for heads, relations, tails, weights in _batches(spec, options.columns):
                importer.push(part, heads, relations, tails, weights)
                done += len(heads[0]) - 1
                progress("read", done, 0, "triples")
        return importer.finish()


_Batch = tuple[Names, Names, Names, Any]


def _batches(spec: FileSpec, letters: str) -> Iterator[_Batch]:
    """Triples of named columns: those of the file's specification, else the first ones."""
    wanted = [letter for letter in letters if letter != "_" or not spec.columns]
    first = 0
    for batch in table_batches(spec, _BATCH):
        names = list(spec.columns) or batch.schema.names
        if len(names) != len(wanted):
            raise InvalidError(
                f"`{spec}`: {len(names)} columns, expected {len(wanted)} (`{letters}`)"
                "\nhint: choose them by `FILE:HEAD,RELATION,TAIL` or `--columns`"
            )
        by_letter = {
            letter: (name, batch.column(name)) for letter, name in zip(wanted, names, strict=True)
        }
        heads, relations, tails = (_names(spec, first, *by_letter[letter]) for letter in "hrt")
        weights = None
        if "w" in by_letter:
            weights = _weights(spec, first, *by_letter["w"])
        yield heads, relations, tails, weights
        first += batch.num_rows


def _names(spec: FileSpec, first: int, name: str, column: Any) -> Names:
    """A column as offsets and bytes; integers are written as decimals."""
    _no_nulls(spec, first, name, column)
    kind = column.type
    if pa.types.is_dictionary(kind):
        column = column.dictionary_decode()
        kind = column.type
    if not (
        pa.types.is_integer(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind)
    ):
        raise InvalidError(
            f"`{spec.path}`: column `{name}`: expected names or integers, found {kind}"
        )
    column = column.cast(pa.large_string())
    _, offsets, data = column.buffers()
    starts = np.frombuffer(offsets, np.int64)[column.offset : column.offset + len(column) + 1]
    text = np.frombuffer(data, np.uint8) if data else np.empty(0, np.uint8)
    used = text[starts[0] : starts[-1]]
    return np.ascontiguousarray(starts - starts[0]), np.ascontiguousarray(used)


def _weights(spec: FileSpec, first: int, name: str, column: Any) -> Any:
    _no_nulls(spec, first, name, column)
    try:
        return np.ascontiguousarray(column.cast(pa.float32()).to_numpy(zero_copy_only=False))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise InvalidError(f"`{spec.path}`: column `{name}`: expected weights: {error}") from None


def _no_nulls(spec: FileSpec, first: int, name: str, column: Any) -> None:
    if column.null_count:
        row = int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise InvalidError(
            f"`{spec.path}`: row {first + row}: column `{name}` is empty, expected a name"
        )
