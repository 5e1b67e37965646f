"""`outercore far`: fill, list, empty and measure a memory server."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.base.options import Option
from outercore.base.sizes import format_size
from outercore.cli import console, options
from outercore.data import far as memory
from outercore.data.outputs import check_directory
from outercore.errors import DeviceError, InvalidError, NoSpaceError, NotFoundError, OutercoreError

far = typer.Typer(
    help="Manage the data on a memory server.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
)


@far.command("put", no_args_is_help=True)
@options.command
def put(
    data_set: options.DataSet,
    config: memory.FarConfig,
    what: Annotated[
        str | None,
        Option(
            "Copy these parts, separated by commas: `grid`, `features`, `topology`. The default is "
            "all parts of the data set."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Copy a data set to a memory server, where it stays for all runs.

    Without this command, each run copies the arrays that it needs, and removes them when it ends.
    The command ends with exit code 1 if the server has no room for all arrays.

    **Example**

        outercore far put papers --what grid --far 10.0.0.7 --set far.token_file=far.token
    """
    chosen = _server(config)
    parts = None if what is None else [part.strip() for part in what.split(",")]
    with console.bars(quiet=json) as progress:
        arrays = memory.put(data_set, chosen, what=parts, progress=progress)
    rows = [
        (array["key"], f"{format_size(array['bytes']):>10}  {array['state']}") for array in arrays
    ]
    console.result(arrays, f"{data_set} on {chosen.address}", rows, as_json=json)
    left = [array["key"] for array in arrays if array["state"] == "full"]
    if left:
        raise NoSpaceError(
            f"memory server `{chosen.address}`: no room for {', '.join(left)}"
            "\nhint: `outercore far list` shows its regions, `outercore far drop` frees them"
        )


@far.command("list", no_args_is_help=True)
@options.command
def list_(
    config: memory.FarConfig,
    data_set: Annotated[
        Path | None, Option("Show regions with arrays of this data set by the keys of the arrays.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Show the memory, the clients and the regions of a memory server.

    **Example**

        outercore far list --far 10.0.0.7 --set far.token_file=far.token
    """
    chosen = _server(config)
    with memory.build_connection(chosen) as connection:
        status = connection.status()
    if json:
        console.json_data(status)
        return
    keys = {} if data_set is None else _keys(data_set)
    summary = [
        ("memory", format_size(status["size"])),
        ("lent", format_size(status["used"])),
        ("clients", f"{status['clients']:,}"),
        ("version", status["version"]),
    ]
    console.table(chosen.address, summary)
    named = [region for region in status["regions"] if region["name"] is not None]
    if named:
        console.data("")
        console.table(
            "regions",
            [
                (keys.get(region["name"], region["name"]), f"{format_size(region['len']):>10}")
                for region in named
            ],
        )


@far.command("drop", no_args_is_help=True)
@options.command
def drop(
    config: memory.FarConfig,
    data_set: Annotated[
        Path | None, typer.Argument(help="Drop the arrays of this data set.", show_default=False)
    ] = None,
    name: Annotated[Sequence[str], Option("Drop this region.")] = (),
    everything: Annotated[
        bool, Option("Drop every region that `outercore far put` made.", name="all")
    ] = False,
    json: options.Json = False,
) -> None:
    """Free memory of a server that `outercore far put` filled.

    Runs that read this memory continue from the disk, or fail with `far.fallback=false`. If a
    region cannot be dropped, the command drops the other regions, and ends with exit code 1.

    **Examples**

        outercore far drop papers --far 10.0.0.7 --set far.token_file=far.token

        outercore far drop --all --far 10.0.0.7 --set far.token_file=far.token
    """
    if [data_set is not None, bool(name), everything].count(True) != 1:
        raise InvalidError("far drop: expected one of a data set, `--name` and `--all`")
    chosen = _server(config)
    dropped: list[dict[str, Any]] = []
    failed = []
    with memory.build_connection(chosen) as connection:
        names = list(name)
        if everything:
            # Other regions belong to running clients, and end with them.
            regions = connection.status()["regions"]
            names = [region["name"] for region in regions if region["kept"]]
        elif data_set is not None:
            names = list(_keys(data_set))
        for region_name in names:
            region = connection.find(region_name)
            if region is None and name:
                raise NotFoundError(
                    f"memory server `{chosen.address}`: no region `{region_name}`"
                    "\nhint: `outercore far list` shows its regions"
                )
            if region is None:
                continue
            try:
                connection.free(region)
            except DeviceError:
                raise
            except OutercoreError as error:
                failed.append(f"`{region_name}`: {str(error).splitlines()[0]}")
            else:
                dropped.append({"name": region_name, "bytes": region.length})
    total = sum(region["bytes"] for region in dropped)
    text = f"{len(dropped)} dropped, {format_size(total)} free"
    console.result(dropped, text, as_json=json)
    if failed:
        raise InvalidError(
            f"memory server `{chosen.address}`: not dropped: {'; '.join(failed)}"
            "\nhint: `outercore far list` shows its regions; try again when no process writes there"
        )


@far.command("probe", no_args_is_help=True)
@options.command
def probe(
    config: memory.FarConfig,
    data_set: Annotated[
        Path | None,
        typer.Argument(
            help="Data set whose later runs will use the best chunk size.", show_default=False
        ),
    ] = None,
    size: Annotated[
        str | None,
        Option("Size of the region to read. The default is 64MiB, or less if the server has less."),
    ] = None,
    seconds: Annotated[float, Option("Measure each request size for this many seconds.")] = 0.3,
    json: options.Json = False,
) -> None:
    """Measure the bytes per second of a memory server, by chunk sizes and queue lengths.

    The command allocates a region, writes it, reads it and frees it. With a data set, it stores
    the result as `far.json` in the directory of the data set.

    **Example**

        outercore far probe papers --far 10.0.0.7 --set far.token_file=far.token
    """
    if data_set is not None:
        if not data_set.is_dir():
            raise NotFoundError(f"directory `{data_set}` does not exist")
        check_directory(data_set)
    chosen = _server(config)
    with console.bars(quiet=json) as progress:
        profile = memory.probe(chosen, size=size, seconds=seconds, progress=progress)
    rows = [
        ("latency", f"{profile['latency_s'] * 1e6:,.0f} µs"),
        ("best chunk", format_size(profile["best_chunk"])),
    ]
    if data_set is not None:
        stored = memory.store_profile(data_set, chosen.address, profile)
        rows.append(("stored in", str(stored)))
    if json:
        console.json_data(profile)
        return
    console.table(chosen.address, rows)
    cells: console.Cells = {
        "chunk": lambda point: format_size(point["chunk"]),
        "in flight": lambda point: f"{point['queue_length']:,}",
        "MB/s": lambda point: f"{point['bytes_per_s'] / 1e6:,.1f}",
    }

    def mark(point: dict[str, Any]) -> str:
        return "peak, best chunk" if point["chunk"] == profile["best_chunk"] else "peak"

    console.points(profile["points"], cells, by="chunk", best="bytes_per_s", mark=mark)


def _server(config: memory.FarConfig) -> memory.FarOptions:
    if config.far is None:
        raise InvalidError("--far: expected the address of a memory server, found none")
    return config.far


def _keys(data_set: Path) -> dict[str, str]:
    """Keys of the arrays of a data set that a server can hold, by the names of their regions."""
    return {name: array["key"] for array in memory.arrays(data_set) for name in array["names"]}
