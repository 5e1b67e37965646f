"""Reports: one self-contained HTML page from the records of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outercore.errors import InvalidError, UnsupportedError


def write_report(runs: Sequence[str | Path], out: str | Path) -> None:
    """Writes the page of `runs` to `out`; it needs no network and no other file.

    Errors: `NotFoundError` where a run has no record; `UnsupportedError` without Plotly.
    """
    from outercore.report.runs import load_runs

    loaded = load_runs([Path(run) for run in runs])
    try:
        from outercore.report.page import render
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"reports need the package `{error.name}`, which is not installed\n"
            'hint: pip install "outercore[torch]"'
        ) from error
    path = Path(out)
    if path.is_dir():
        raise InvalidError(f"report `{path}`: expected a file, found a directory")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(render(loaded), encoding="utf-8")
