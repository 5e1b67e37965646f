"""Draws the plots of the far-memory benchmark as an HTML page without external files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import plotly.graph_objects as go
from measure import Result, Series
from plotly.subplots import make_subplots

Key = Callable[[Series], tuple[str, str, float | str] | None]
"""Panel, line and horizontal position of a series; None if it is not in these panels."""


def page(result: Result, path: Path) -> Path:
    """Write the page; returns its path."""
    figures = [
        _figure(result, "Far ratio (figure 18)", "far ratio", _by_ratio, "seconds", log_y=True),
        _figure(result, "Threads (figures 16, 17)", "threads", _by_threads, "seconds"),
        _figure(result, "Chunk size (figure 19)", "chunk", _by_chunk, "seconds"),
        _figure(result, "Partition size (figure 20)", "nodes", _by_partition, "seconds"),
        _figure(result, "Receive buffers (figure 21)", "threads", _by_queue, "bytes", log_y=True),
    ]
    parts = [
        figure.to_html(full_html=False, include_plotlyjs=number == 0)
        for number, figure in enumerate(figures)
    ]
    text = "\n".join(
        ["<!doctype html><meta charset='utf-8'><title>Far memory</title>", *parts, _table(result)]
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _by_ratio(series: Series) -> tuple[str, str, float | str] | None:
    match = re.fullmatch(r"(\w+) at ([0-9.]+)", series.case)
    return (match[1], series.program, float(match[2])) if match else None


def _by_threads(series: Series) -> tuple[str, str, float | str] | None:
    match = re.fullmatch(r"(\w+) with (\d+)", series.case)
    return ("seconds", match[1], int(match[2])) if match and series.program == "threads" else None


def _by_chunk(series: Series) -> tuple[str, str, float | str] | None:
    match = re.fullmatch(r"(\w+) in (\w+)", series.case)
    return (match[1], series.program.removeprefix("chunk, "), match[2]) if match else None


def _by_partition(series: Series) -> tuple[str, str, float | str] | None:
    match = re.fullmatch(r"(\w+) with (\d+)", series.case)
    if match is None or not series.program.startswith("partitions of "):
        return None
    return (match[1], f"{match[2]} threads", series.program.removeprefix("partitions of "))


def _by_queue(series: Series) -> tuple[str, str, float | str] | None:
    match = re.fullmatch(r"(\d+) threads, length (\d+)", series.case)
    return (f"queue length {match[2]}", series.program, int(match[1])) if match else None


def _figure(
    result: Result, title: str, across: str, key: Key, unit: str, *, log_y: bool = False
) -> go.Figure:
    panels: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for series in result.series:
        place = key(series)
        if place is not None and series.median is not None:
            panel, line, at = place
            panels.setdefault(panel, {}).setdefault(line, []).append((at, series.median))
    figure = make_subplots(cols=max(1, len(panels)), subplot_titles=list(panels))
    for column, lines in enumerate(panels.values(), start=1):
        for name, points in lines.items():
            places, values = zip(*points, strict=True)
            figure.add_scatter(
                x=places, y=values, name=name, mode="lines+markers", row=1, col=column
            )
        figure.update_xaxes(title=across, row=1, col=column)
        figure.update_yaxes(title=unit, rangemode="tozero", row=1, col=column)
    if log_y:
        figure.update_yaxes(type="log")
    return figure.update_layout(title=title, template="plotly_white", height=420)


def _table(result: Result) -> str:
    """Table 4: seconds without and with buffering at far ratio 1."""
    rows = []
    for series in result.series:
        bare = series.program.removesuffix(", no buffering")
        if bare == series.program or not series.case.endswith(" at 1.0"):
            continue
        without, buffered = series.median, result.median(bare, series.case)
        if without and buffered:
            saved = 100 * (1 - buffered / without)
            cells = (
                series.case.split()[0],
                bare,
                f"{without:.3f}",
                f"{buffered:.3f}",
                f"{saved:.0f} %",
            )
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("", "", "without s", "with s", "saved"))
    return f"<h3>Buffering (table 4)</h3><table><tr>{head}</tr>{''.join(rows)}</table>"
