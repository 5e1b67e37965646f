"""Sections and charts of training runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from outercore.base.display import format_duration
from outercore.base.sizes import format_size
from outercore.runs import record as records
from outercore.runs.report.charts import (
    bars,
    budget_bar,
    byte_unit,
    colour,
    empty,
    gantt,
    loss,
    row,
    scores,
    throughput,
    timeline,
)
from outercore.runs.report.elements import grid, memory_of, score_text, summary, table
from outercore.runs.report.runs import Run

_STAGE_COLOURS = {
    "sample": "#6cc5b0",
    "fetch": "#4269d0",
    "assemble": "#a463f2",
    "train": "#ff725c",
}
_SHOWN_S = 15.0
"""Seconds of an epoch that the chart shows span by span."""
_STATES = (
    ("busy_s", "busy", "#3ca951"),
    ("starved_s", "starved", "#efb118"),
    ("blocked_s", "blocked", "#ff725c"),
)
_CACHE = (
    ("constant_hits", "static cache", "#3ca951"),
    ("dynamic_hits", "dynamic cache", "#6cc5b0"),
    ("shared", "shared within a group", "#97bbf5"),
    ("misses", "read from the device", "#ff725c"),
)


def sections(runs: Sequence[Run]) -> list[str]:
    """A summary of each run, then curves, then the engine of each run."""
    return [
        *(_summary(run, place) for place, run in enumerate(runs)),
        "<h2>Learning</h2>",
        grid(loss(runs), *scores(runs), throughput(runs), read(runs)),
        *(_engine(run, len(runs) > 1) for run in runs),
    ]


def _summary(run: Run, place: int) -> str:
    record = run.record
    hits = records.hit_ratio(run.counters)
    tiles = [
        (f"test {run.metric}", score_text(run.score("test"))),
        (f"validation {run.metric}", score_text(run.score("valid"))),
        ("epochs", f"{len(run.epochs)}"),
        ("seeds a second", f"{run.per_second:,.0f}"),
        ("read an epoch", format_size(run.bytes_per_epoch)),
        ("accesses without a read", "-" if hits is None else f"{hits:.1%}"),
        ("memory budget", escape(memory_of(record["config"]["budget"]))),
        ("peak of the process", format_size(record["peak_memory_bytes"])),
    ]
    return summary(run, place, tiles)


def _engine(run: Run, several: bool) -> str:
    title = f"Engine: {escape(run.name)}" if several else "Engine"
    figures = [utilisation(run), cache(run), pipeline(run), timeline(run), memory(run)]
    return f"<h2>{title}</h2>" + grid(*figures, wide=(4,)) + _predictions(run)


def _predictions(run: Run) -> str:
    if not run.predictions:
        return ""
    rows = []
    for prediction in run.predictions:
        is_ratio = prediction.unit == "ratio"
        rows.append(
            (
                prediction.name,
                _value(prediction.predicted, prediction.unit),
                _value(prediction.measured, prediction.unit),
                f"{100 * prediction.deviation:+.1f} points"
                if is_ratio
                else f"{prediction.deviation:+.0%}",
            )
        )
    forecast = run.record["forecast"]
    first, later = (forecast[key]["bottleneck"] for key in ("first_epoch", "later_epochs"))
    rows.append(("predicted bottleneck", f"{first}, later {later}", "", ""))
    return "<h3>Predicted and measured</h3>" + table(
        ("", "predicted", "measured", "deviation"), rows
    )


def _value(value: float, unit: str) -> str:
    match unit:
        case "bytes":
            return format_size(round(value))
        case "ratio":
            return f"{value:.1%}"
    return format_duration(value)


def read(runs: Sequence[Run]) -> go.Figure:
    """Bytes read by epoch, features and topology; runs with fewer epochs end with empty bars."""
    parts: dict[tuple[str, str], list[float]] = {}
    last = max(runs, key=lambda run: len(run.numbers))
    for run in runs:
        for kind in ("features", "topology"):
            key = "feature_reads" if kind == "features" else "topology_reads"
            sizes = [_part(epoch, key).get("bytes", 0) for epoch in run.epochs]
            if any(sizes):
                name = kind if len(runs) == 1 else f"{run.name}: {kind}"
                missing = [0] * (len(last.numbers) - len(sizes))
                parts[name, colour(len(parts))] = [*sizes, *missing]
    several = len(runs) > 1
    return bars("Read from the device", last.numbers, parts, byte_unit, grouped=several)


def utilisation(run: Run) -> go.Figure:
    """Share of time that each stage was busy, starved and blocked."""
    figure = empty("Stages: busy, starved, blocked", "share of its time", "")
    stages = records.stages(run.counters)
    names = list(stages)[::-1]
    whole = [sum(stages[name].get(key, 0.0) for key, _, _ in _STATES) for name in names]
    for key, title, chosen in _STATES:
        seconds = [stages[name].get(key, 0.0) for name in names]
        shares = [part / (total or 1.0) for part, total in zip(seconds, whole, strict=True)]
        text = ", %{y}: %{x:.0%} (%{customdata:.1f} s)"
        row(figure, title, names, shares, chosen, text, customdata=seconds)
    figure.update_layout(barmode="stack", hovermode="closest")
    figure.update_xaxes(tickformat=".0%", range=[0, 1])
    return figure


def cache(run: Run) -> go.Figure:
    """Sources of the rows of batches by epoch: caches, sharing, device."""
    counted = [_part(epoch, "cache") for epoch in run.epochs]
    accesses = [counters.get("accesses", 0) for counters in counted]
    # Rows that several batches of a group share are read once.
    shared = [
        total - counters.get("distinct", total)
        for counters, total in zip(counted, accesses, strict=True)
    ]
    parts = {}
    for key, title, chosen in _CACHE:
        rows = shared if key == "shared" else [counters.get(key, 0) for counters in counted]
        parts[title, chosen] = [
            part / (total or 1) for part, total in zip(rows, accesses, strict=True)
        ]
    return bars("Sources of the rows", run.numbers, parts)


def pipeline(run: Run) -> go.Figure:
    """Stages over time at the start of the last epoch."""
    figure = empty("Stages overlapping (start of the last epoch)", "", "")
    spans = run.record.get("pipeline") or []
    first = min((span["start_s"] for span in spans), default=0.0)
    early = [
        {**span, "start_s": span["start_s"] - first, "end_s": span["end_s"] - first}
        for span in spans
        if span["start_s"] - first < _SHOWN_S
    ]
    gantt(figure, early, "stage", _STAGE_COLOURS)
    return figure


def memory(run: Run) -> go.Figure:
    """A bar with the parts of the memory budget of the training loader."""
    plan = run.record.get("plan") or {}
    split, topology = plan.get("split") or {}, plan.get("topology") or {}
    slots = plan.get("slots", 0)
    static, dynamic = split.get("constant_slots", 0), split.get("dynamic_slots", 0)
    share = static / ((static + dynamic) or 1)
    parts = {
        "topology": topology.get("memory", 0),
        "static cache": slots * share,
        "dynamic cache": slots * (1 - share),
        "read buffers": plan.get("staging", 0),
        "sampled": plan.get("sampled", 0),
        "delivered": plan.get("delivered", 0),
        "labels, seeds": plan.get("reserved", 0),
    }
    return budget_bar("Memory plan of the training loader", parts, plan.get("budget", 0))


def _part(epoch: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    return epoch["counters"].get(name) or {}
