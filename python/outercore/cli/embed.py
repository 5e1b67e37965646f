"""`outercore embed`: embed a knowledge graph or a graph, within a memory budget."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.cli import config_options, console, embed_options, options
from outercore.cli.run_watch import EmbedWatch
from outercore.embedding.config import CHANGEABLE, EmbedConfig, configuration
from outercore.runs.resume import require_changeable


@config_options.takes(EmbedConfig)
def embed(
    data_set: Annotated[
        Path | None, typer.Argument(help="Directory of the data set.", show_default=False)
    ] = None,
    recipe: embed_options.Recipe = None,
    config: config_options.ConfigFile = None,
    out: Annotated[
        Path | None, typer.Option(help="Run directory; `runs/DATASET-MODEL-N` by default.")
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            help="Continue this run with its own options; `--memory`, `--epochs` and the step size "
            "may change."
        ),
    ] = None,
    start_from: embed_options.StartFrom = None,
    from_data: embed_options.FromData = None,
    score: embed_options.Score = None,
    json: options.Json = False,
    *,
    given: dict[str, Any],
) -> None:
    """Embed a knowledge graph, or a graph, that need not fit in memory.

    Ctrl-C stops with a checkpoint, and `--resume` continues there. A finished run continues with
    more `--epochs`. The run's directory gets the rows as `entities.npy` and `relations.npy`, which
    `outercore embedding` uses.

    **Examples**

        outercore embed fb15k --recipe complex-fb15k-237 --memory 1GiB --out runs/first

        outercore embed friends --model dot --dim 64 --memory 2GiB

        outercore embed fb15k --score my_scores.py:bilinear --dim 64

        outercore embed --resume runs/first --epochs 60
    """
    options.require_one("embed", data_set, resume)
    # Read before PyTorch is imported: a mistake is reported at once.
    with config_options.named(EmbedConfig, given):
        if resume is None:
            configuration(config, recipe=recipe, has_score=score is not None, **given)
        else:
            others = {"--recipe": recipe, "--config": config, "--out": out, "--from": start_from}
            others |= {"--from-data": from_data}
            require_changeable(
                EmbedConfig,
                [*given, *(name for name, value in others.items() if value is not None)],
                ("memory", *CHANGEABLE),
                own=others,
                instead="start another run with `--from`",
            )
    from outercore import embedding

    command = options.command_line()
    with EmbedWatch(quiet=json) as watch, config_options.named(EmbedConfig, given):
        if resume is not None:
            result = embedding.resume(resume, score=score, observer=watch, command=command, **given)
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
                **given,
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


def _line(figures: dict[str, Any]) -> str:
    return (
        f"MRR {figures['mrr']:.4f}  Hits@1 {figures['hits_at_1']:.4f}  "
        f"Hits@3 {figures['hits_at_3']:.4f}  Hits@10 {figures['hits_at_10']:.4f}  "
        f"mean rank {figures['mean_rank']:,.1f}  AUC {figures['auc']:.4f}{_more(figures)}"
    )


def _more(figures: dict[str, Any]) -> str:
    """The adjusted mean rank index, and how far ties matter for the MRR if they do."""
    index = figures["adjusted_mean_rank_index"]
    text = "" if index is None else f"  AMRI {index:.4f}"
    most, least = (f"{figures[rule]['mrr']:.4f}" for rule in ("optimistic", "pessimistic"))
    return text if most == least else f"{text}  MRR by ties {least} to {most}"
