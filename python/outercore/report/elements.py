"""The pieces that a report's page is made of: cards, tiles, tables, style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from outercore.config.sizes import format_size
from outercore.report.drawing import colour
from outercore.report.runs import Recorded

STYLE = """
:root { --ink: #1c2330; --soft: #667085; --paper: #f6f7f9; --card: #fff; --line: #e4e7ec; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8eaee; --soft: #98a1b0; --paper: #14171c; --card: #1c2027; --line: #2c323c; }
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1240px; margin: 0 auto; padding: 36px 24px 64px; }
h1 { font-size: 26px; margin: 0 0 4px; letter-spacing: -0.01em; }
h2 { font-size: 18px; margin: 40px 0 14px; }
p.lead { color: var(--soft); margin: 0 0 24px; }
/* auto-fill: a chart is drawn when its card is read, before the cards beside it are there. */
.grid { display: grid; gap: 16px; grid-template-columns: repeat(auto-fill, minmax(480px, 1fr)); }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px;
  padding: 14px 16px; min-width: 0; overflow: hidden; }
.wide { grid-column: 1 / -1; }
.tiles { display: grid; gap: 12px; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.tile b { display: block; font-size: 22px; font-weight: 600; letter-spacing: -0.01em; }
.tile span { color: var(--soft); font-size: 13px; }
.run { border-left: 4px solid var(--colour); padding-left: 12px; margin: 22px 0 12px; }
.run h3 { margin: 0; font-size: 16px; }
.run code { color: var(--soft); font-size: 12.5px; overflow-wrap: anywhere; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
th, td { text-align: left; padding: 5px 14px 5px 0; border-bottom: 1px solid var(--line);
  vertical-align: top; }
th { color: var(--soft); font-weight: 500; }
td { font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
tr.differs td { background: rgba(239, 177, 24, 0.13); }
footer { color: var(--soft); font-size: 13px; margin-top: 40px; }
@media (max-width: 560px) { .grid { grid-template-columns: 1fr; } }
"""


def summary(run: Recorded, place: int, tiles: Sequence[tuple[str, str]]) -> str:
    """A run's name and command above what is worth knowing first: titles and HTML values."""
    record = run.record
    status = "" if record["status"] == "finished" else f" ({escape(record['status'])})"
    shown = "".join(
        f"<div class='card tile'><span>{escape(title)}</span><b>{value}</b></div>"
        for title, value in tiles
    )
    return (
        f"<div class='run' style='--colour: {colour(place)}'><h3>{escape(run.name)}{status}</h3>"
        f"<code>{escape(record.get('command') or '')}</code></div><div class='tiles'>{shown}</div>"
    )


def grid(*figures: go.Figure, wide: tuple[int, ...] = ()) -> str:
    """Figures as cards; those whose places are in `wide` take a row."""
    cards = []
    for place, figure in enumerate(figures):
        kind = "card wide" if place in wide else "card"
        drawn = figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            config={"displayModeBar": False, "responsive": True},
        )
        cards.append(f"<div class='{kind}'>{drawn}</div>")
    return f"<div class='grid'>{''.join(cards)}</div>"


def configuration(run: Recorded) -> Mapping[str, str]:
    """What the run was told, by group."""
    config = run.record["config"]
    return {
        f"{group}.{key}": text_of(value)
        for group, values in config.items()
        for key, value in values.items()
    }


def surroundings(run: Recorded) -> Mapping[str, str]:
    """Data set and machine."""
    record = run.record
    described = {f"data set {key}": text_of(value) for key, value in record["data_set"].items()}
    for key, value in record["machine"].items():
        size = key.endswith("_bytes")
        described[key.removesuffix("_bytes")] = format_size(value) if size else text_of(value)
    return described


def comparison(runs: Sequence[Recorded], columns: Sequence[Mapping[str, str]]) -> str:
    """One row a key, one column a run; rows that differ are marked."""
    keys = list(dict.fromkeys(key for column in columns for key in column))
    rows = []
    for key in keys:
        values = [column.get(key, "-") for column in columns]
        marked = " class='differs'" if len(set(values)) > 1 else ""
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        rows.append(f"<tr{marked}><th>{escape(key)}</th>{cells}</tr>")
    heads = "".join(f"<th>{escape(run.name)}</th>" for run in runs)
    return f"<div class='card scroll'><table><tr><th></th>{heads}</tr>{''.join(rows)}</table></div>"


def text_of(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value)
    return f"{value:,}" if isinstance(value, int) else str(value)
