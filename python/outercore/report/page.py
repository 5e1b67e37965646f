"""The page around the sections: title, tables, scripts."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from plotly.offline import get_plotlyjs

from outercore.report import algorithms, embedding, training
from outercore.report.elements import STYLE, comparison, configuration, surroundings
from outercore.report.runs import AlgorithmRun, EmbeddingRun, Recorded, Run


def render(runs: Sequence[Recorded]) -> str:
    """The whole page as HTML, Plotly's script included."""
    trained = [run for run in runs if isinstance(run, Run)]
    embedded = [run for run in runs if isinstance(run, EmbeddingRun)]
    computed = [run for run in runs if isinstance(run, AlgorithmRun)]
    sections = [
        _header(trained, embedded, computed),
        *(training.sections(trained) if trained else ()),
        *(embedding.sections(embedded) if embedded else ()),
        *(algorithms.sections(computed) if computed else ()),
        "<h2>Configuration</h2>",
        comparison(runs, [configuration(run) for run in runs]),
        "<h2>Data and machine</h2>",
        comparison(runs, [surroundings(run) for run in runs]),
        "<footer>Made by <code>outercore report</code> from "
        + ", ".join(f"<code>{escape(run.name)}/record.json</code>" for run in runs)
        + "</footer>",
    ]
    title = f"Outercore: {', '.join(run.name for run in runs)}"
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        f"<title>{escape(title)}</title><style>{STYLE}</style>"
        f"<script>{get_plotlyjs()}</script></head><body><main>"
        + "\n".join(sections)
        + "</main></body></html>\n"
    )


def _header(
    trained: Sequence[Run], embedded: Sequence[EmbeddingRun], computed: Sequence[AlgorithmRun]
) -> str:
    headlines = [training.headline(run) for run in trained[:1]]
    headlines += [embedding.headline(embedded)] if embedded else []
    headlines += [algorithms.headline(computed)] if computed else []
    return "".join(
        f"<h1>{escape(title)}</h1><p class='lead'>{escape(lead)}</p>" for title, lead in headlines
    )
