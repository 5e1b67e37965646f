"""`outercore convert`: convert features to a smaller type."""

from __future__ import annotations

from typing import Annotated

from outercore.base.sizes import format_size
from outercore.cli import console, options
from outercore.data.layouts import convert as convert_arrays


@options.command
def convert(
    data_set: options.DataSet,
    values: Annotated[options.Values, convert_arrays],
    json: options.Json = False,
) -> None:
    """Convert the features to a smaller type in place, so that they take fewer bytes.

    Each value is rounded to the nearest value of the new type, and the old values are lost.
    `outercore layout --precision int8` writes features with one byte per value.

    **Example**

        outercore convert papers --to float16
    """
    with console.bars(quiet=json) as progress:
        conversions = convert_arrays(data_set, progress=progress, **values)
    if json:
        console.json_data(conversions)
        return
    for conversion in conversions:
        name, old, new = conversion["array"], conversion["from"], conversion["to"]
        if old == new:
            console.data(f"{name}: {new} already, nothing was changed")
            continue
        before, after = format_size(conversion["before"]), format_size(conversion["after"])
        console.data(
            f"{name}: {old} to {new}, {before} to {after}; no value has changed by more than "
            f"{conversion['largest_change']:.3g}"
        )
        if conversion["layout_removed"]:
            console.data("its layout was removed: build another with `outercore layout`")
