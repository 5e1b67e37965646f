"""`outercore grid`: write the compressed grid of edges that algorithms read."""

from __future__ import annotations

from typing import Annotated

from outercore import analytics
from outercore.base.display import flat
from outercore.cli import console, options


@options.command
def grid(
    data_set: options.DataSet,
    values: Annotated[options.Values, analytics.grid],
    json: options.Json = False,
) -> None:
    """Write the edges a second time, compressed and in blocks, for `outercore run`.

    `outercore run` writes a missing grid itself. Use this command before to store weights in the
    grid, or to choose the order of the nodes.

    **Examples**

        outercore grid papers

        outercore grid roads --weights length --memory 2GiB
    """
    with console.bars(quiet=json) as progress:
        summary = analytics.grid(data_set, progress=progress, **values)
    was_there = "" if summary["written"] else ", there already"
    rows = flat(summary, sizes=("bytes", "input", "written"))
    console.result(summary, f"grid of {data_set}{was_there}", rows, as_json=json)
