"""`outercore predict`: write predictions for all nodes, all graphs, or listed edges."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from outercore.base.display import flat
from outercore.base.options import Option
from outercore.cli import console, options
from outercore.cli.watch import TrainWatch


@options.command
def predict(
    data_set: options.DataSet,
    model: Annotated[
        Path, Option("Run directory of `outercore train`, or the directory `model` in it.")
    ],
    out: Annotated[Path, Option("Write the predictions to this `.parquet`, `.csv` or `.tsv`.")],
    edges: Annotated[
        str | None,
        Option(
            "For a model of edges: score the pairs of ids or names in this text, Parquet or `.npy` "
            "file. `FILE:SOURCE,TARGET` chooses columns."
        ),
    ] = None,
    memory: options.ModelMemory = None,
    network: options.Network = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Write a model's predictions for all nodes, all graphs, or the edges of a list.

    Predictions are computed exactly, over all neighbours, layer by layer and out of core. Only a
    model trained with `--time` samples neighbours in the past. The file has a row for each node or
    graph: its id or name, the prediction, and the probability of each class. A row for an edge has
    its two ends and its score.

    **Examples**

        outercore predict papers --model runs/first --out classes.parquet

        outercore predict friends --model runs/links --edges pairs.csv --out scores.parquet
    """
    from outercore import training

    with TrainWatch(quiet=json) as watch:
        result = training.predict(
            data_set,
            model,
            out,
            edges=edges,
            memory=memory,
            network=network,
            overwrite=overwrite,
            observer=watch,
        )
    console.result(result, f"{out}", flat(result), as_json=json)
