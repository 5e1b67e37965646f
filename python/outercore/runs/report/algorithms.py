"""Sections and charts of graph algorithms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from outercore.base.display import flat, format_duration
from outercore.base.plan_display import RunPlan
from outercore.base.sizes import format_size
from outercore.runs.report.charts import (
    GREY,
    Unit,
    bars,
    budget_bar,
    byte_unit,
    counted,
    empty,
    line,
    time_unit,
)
from outercore.runs.report.elements import comparison, grid, summary
from outercore.runs.report.runs import AlgorithmRun

_TIERS = (
    ("memory", "found in memory", "#3ca951"),
    ("far", "far memory", "#a463f2"),
    ("disk", "disk", "#ff725c"),
)
_MOST_POINTS = 400
"""Maximum number of points of a line: a search on a road network makes thousands of passes."""


def sections(runs: Sequence[AlgorithmRun]) -> list[str]:
    """A summary of each run, then costs, passes, memory and results."""
    counters = [
        # `by_pass` is a list with an entry for each pass, which charts show.
        dict(flat({name: value for name, value in run.counters.items() if name != "by_pass"}))
        for run in runs
    ]
    figures = [seconds(runs), read(runs), busy(runs)]
    if any(run.passes for run in runs):
        figures += [seconds_by_pass(runs), bytes_by_pass(runs)]
    return [
        *(_summary(run, place) for place, run in enumerate(runs)),
        "<h2>Cost</h2>",
        grid(*figures),
        "<h2>Memory</h2>",
        grid(*(memory(run) for run in runs)),
        "<h2>Results</h2>",
        comparison(runs, [dict(flat(run.record["result"])) for run in runs]),
        f"<details><summary>All counters</summary>{comparison(runs, counters)}</details>",
    ]


def _summary(run: AlgorithmRun, place: int) -> str:
    counters, tiers = run.counters, run.bytes_by_tier
    fetched = sum(tiers.values())
    tiles = [
        ("algorithm", escape(run.algorithm)),
        ("time", format_duration(run.seconds)),
        ("passes", f"{counters.get('passes', 0):,}"),
        ("read from the disk", format_size(tiers["disk"])),
        ("from memory", f"{tiers['memory'] / fetched:.0%}" if fetched else "-"),
        ("device busy", _share(counters.get("device_busy"))),
        ("cores busy", _share(counters.get("cores_busy"))),
        ("memory budget", format_size(run.record["plan"].get("budget", 0))),
        ("peak of the process", format_size(run.record["peak_memory_bytes"])),
    ]
    if run.prepare_seconds:
        tiles.insert(2, ("time of preparing", format_duration(run.prepare_seconds)))
    if "far" in tiers:
        tiles.insert(4, ("read from far memory", format_size(tiers["far"])))
    lost = (counters.get("far") or {}).get("failed_over", 0)
    if lost:
        tiles.append(("read from the disk instead of far memory", f"{lost:,} reads"))
    return summary(run, place, tiles)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def seconds(runs: Sequence[AlgorithmRun]) -> go.Figure:
    """Seconds of each run: preparation, passes, and the rest."""
    # The whole run counts as passes if passes were not measured.
    passes = [run.counters.get("pass_seconds", run.seconds) for run in runs]
    rest = [max(run.seconds - part, 0.0) for run, part in zip(runs, passes, strict=True)]
    parts = {
        ("preparing", "#efb118"): [run.prepare_seconds for run in runs],
        ("passes", "#4269d0"): passes,
        ("the rest", GREY): rest,
    }
    return _bars("Time", runs, parts, time_unit)


def read(runs: Sequence[AlgorithmRun]) -> go.Figure:
    """Bytes that passes took from each tier."""
    sizes = {
        (name, chosen): [run.bytes_by_tier.get(key, 0) for run in runs]
        for key, name, chosen in _TIERS
    }
    used = {part: values for part, values in sizes.items() if any(values)}
    return _bars("Sources of the edges", runs, used, byte_unit)


def busy(runs: Sequence[AlgorithmRun]) -> go.Figure:
    """Share of the time that the device and the cores were busy."""
    parts = {
        (name, chosen): [run.counters.get(f"{name}_busy", 0.0) for run in runs]
        for name, chosen in (("device", "#ff725c"), ("cores", "#4269d0"))
    }
    return _bars("Busy during passes", runs, parts)


def _bars(
    title: str,
    runs: Sequence[AlgorithmRun],
    parts: Mapping[tuple[str, str], Sequence[float]],
    unit_of: Callable[[Iterable[float]], Unit] | None = None,
) -> go.Figure:
    """A bar chart with a group of bars for each run. Shares are side by side, sums are stacked."""
    names = [run.name for run in runs]
    figure = bars(title, names, parts, unit_of, axis="", grouped=unit_of is None)
    figure.update_layout(hovermode="closest")
    return figure


def seconds_by_pass(runs: Sequence[AlgorithmRun]) -> go.Figure:
    """Seconds of each pass."""
    return _lines("Time by pass", time_unit, runs, lambda counters: counters.get("seconds", 0.0))


def bytes_by_pass(runs: Sequence[AlgorithmRun]) -> go.Figure:
    """Bytes that arrived during each pass, far memory included."""
    return _lines("Read by pass", byte_unit, runs, lambda counters: counters.get("bytes", 0))


def memory(run: AlgorithmRun) -> go.Figure:
    """A bar with the parts of the memory budget."""
    plan = RunPlan(run.record["plan"])
    title = f"Memory plan of {run.name}"
    if plan.get("far_bytes"):
        title += f", {format_size(plan['far_bytes'])} in far memory"
    return budget_bar(title, plan.parts(), plan.get("budget", 0))


def _lines(
    title: str,
    unit_of: Callable[[Iterable[float]], Unit],
    runs: Sequence[AlgorithmRun],
    value: Callable[[Mapping[str, Any]], float],
) -> go.Figure:
    thinned = [_thinned([value(counters) for counters in run.passes]) for run in runs]
    unit = unit_of(value for _, values in thinned for value in values)
    figure = empty(title, "pass", unit.name)
    for place, (run, (numbers, values)) in enumerate(zip(runs, thinned, strict=True)):
        line(figure, run.name, numbers, unit.of(values), place)
    counted(figure, max(len(run.passes) for run in runs))
    figure.update_yaxes(rangemode="tozero")
    return figure


def _thinned(values: Sequence[float]) -> tuple[list[float], list[float]]:
    """The numbers of the passes from 1, and their values.

    If there are more than `_MOST_POINTS` passes, each point is the mean of consecutive passes.
    """
    width = -(-len(values) // _MOST_POINTS) or 1
    numbers, means = [], []
    for first in range(0, len(values), width):
        part = values[first : first + width]
        numbers.append(first + (len(part) + 1) / 2)
        means.append(sum(part) / len(part))
    return numbers, means
