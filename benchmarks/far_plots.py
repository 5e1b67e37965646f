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


def _by_ratio(one: Series) -> tuple[str, str, float | str] | None:
    found = re.fullmatch(r"(\w+) at ([0-9.]+)", one.case)
    return (found[1], one.program, float(found[2])) if found else None


def _by_threads(one: Series) -> tuple[str, str, float | str] | None:
    found = re.fullmatch(r"(\w+) with (\d+)", one.case)
    return ("seconds", found[1], int(found[2])) if found and one.program == "threads" else None


def _by_chunk(one: Series) -> tuple[str, str, float | str] | None:
    found = re.fullmatch(r"(\w+) in (\w+)", one.case)
    return (found[1], one.program.removeprefix("chunk, "), found[2]) if found else None


def _by_partition(one: Series) -> tuple[str, str, float | str] | None:
    found = re.fullmatch(r"(\w+) with (\d+)", one.case)
    if found is None or not one.program.startswith("partitions of "):
        return None
    return (found[1], f"{found[2]} threads", one.program.removeprefix("partitions of "))


def _by_queue(one: Series) -> tuple[str, str, float | str] | None:
    found = re.fullmatch(r"(\d+) threads, length (\d+)", one.case)
    return (f"queue length {found[2]}", one.program, int(found[1])) if found else None


def _figure(
    result: Result, title: str, across: str, key: Key, unit: str, *, log_y: bool = False
) -> go.Figure:
    panels: dict[str, dict[str, list[tuple[float | str, float]]]] = {}
    for one in result.series:
        place = key(one)
        if place is not None and one.median is not None:
            panel, line, at = place
            panels.setdefault(panel, {}).setdefault(line, []).append((at, one.median))
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
    for one in result.series:
        bare = one.program.removesuffix(", no buffering")
        if bare == one.program or not one.case.endswith(" at 1.0"):
            continue
        without, buffered = one.median, result.median(bare, one.case)
        if without and buffered:
            saved = 100 * (1 - buffered / without)
            cells = (
                one.case.split()[0],
                bare,
                f"{without:.3f}",
                f"{buffered:.3f}",
                f"{saved:.0f} %",
            )
            rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("", "", "without s", "with s", "saved"))
    return f"<h3>Buffering (table 4)</h3><table><tr>{head}</tr>{''.join(rows)}</table>"
