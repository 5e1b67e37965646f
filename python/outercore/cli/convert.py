"""`outercore convert`: features in a smaller type."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from outercore.base.sizes import format_size
from outercore.cli import console, options
from outercore.data.layouts import convert as convert_arrays


class Type(str, Enum):
    """Types that features can have."""

    float16 = "float16"
    bfloat16 = "bfloat16"
    float32 = "float32"


def convert(
    data_set: options.DataSet,
    to: Annotated[
        Type,
        typer.Option(
            help="`float16` has 11 significant bits, `bfloat16` 8 and the range of float32; "
            "`float32` is for features of float64.",
            show_default=False,
        ),
    ],
    array: Annotated[
        str | None,
        typer.Option(
            help="A node array; by default the features of each node type.", show_default=False
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Convert the features to a smaller type, in place: fewer bytes to read, and to keep.

    Each value becomes the nearest one. The old values are gone. For a byte a value see
    `outercore layout --precision int8`.

    **Example**

        outercore convert papers --to float16
    """
    with console.bars(quiet=json) as progress:
        found = convert_arrays(data_set, to.value, array=array, progress=progress)
    if json:
        console.json_data(found)
        return
    for one in found:
        if one["from"] == one["to"]:
            console.data(f"{one['array']}: {one['to']} already, nothing was changed")
            continue
        console.data(
            f"{one['array']}: {one['from']} to {one['to']}, {format_size(one['before'])} to "
            f"{format_size(one['after'])}; no value has changed by more than "
            f"{one['largest_change']:.3g}"
        )
        if one["layout_removed"]:
            console.data("its layout was removed: build another with `outercore layout`")
