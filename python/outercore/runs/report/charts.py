"""The figures of training runs, some of them those of embedding runs, too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go

from outercore.runs import record as records
from outercore.runs.report.drawing import (
    GREY,
    budget_bar,
    byte_unit,
    colour,
    counted,
    empty,
    line,
    shares,
    time_unit,
)
from outercore.runs.report.runs import EmbeddingRun, EpochRun, Run

_STAGE_COLOURS = {
    "sample": "#6cc5b0",
    "fetch": "#4269d0",
    "assemble": "#a463f2",
    "train": "#ff725c",
}
_SPAN_COLOURS = {
    "train": "#ff725c",
    "validate": "#3ca951",
    "final scores": "#97bbf5",
    "checkpoint": "#9c6b4e",
    "in-degrees": "#efb118",
    "keep": "#6cc5b0",
    "final figures": "#97bbf5",
    "write tables": "#efb118",
}
_SHOWN_S = 15.0
"""So much of an epoch is drawn span by span."""
_STATES = (
    ("busy_s", "busy", "#3ca951"),
    ("starved_s", "starved", "#efb118"),
    ("blocked_s", "blocked", "#ff725c"),
)
_CACHE = (
    ("constant_hits", "constant part", "#3ca951"),
    ("dynamic_hits", "dynamic part", "#6cc5b0"),
    ("shared", "shared within a group", "#97bbf5"),
    ("misses", "read from the device", "#ff725c"),
)


def loss(runs: Sequence[EpochRun]) -> go.Figure:
    """Training loss by epoch."""
    figure = empty("Training loss", "epoch", "loss")
    for place, run in enumerate(runs):
        line(figure, run.name, run.numbers, [epoch["loss"] for epoch in run.epochs], place)
    return _by_epoch(figure, runs)


def scores(runs: Sequence[Run | EmbeddingRun]) -> list[go.Figure]:
    """Validation score by epoch, a figure for each metric."""
    return [score(runs, metric) for metric in sorted({run.metric for run in runs})]


def score(runs: Sequence[Run | EmbeddingRun], metric: str) -> go.Figure:
    """One metric by epoch, the best one marked."""
    figure = empty(f"Validation {metric}", "epoch", metric)
    for place, run in enumerate(runs):
        if run.metric != metric:
            continue
        scored = [epoch for epoch in run.epochs if epoch["score"] is not None]
        numbers, scores = [one["epoch"] + 1 for one in scored], [one["score"] for one in scored]
        line(figure, run.name, numbers, scores, place)
        # The last epoch that was the best so far.
        best = max((at for at, epoch in enumerate(scored) if epoch["best"]), default=None)
        if best is not None:
            figure.add_scatter(
                x=[numbers[best]],
                y=[scores[best]],
                mode="markers",
                marker={"symbol": "star", "size": 13, "color": colour(place)},
                name=f"{run.name}: best",
                showlegend=False,
            )
    return _by_epoch(figure, runs)


def throughput(runs: Sequence[Run | EmbeddingRun]) -> go.Figure:
    """Seeds or triples a second by epoch."""
    figure = empty("Throughput", "epoch", f"{runs[0].seen}/s")
    for place, run in enumerate(runs):
        rates = [epoch[run.seen] / max(epoch["seconds"], 1e-9) for epoch in run.epochs]
        line(figure, run.name, run.numbers, rates, place)
    figure.update_yaxes(rangemode="tozero")
    return _by_epoch(figure, runs)


def read(runs: Sequence[Run]) -> go.Figure:
    """Bytes read by epoch, features and topology."""
    parts = (("feature_reads", ""), ("topology_reads", "/"))
    unit = byte_unit(size for run in runs for part, _ in parts for size in _read(run, part))
    figure = empty("Read from the device", "epoch", unit.name)
    for place, run in enumerate(runs):
        for part, pattern in parts:
            sizes = unit.of(_read(run, part))
            if not any(sizes):
                continue
            figure.add_bar(
                x=run.numbers,
                y=sizes,
                name=f"{run.name}: {part.removesuffix('_reads')}",
                marker={"color": colour(place), "pattern": {"shape": pattern}},
                offsetgroup=str(place),
            )
    figure.update_layout(barmode="stack" if len(runs) == 1 else "group")
    return _by_epoch(figure, runs)


def _read(run: Run, part: str) -> list[float]:
    """Bytes of each epoch."""
    return [_part(epoch, part).get("bytes", 0) for epoch in run.epochs]


def utilisation(run: Run) -> go.Figure:
    """Share of time each stage was busy, starved and blocked."""
    figure = empty("Stages: busy, starved, blocked", "share of its time", "")
    stages = records.stages(run.counters)
    names = list(stages)[::-1]
    whole = [sum(stages[name].get(state, 0.0) for state, _, _ in _STATES) for name in names]
    for key, title, chosen in _STATES:
        shares(figure, names, title, [stages[name].get(key, 0.0) for name in names], whole, chosen)
    figure.update_layout(barmode="stack", hovermode="closest")
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    return figure


def cache(run: Run) -> go.Figure:
    """Where the rows of the batches came from, by epoch."""
    figure = empty("Where the rows came from", "epoch", "share of row accesses")
    for key, title, chosen in _CACHE:
        parts = []
        for epoch in run.epochs:
            counted = _part(epoch, "cache")
            accesses = counted.get("accesses", 0)
            if key == "shared":
                value = accesses - counted.get("distinct", accesses)
            else:
                value = counted.get(key, 0)
            parts.append(value / accesses if accesses else 0.0)
        figure.add_bar(x=run.numbers, y=parts, name=title, marker={"color": chosen})
    figure.update_layout(barmode="stack")
    figure.update_yaxes(tickformat=".0%", range=[0, 1])
    return _by_epoch(figure, [run])


def timeline(run: EpochRun) -> go.Figure:
    """What the run did when."""
    figure = empty(f"Timeline of {run.name}", "", "")
    gantt(figure, run.record["timeline"], "name", _SPAN_COLOURS)
    return figure


def pipeline(run: Run) -> go.Figure:
    """How the stages overlapped at the start of the last epoch."""
    figure = empty("Stages overlapping (start of the last epoch)", "", "")
    spans = run.record.get("pipeline") or []
    first = min((span["start_s"] for span in spans), default=0.0)
    shifted = [
        {**span, "start_s": span["start_s"] - first, "end_s": span["end_s"] - first}
        for span in spans
    ]
    shown = [span for span in shifted if span["start_s"] < _SHOWN_S]
    gantt(figure, shown, "stage", _STAGE_COLOURS)
    return figure


def memory(run: Run) -> go.Figure:
    """How the budget was divided for the training loader."""
    plan = run.record.get("plan") or {}
    split, topology = plan.get("split") or {}, plan.get("topology") or {}
    slots = plan.get("slots", 0)
    constant, dynamic = split.get("constant_slots", 0), split.get("dynamic_slots", 0)
    share = constant / (constant + dynamic) if constant + dynamic else 0.0
    parts = {
        "topology": topology.get("memory", 0),
        "constant rows": slots * share,
        "dynamic rows": slots * (1 - share),
        "staging": plan.get("staging", 0),
        "sampled": plan.get("sampled", 0),
        "delivered": plan.get("delivered", 0),
        "labels, seeds": plan.get("reserved", 0),
    }
    return budget_bar("Memory plan of the training loader", parts, plan.get("budget", 0))


def gantt(
    figure: go.Figure,
    spans: Sequence[Mapping[str, Any]],
    key: str,
    colours: Mapping[str, str],
) -> None:
    """Adds spans as lying bars, one line for each name that stands under `key`."""
    unit = time_unit(span["end_s"] for span in spans)
    figure.update_xaxes(title=unit.name)
    names = dict.fromkeys(span[key] for span in spans)
    for name in names:
        chosen = [span for span in spans if span[key] == name]
        numbers = [span.get("epoch", span.get("item")) for span in chosen]
        figure.add_bar(
            y=[name] * len(chosen),
            x=unit.of(span["end_s"] - span["start_s"] for span in chosen),
            base=unit.of(span["start_s"] for span in chosen),
            orientation="h",
            name=name,
            showlegend=False,
            marker={"color": colours.get(name, GREY), "line": {"width": 0}},
            customdata=["" if number is None else f" {number + 1}" for number in numbers],
            hovertemplate=f"%{{y}}%{{customdata}}: %{{x:.3f}} {unit.name} "
            "from %{base:.3f}<extra></extra>",
        )
    figure.update_layout(
        barmode="overlay", hovermode="closest", height=max(220, 110 + 42 * len(names))
    )
    figure.update_yaxes(categoryorder="array", categoryarray=list(names)[::-1])


def _by_epoch(figure: go.Figure, runs: Sequence[EpochRun]) -> go.Figure:
    counted(figure, max((number for run in runs for number in run.numbers), default=1))
    return figure


def _part(epoch: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return epoch["counters"].get(name) or {}
