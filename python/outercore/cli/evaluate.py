"""`outercore evaluate`: score a trained model, write its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.cli import console, options
from outercore.cli.watch import Watch


def evaluate(
    model: Annotated[
        Path, typer.Argument(help="Run directory, or the `model` in it.", show_default=False)
    ],
    data: Annotated[
        Path | None, typer.Option("--data", help="Another data set than the run's own.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split to score; `all` for every node, or graph.")
    ] = "test",
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Sample neighbours instead of taking all.")
    ] = False,
    memory: Annotated[
        str | None, typer.Option(help="Memory budget; as in training by default.")
    ] = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Write predictions to this `.npy`, `.parquet` or `.csv`."),
    ] = None,
    logits: Annotated[
        Path | None, typer.Option(help="Write the network's outputs to such a file.")
    ] = None,
    overwrite: options.OverwriteFile = False,
    far: options.Far = None,
    far_token_file: options.FarTokenFile = None,
    fallback: options.Fallback = True,
    json: options.Json = False,
) -> None:
    """Score a model on a split, exactly: layer by layer over all neighbours, out of core.

    A memory server is used where `outercore far put` has put the data set there.

    **Examples**

        outercore evaluate runs/first

        outercore evaluate runs/first --split all --predictions classes.parquet
    """
    from outercore import training

    with Watch(quiet=json) as watch:
        result = training.evaluate(
            model,
            data,
            split=split,
            validation="sampled" if sampled else "full",
            memory=memory,
            far=options.far(far, token_file=far_token_file, fallback=fallback),
            predictions=predictions,
            logits=logits,
            overwrite=overwrite,
            observer=watch,
        )
    console.result(result, f"{model}", console.flat(result), as_json=json)
