"""Options that several verbs share, and how their text is read."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from outercore.errors import InvalidError

DataSet = Annotated[Path, typer.Argument(help="Directory of the data set.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Memory = Annotated[
    str, typer.Option("--memory", help="Memory budget: `8GiB`, `25%` of the machine, or `auto`.")
]
ValidationShare = Annotated[
    float,
    typer.Option(
        "--validation-share", help="Part of the budget for validating; 0 empties the caches."
    ),
]
FanOut = Annotated[
    str, typer.Option("--fanout", help="In-neighbours per hop, nearest first; `-1` takes all.")
]
BatchSize = Annotated[int, typer.Option("--batch-size", help="Seed nodes a batch.")]
Seed = Annotated[int, typer.Option("--seed", help="Everything random is a function of it.")]
Replace = Annotated[bool, typer.Option("--replace", help="Draw neighbours with replacement.")]
Backend = Annotated[
    str,
    typer.Option("--backend", help="How to read: `auto`, `uring`, `threads` or `mmap`."),
]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads of the loader; all cores by default.")
]
Workers = Annotated[int | None, typer.Option("--threads", help="Threads; all cores by default.")]
Topology = Annotated[
    str, typer.Option("--topology", help="Where the edges live: `auto`, `resident` or `paged`.")
]
Policy = Annotated[str, typer.Option("--policy", help="Cache eviction: `window` or `lru`.")]
Hotness = Annotated[
    str,
    typer.Option("--hotness", help="What is cached for good: `presample`, `in_degree` or `none`."),
]
OutDataSet = Annotated[
    Path, typer.Option("--out", help="Directory of the data set to write.", show_default=False)
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a data set that is there already.")
]


def fanout(text: str) -> tuple[int, ...]:
    """`15,10` as numbers."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InvalidError(f"--fanout: expected numbers such as `15,10`, found `{text}`") from None


def command_line() -> str:
    """The command as it was typed, for the provenance."""
    return " ".join(["outercore", *sys.argv[1:]])
