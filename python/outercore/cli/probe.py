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
        Path, typer.Argument(help="A directory on the device.", show_default=False)
    ],
    file: Annotated[str, Option("Size of the file that is read.", size=True)] = "1GiB",
    seconds: Annotated[float, Option("Seconds of measurement for each size of request.")] = 1.0,
    json: options.Json = False,
) -> None:
    """Measure how fast a disk reads, for `outercore plan`: latency, requests, bytes a second.

    Writes a file, reads it with requests of several sizes, removes it, and stores `device.json`
    in the directory.

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
