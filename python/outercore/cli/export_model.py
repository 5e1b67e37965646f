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
        typer.Argument(
            help="Run directory of `outercore train`, or the directory `model` in it.",
            show_default=False,
        ),
    ],
    out: Annotated[
        Path | None,
        Option("Write the model to this directory. The default is `serving` in the run directory."),
    ] = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Write the best model of a run as a manifest and weights, to read them without PyTorch.

    The command prints the directory with the model.

    **Example**

        outercore export-model runs/first --out models/papers
    """
    from outercore import training

    directory = training.export_model(run, out, overwrite=overwrite)
    console.result({"model": str(directory)}, str(directory), as_json=json)
