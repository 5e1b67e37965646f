"""`outercore train`: train a graph network out of core."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from outercore.cli import console, options, train_options
from outercore.cli.watch import Watch

_NO_SERVER = "none"
_GRAPHS = "With --task graph"
_OF_SERVER = (
    "far",
    "far_token_file",
    "far_chunk",
    "far_queues",
    "far_queue_length",
    "far_timeout",
    "fallback",
)
"""Options that say where a run reads from, and so may be others when it goes on."""


def train(
    context: typer.Context,
    data_set: Annotated[
        Path | None, typer.Argument(help="Directory of the data set.", show_default=False)
    ] = None,
    model: Annotated[
        str, typer.Option(help="`sage`, `gcn`, `gat`, `gin`, or `mlp` without edges.")
    ] = "sage",
    fanout: options.FanOut = "15,10",
    hidden: Annotated[int, typer.Option(help="Width between the layers.")] = 256,
    heads: Annotated[int, typer.Option(help="Attention heads of `gat`.")] = 4,
    dropout: Annotated[float, typer.Option(help="Share of units dropped out.")] = 0.5,
    norm: Annotated[str, typer.Option(help="`none`, `batch` or `layer`.")] = "none",
    residual: Annotated[
        bool, typer.Option("--residual", help="Add a linear map of a layer's input.")
    ] = False,
    jumping: Annotated[
        str, typer.Option(help="Classify from all layers: `none`, `cat` or `max`.")
    ] = "none",
    batch_size: Annotated[
        int | None,
        typer.Option(
            help="Seed nodes a batch, or edges, 1024 by default; or graphs, 64 by default."
        ),
    ] = None,
    replace: options.Replace = False,
    learning_rate: Annotated[
        float, typer.Option("--learning-rate", "--lr", help="How far a step goes.")
    ] = 0.003,
    weight_decay: Annotated[
        float, typer.Option(help="How strongly a step draws parameters towards 0.")
    ] = 0.0,
    epochs: Annotated[int, typer.Option(help="Epochs at most.")] = 20,
    patience: Annotated[
        int, typer.Option(help="Epochs without a better score before stopping; 0 never.")
    ] = 5,
    memory: options.Memory = "2GiB",
    validation: Annotated[
        str,
        typer.Option(
            help="Score epochs on `full` or `sampled` neighbourhoods; `auto` by the size."
        ),
    ] = "auto",
    validation_share: options.ValidationShare = 0.25,
    task: Annotated[
        str,
        typer.Option(
            help="`classification`, `multi-label`, `regression`, guessed by default; `link`: "
            "edges; or `graph`: labels of whole graphs."
        ),
    ] = "auto",
    metric: Annotated[
        str,
        typer.Option(
            help="`accuracy`, `roc_auc`, `f1_micro`, `f1_macro`; for numbers `r2`, `mse`, `rmse`, "
            "`mae`; for edges also `average_precision`, `mrr`, `hits@20` and other k."
        ),
    ] = "auto",
    features: Annotated[str, typer.Option(help="Node array to learn from.")] = "x",
    labels: Annotated[str, typer.Option(help="Node array to predict.")] = "y",
    layers: Annotated[
        int, typer.Option(help="Layers of the network.", rich_help_panel=_GRAPHS)
    ] = 5,
    readout: Annotated[
        str,
        typer.Option(
            help="How the states of a graph's nodes become one: `sum`, `mean` or `max`.",
            rich_help_panel=_GRAPHS,
        ),
    ] = "mean",
    seed: options.Seed = 0,
    device: Annotated[str, typer.Option(help="`auto`, `cpu` or `cuda`.")] = "auto",
    backend: options.Backend = "auto",
    threads: options.Threads = None,
    topology: options.Topology = "auto",
    policy: options.Policy = "window",
    hotness: options.Hotness = "presample",
    far: options.Far = None,
    far_token_file: options.FarTokenFile = None,
    far_chunk: options.FarChunk = None,
    far_queues: options.FarQueues = None,
    far_queue_length: options.FarQueueLength = None,
    far_timeout: options.FarTimeout = None,
    fallback: options.Fallback = True,
    held_out: train_options.HeldOut = "0.1",
    negatives: train_options.Negatives = 1,
    loss: train_options.Loss = "binary",
    head: train_options.Head = "mlp",
    checkpoint_batches: Annotated[
        int, typer.Option(help="A checkpoint after so many batches, too; 0 for none.")
    ] = 0,
    checkpoint_seconds: Annotated[
        float, typer.Option(help="A checkpoint after so many seconds, too; 0 for none.")
    ] = 300.0,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; `runs/DATASET-MODEL-N` by default.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with this run; its configuration is used, but `--far` may be another "
            "server, or `none`."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Train on a graph that need not fit in memory.

    Ctrl-C ends with a checkpoint between two batches; `--resume` goes on exactly there.

    **Examples**

        outercore train papers --model sage --fanout 15,10 --memory 2GiB --out runs/first

        outercore train papers --model mlp --out runs/features-only

        outercore train molecules --task graph --model gin --norm batch --epochs 100

        outercore train papers --task link --metric mrr --out runs/links

        outercore train --resume runs/first
    """
    options.require_one("train", data_set, resume)
    if resume is not None:
        again = "leave it out, or start another run"
        options.require_nothing_else(context, *_OF_SERVER, hint=again)
    train_options.require_link(context, task)
    server = options.far(
        None if far == _NO_SERVER else far,
        token_file=far_token_file,
        chunk=far_chunk,
        queues=far_queues,
        queue_length=far_queue_length,
        timeout=far_timeout,
        fallback=fallback,
    )
    if resume is None:
        train_options.require_fitting(context, task)
    if batch_size is None:
        batch_size = 64 if task == "graph" else 1024
    # Read before PyTorch is imported: a mistake is told at once.
    config = train_options.configuration(
        context,
        model=model,
        hidden=hidden,
        heads=heads,
        dropout=dropout,
        norm=norm,
        residual=residual,
        jumping=jumping,
        fanout=options.fanout(fanout),
        batch_size=batch_size,
        replace=replace,
        features=features,
        labels=labels,
        layers=layers,
        readout=readout,
        learning_rate=learning_rate,
        weight_decay=weight_decay,
        epochs=epochs,
        patience=patience,
        memory=memory,
        validation_share=validation_share,
        backend=backend,
        threads=threads,
        topology=topology,
        policy=policy,
        hotness=hotness,
        far=None if server is None else asdict(server),
        seed=seed,
        validation=validation,
        task=task,
        metric=metric,
        device=device,
        **train_options.held_out(held_out),
        negatives=negatives,
        loss=loss,
        head=head,
        checkpoint_batches=checkpoint_batches,
        checkpoint_seconds=checkpoint_seconds,
    )
    from outercore import training

    command = options.command_line()
    with Watch(quiet=json) as watch:
        if resume is not None:
            record = training.resume(
                resume,
                far=False if far == _NO_SERVER else server,
                observer=watch,
                command=command,
            )
        else:
            assert data_set is not None
            record = training.train(data_set, config, out=out, observer=watch, command=command)
    if json:
        console.json_data(record)
        return
    result = record["result"]
    scores = [
        (name, "-" if score is None else f"{score:.4f}") for name, score in result["scores"].items()
    ]
    where = "whole graphs" if "graphs" in record["data_set"] else "all neighbours"
    console.table(
        f"{result['metric']} of the best epoch ({result['best_epoch'] + 1}), {where}",
        [*scores, ("run", record["description"]["run"])],
    )
