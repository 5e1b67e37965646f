"""Style of the charts of a report, and the charts of every run with epochs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import plotly.graph_objects as go

from outercore.base.sizes import format_size
from outercore.runs.report.runs import EmbeddingRun, EpochRun, Run

Epochs = TypeVar("Epochs", bound=EpochRun)
RUN_COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2", "#6cc5b0", "#9c6b4e")
GREY = "#8b93a1"
FREE = "#d7dbe0"
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


def colour(place: int) -> str:
    """The colour of a run, by its position in the report."""
    return RUN_COLOURS[place % len(RUN_COLOURS)]


def line(figure: go.Figure, name: str, x: list[Any], y: list[Any], place: int) -> None:
    """Adds a line in the colour of run `place`. A line of few points has markers."""
    mode = "lines+markers" if len(x) < 40 else "lines"
    figure.add_scatter(x=x, y=y, name=name, mode=mode, line={"color": colour(place), "width": 2.5})


def empty(title: str, x: str, y: str) -> go.Figure:
    """An empty chart in the style of the page."""
    figure = go.Figure()
    figure.update_layout(
        title={"text": title, "font": {"size": 15}, "x": 0, "xref": "paper"},
        height=340,
        margin={"l": 60, "r": 16, "t": 48, "b": 60},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "inherit", "size": 12, "color": GREY},
        legend={"orientation": "h", "y": -0.22, "yanchor": "top", "x": 0, "xanchor": "left"},
        hovermode="x unified",
        bargap=0.3,
    )
    grid = "rgba(139,147,161,0.25)"
    # Plotly would write 20k, 1.5M and 300μ.
    plain = {"exponentformat": "none", "separatethousands": True}
    figure.update_xaxes(title=x, gridcolor=grid, zeroline=False, **plain)
    figure.update_yaxes(title=y, gridcolor=grid, zeroline=False, automargin=True, **plain)
    return figure


def counted(figure: go.Figure, most: int) -> None:
    """Sets about ten ticks at whole numbers on an x axis from 1 to `most`."""
    step = next(
        times * power
        for power in (10**digits for digits in range(18))
        for times in (1, 2, 5)
        if most <= 10 * times * power
    )
    figure.update_xaxes(tick0=0, dtick=step, tickformat=",d")
    if most == 1:
        # For a single point Plotly chooses 0 to 2, and the two zeros of the axes touch.
        figure.update_xaxes(range=[0.5, 1.5])


@dataclass(frozen=True)
class Unit:
    """A unit of an axis."""

    name: str
    size: float

    def of(self, values: Iterable[float]) -> list[float]:
        """The values in this unit."""
        return [value / self.size for value in values]


def byte_unit(values: Iterable[float]) -> Unit:
    """The largest unit in which the largest value is above one.

    Example:
        >>> byte_unit([100, 3 << 20]).name
        'MiB'
    """
    names = ("B", "KiB", "MiB", "GiB", "TiB")
    return _unit([Unit(name, 1 << 10 * place) for place, name in enumerate(names)], values)


def time_unit(values: Iterable[float]) -> Unit:
    """The largest unit in which the largest of these seconds is above one.

    Hours are used only above three hours.
    """
    units = [Unit("microseconds", 1e-6), Unit("milliseconds", 1e-3), Unit("seconds", 1.0)]
    most = max(values, default=0.0)
    return Unit("hours", 3600.0) if most > 3 * 3600 else _unit(units, [most])


def _unit(units: Sequence[Unit], values: Iterable[float]) -> Unit:
    most = max(values, default=0.0)
    return next((unit for unit in reversed(units) if most >= unit.size), units[0])


def bars(
    title: str,
    x: Sequence[Any],
    parts: Mapping[tuple[str, str], Sequence[float]],
    unit_of: Callable[[Iterable[float]], Unit] | None = None,
    *,
    axis: str = "epoch",
    grouped: bool = False,
) -> go.Figure:
    """A bar chart. At each `x`, the bars of all parts are stacked, or side by side if `grouped`.

    `parts` holds the values by name and colour of a part. `unit_of` chooses the unit of the values;
    without it they are shares.
    """
    heights = map(max if grouped else sum, zip(*parts.values(), strict=True))
    unit = Unit("share", 1.0) if unit_of is None else unit_of(heights)
    figure = empty(title, axis, unit.name)
    for (name, chosen), values in parts.items():
        figure.add_bar(x=list(x), y=unit.of(values), name=name, marker={"color": chosen})
    figure.update_layout(barmode="group" if grouped else "stack")
    if unit_of is None:
        figure.update_yaxes(tickformat=".0%", range=[0, 1])
    if axis == "epoch":
        counted(figure, max(x, default=1))
    return figure


def budget_bar(title: str, parts: Mapping[str, float], budget: float) -> go.Figure:
    """A bar with the parts of a memory budget, in bytes. The rest of the budget is free."""
    unit = byte_unit([budget])
    figure = empty(title, unit.name, "")
    whole = {**parts, "free": max(budget - sum(parts.values()), 0)}
    colours = [*(colour(place) for place in range(len(parts))), FREE]
    for (name, size), chosen in zip(whole.items(), colours, strict=True):
        if size:
            row(figure, name, ["budget"], unit.of([size]), chosen, f": {format_size(size)}")
    # The chart is low: at the usual distance the legend would cover the axis. The names of many
    # parts take more than one line.
    height, distance = (320, -0.3) if len(parts) > 7 else (240, -0.5)
    legend = {"y": distance, "traceorder": "normal"}
    figure.update_layout(barmode="stack", height=height, hovermode="closest", legend=legend)
    figure.update_yaxes(showticklabels=False)
    return figure


def row(
    figure: go.Figure, name: str, y: list[str], x: list[float], chosen: str, text: str, **more: Any
) -> None:
    """Adds horizontal bars of the colour `chosen`. Under the pointer, `text` follows the `name`."""
    figure.add_bar(
        y=y,
        x=x,
        orientation="h",
        name=name,
        marker={"color": chosen, "line": {"width": 0}},
        hovertemplate=f"{name}{text}<extra></extra>",
        **more,
    )


def by_epoch(
    title: str, unit: str, runs: Sequence[Epochs], value: Callable[[Epochs, Any], float]
) -> go.Figure:
    """A line for each run, with a value for each epoch."""
    figure = empty(title, "epoch", unit)
    for place, run in enumerate(runs):
        line(figure, run.name, run.numbers, [value(run, epoch) for epoch in run.epochs], place)
    counted(figure, _last_epoch(runs))
    return figure


def loss(runs: Sequence[EpochRun]) -> go.Figure:
    """Training loss by epoch."""
    return by_epoch("Training loss", "loss", runs, lambda _, epoch: epoch["loss"])


def throughput(runs: Sequence[EpochRun]) -> go.Figure:
    """Seeds or triples a second by epoch."""
    figure = by_epoch(
        "Throughput",
        f"{runs[0].seen}/s",
        runs,
        lambda run, epoch: epoch[run.seen] / max(epoch["seconds"], 1e-9),
    )
    figure.update_yaxes(rangemode="tozero")
    return figure


def scores(runs: Sequence[Run | EmbeddingRun]) -> list[go.Figure]:
    """Validation score by epoch, a chart for each metric; the best score is marked."""
    return [_score(runs, metric) for metric in sorted({run.metric for run in runs})]


def _score(runs: Sequence[Run | EmbeddingRun], metric: str) -> go.Figure:
    figure = empty(f"Validation {metric}", "epoch", metric)
    for place, run in enumerate(runs):
        if run.metric != metric:
            continue
        scored = [epoch for epoch in run.epochs if epoch["score"] is not None]
        points = [(epoch["epoch"] + 1, epoch["score"]) for epoch in scored]
        line(figure, run.name, [x for x, _ in points], [y for _, y in points], place)
        # The last epoch marked as best so far is the best of all.
        best = [point for point, epoch in zip(points, scored, strict=True) if epoch["best"]]
        if best:
            figure.add_scatter(
                x=[best[-1][0]],
                y=[best[-1][1]],
                mode="markers",
                marker={"symbol": "star", "size": 13, "color": colour(place)},
                name=f"{run.name}: best",
                showlegend=False,
            )
    counted(figure, _last_epoch(runs))
    return figure


def _last_epoch(runs: Sequence[EpochRun]) -> int:
    return max((number for run in runs for number in run.numbers), default=1)


def timeline(run: EpochRun) -> go.Figure:
    """Phases of a run over time."""
    figure = empty(f"Timeline of {run.name}", "", "")
    gantt(figure, run.record["timeline"], "name", _SPAN_COLOURS)
    return figure


def gantt(
    figure: go.Figure,
    spans: Sequence[Mapping[str, Any]],
    key: str,
    colours: Mapping[str, str],
) -> None:
    """Adds spans as horizontal bars. Spans with the same value of `key` share a line."""
    unit = time_unit(span["end_s"] for span in spans)
    figure.update_xaxes(title=unit.name)
    names = dict.fromkeys(span[key] for span in spans)
    for name in names:
        chosen = [span for span in spans if span[key] == name]
        numbers = [span.get("epoch", span.get("item")) for span in chosen]
        row(
            figure,
            name,
            [name] * len(chosen),
            unit.of(span["end_s"] - span["start_s"] for span in chosen),
            colours.get(name, GREY),
            f"%{{customdata}}: %{{x:.3f}} {unit.name} from %{{base:.3f}}",
            base=unit.of(span["start_s"] for span in chosen),
            showlegend=False,
            customdata=["" if number is None else f" {number + 1}" for number in numbers],
        )
    figure.update_layout(
        barmode="overlay", hovermode="closest", height=max(220, 110 + 42 * len(names))
    )
    figure.update_yaxes(categoryorder="array", categoryarray=list(names)[::-1])
