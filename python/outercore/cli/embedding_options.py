"""Options and runs that the commands of `outercore embedding` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.embedding.use.embedding import Embedding

Run = Annotated[
    Path, typer.Argument(help="Run directory of `outercore embed`.", show_default=False)
]
Data = Annotated[
    Path | None, typer.Option("--data", help="Where the run's data set is now, if it was moved.")
]
Score = Annotated[
    str | None,
    typer.Option("--score", help="The run's own score function: `FILE.py:NAME` or `MODULE:NAME`."),
]
Ids = Annotated[bool, typer.Option("--ids", help="Ids instead of names.")]
K = Annotated[int, typer.Option("-k", "--k", help="How many to find.")]
Metric = Annotated[
    str,
    typer.Option(
        help="`inner`, `cosine`, `euclidean`, `manhattan`, `modulus`; `model` is the model's own."
    ),
]
Approximate = Annotated[
    bool,
    typer.Option("--approximate", help="Ask the index that `outercore embedding index` built."),
]
Recall = Annotated[
    float, typer.Option(help="With `--approximate`: share of the true ones to be found.")
]
Out = Annotated[
    Path | None, typer.Option("--out", help="Write to this `.parquet`, `.csv` or `.tsv` instead.")
]
Among = Annotated[
    Path | None,
    typer.Option(
        "--candidates",
        help="Look only among the entities of this text (a name a line, or an id with `--ids`) or "
        "`.npy` of ids.",
    ),
]
Candidates = Annotated[
    str, typer.Option(help="Rank among `all` entities, or some drawn `uniform` or by `degree`.")
]
Count = Annotated[
    int, typer.Option("--count", "--candidate-count", help="Candidates that are drawn.")
]
Raw = Annotated[
    bool, typer.Option("--raw", help="Count other true answers as wrong ones, as some do.")
]
Triples = Annotated[int, typer.Option(help="Rank so many at most; 0 for all.")]


def open_run(run: Path, data: Path | None, score: str | None = None) -> Embedding:
    """A run's rows, opened."""
    return Embedding.open(run, data_set=data, score=score)


def scored(run: Path, data: Path | None, score: str | None) -> Embedding:
    """A run, with the score function if it is one that needs it."""
    opened = open_run(run, data)
    return open_run(run, data, score) if opened.model.kind == "custom" else opened
