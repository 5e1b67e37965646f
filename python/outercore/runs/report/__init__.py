"""Reports: one self-contained HTML page from the records of one or several runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from outercore.base.lazy import package_needed
from outercore.data.outputs import check_output
from outercore.files.atomic import device_errors, whole_file


def write_report(runs: Sequence[str | Path], out: str | Path) -> None:
    """Writes the page of `runs` to `out`. The page loads no other file and nothing from a network.

    Errors: `NotFoundError` for a run without a record; `UnsupportedError` without Plotly;
    `NoSpaceError`, which leaves an earlier page in place.
    """
    from outercore.runs.report.runs import load_runs

    loaded, path = load_runs([Path(run) for run in runs]), _output_file(out)
    with package_needed("reports need"):
        from outercore.runs.report.page import render
    with whole_file(path) as file:
        file.write(render(loaded).encode())


def _output_file(out: str | Path) -> Path:
    """Checks the path of the page, and creates its directory.

    Errors: `InvalidError` for an ending other than `.html` or `.htm`; `DeviceError` if the file
    cannot be written.
    """
    path = Path(out)
    with device_errors(f"report `{path}`"):
        path.parent.mkdir(parents=True, exist_ok=True)
    check_output(path, (".html", ".htm"), option="report", overwrite=True)
    return path
