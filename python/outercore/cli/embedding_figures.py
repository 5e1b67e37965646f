"""`outercore embedding evaluate` and `compare`: figures of runs, ranked again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore import embedding as embeddings
from outercore.cli import console, options
from outercore.cli.embedding_options import Ranking

_OPTIONS = {
    "evaluation.candidates": "--candidates",
    "evaluation.count": "--count",
    "evaluation.also": "--also",
    "evaluation.test_triples": "--triples",
    "run.seed": "--seed",
}
"""What sets the fields of a configuration, which checks them."""


@dataclass(frozen=True, kw_only=True)
class _Evaluate(Ranking):
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="`test` (by default), `valid` or `train`; may be repeated."),
    ] = None
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A further kind of candidates.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Of what is drawn; by default the run's.")] = None


@options.of(_Evaluate)
def evaluate(given: _Evaluate) -> None:
    """Rank held-out triples again: other parts, other candidates.

    **Example**

        outercore embedding evaluate runs/first --part test --also uniform
    """
    from outercore.cli.embed import show
    from outercore.cli.run_watch import EmbedWatch

    opened = given.open(given.score)
    chosen: Any = {"parts": given.part or ("test",), "also": given.also or (), "seed": given.seed}
    with options.renamed(_OPTIONS), EmbedWatch(quiet=given.json) as watch:
        figures = embeddings.assess(opened, **given.protocol(), **chosen, observer=watch)
    if given.json:
        console.json_data(figures)
        return
    show(figures)


@dataclass(frozen=True, kw_only=True)
class _Compare(Ranking):
    other: Annotated[Path, typer.Argument(help="Another run.", show_default=False)]
    part: Annotated[str, typer.Option(help="`test`, `valid` or `train`.")] = "test"
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0
    other_score: Annotated[
        str | None, typer.Option(help="That of the other run; `--score` by default.")
    ] = None


@options.of(_Compare)
def compare(given: _Compare) -> None:
    """Tell whether two runs rank the same triples equally well, or differ by more than chance.

    The second run is compared with the first: a difference above zero is in its favour.

    **Example**

        outercore embedding compare runs/memory runs/partitions --part test
    """
    from outercore.cli.run_watch import EmbedWatch

    others = replace(given, run=given.other, score=given.other_score or given.score)
    chosen: Any = {"part": given.part, "seed": given.seed}
    with options.renamed(_OPTIONS), EmbedWatch(quiet=given.json) as watch:
        found = embeddings.compare(
            _scored(given), _scored(others), **given.protocol(), **chosen, observer=watch
        )
    if given.json:
        console.json_data(found.to_dict())
        return
    run, other = given.run, given.other
    verdict = "no more than chance" if found.within_noise else "more than chance"
    console.data(f"{given.part}: {found.protocol}")
    console.data(f"  {run}  MRR {found.mrr:.4f}")
    console.data(f"  {other}  MRR {found.other_mrr:.4f}")
    console.data(
        f"  {other} compared with {run}: difference {found.difference:+.4f}, standard error "
        f"{found.error:.4f}: {verdict}; it ranks {found.better:.1%} of the triples better, "
        f"{found.worse:.1%} worse"
    )


def _scored(given: Ranking) -> embeddings.Embedding:
    """A run, with the score function if it is one that needs it."""
    opened = given.open()
    return given.open(given.score) if opened.model.kind == "custom" else opened
