"""The page of a report: title, sections, tables, scripts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from plotly.offline import get_plotlyjs

from outercore.runs.report import algorithms, embedding, training
from outercore.runs.report.elements import STYLE, comparison, configuration, data_set, machine
from outercore.runs.report.runs import AlgorithmRun, EmbeddingRun, Recorded, Run


def render(runs: Sequence[Recorded]) -> str:
    """The whole page as HTML, Plotly's script included."""
    trained = [run for run in runs if isinstance(run, Run)]
    embedded = [run for run in runs if isinstance(run, EmbeddingRun)]
    computed = [run for run in runs if isinstance(run, AlgorithmRun)]
    title, lead = headline(runs, trained, embedded, computed)
    sections = [f"<h1>{escape(title)}</h1><p class='lead'>{escape(lead)}</p>"]
    if trained:
        sections += _part("training", trained, training.sections(trained), runs)
    if embedded:
        sections += _part("embedding", embedded, embedding.sections(embedded), runs)
    if computed:
        sections += _part("algorithms", computed, algorithms.sections(computed), runs)
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


def headline(
    runs: Sequence[Recorded],
    trained: Sequence[Run],
    embedded: Sequence[EmbeddingRun],
    computed: Sequence[AlgorithmRun],
) -> tuple[str, str]:
    """A title for all runs, and a line below: models or algorithms, and data sets."""
    parts = []
    if trained:
        models = _distinct(run.record["description"]["model"] for run in trained)
        parts.append(f"training of {models}")
    if embedded:
        models = _distinct(run.record["description"]["model"] for run in embedded)
        parts.append(f"embedding by {models}")
    if computed:
        parts.append(_distinct(run.algorithm for run in computed))
    sets = dict.fromkeys(run.record["data_set"]["path"].rstrip("/") for run in runs)
    names = [path.rpartition("/")[2] for path in sets]
    where = names[0] if len(sets) == 1 else f"{len(sets)} data sets"
    if len(parts) > 1:
        title, lead = f"{len(runs)} runs on {where}", [*parts]
        lead[0] = lead[0][0].upper() + lead[0][1:]
    else:
        title, lead = f"{parts[0][0].upper()}{parts[0][1:]} on {where}", []
    if len(sets) > 1:
        return title, "; ".join([*lead, ", ".join(names)])
    return title, "; ".join([*lead, _sizes(runs)])


def _sizes(runs: Sequence[Recorded]) -> str:
    """Sizes of the data set of all runs, from the record of the first."""
    data = runs[0].record["data_set"]
    known = ("graphs", "nodes", "edges", "features", "classes", "entities", "relations")
    counts = {name: data[name] for name in (*known, "train triples") if data.get(name)}
    words = {**{name: name for name in counts}, "classes": "outputs", "train triples": "triples"}
    return ", ".join(
        f"{count:,} {words[name].removesuffix('s') if count == 1 else words[name]}"
        for name, count in counts.items()
    )


def _distinct(names: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(names))


def _part(
    kind: str, of_kind: Sequence[Recorded], sections: Sequence[str], runs: Sequence[Recorded]
) -> list[str]:
    """Sections of the runs of a kind, with their data sets and options."""
    is_only = len(of_kind) == len(runs)
    what = "What all have in common" if len(of_kind) > 1 else "All"
    options = [{**data_set(run), **configuration(run)} for run in of_kind]
    return [
        *([] if is_only else [f"<h2>{kind.capitalize()}</h2>"]),
        *sections,
        f"<h2>Data and options{'' if is_only else f' of {kind}'}</h2>",
        comparison(of_kind, options, what=what),
    ]
