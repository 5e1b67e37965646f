"""Sections and charts of embedding runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from outercore.base.sizes import format_size
from outercore.runs.report.charts import (
    GREY,
    bars,
    budget_bar,
    byte_unit,
    empty,
    loss,
    scores,
    throughput,
    time_unit,
    timeline,
)
from outercore.runs.report.elements import grid, score_text, summary, table
from outercore.runs.report.runs import EmbeddingRun

_MOST_STATES = 1500


def sections(runs: Sequence[EmbeddingRun]) -> list[str]:
    """Metrics with their protocols, then curves, partitions, time and memory."""
    parts = dict.fromkeys(metric["part"] for run in runs for metric in run.metrics)
    moving = [run for run in runs if run.order]
    return [
        *(_summary(run, place) for place, run in enumerate(runs)),
        *(["<h2>Metrics</h2>", grid(*(metrics(runs, part) for part in parts))] if parts else []),
        *(_metrics_table(run) for run in runs if run.metrics),
        "<h2>Learning</h2>",
        grid(loss(runs), *scores(runs), throughput(runs)),
        *(["<h2>Partitions</h2>"] if moving else []),
        *(_partitions(run) for run in moving),
        "<h2>Time and memory</h2>",
        *(grid(timeline(run), memory(run)) for run in runs),
    ]


def _partitions(run: EmbeddingRun) -> str:
    return grid(moved(run), waits(run), order(run), wide=(2,))


def _summary(run: EmbeddingRun, place: int) -> str:
    record, described = run.record, run.record["description"]
    where = "1"
    if described["partitions"] > 1:
        swap = record["config"]["budget"]["swap"]
        where = f"{described['slots']} of {described['partitions']}, {swap}"
    tiles = [
        ("test MRR", score_text(run.mrr("test"))),
        ("validation MRR", score_text(run.mrr("valid"))),
        ("epochs", f"{len(run.epochs)}"),
        ("triples a second", f"{run.per_second:,.0f}"),
        ("partitions", where),
        ("moved an epoch", format_size(run.bytes_per_epoch)),
        ("memory budget", format_size(record["plan"]["budget"])),
        ("peak of the process", format_size(record["peak_memory_bytes"])),
    ]
    return summary(run, place, tiles)


def _metrics_table(run: EmbeddingRun) -> str:
    """A table of all metrics; each row names its protocol."""
    heads = ("part", "", "MRR", "Hits@1", "Hits@3", "Hits@10", "mean rank", "AMRI", "AUC")
    rows = [
        _row(metric["part"], name, metric[name], metric["protocol"])
        for metric in run.metrics
        for name in ("filtered", "raw")
        if metric.get(name) is not None
    ]
    return f"<h3>{escape(run.name)}</h3>{table((*heads, 'protocol'), rows)}"


def _row(part: str, name: str, metrics: Mapping[str, Any], protocol: str) -> list[str]:
    shares = ("mrr", "hits_at_1", "hits_at_3", "hits_at_10")
    return [
        part,
        name,
        *(score_text(metrics[key]) for key in shares),
        f"{metrics['mean_rank']:,.1f}",
        score_text(metrics.get("adjusted_mean_rank_index")),
        score_text(metrics["auc"]),
        protocol,
    ]


def moved(run: EmbeddingRun) -> go.Figure:
    """Bytes that each epoch read and wrote, and the planned bytes."""
    keys = (("bytes_read", "read", "#4269d0"), ("bytes_written", "written", "#ff725c"))
    parts = {
        (name, chosen): [epoch["counters"].get(key, 0) for epoch in run.epochs]
        for key, name, chosen in keys
    }
    planned = run.order["bytes_between"]
    unit = byte_unit([planned, *(size for sizes in parts.values() for size in sizes)])
    title = f"Partitions moved: {run.name}"
    figure = bars(title, run.numbers, parts, lambda _: unit, grouped=True)
    figure.add_scatter(
        x=run.numbers,
        y=unit.of([planned] * len(run.numbers)),
        name="plan, each way",
        mode="lines",
        line={"color": GREY, "dash": "dash"},
    )
    return figure


def waits(run: EmbeddingRun) -> go.Figure:
    """Seconds of each epoch in hidden swaps, in other swaps, and in waits for triples."""
    swaps, waited, for_triples = (
        [epoch["counters"].get(key, 0.0) for epoch in run.epochs]
        for key in ("swap_s", "waited_s", "triples_waited_s")
    )
    hidden = [max(swap - wait, 0.0) for swap, wait in zip(swaps, waited, strict=True)]
    parts = {
        ("swaps behind training", "#3ca951"): hidden,
        ("waited for swaps", "#ff725c"): waited,
        ("waited for triples", "#efb118"): for_triples,
    }
    return bars(f"Swaps and waits: {run.name}", run.numbers, parts, time_unit)


def order(run: EmbeddingRun) -> go.Figure:
    """The order as a grid: the partitions in memory in each buffer state."""
    states: list[list[int]] = run.order["states"]
    first = states[:_MOST_STATES]
    count = run.record["plan"]["partitions"]
    title = f"Order `{run.order['kind']}` of {run.name}: {len(states):,} buffer states"
    if len(first) < len(states):
        title += f", the first {len(first):,} shown"
    figure = empty(title, "buffer state", "partition")
    previous: set[int] = set()
    # 1: in memory; 2: read for this state.
    columns = []
    for state in first:
        columns.append([(part in state) * (2 - (part in previous)) for part in range(count)])
        previous = set(state)
    figure.add_heatmap(
        z=[list(row) for row in zip(*columns, strict=True)],
        zmin=0,
        zmax=2,
        colorscale=[[0.0, "rgba(0,0,0,0)"], [0.5, "#97bbf5"], [1.0, "#4269d0"]],
        showscale=False,
        xgap=0.5 if len(first) < 200 else 0,
        ygap=0.5 if count < 100 else 0,
        hovertemplate="state %{x}, partition %{y}<extra></extra>",
    )
    figure.update_layout(hovermode="closest", height=max(260, min(620, 90 + 14 * count)))
    figure.update_yaxes(autorange="reversed")
    return figure


def memory(run: EmbeddingRun) -> go.Figure:
    """A bar with the parts of the memory budget."""
    plan = run.record["plan"]
    return budget_bar(f"Memory plan of {run.name}", plan["parts"], plan["budget"])


def metrics(runs: Sequence[EmbeddingRun], part: str) -> go.Figure:
    """MRR by protocol."""
    figure = empty(f"MRR of the {part} triples by protocol", "", "MRR")
    for name in ("filtered", "raw"):
        labels, values = [], []
        for run in runs:
            for metric in run.metrics:
                if metric["part"] == part and metric.get(name) is not None:
                    prefix = f"{run.name}: " if len(runs) > 1 else ""
                    labels.append(f"{prefix}{metric['candidates']}")
                    values.append(metric[name]["mrr"])
        figure.add_bar(x=labels, y=values, name=name)
    figure.update_layout(barmode="group", hovermode="closest")
    figure.update_yaxes(range=[0, 1])
    return figure
