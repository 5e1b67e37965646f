"""`outercore layout`: the features a second time, laid out for serving."""

from __future__ import annotations

from typing import Annotated

import typer

from outercore.cli import console, options
from outercore.errors import InvalidError

_ORDERS = ("none", "glist", "degree", "rcm")
_PRECISIONS = ("exact", "int8")


def layout(
    data_set: options.DataSet,
    order: Annotated[
        str,
        typer.Option(
            help="Which rows stand next to each other: `glist`, `degree`, `rcm`, or `none`."
        ),
    ] = "glist",
    precision: Annotated[str, typer.Option(help="`exact`, or `int8`: a byte a value.")] = "exact",
    array: Annotated[
        str | None, typer.Option(help="Node array to lay out; the features by default.")
    ] = None,
    remove: Annotated[
        bool, typer.Option("--remove", help="Remove the layouts of the array instead.")
    ] = False,
    memory: options.Memory = "1GiB",
    json: options.Json = False,
) -> None:
    """Write the features a second time for `outercore serve`, in another order or as int8.

    The features themselves stay as they are. A server uses an exact layout by itself, and an int8
    layout where int8 is asked for.

    **Examples**

        outercore layout papers

        outercore layout papers --precision int8 --order none

        outercore layout papers --remove
    """
    from outercore.layouts import build_layout, remove_layouts

    for option, value, known in (
        ("--order", order, _ORDERS),
        ("--precision", precision, _PRECISIONS),
    ):
        if value not in known:
            raise InvalidError(f"{option}: expected one of {', '.join(known)}; found `{value}`")
    if remove:
        removed = remove_layouts(data_set, array=array)
        text = f"{data_set}: {removed} layouts removed"
        console.either({"removed": removed}, text, as_json=json)
        return
    with console.bars(quiet=json) as progress:
        summary = build_layout(
            data_set,
            array=array,
            order=order,  # type: ignore[arg-type]
            precision=precision,  # type: ignore[arg-type]
            memory=memory,
            progress=progress,
        )
    was_there = "" if summary["written"] else ", there already"
    shown = {**summary, "order": summary["order"]["method"]}
    rows = console.flat(shown, sizes=("input", "bytes", "places", "written"))
    console.result(summary, f"layout of {data_set}{was_there}", rows, as_json=json)
