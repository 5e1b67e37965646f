"""`outercore layout`: write a copy of the features in the order or type for serving."""

from __future__ import annotations

from typing import Annotated

from outercore.base.display import flat
from outercore.base.options import Option
from outercore.cli import console, options
from outercore.data.layouts import build_layout, remove_layouts


@options.command
def layout(
    data_set: options.DataSet,
    values: Annotated[options.Values, build_layout],
    remove: Annotated[
        bool, Option("Remove the layouts of the array, instead of writing one.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Write the features a second time for `outercore serve`, in another order or as int8.

    The features themselves stay unchanged. `outercore serve` always uses an exact
    layout; it uses an int8 layout with its option `--precision int8`.

    **Examples**

        outercore layout papers

        outercore layout papers --precision int8 --order none

        outercore layout papers --remove
    """
    if remove:
        removed = remove_layouts(data_set, array=values.get("array"))
        text = f"{data_set}: {removed} layouts removed"
        console.result({"removed": removed}, text, as_json=json)
        return
    with console.bars(quiet=json) as progress:
        summary = build_layout(data_set, progress=progress, **values)
    was_there = "" if summary["written"] else ", there already"
    counts = {**summary, "order": summary["order"]["method"]}
    rows = flat(counts, sizes=("input", "bytes", "places", "written"))
    console.result(summary, f"layout of {data_set}{was_there}", rows, as_json=json)
