"""The page of a report: title, sections, tables, scripts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from plotly.offline import get_plotlyjs

from outercore.runs.report import algorithms, embedding, training
from outercore.runs.report.elements import STYLE, comparison, configuration, data_set, machine
from outercore.runs.report.runs import AlgorithmRun, EmbeddingRun, Recorded, Run

_Sections = Callable[[Sequence[Any]], list[str]]
_KINDS: Mapping[str, tuple[type[Recorded], _Sections, str]] = {
    "training": (Run, training.sections, "training of "),
    "embedding": (EmbeddingRun, embedding.sections, "embedding by "),
    "algorithms": (AlgorithmRun, algorithms.sections, ""),
}
"""Kinds of runs: their records, their sections, and the title before the names of their models."""
_SIZES = ("graphs", "nodes", "edges", "features", "classes", "entities", "relations")


def render(runs: Sequence[Recorded]) -> str:
    """The whole page as HTML, Plotly's script included."""
    title, lead = headline(runs)
    sections = [f"<h1>{escape(title)}</h1><p class='lead'>{escape(lead)}</p>"]
    for name, (kind, draw, _) in _KINDS.items():
        if of_kind := [run for run in runs if isinstance(run, kind)]:
            sections += _part(name, of_kind, draw(of_kind), runs)
    sections += [
        "<h2>Machine</h2>",
        comparison(runs, [machine(run) for run in runs]),
        "<footer>Made by <code>outercore report</code> from "
        + ", ".join(f"<code>{escape(run.name)}/record.json</code>" for run in runs)
        + "</footer>",
    ]
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>Outercore: {escape(title)}</title><style>{STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><main>"
        + "\n".join(sections)
        + "</main></body></html>\n"
    )


def headline(runs: Sequence[Recorded]) -> tuple[str, str]:
    """A title for all runs, and a line below: models or algorithms, and data sets."""
    parts = []
    for kind, _, text in _KINDS.values():
        described = (run.record["description"] for run in runs if isinstance(run, kind))
        models = dict.fromkeys(each.get("model") or each["algorithm"] for each in described)
        if models:
            parts.append(text + ", ".join(models))
    sets = dict.fromkeys(run.record["data_set"]["path"].rstrip("/") for run in runs)
    names = [path.rpartition("/")[2] for path in sets]
    lead = [_sizes(runs[0]) if len(sets) == 1 else ", ".join(names)]
    title = parts[0]
    if len(parts) > 1:
        title, lead = f"{len(runs)} runs", [_capital(parts[0]), *parts[1:], *lead]
    where = names[0] if len(sets) == 1 else f"{len(sets)} data sets"
    return f"{_capital(title)} on {where}", "; ".join(lead)


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]


def _sizes(run: Recorded) -> str:
    data = run.record["data_set"]
    words = {name: name for name in _SIZES} | {"classes": "outputs", "train triples": "triples"}
    return ", ".join(
        f"{data[name]:,} {word.removesuffix('s') if data[name] == 1 else word}"
        for name, word in words.items()
        if data.get(name)
    )


def _part(
    kind: str, of_kind: Sequence[Recorded], sections: Sequence[str], runs: Sequence[Recorded]
) -> list[str]:
    is_only = len(of_kind) == len(runs)
    what = "What all have in common" if len(of_kind) > 1 else "All"
    options = [{**data_set(run), **configuration(run)} for run in of_kind]
    return [
        *([] if is_only else [f"<h2>{kind.capitalize()}</h2>"]),
        *sections,
        f"<h2>Data and options{'' if is_only else f' of {kind}'}</h2>",
        comparison(of_kind, options, what=what),
    ]
