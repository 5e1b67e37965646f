"""`outercore embedding evaluate` and `compare`: figures of runs, ranked again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.cli import console, options
from outercore.cli.embedding_options import (
    Candidates,
    Count,
    Data,
    Raw,
    Run,
    Score,
    Triples,
    open_run,
    scored,
)

_PLACES = {
    "candidates": "evaluation.candidates",
    "count": "evaluation.count",
    "also": "evaluation.also",
    "triples": "evaluation.test_triples",
    "seed": "run.seed",
}
"""Where a configuration has what `evaluate` and `compare` are told, and checks it."""


def evaluate(
    context: typer.Context,
    run: Run,
    part: Annotated[
        list[str] | None,
        typer.Option("--part", help="`test` (by default), `valid` or `train`; may be repeated."),
    ] = None,
    candidates: Candidates = "auto",
    count: Count = 1000,
    also: Annotated[
        list[str] | None, typer.Option("--also", help="A further kind of candidates.")
    ] = None,
    raw: Raw = False,
    triples: Triples = 0,
    seed: Annotated[
        int | None, typer.Option(help="Of what is drawn; by default the run's.")
    ] = None,
    memory: options.Memory = "256MiB",
    data: Data = None,
    score: Score = None,
    json: options.Json = False,
) -> None:
    """Rank held-out triples again: other parts, other candidates.

    **Example**

        outercore embedding evaluate runs/first --part test --also uniform
    """
    from outercore.cli.embed import show
    from outercore.cli.embed_watch import EmbedWatch

    opened = open_run(run, data, score)
    kinds: Any = also or ()
    parts: Any = part or ("test",)
    with options.named(context, _PLACES), EmbedWatch(quiet=json) as watch:
        figures = opened.evaluate(
            parts=parts,
            candidates=candidates,
            count=count,
            also=kinds,
            filtered=not raw,
            triples=triples,
            seed=seed,
            memory=memory,
            observer=watch,
        )
    if json:
        console.json_data(figures)
        return
    show(figures)


def compare(
    context: typer.Context,
    run: Run,
    other: Annotated[Path, typer.Argument(help="Another run.", show_default=False)],
    part: Annotated[str, typer.Option(help="`test`, `valid` or `train`.")] = "test",
    candidates: Candidates = "auto",
    count: Count = 1000,
    raw: Raw = False,
    triples: Triples = 0,
    seed: Annotated[int, typer.Option(help="Of what is drawn.")] = 0,
    memory: options.Memory = "256MiB",
    data: Data = None,
    score: Score = None,
    other_score: Annotated[
        str | None, typer.Option(help="That of the other run; `--score` by default.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Tell whether two runs rank the same triples equally well, or differ by more than chance.

    The second run is compared with the first: a difference above zero is in its favour.

    **Example**

        outercore embedding compare runs/memory runs/partitions --part test
    """
    from outercore.cli.embed_watch import EmbedWatch

    ranked: Any = part
    among: Any = candidates
    with options.named(context, _PLACES), EmbedWatch(quiet=json) as watch:
        found = scored(run, data, score).compare(
            scored(other, data, other_score or score),
            part=ranked,
            candidates=among,
            count=count,
            filtered=not raw,
            triples=triples,
            seed=seed,
            memory=memory,
            observer=watch,
        )
    if json:
        console.json_data(found.to_dict())
        return
    verdict = "no more than chance" if found.within_noise else "more than chance"
    console.data(f"{part}: {found.protocol}")
    console.data(f"  {run}  MRR {found.mrr:.4f}")
    console.data(f"  {other}  MRR {found.other_mrr:.4f}")
    console.data(
        f"  {other} compared with {run}: difference {found.difference:+.4f}, standard error "
        f"{found.error:.4f}: {verdict}; it ranks {found.better:.1%} of the triples better, "
        f"{found.worse:.1%} worse"
    )
