"""`outercore embed`: embed a knowledge graph or a graph, within a memory budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.base.options import Option
from outercore.cli import console, options
from outercore.cli.watch import EmbedWatch
from outercore.embedding.config import CHANGEABLE, RECIPES, EmbedConfig, configuration
from outercore.runs.resume import require_changeable

Recipe = Annotated[
    str | None,
    Option(
        "Start from a configuration with documented results, which other options override: "
        f"{', '.join(RECIPES)}.",
        choices=tuple(RECIPES),
    ),
]
StartFrom = Annotated[
    Path | None,
    typer.Option(
        "--from",
        help="Start from the embeddings of this run, for entities that both data sets contain.",
    ),
]
FromData = Annotated[
    Path | None,
    Option("With `--from`: directory of the data set of that run, if it was moved."),
]
Score = Annotated[str | None, Option("Score triples by a custom PyTorch function, `FILE.py:NAME`.")]


@options.command
def embed(
    *,
    data_set: options.JobDataSet = None,
    values: Annotated[options.Values, EmbedConfig],
    recipe: Recipe = None,
    config: options.ConfigFile = None,
    out: options.OutRun = None,
    resume: Annotated[
        Path | None,
        Option(
            "Continue the run in this directory, with its options. A few may change, such as "
            "`--memory`, `--epochs` and the step size."
        ),
    ] = None,
    start_from: StartFrom = None,
    from_data: FromData = None,
    score: Score = None,
    json: options.Json = False,
) -> None:
    """Learn embeddings of a graph or knowledge graph that need not fit in memory.

    Ctrl-C ends the run with a checkpoint, and `--resume` continues there. A finished run continues
    if `--epochs` is larger than before. The run writes `entities.npy` and `relations.npy` to its
    directory, and `outercore embedding` uses them.

    **Examples**

        outercore embed fb15k --recipe complex-fb15k-237 --memory 1GiB --out runs/first

        outercore embed friends --model dot --dim 64 --memory 2GiB

        outercore embed fb15k --score my_scores.py:bilinear --dim 64

        outercore embed --resume runs/first --epochs 60
    """
    options.require_one("embed", data_set, resume)
    # Before PyTorch is imported, so that a mistake is reported at once.
    with options.named(EmbedConfig, values):
        if resume is None:
            configuration(config, recipe=recipe, has_score=score is not None, **values)
        else:
            others = {"--recipe": recipe, "--config": config, "--out": out, "--from": start_from}
            others |= {"--from-data": from_data}
            require_changeable(
                EmbedConfig,
                [*values, *(name for name, value in others.items() if value is not None)],
                ("memory", *CHANGEABLE),
                own=others,
                instead="start another run with `--from`",
            )
    from outercore import embedding

    command = options.command_line()
    with EmbedWatch(quiet=json) as watch, options.named(EmbedConfig, values):
        if resume is not None:
            result = embedding.resume(
                resume, score=score, observer=watch, command=command, **values
            )
        else:
            assert data_set is not None
            result = embedding.embed(
                data_set,
                config,
                recipe=recipe,
                out=out,
                start_from=start_from,
                from_data=from_data,
                score=score,
                observer=watch,
                command=command,
                **values,
            )
    if json:
        console.json_data(result.record)
        return
    show(result.metrics)
    console.data(str(result.run))


def show(metrics: list[dict[str, Any]]) -> None:
    """Prints metrics under the protocol of each."""
    for metric in metrics:
        rows = [
            (name, _line(metric[name]))
            for name in ("filtered", "raw")
            if metric.get(name) is not None
        ]
        console.table(f"{metric['part']}: {metric['protocol']}", rows)


def _line(scores: dict[str, Any]) -> str:
    """Ranks, then the adjusted mean rank index, and the range of the MRR if ties change it."""
    line = (
        f"MRR {scores['mrr']:.4f}  Hits@1 {scores['hits_at_1']:.4f}  "
        f"Hits@3 {scores['hits_at_3']:.4f}  Hits@10 {scores['hits_at_10']:.4f}  "
        f"mean rank {scores['mean_rank']:,.1f}  AUC {scores['auc']:.4f}"
    )
    if (index := scores["adjusted_mean_rank_index"]) is not None:
        line += f"  AMRI {index:.4f}"
    most, least = (f"{scores[rule]['mrr']:.4f}" for rule in ("optimistic", "pessimistic"))
    return line if most == least else f"{line}  MRR by ties {least} to {most}"
