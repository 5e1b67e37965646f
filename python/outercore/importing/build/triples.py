"""Import of knowledge graphs: triples of names from text or Parquet, streaming."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from outercore.base.fields import one_of
from outercore.base.native import Names, Progress, TripleImporter
from outercore.base.options import Option
from outercore.base.shell import quoted
from outercore.base.sizes import parse_size
from outercore.data.time_arrays import is_calendar_name
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.importing.table.columns import SOURCES, TARGETS, plain
from outercore.importing.table.file_state import require_unchanged, states
from outercore.importing.table.foreign import refuse_foreign
from outercore.importing.table.parquet import ParquetTable, is_parquet
from outercore.importing.table.parts import Parts
from outercore.importing.table.rows import is_array
from outercore.importing.table.table import Table
from outercore.importing.table.text import TextOptions, TextTable, offsets_and_bytes
from outercore.importing.table.times import is_date_column, is_time

_WORDS = {
    "h": SOURCES | {"h", "s"},
    "r": {"relation", "rel", "r", "predicate", "property", "p", "relationtype", "edgetype"},
    "t": TARGETS | {"t", "o"},
}
"""Column names for head, relation and tail, in the form of `plain`."""


@dataclass(frozen=True)
class TripleOptions:
    """How triples become a data set."""

    columns: Annotated[
        str,
        Option(
            "Give one letter for each column: `h` head, `r` relation, `t` tail, `w` weight, `_` a "
            "column to skip."
        ),
    ] = "hrt"
    header: bool | None = None
    """Whether the first line of a text names the columns; detected by default."""
    separator: str | None = None
    """The separator of the columns of a text; detected by default."""
    comment: str | None = None
    """How comment lines of a text begin; none by default."""
    unknown: Annotated[
        Literal["error", "drop", "keep"],
        Option(
            "If a name in `--valid` or `--test` is not in the training triples, stop (`error`), "
            "`drop` its triples, or `keep` them."
        ),
    ] = "error"
    duplicates: Literal["keep", "drop"] = "keep"
    memory: str | int = "1GiB"
    overwrite: bool = False
    command: str = ""

    def __post_init__(self) -> None:
        one_of("unknown", self.unknown, ("error", "drop", "keep"))
        one_of("duplicates", self.duplicates, ("keep", "drop"))


def import_triples(
    train: str | Path | list[str],
    out: str | Path,
    *,
    valid: str | Path | None = None,
    test: str | Path | None = None,
    options: TripleOptions | None = None,
    progress: Progress = lambda *_: None,
    note: Callable[[str], object] = lambda _: None,
) -> dict[str, Any]:
    """Writes a data set of triples and returns the summary.

    Each file is text (also compressed: `.gz`, `.zst`, `.xz`, `.bz2`), N-Triples or Parquet.
    `FILE:HEAD,RELATION,TAIL` names its columns. `note` is called with the detected dialect of each
    text. To resume an interrupted import, repeat the call. The data set appears only when it is
    complete.

    Cost: memory within `options.memory`, for inputs of any size.
    Errors: `InvalidError` names the file with its line; `NoSpaceError`. Also `InvalidError` for
    names that are not in the training triples, if `out` holds a data set and `overwrite` is not
    set, or if another process writes to it.
    """
    options = options or TripleOptions()
    trains = train if isinstance(train, list) else [train]
    given = [("train", str(text)) for text in trains]
    given += [(part, str(text)) for part, text in (("valid", valid), ("test", test)) if text]
    specs = [(part, FileSpec.parse(text)) for part, text in given]
    said = TextOptions(options.separator, options.header, options.comment)
    # The core checks the texts that it reads.
    before = {spec: states(spec.path) for _, spec in specs}
    specs, texts = _understood(specs, said, options.columns, note)
    before |= {spec: states(spec.path) for _, spec in specs if spec not in before}
    pushed = {spec: files for spec, files in before.items() if spec not in texts}
    with TripleImporter(
        Path(out),
        {
            "memory": parse_size(options.memory),
            "columns": options.columns,
            "unknown": options.unknown,
            "duplicates": options.duplicates,
            "overwrite": options.overwrite,
            "command": options.command,
            "reading": f"{said.separator} {said.header} {said.comment}",
            "inputs": [
                " ".join([f"{part}={spec}", *map(str, pushed.get(spec, ()))])
                for part, spec in specs
            ],
        },
        progress,
    ) as importer:
        for part, spec in specs:
            if spec in texts:
                importer.text(part, spec.path, texts[spec].dialect)
                continue
            done = 0
            for heads, relations, tails, weights in _batches(spec, options.columns, said):
                try:
                    importer.push(part, heads, relations, tails, weights)
                except InvalidError as error:
                    raise InvalidError(f"`{spec}`: ", *error.parts) from None
                done += len(heads[0]) - 1
                progress("read", done, 0, "triples")
        for files in before.values():
            require_unchanged(files)
        return importer.finish()


def _understood(
    given: list[tuple[str, FileSpec]],
    said: TextOptions,
    letters: str,
    note: Callable[[str], object],
) -> tuple[list[tuple[str, FileSpec]], dict[FileSpec, TextTable]]:
    """The files with their splits, and the tables of the texts that the core reads.

    `letters` is the option `columns`. If a file has the columns of the first file in another order,
    its columns are chosen by name.

    Errors: `InvalidError` if names or values show that a column has another meaning.
    """
    specs, texts, parts = [], dict[FileSpec, TextTable](), Parts()
    for part, spec in given:
        text = _text(spec, said, letters, parts)
        table = None if spec.columns else _table(spec, text)
        if table is not None:
            spec, by_name = parts.by_name(spec, table, len(letters))
            if by_name:
                specs.append((part, spec))
                note(f"{spec.path}: {table.described()}{by_name}")
                continue
            _require_order(spec, table.names if table.is_named else [], letters)
            if letters == TripleOptions.columns:
                _refuse_times(spec, text)
            if "_" not in letters:
                parts.remember(table, tuple(table.names))
        specs.append((part, spec))
        if text is not None:
            texts[spec] = text
            note(f"{spec.path}: {text.described()}")
    return specs, texts


_Batch = tuple[Names, Names, Names, Any]


def _text(spec: FileSpec, said: TextOptions, letters: str, parts: Parts) -> TextTable | None:
    """A text of triples as a table; `None` for Parquet and for columns chosen by name.

    Errors: `InvalidError` for NumPy's files, and for a file that can be read in two ways;
    `UnsupportedError` for files of other tools.
    """
    refuse_foreign(spec.path)
    if is_array(spec):
        raise InvalidError(
            f"`{spec.path}`: triples are taken from text or Parquet, not from NumPy's files"
            "\nhint: write three columns with `pyarrow.parquet.write_table`"
        )
    if spec.columns or is_parquet(spec.path):
        return None
    return parts.text(spec.path, "triples", said, columns=len(letters))


def _table(spec: FileSpec, text: TextTable | None) -> Table:
    return ParquetTable(spec.path) if text is None else text


def _require_order(spec: FileSpec, names: list[str], letters: str) -> None:
    """Errors: `InvalidError` if the column names show another order than `letters`."""
    if len(names) != len(letters):
        return
    roles = [
        next((role for role, words in _WORDS.items() if plain(name) in words), None)
        for name in names
    ]
    wrong = [
        place
        for place, (role, letter) in enumerate(zip(roles, letters, strict=False))
        if role is not None and letter in _WORDS and role != letter
    ]
    if not wrong:
        return
    found = [names[roles.index(role)] if role in roles else role.upper() for role in _WORDS]
    kinds = {"h": "head", "r": "relation", "t": "tail"}
    raise InvalidError(
        f"`{spec.path}`: column `{names[wrong[0]]}` would be taken as {kinds[letters[wrong[0]]]}\n"
        f"hint: choose head, relation and tail: `{quoted(spec.path)}:{','.join(found)}`"
    )


def _refuse_times(spec: FileSpec, text: TextTable | None) -> None:
    """Errors: `InvalidError` for a column of times that the user has not chosen for triples.

    A tail may be a date, so only the name of a third column counts, not its values.

    Cost: reads the first batch of rows of a text.
    """
    table = _table(spec, text)
    names = table.names
    if len(names) != 3 or (text is not None and text.format != "delimited"):
        return
    times = [
        name
        for place, name in enumerate(names)
        if (table.is_named and is_calendar_name(name))
        or (place < 2 and is_date_column(table, name))
    ]
    if not times:
        return
    way = f"choose the columns: `{quoted(str(FileSpec(spec.path, tuple(names))))}`"
    if any(is_time(table, name) for name in times):
        way = "write the dates as text, which can be names"
    raise InvalidError(
        f"`{spec.path}`: column `{times[0]}` holds times and would be taken as part of a triple\n"
        f"hint: if it is one, {way}; else give it a column of its own: `--columns` tells which"
    )


def _batches(spec: FileSpec, letters: str, said: TextOptions) -> Iterator[_Batch]:
    """Triples in batches, from the columns in `spec`, or else from the first columns."""
    wanted = [letter for letter in letters if letter != "_" or not spec.columns]
    table = Parts().open(spec, said, "triples")
    names = list(spec.columns) or table.names
    if len(names) != len(wanted):
        raise InvalidError(
            f"`{spec}`: {len(names)} columns, expected {len(wanted)} (`{letters}`)"
            "\nhint: choose them by `FILE:HEAD,RELATION,TAIL` or `--columns`"
        )
    places = dict(zip(wanted, names, strict=True))
    weights = _weights(table, places["w"]) if "w" in places else itertools.repeat(None)
    ends = [places[letter] for letter in "hrt"]
    for columns, weight in zip(table.texts(ends), weights, strict=False):
        heads, relations, tails = (offsets_and_bytes(column) for column in columns)
        yield heads, relations, tails, weight


def _weights(table: Table, name: str) -> Iterator[Any]:
    if table.dtype(name) is None:
        raise InvalidError(f"`{table.path}`: column `{name}`: expected weights, found text")
    for rows in table.numbers([name], np.dtype(np.float32), "nan"):
        yield np.ascontiguousarray(rows[:, 0])
