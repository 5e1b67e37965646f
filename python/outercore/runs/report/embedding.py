"""The sections of a report about embeddings."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from outercore.base.sizes import format_size
from outercore.runs.report import charts as common
from outercore.runs.report import embedding_charts as charts
from outercore.runs.report.elements import grid, summary
from outercore.runs.report.runs import EmbeddingRun


def sections(runs: Sequence[EmbeddingRun]) -> list[str]:
    """Figures with their protocols first, then curves, then what moved and where memory went."""
    parts = dict.fromkeys(one["part"] for run in runs for one in run.metrics)
    moving = [run for run in runs if run.order]
    return [
        *(_summary(run, place) for place, run in enumerate(runs)),
        *(["<h2>Figures</h2>", grid(*(charts.figures(runs, one) for one in parts))] * bool(parts)),
        *(_figures(run) for run in runs if run.metrics),
        "<h2>Learning</h2>",
        grid(common.loss(runs), *common.scores(runs), common.throughput(runs)),
        *(["<h2>Partitions</h2>"] if moving else []),
        *(_partitions(run) for run in moving),
        "<h2>Time and memory</h2>",
        *(grid(common.timeline(run), charts.memory(run)) for run in runs),
    ]


def _partitions(run: EmbeddingRun) -> str:
    return grid(charts.moved(run), charts.waits(run), charts.order(run), wide=(2,))


def _summary(run: EmbeddingRun, place: int) -> str:
    record, described = run.record, run.record["description"]
    where = "1"
    if described["partitions"] > 1:
        swap = record["config"]["budget"]["swap"]
        where = f"{described['slots']} of {described['partitions']}, {swap}"
    tiles = [
        ("test MRR", _score(run.mrr("test"))),
        ("validation MRR", _score(run.mrr("valid"))),
        ("epochs", f"{len(run.epochs)}"),
        ("triples a second", f"{run.per_second:,.0f}"),
        ("partitions", where),
        ("moved an epoch", format_size(run.bytes_per_epoch)),
        ("memory budget", format_size(record["plan"]["budget"])),
        ("peak of the process", format_size(record["peak_memory_bytes"])),
    ]
    return summary(run, place, tiles)


def _figures(run: EmbeddingRun) -> str:
    """Every figure in a row with its protocol; without it a figure means nothing."""
    rows = []
    for one in run.metrics:
        for name in ("filtered", "raw"):
            if one.get(name) is not None:
                rows.append(_row(one["part"], name, one[name], one["protocol"]))
    titles = (
        "part",
        "",
        "MRR",
        "Hits@1",
        "Hits@3",
        "Hits@10",
        "mean rank",
        "AMRI",
        "AUC",
        "protocol",
    )
    heads = "".join(f"<th>{title}</th>" for title in titles)
    return (
        f"<h3>{escape(run.name)}</h3><div class='card scroll'><table><tr>{heads}</tr>"
        f"{''.join(rows)}</table></div>"
    )


def _row(part: str, name: str, figures: dict[str, Any], protocol: str) -> str:
    cells = [
        part,
        name,
        *(f"{figures[key]:.4f}" for key in ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")),
        f"{figures['mean_rank']:,.1f}",
        _score(figures.get("adjusted_mean_rank_index")),
        f"{figures['auc']:.4f}",
        protocol,
    ]
    *short, long = (escape(cell) for cell in cells)
    columns = "".join(f"<td style='white-space: nowrap'>{cell}</td>" for cell in short)
    return f"<tr>{columns}<td>{long}</td></tr>"


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
