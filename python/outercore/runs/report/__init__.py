"""Reports: one self-contained HTML page from the records of one or several runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from outercore.data.outputs import check_output
from outercore.errors import UnsupportedError
from outercore.files.atomic import device_errors, whole_file


def write_report(runs: Sequence[str | Path], out: str | Path) -> None:
    """Writes the page of `runs` to `out`. The page loads no other file and nothing from a network.

    Errors: `NotFoundError` for a run without a record; `UnsupportedError` without Plotly;
    `NoSpaceError`, which leaves an earlier page in place.
    """
    from outercore.runs.report.runs import load_runs

    loaded, place = load_runs([Path(run) for run in runs]), _place(out)
    with _plotly():
        from outercore.runs.report.page import render
    _write(place, render(loaded))


@contextmanager
def _plotly() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"reports need the package `{error.name}`, which is not installed\n"
            'hint: pip install "outercore[torch]"'
        ) from error


def _place(out: str | Path) -> Path:
    """Where the page goes; makes its directory.

    Errors: `InvalidError`, `DeviceError` where it cannot be written there.
    """
    path = Path(out)
    with device_errors(f"report `{path}`"):
        path.parent.mkdir(parents=True, exist_ok=True)
    check_output(path, (".html", ".htm"), option="report", overwrite=True)
    return path


def _write(path: Path, page: str) -> None:
    with whole_file(path) as file:
        file.write(page.encode())
