"""`outercore probe`: what can this device do?"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from outercore.cli import console, options
from outercore.config.sizes import format_size, parse_size


def probe(
    directory: Annotated[
        Path, typer.Argument(help="A directory on the device.", show_default=False)
    ],
    file: Annotated[
        str, typer.Option(callback=options.size, help="Size of the file that is read.")
    ] = "1GiB",
    seconds: Annotated[float, typer.Option(help="Time for each point.")] = 1.0,
    backend: options.Backend = "auto",
    json: options.Json = False,
) -> None:
    """Measure latency, requests and bytes a second of a device, for plans to use.

    Writes a file, reads it in several sizes, removes it, and stores `device.json` in the
    directory.

    **Example**

        outercore probe papers
    """
    from outercore import _native

    chosen = {"backend": backend, "file": parse_size(file), "seconds_per_point": seconds}
    with console.bars(quiet=json) as progress:
        profile = _native.probe(directory, chosen, progress)
    if json:
        console.json_data(profile)
        return
    points = profile.pop("points")
    console.table(f"{directory}", console.flat(profile))
    console.data("")
    Console(highlight=False).print(_points(points))


def _points(points: list[dict[str, Any]]) -> Table:
    """The measured points; where a size reaches its peak is marked."""
    table = Table("read size", "in flight", "reads/s", "MB/s", "", box=box.SIMPLE_HEAD)
    for column in table.columns[:4]:
        column.justify = "right"
    for _, same_size in groupby(points, key=lambda point: point["read_bytes"]):
        rows = list(same_size)
        peak = max(rows, key=lambda point: point["iops"])
        for point in rows:
            table.add_row(
                format_size(point["read_bytes"]),
                f"{point['depth']:,}",
                f"{point['iops']:,.0f}",
                f"{point['bytes_per_s'] / 1e6:,.1f}",
                "peak" if point is peak else "",
                style="bold" if point is peak else "",
            )
        table.add_section()
    return table
