"""`outercore embed`: embed a knowledge graph or a graph, within a memory budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.cli import console, embed_options, options
from outercore.cli.embed_watch import EmbedWatch
from outercore.embedding.options import CHANGEABLE


def embed(
    context: typer.Context,
    data_set: Annotated[
        Path | None, typer.Argument(help="Directory of the data set.", show_default=False)
    ] = None,
    recipe: embed_options.Recipe = None,
    config: embed_options.Config = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; `runs/DATASET-MODEL-N` by default.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Go on with this run, by its configuration but for `--memory`, `--epochs`, "
            "`--patience`, learning rates, weights of the regulariser and `--checkpoint-seconds`."
        ),
    ] = None,
    start_from: embed_options.StartFrom = None,
    from_data: embed_options.FromData = None,
    model: embed_options.Model = None,
    score: embed_options.Score = None,
    relation_dim: embed_options.RelationDim = None,
    dim: embed_options.Dim = None,
    norm: embed_options.Norm = None,
    reciprocal: embed_options.Reciprocal = None,
    init_scale: embed_options.InitScale = None,
    loss: embed_options.Loss = None,
    margin: embed_options.Margin = None,
    temperature: embed_options.Temperature = None,
    negatives: embed_options.Negatives = None,
    degree_share: embed_options.DegreeShare = None,
    degree_power: embed_options.DegreePower = None,
    negative_filter: embed_options.NegativeFilter = None,
    correction: embed_options.Correction = None,
    optimiser: embed_options.Optimiser = None,
    learning_rate: embed_options.LearningRate = None,
    relation_optimiser: embed_options.RelationOptimiser = None,
    relation_learning_rate: embed_options.RelationLearningRate = None,
    schedule: embed_options.Schedule = None,
    regulariser: embed_options.Regulariser = None,
    weight: embed_options.Weight = None,
    relation_weight: embed_options.RelationWeight = None,
    epochs: embed_options.Epochs = None,
    batch_size: embed_options.BatchSize = None,
    chunk_size: embed_options.ChunkSize = None,
    patience: embed_options.Patience = None,
    validate_every: embed_options.ValidateEvery = None,
    memory: embed_options.Memory = None,
    partitions: embed_options.Partitions = None,
    slots: embed_options.Slots = None,
    order: embed_options.Order = None,
    swap: embed_options.Swap = None,
    sweeps: embed_options.Sweeps = None,
    spread: embed_options.Spread = None,
    rename: embed_options.Rename = None,
    group: embed_options.Group = None,
    held_out: embed_options.HeldOut = None,
    candidates: embed_options.Candidates = None,
    candidate_count: embed_options.CandidateCount = None,
    also: embed_options.Also = None,
    raw: embed_options.Raw = False,
    valid_triples: embed_options.ValidTriples = None,
    test_triples: embed_options.TestTriples = None,
    seed: embed_options.Seed = None,
    device: embed_options.Device = None,
    threads: embed_options.Threads = None,
    checkpoint_seconds: embed_options.CheckpointSeconds = None,
    json: options.Json = False,
) -> None:
    """Embed a knowledge graph, or a graph, that need not fit in memory.

    Ctrl-C ends with a checkpoint; `--resume` goes on exactly there, and a finished run goes on
    where it is given more epochs. The run's directory has the rows as `entities.npy` and
    `relations.npy`; `outercore embedding` uses them.

    **Examples**

        outercore embed fb15k --recipe complex-fb15k-237 --memory 1GiB --out runs/first

        outercore embed friends --model dot --dim 64 --memory 2GiB

        outercore embed fb15k --score my_scores.py:bilinear --dim 64

        outercore embed --resume runs/first

        outercore embed --resume runs/first --epochs 60
    """
    options.require_one("embed", data_set, resume)
    chosen: dict[str, Any] = {
        "model": embed_options.model(model, score),
        "relation_dim": relation_dim,
        "dim": dim,
        "norm": norm,
        "reciprocal": reciprocal,
        "init_scale": init_scale,
        "loss": loss,
        "margin": margin,
        "temperature": temperature,
        **embed_options.negatives(negatives),
        "degree_share": degree_share,
        "degree_power": degree_power,
        "negative_filter": negative_filter,
        "correction": correction,
        "optimiser": optimiser,
        "learning_rate": learning_rate,
        "relation_optimiser": relation_optimiser,
        "relation_learning_rate": relation_learning_rate,
        "schedule": schedule,
        "regulariser": regulariser,
        "regulariser_weight": weight,
        "relation_regulariser_weight": relation_weight,
        "epochs": epochs,
        "batch_size": batch_size,
        "chunk_size": chunk_size,
        "patience": patience,
        "validate_every": validate_every,
        "partitions": partitions,
        "slots": slots,
        "order": order,
        "swap": swap,
        "sweeps": sweeps,
        "spread": spread,
        "rename": rename,
        "group": group,
        "held_out": held_out,
        "candidates": candidates,
        "candidate_count": candidate_count,
        "also": also or None,
        "filtered": False if raw else None,
        "valid_triples": valid_triples,
        "test_triples": test_triples,
        "seed": seed,
        "device": device,
        "threads": threads,
        "checkpoint_seconds": checkpoint_seconds,
    }
    if resume is not None:
        embed_options.require_changeable(context)
    else:
        # Read before PyTorch is imported: a mistake is told at once.
        from outercore.embedding.options import configuration

        with embed_options.named(context):
            configuration(config, recipe=recipe, memory=memory, **chosen)
    from outercore import embedding

    command = options.command_line()
    with EmbedWatch(quiet=json) as watch:
        if resume is not None:
            others = {name: chosen[name] for name in CHANGEABLE}
            with embed_options.named(context):
                result = embedding.resume(
                    resume, memory=memory, score=score, observer=watch, command=command, **others
                )
        else:
            assert data_set is not None
            result = embedding.embed(
                data_set,
                config,
                recipe=recipe,
                memory=memory,
                out=out,
                start_from=start_from,
                from_data=from_data,
                score=score,
                observer=watch,
                command=command,
                **chosen,
            )
    if json:
        console.json_data(result.record)
        return
    show(result.metrics)
    console.data(str(result.run))


def show(metrics: list[dict[str, Any]]) -> None:
    """Figures below the protocols without which they mean nothing."""
    for one in metrics:
        rows = [
            (name, _line(one[name])) for name in ("filtered", "raw") if one.get(name) is not None
        ]
        console.table(f"{one['part']}: {one['protocol']}", rows)


def _line(figures: dict[str, float]) -> str:
    return (
        f"MRR {figures['mrr']:.4f}  Hits@1 {figures['hits_at_1']:.4f}  "
        f"Hits@3 {figures['hits_at_3']:.4f}  Hits@10 {figures['hits_at_10']:.4f}  "
        f"mean rank {figures['mean_rank']:,.1f}  AUC {figures['auc']:.4f}"
    )
