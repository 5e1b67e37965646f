"""`outercore probe`: measure a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from outercore.base.display import flat
from outercore.base.options import Option
from outercore.base.sizes import format_size, parse_size
from outercore.cli import console, options


@options.command
def probe(
    directory: Annotated[
        Path, typer.Argument(help="Directory on the disk to measure.", show_default=False)
    ],
    file: Annotated[str, Option("Size of the file to write and read.", size=True)] = "1GiB",
    seconds: Annotated[float, Option("Measure each request size for this many seconds.")] = 1.0,
    json: options.Json = False,
) -> None:
    """Measure the latency, requests and bytes per second of a disk, for `outercore plan`.

    The command writes a file, reads it with requests of several sizes, and removes it. It stores
    the results as `device.json` in the directory.

    **Example**

        outercore probe papers
    """
    from outercore import _core

    chosen = {"file": parse_size(file), "seconds_per_point": seconds}
    with console.bars(quiet=json) as progress:
        profile = _core.probe(directory, chosen, progress)
    if json:
        console.json_data(profile)
        return
    points = profile.pop("points")
    console.table(f"{directory}", flat(profile))
    cells: console.Cells = {
        "read size": lambda point: format_size(point["read_bytes"]),
        "in flight": lambda point: f"{point['depth']:,}",
        "reads/s": lambda point: f"{point['iops']:,.0f}",
        "MB/s": lambda point: f"{point['bytes_per_s'] / 1e6:,.1f}",
    }
    console.points(points, cells, by="read_bytes", best="iops")
