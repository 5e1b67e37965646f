"""`outercore report`: one HTML page of one or several runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.base.options import Option
from outercore.cli import console, options


@options.command
def report(
    runs: Annotated[
        list[Path],
        typer.Argument(help="Run directories, or those with several runs.", show_default=False),
    ],
    out: Annotated[
        Path | None, Option("HTML file; `report.html` in the first run by default.")
    ] = None,
) -> None:
    """Write one self-contained HTML page: curves, stages, hits, bytes, passes, memory.

    **Examples**

        outercore report runs/first

        outercore report runs/first runs/second --out compared.html

        outercore report runs/night
    """
    from outercore.runs.report import write_report

    path = out or runs[0] / "report.html"
    write_report(runs, path)
    console.data(str(path))
