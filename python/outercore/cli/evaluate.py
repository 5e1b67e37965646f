"""`outercore evaluate`: score a trained model, write its predictions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.base.display import flat
from outercore.base.options import Option
from outercore.cli import console, options
from outercore.cli.watch import TrainWatch
from outercore.data.far import FarConfig


@options.command
def evaluate(
    *,
    model: Annotated[
        Path,
        typer.Argument(
            help="Run directory of `outercore train`, or the directory `model` in it.",
            show_default=False,
        ),
    ],
    data: Annotated[
        Path | None,
        Option("Score the model on this data set. The default is the data set of the run."),
    ] = None,
    split: Annotated[
        str,
        Option(
            "Score the model on this split: `train`, `valid` or `test`. The value `all` means "
            "every node or graph."
        ),
    ] = "test",
    sampled: Annotated[bool, Option("Sample neighbours instead of taking all.")] = False,
    memory: options.ModelMemory = None,
    predictions: Annotated[
        Path | None, Option("Write the predictions to this `.npy`, `.parquet` or `.csv`.")
    ] = None,
    logits: Annotated[
        Path | None,
        Option("Write the outputs of the network to this `.npy`, `.parquet` or `.csv`."),
    ] = None,
    network: options.Network = None,
    overwrite: options.Overwrite = False,
    server: FarConfig,
    json: options.Json = False,
) -> None:
    """Score a model on a split, with all neighbours of each node, layer by layer and out of core.

    `--far` reads the data set from a memory server, if `outercore far put` has copied it there.

    **Examples**

        outercore evaluate runs/first

        outercore evaluate runs/first --split all --predictions classes.parquet
    """
    from outercore import training

    with TrainWatch(quiet=json) as watch:
        result = training.evaluate(
            model,
            data,
            split=split,
            validation="sampled" if sampled else "full",
            memory=memory,
            far=server.far,
            network=network,
            predictions=predictions,
            logits=logits,
            overwrite=overwrite,
            observer=watch,
        )
    console.result(result, f"{model}", flat(result), as_json=json)
