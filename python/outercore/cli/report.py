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
        typer.Argument(
            help="Run directories, or directories with several runs.", show_default=False
        ),
    ],
    out: Annotated[
        Path | None,
        Option(
            "Write the page to this HTML file. The default is `report.html` in the first run "
            "directory."
        ),
    ] = None,
) -> None:
    """Write a self-contained HTML page about runs: curves, stages, hits, bytes, passes, memory.

    **Examples**

        outercore report runs/first

        outercore report runs/first runs/second --out compared.html

        outercore report runs/night
    """
    from outercore.runs.report import write_report

    path = out or runs[0] / "report.html"
    write_report(runs, path)
    console.data(str(path))
