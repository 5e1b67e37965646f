"""Options that the commands of `outercore embedding` share."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore import embedding as embeddings
from outercore.base.fields import within
from outercore.base.options import MemoryOption
from outercore.cli import options
from outercore.cli.embed_options import Score
from outercore.cli.embedding_results import Answers
from outercore.data.outputs import TABLES, check_output
from outercore.embedding.use.questions import read_candidates


def _share(option: typer.CallbackParam, value: float) -> float:
    within(option.opts[0], value, 0.0, 1.0)
    return value


Data = Annotated[
    Path | None, typer.Option("--data", help="Where the run's data set is now, if it was moved.")
]
Ids = Annotated[bool, typer.Option("--ids", help="Rows, from 0, instead of names or ids in files.")]
Metric = Annotated[
    str,
    typer.Option(
        help="`inner`, `cosine`, `euclidean`, `manhattan`, `modulus`; `model` is the model's own."
    ),
]


@dataclass(frozen=True, kw_only=True)
class OfRun:
    """Any command: a run."""

    run: Annotated[
        Path, typer.Argument(help="Run directory of `outercore embed`.", show_default=False)
    ]
    data: Data = None
    json: options.Json = False

    def open(self, score: str | None = None) -> embeddings.Embedding:
        """The run's rows, opened."""
        return embeddings.Embedding.open(self.run, data_set=self.data, score=score)


@dataclass(frozen=True, kw_only=True)
class Searching(OfRun):
    """A command that looks for entities."""

    k: Annotated[int, typer.Option("-k", "--k", help="How many to find.")] = 10
    candidates: Annotated[
        Path | None,
        typer.Option(
            "--candidates",
            help="Look only among the entities of this text (a name a line, or an id with "
            "`--ids`) or `.npy` of ids.",
        ),
    ] = None
    approximate: Annotated[
        bool,
        typer.Option("--approximate", help="Ask the index that `outercore embedding index` built."),
    ] = False
    recall: Annotated[
        float,
        typer.Option(
            callback=_share, help="With `--approximate`: share of the true ones to be found."
        ),
    ] = 0.95
    ids: Ids = False
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write to this `.parquet`, `.csv` or `.tsv` instead."),
    ] = None
    overwrite: options.Overwrite = False

    def check_out(self) -> None:
        """Errors: `InvalidError` for a file that cannot be written."""
        if self.out is not None:
            check_output(self.out, TABLES, option="--out", overwrite=self.overwrite)

    def where(self, opened: embeddings.Embedding, metric: str) -> dict[str, Any]:
        """Among what to look, as the functions of the package take it."""
        index = candidates = None
        if self.approximate:
            index = embeddings.Index.open(opened, metric=metric, recall=self.recall)
        if self.candidates is not None:
            candidates = read_candidates(opened, self.candidates, by_id=self.ids)
        return {"index": index, "candidates": candidates}

    def answers(self, opened: embeddings.Embedding) -> Answers:
        """Where answers go."""
        return Answers(opened, self.out, ids=self.ids, json=self.json)


@dataclass(frozen=True, kw_only=True)
class Ranking(OfRun):
    """A command that ranks held-out triples."""

    candidates: Annotated[
        str, typer.Option(help="Rank among `all` entities, or some drawn `uniform` or by `degree`.")
    ] = "auto"
    count: Annotated[
        int, typer.Option("--count", "--candidate-count", help="Candidates that are drawn.")
    ] = 1000
    raw: Annotated[
        bool, typer.Option("--raw", help="Count other true answers as wrong ones, as some do.")
    ] = False
    triples: Annotated[int, typer.Option(help="Rank so many at most; 0 for all.")] = 0
    negatives: Annotated[
        Path | None,
        typer.Option(
            help="Candidates of each triple: `.npz` or `.pt` with `tail_neg` and `head_neg`, as "
            "OGB has them.",
        ),
    ] = None
    memory: MemoryOption = "256MiB"
    score: Score = None

    def protocol(self) -> dict[str, Any]:
        """How to rank, as the functions of the package take it."""
        return {
            "candidates": self.candidates,
            "count": self.count,
            "filtered": not self.raw,
            "triples": self.triples,
            "negatives": self.negatives,
            "memory": self.memory,
        }
