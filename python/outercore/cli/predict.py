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
    model: Annotated[Path, Option("Run of `outercore train`, or the `model` in it.")],
    out: Annotated[Path, Option("`.parquet`, `.csv` or `.tsv` to write.")],
    edges: Annotated[
        str | None,
        Option(
            "For a model of edges: the pairs to score, as a text, Parquet or `.npy` of ids or "
            "names; `FILE:SOURCE,TARGET` chooses columns."
        ),
    ] = None,
    memory: options.ModelMemory = None,
    network: options.Network = None,
    overwrite: options.Overwrite = False,
    json: options.Json = False,
) -> None:
    """Write a model's predictions for all nodes, all graphs, or the edges of a list.

    Exact: layer by layer over all neighbours, out of core; a model trained with `--time` samples
    the past. The file has a row for each node, graph or edge: its id or name, the prediction, and
    the probability of each class; for an edge its score.

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
