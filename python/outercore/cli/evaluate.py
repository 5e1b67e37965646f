"""`outercore evaluate`: score a trained model, write its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.base.display import flat
from outercore.cli import console, options
from outercore.cli.watch import TrainWatch
from outercore.data.far import FarConfig


@options.takes(FarConfig, after="overwrite")
def evaluate(
    model: Annotated[
        Path, typer.Argument(help="Run directory, or the `model` in it.", show_default=False)
    ],
    data: Annotated[
        Path | None, typer.Option("--data", help="Another data set than that of the run.")
    ] = None,
    split: Annotated[
        str, typer.Option(help="Split to score, such as `test`; `all` scores every node or graph.")
    ] = "test",
    sampled: Annotated[
        bool, typer.Option("--sampled", help="Sample neighbours instead of taking all.")
    ] = False,
    memory: options.ModelMemory = None,
    predictions: Annotated[
        Path | None,
        typer.Option(help="Write predictions to this `.npy`, `.parquet` or `.csv`."),
    ] = None,
    logits: Annotated[
        Path | None, typer.Option(help="Write the network's outputs to such a file.")
    ] = None,
    network: options.Network = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
    *,
    values: dict[str, Any],
) -> None:
    """Score a model on a split, exactly: layer by layer over all neighbours, out of core.

    If `outercore far put` copied the data set to a memory server, `--far` reads it from there.

    **Examples**

        outercore evaluate runs/first

        outercore evaluate runs/first --split all --predictions classes.parquet
    """
    from outercore import training

    far = options.build(FarConfig, values).far
    with TrainWatch(quiet=json) as watch:
        result = training.evaluate(
            model,
            data,
            split=split,
            validation="sampled" if sampled else "full",
            memory=memory,
            far=far,
            network=network,
            predictions=predictions,
            logits=logits,
            overwrite=overwrite,
            observer=watch,
        )
    console.result(result, f"{model}", flat(result), as_json=json)
