"""The sections of a report about training."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from outercore.base.durations import format_duration
from outercore.base.sizes import format_size
from outercore.runs import record as records
from outercore.runs.report import charts
from outercore.runs.report.elements import grid, memory_of, summary
from outercore.runs.report.runs import Run


def sections(runs: Sequence[Run]) -> list[str]:
    """Scores first, then curves, then the engine of each run."""
    return [
        *(_summary(run, place) for place, run in enumerate(runs)),
        "<h2>Learning</h2>",
        grid(charts.loss(runs), *charts.scores(runs), charts.throughput(runs), charts.read(runs)),
        *(_engine(run, len(runs) > 1) for run in runs),
    ]


def _summary(run: Run, place: int) -> str:
    record = run.record
    hits = records.hit_ratio(run.counters)
    tiles = [
        (f"test {run.metric}", _score(run.score("test"))),
        (f"validation {run.metric}", _score(run.score("valid"))),
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
    figures = [
        charts.utilisation(run),
        charts.cache(run),
        charts.pipeline(run),
        charts.timeline(run),
        charts.memory(run),
    ]
    return f"<h2>{title}</h2>" + grid(*figures, wide=(4,)) + _predictions(run)


def _predictions(run: Run) -> str:
    """What the run expected of its epochs before the first one, and what they were."""
    if not run.predictions:
        return ""
    rows = []
    for one in run.predictions:
        values = (_shown(one.predicted, one.unit), _shown(one.measured, one.unit))
        deviation = (
            f"{100 * one.deviation:+.1f} points" if one.unit == "ratio" else f"{one.deviation:+.0%}"
        )
        cells = "".join(f"<td>{escape(value)}</td>" for value in (*values, deviation))
        rows.append(f"<tr><th>{escape(one.name)}</th>{cells}</tr>")
    first = run.record["forecast"]["first_epoch"]
    later = run.record["forecast"]["later_epochs"]
    slowest = escape(f"{first['bottleneck']}, later {later['bottleneck']}")
    head = "<tr><th></th><th>predicted</th><th>measured</th><th>deviation</th></tr>"
    return (
        "<h3>Predicted and measured</h3><div class='card scroll'><table>"
        f"{head}{''.join(rows)}<tr><th>predicted bottleneck</th><td>{slowest}</td><td></td>"
        "<td></td></tr></table></div>"
    )


def _shown(value: float, unit: str) -> str:
    match unit:
        case "bytes":
            return format_size(round(value))
        case "ratio":
            return f"{value:.1%}"
    return format_duration(value)


def _score(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"
