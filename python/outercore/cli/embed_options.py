"""Options that `embed` and `plan embed` have beside those of the configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.cli.options import completing
from outercore.embedding.config import RECIPES

Recipe = Annotated[
    str | None,
    typer.Option(
        help=f"A measured configuration, which other options override: {', '.join(RECIPES)}.",
        autocompletion=completing(RECIPES),
    ),
]
StartFrom = Annotated[
    Path | None,
    typer.Option("--from", help="Begin with the rows of this run, where both have the entity."),
]
FromData = Annotated[
    Path | None,
    typer.Option(help="With `--from`: where the data set of that run is now, if it was moved."),
]
Score = Annotated[
    str | None,
    typer.Option(help="Your own score function, in PyTorch: `FILE.py:NAME`."),
]
