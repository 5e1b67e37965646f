"""`outercore grid`: the edges as the compressed grid that algorithms read."""

from __future__ import annotations

from typing import Annotated

import typer

from outercore.cli import console, options
from outercore.errors import InvalidError

_ORDERS = ("auto", "degree", "natural")


def grid(
    data_set: options.DataSet,
    memory: options.Memory = "1GiB",
    threads: options.Workers = None,
    weights: Annotated[
        str | None, typer.Option(help="Edge array whose values are stored with the edges.")
    ] = None,
    order: Annotated[
        str, typer.Option(help="How nodes are numbered inside: `auto`, `degree` or `natural`.")
    ] = "auto",
    partition_log2: Annotated[
        int | None,
        typer.Option(help="Nodes of a partition as a power of two, 1 to 16; chosen by default."),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Build again where there is a grid.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Write the edges a second time, compressed and in blocks, for `outercore run`.

    `outercore run` does it by itself where it is missing; do it beforehand to have weights in it,
    or to choose the order.

    **Examples**

        outercore grid papers

        outercore grid roads --weights length --memory 2GiB
    """
    from outercore import analytics

    if order not in _ORDERS:
        raise InvalidError(f"--order: expected one of {', '.join(_ORDERS)}; found `{order}`")
    with console.bars(quiet=json) as progress:
        summary = analytics.grid(
            data_set,
            memory=memory,
            threads=threads,
            weights=weights,
            order=order,  # type: ignore[arg-type]
            partition_log2=partition_log2,
            overwrite=overwrite,
            progress=progress,
        )
    was_there = "" if summary["written"] else ", there already"
    rows = console.flat(summary, sizes=("bytes", "input", "written"))
    console.result(summary, f"grid of {data_set}{was_there}", rows, as_json=json)
