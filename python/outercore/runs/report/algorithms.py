"""The sections of a report about graph algorithms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from outercore.base.durations import format_duration
from outercore.base.sizes import format_size
from outercore.runs.report import algorithm_charts as charts
from outercore.runs.report.elements import comparison, grid, summary, text_of
from outercore.runs.report.runs import AlgorithmRun


def sections(runs: Sequence[AlgorithmRun]) -> list[str]:
    """What was found, what it cost, pass by pass, and how memory was divided."""
    counters = [
        {_spaced(name): _shown(name, value) for name, value in _flat(run.counters)} for run in runs
    ]
    figures = [charts.seconds(runs), charts.read(runs), charts.busy(runs)]
    if any(run.passes for run in runs):
        figures += [charts.seconds_by_pass(runs), charts.bytes_by_pass(runs)]
    return [
        *(_summary(run, place) for place, run in enumerate(runs)),
        "<h2>Cost</h2>",
        grid(*figures),
        "<h2>Memory</h2>",
        grid(*(charts.memory(run) for run in runs)),
        "<h2>Results</h2>",
        comparison(runs, [_results(run) for run in runs]),
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


def _results(run: AlgorithmRun) -> dict[str, str]:
    return {_spaced(name): _shown(name, value) for name, value in run.record["result"].items()}


def _spaced(name: str) -> str:
    """The name of a counter as people read it.

    Example:
        >>> _spaced("reads.useful_bytes"), _spaced("io.busy_s")
        ('reads useful bytes', 'io busy, seconds')
    """
    words = name.replace(".", " ").replace("_", " ")
    return f"{words.removesuffix(' s')}, seconds" if words.endswith(" s") else words


def _flat(values: Any, prefix: str = "") -> list[tuple[str, Any]]:
    """Nested values by their path; long lists are drawn, not told."""
    flat: list[tuple[str, Any]] = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{key}.")
        elif not isinstance(value, list):
            flat.append((f"{prefix}{key}", value))
    return flat


def _shown(name: str, value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, int) and name.endswith(("bytes", "state")):
        return format_size(value)
    return text_of(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"
