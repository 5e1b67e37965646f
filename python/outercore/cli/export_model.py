"""`outercore export-model`: write a trained model as data, for a server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.base.options import Option
from outercore.cli import console, options


@options.command
def export_model(
    run: Annotated[
        Path,
        typer.Argument(help="Run of `outercore train`, or the `model` in it.", show_default=False),
    ],
    out: Annotated[
        Path | None, Option("Directory to write; `serving` in the run by default.")
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Write a run's best model as data: a manifest and weights, read without PyTorch.

    Prints the directory.

    **Example**

        outercore export-model runs/first --out models/papers
    """
    from outercore import training

    directory = training.export_model(run, out, overwrite=overwrite)
    console.result({"model": str(directory)}, str(directory), as_json=json)
