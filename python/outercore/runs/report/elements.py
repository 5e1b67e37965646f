"""Elements of the page: cards, tiles, tables, style."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import plotly.graph_objects as go

from outercore.base.display import value_of, words
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
/* auto-fill: a chart is drawn as soon as the browser reads its card, before later cards. */
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
table.short td:not(:last-child) { white-space: nowrap; }
tr.differs td { background: rgba(239, 177, 24, 0.13); }
footer { color: var(--soft); font-size: 13px; margin-top: 40px; }
@media (max-width: 560px) { .grid { grid-template-columns: 1fr; } }
"""


def summary(run: Recorded, place: int, tiles: Sequence[tuple[str, str]]) -> str:
    """The name and command of a run, its `tiles` (titles and HTML values), and its findings."""
    record = run.record
    findings = [("limit", bottleneck(run)), *(("warning", text) for text in warnings(run))]
    sentences = "".join(f"<p class='{kind}'>{_prose(text)}</p>" for kind, text in findings if text)
    status = "" if record["status"] == "finished" else f" ({escape(record['status'])})"
    cards = "".join(
        f"<div class='card tile'><span>{escape(title)}</span><b>{value}</b></div>"
        for title, value in tiles
    )
    return (
        f"<div class='run' style='--colour: {colour(place)}'><h3>{escape(run.name)}{status}</h3>"
        f"<code>{escape(record.get('command') or '')}</code></div><div class='tiles'>{cards}</div>"
        f"{sentences}"
    )


def _prose(text: str) -> str:
    """A sentence as HTML, with text in backticks as code."""
    parts = escape(text).split("`")
    return "".join(
        f"<code>{part}</code>" if place % 2 else part for place, part in enumerate(parts)
    )


def grid(*figures: go.Figure, wide: tuple[int, ...] = ()) -> str:
    """Charts as cards, without empty charts. Charts at the positions in `wide` take a whole row."""
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
    """Options of the run, by group."""
    config = run.record["config"]
    return {
        f"{group}.{key}": value_of(key, value)
        for group, values in config.items()
        for key, value in values.items()
    }


def data_set(run: Recorded) -> Mapping[str, str]:
    """Sizes and path of the data set of the run."""
    data = run.record["data_set"]
    return {f"data set {words(key)}": value_of(key, value) for key, value in data.items()}


def machine(run: Recorded) -> Mapping[str, str]:
    """Machine of the run."""
    return {
        key.removesuffix("_bytes"): value_of(key, value)
        for key, value in run.record["machine"].items()
    }


def comparison(
    runs: Sequence[Recorded], columns: Sequence[Mapping[str, str]], *, what: str = ""
) -> str:
    """A table with a row for each key and a column for each run; equal values share a cell.

    `columns` has the values of each run by key. With a title `what`, rows in which all runs are
    equal are folded under this title.
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
        return _card(head, [*shared, *differing])
    first = _card(head, differing) if differing else ""
    opened = "" if differing else " open"
    more = f"<details{opened}><summary>{escape(what)}</summary>{_card('', shared)}</details>"
    return first + (more if shared else "")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of texts. The first text of each row is its head."""
    head = "".join(f"<th>{escape(text)}</th>" for text in heads)
    lines = []
    for first, *values in rows:
        cells = "".join(f"<td>{escape(value)}</td>" for value in values)
        lines.append(f"<tr><th>{escape(first)}</th>{cells}</tr>")
    return _card(f"<tr>{head}</tr>", lines, "short")


def _card(head: str, rows: Sequence[str], kind: str = "") -> str:
    return f"<div class='card scroll'><table class='{kind}'>{head}{''.join(rows)}</table></div>"


def memory_of(config: Mapping[str, Any]) -> str:
    """The memory budget, with a size in the usual units."""
    memory = str(config["memory"])
    return memory if memory.endswith(("%", "auto")) else format_size(parse_size(memory))


def score_text(value: float | None) -> str:
    """A score with four digits."""
    return "-" if value is None else f"{value:.4f}"
