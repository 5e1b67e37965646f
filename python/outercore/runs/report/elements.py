"""The pieces that a report's page is made of: cards, tiles, tables, style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from outercore.base.sizes import format_size, parse_size
from outercore.runs.report.charts import colour
from outercore.runs.report.findings import bottleneck, warnings
from outercore.runs.report.runs import Recorded

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
p.limit { margin: 14px 0 0; }
p.warning { margin: 10px 0 0; padding: 8px 12px; border-left: 4px solid #ff725c;
  background: rgba(255, 114, 92, 0.12); }
details { margin: 12px 0; }
summary { cursor: pointer; color: var(--soft); margin-bottom: 8px; }
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
    """A run's name and command above what is worth knowing first: titles and HTML values.

    Below them what limited the run, and what is wrong with it.
    """
    record = run.record
    said = [("limit", bottleneck(run)), *(("warning", text) for text in warnings(run))]
    sentences = "".join(f"<p class='{kind}'>{_prose(text)}</p>" for kind, text in said if text)
    status = "" if record["status"] == "finished" else f" ({escape(record['status'])})"
    shown = "".join(
        f"<div class='card tile'><span>{escape(title)}</span><b>{value}</b></div>"
        for title, value in tiles
    )
    return (
        f"<div class='run' style='--colour: {colour(place)}'><h3>{escape(run.name)}{status}</h3>"
        f"<code>{escape(record.get('command') or '')}</code></div><div class='tiles'>{shown}</div>"
        f"{sentences}"
    )


def _prose(text: str) -> str:
    """A sentence as HTML; what is between backticks is code."""
    parts = escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)
    )


def grid(*figures: go.Figure, wide: tuple[int, ...] = ()) -> str:
    """Figures as cards; those whose places are in `wide` take a row, those without data none."""
    cards = []
    for place, figure in enumerate(figures):
        if not any(_has_data(trace) for trace in figure.data):
            continue
        kind = "card wide" if place in wide else "card"
        drawn = figure.to_html(
            full_html=False,
            include_plotlyjs=False,
            config={"displayModeBar": False, "responsive": True},
        )
        cards.append(f"<div class='{kind}'>{drawn}</div>")
    return f"<div class='grid'>{''.join(cards)}</div>"


def _has_data(trace: Any) -> bool:
    values = trace.z if trace.type == "heatmap" else trace.x
    return values is not None and len(values) > 0


def configuration(run: Recorded) -> Mapping[str, str]:
    """What the run was told, by group."""
    config = run.record["config"]
    return {
        f"{group}.{key}": text_of(value)
        for group, values in config.items()
        for key, value in values.items()
    }


def data_set(run: Recorded) -> Mapping[str, str]:
    """What the run read."""
    data = run.record["data_set"]
    return {f"data set {key.replace('_', ' ')}": text_of(value) for key, value in data.items()}


def machine(run: Recorded) -> Mapping[str, str]:
    """Where it ran."""
    described = {}
    for key, value in run.record["machine"].items():
        size = key.endswith("_bytes")
        described[key.removesuffix("_bytes")] = format_size(value) if size else text_of(value)
    return described


def comparison(
    runs: Sequence[Recorded], columns: Sequence[Mapping[str, str]], *, what: str = ""
) -> str:
    """One row a key, one column a run. What all runs share stands once.

    With `what` the rows that differ are shown, and the others on request, as the `what`.
    """
    keys = list(dict.fromkeys(key for column in columns for key in column))
    differing, shared = [], []
    for key in keys:
        values = [column.get(key, "-") for column in columns]
        if len(set(values)) > 1:
            cells = "".join(f"<td>{escape(value)}</td>" for value in values)
            differing.append(f"<tr class='differs'><th>{escape(key)}</th>{cells}</tr>")
        else:
            cell = f"<td colspan='{len(columns)}'>{escape(values[0])}</td>"
            shared.append(f"<tr><th>{escape(key)}</th>{cell}</tr>")
    heads = "".join(f"<th>{escape(run.name)}</th>" for run in runs)
    head = f"<tr><th></th>{heads}</tr>" if len(runs) > 1 else ""
    if not what:
        return _table(head, [*shared, *differing])
    shown = _table(head, differing) if differing else ""
    opened = "" if differing else " open"
    more = f"<details{opened}><summary>{escape(what)}</summary>{_table('', shared)}</details>"
    return shown + (more if shared else "")


def _table(head: str, rows: Sequence[str]) -> str:
    return f"<div class='card scroll'><table>{head}{''.join(rows)}</table></div>"


def memory_of(config: Mapping[str, Any]) -> str:
    """The memory budget as it was given, sizes in the units of all others."""
    given = str(config["memory"])
    return given if given.endswith(("%", "auto")) else format_size(parse_size(given))


def text_of(value: Any) -> str:
    """A value as people read it."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(str(item) for item in value) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


def score_text(value: float | None) -> str:
    """A score with four digits."""
    return "-" if value is None else f"{value:.4f}"
