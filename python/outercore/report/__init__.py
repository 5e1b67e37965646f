"""Reports: one self-contained HTML page from the records of one or several runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from outercore.errors import InvalidError, UnsupportedError
from outercore.storage import Storage, device_errors, replace_file

if TYPE_CHECKING:
    from outercore.controller import Table


def write_report(runs: Sequence[str | Path], out: str | Path) -> None:
    """Writes the page of `runs` to `out`; it needs no network and no other file.

    Errors: `NotFoundError` where a run has no record; `UnsupportedError` without Plotly;
    `NoSpaceError`, with the page that was there before.
    """
    from outercore.report.runs import load_runs

    loaded = load_runs([Path(run) for run in runs])
    with _plotly():
        from outercore.report.page import render
    _write(out, render(loaded))


def write_table_report(table: Table, out: str | Path) -> None:
    """Writes the page of the controller's table to `out`.

    Errors: `UnsupportedError` without Plotly.
    """
    with _plotly():
        from outercore.report.table import render_table
    _write(out, render_table(table))


@contextmanager
def _plotly() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"reports need the package `{error.name}`, which is not installed\n"
            'hint: pip install "outercore[torch]"'
        ) from error


def _write(out: str | Path, page: str) -> None:
    path = Path(out)
    if path.is_dir():
        raise InvalidError(f"report `{path}`: expected a file, found a directory")
    storage = Storage()
    with device_errors(f"report `{path}`"):
        storage.make_directory(path.parent)
        replace_file(storage, path, page.encode())
