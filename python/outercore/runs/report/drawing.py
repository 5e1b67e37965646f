"""What the figures of a report have in common."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from outercore.base.sizes import format_size

RUN_COLOURS = ("#4269d0", "#efb118", "#3ca951", "#ff725c", "#a463f2", "#6cc5b0", "#9c6b4e")
GREY = "#8b93a1"
FREE = "#d7dbe0"


def colour(place: int) -> str:
    """The colour of a run by its place in the report."""
    return RUN_COLOURS[place % len(RUN_COLOURS)]


def line(figure: go.Figure, name: str, x: list[Any], y: list[Any], place: int) -> None:
    """Adds a line; its points are marked where they are few."""
    mode = "lines+markers" if len(x) < 40 else "lines"
    figure.add_scatter(x=x, y=y, name=name, mode=mode, line={"color": colour(place), "width": 2.5})


def empty(title: str, x: str, y: str) -> go.Figure:
    """A figure in the style of the page, with nothing in it."""
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
    """Has the x axis, which counts from 1 to `most`, about ten ticks at whole numbers."""
    step = next(
        times * power
        for power in (10**digits for digits in range(18))
        for times in (1, 2, 5)
        if most <= 10 * times * power
    )
    figure.update_xaxes(tick0=0, dtick=step, tickformat=",d")
    if most == 1:
        # Around a single point Plotly takes 0 to 2, and the 0 touches that of the other axis.
        figure.update_xaxes(range=[0.5, 1.5])


@dataclass(frozen=True)
class Unit:
    """A unit in which an axis has numbers that people read."""

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
    """The same of seconds; hours only where there are several."""
    units = [Unit("microseconds", 1e-6), Unit("milliseconds", 1e-3), Unit("seconds", 1.0)]
    most = max(values, default=0.0)
    return Unit("hours", 3600.0) if most > 3 * 3600 else _unit(units, [most])


def _unit(units: Sequence[Unit], values: Iterable[float]) -> Unit:
    most = max(values, default=0.0)
    return next((unit for unit in reversed(units) if most >= unit.size), units[0])


def budget_bar(title: str, parts: Mapping[str, float], budget: float) -> go.Figure:
    """Parts of a memory budget in bytes, side by side; what they leave is free."""
    unit = byte_unit([budget])
    figure = empty(title, unit.name, "")
    whole = {**parts, "free": max(budget - sum(parts.values()), 0)}
    colours = [*(colour(place) for place in range(len(parts))), FREE]
    for (name, size), chosen in zip(whole.items(), colours, strict=True):
        if size:
            figure.add_bar(
                y=["budget"],
                x=unit.of([size]),
                orientation="h",
                name=name,
                marker={"color": chosen},
                hovertemplate=f"{name}: {format_size(size)}<extra></extra>",
            )
    # The plot is low: at the usual share of its height the legend would cover the axis.
    legend = {"y": -0.5, "traceorder": "normal"}
    figure.update_layout(barmode="stack", height=240, hovermode="closest", legend=legend)
    figure.update_yaxes(showticklabels=False)
    return figure


def shares(
    figure: go.Figure,
    names: Sequence[str],
    title: str,
    seconds: Sequence[float],
    whole: Sequence[float],
    chosen: str,
) -> None:
    """Adds one state of several as a share of the time of each name, lying bars."""
    figure.add_bar(
        y=list(names),
        x=[part / total if total else 0.0 for part, total in zip(seconds, whole, strict=True)],
        orientation="h",
        name=title,
        marker={"color": chosen},
        customdata=list(seconds),
        hovertemplate="%{y} " + title + ": %{x:.0%} (%{customdata:.1f} s)<extra></extra>",
    )
