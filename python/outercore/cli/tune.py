"""`outercore tune`: measure what algorithms take on this machine, for `outercore jobs` to use."""

from __future__ import annotations

import os
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.console import Console
from rich.table import Table as RichTable

from outercore.cli import console, options
from outercore.config.sizes import format_size, parse_size
from outercore.errors import InvalidError, UnsupportedError
from outercore.outputs import check_ending

if TYPE_CHECKING:
    from outercore.scheduling.decide import Profile
    from outercore.scheduling.measuring import Tuned
    from outercore.scheduling.points import TuneConfig

_HEADS = ("seconds", "read", "budget", "peak")


@dataclass(frozen=True)
class _Options:
    """What `outercore tune` takes."""

    data_set: options.DataSet
    algorithms: Annotated[
        str, typer.Option(help="What to measure, such as `bfs,pagerank,wcc`.")
    ] = "bfs,pagerank"
    threads: Annotated[
        str | None, typer.Option(help="Numbers of threads; 1, 2, 4, … up to the cores by default.")
    ] = None
    far_ratios: Annotated[
        str, typer.Option(help="Shares of the edges that are not kept in memory.")
    ] = "0,0.25,0.5,0.75,1"
    partitions: Annotated[
        str | None,
        typer.Option(
            help="Nodes of a partition as powers of two, such as `12,14,16`; each needs a grid of "
            "its own beside the data set meanwhile."
        ),
    ] = None
    queue_lengths: Annotated[
        str | None,
        typer.Option(
            help="Transfers in flight a connection to the memory server, such as `8,32`.",
            rich_help_panel="Far memory",
        ),
    ] = None
    repeat: Annotated[int, typer.Option(help="Runs of each point; the median counts.")] = 3
    memory: Annotated[
        str,
        typer.Option("--memory", callback=options.size, help="Points that need more are left out."),
    ] = "auto"
    backend: options.Backend = "auto"
    far: options.Far = None
    far_token_file: options.FarTokenFile = None
    far_chunk: options.FarChunk = None
    far_queues: options.FarQueues = None
    far_timeout: options.FarTimeout = None
    out: Annotated[
        Path | None,
        typer.Option(help="The table, a `.json`; that of the user's data directory by default."),
    ] = None
    json: options.Json = False


@options.of(_Options)
def tune(given: _Options) -> None:
    """Measure time, bytes and memory of algorithms by threads, far ratio and more.

    Every combination is run in a process of its own, with the least memory of its far ratio.
    Without `--far`, what is not kept in memory is read from the disk. Call it for graphs of every
    kind that you work with: one table holds them all. Stopped or called again, it measures only
    what is missing.

    **Examples**

        outercore tune papers

        outercore tune papers --algorithms bfs,wcc --threads 1,2 --far-ratios 0,0.5,1

        outercore tune papers --far unix:/run/far.sock --queue-lengths 8,32
    """
    from outercore.scheduling.measuring import tune as measure
    from outercore.scheduling.table_file import table_path

    if given.out is not None:
        check_ending(given.out, (".json",), option="--out")
    config = _config(given)
    path = given.out or table_path()
    with console.bars(quiet=given.json) as progress:
        tuned = measure(given.data_set, config, path, progress)
    for reason in tuned.left_out:
        console.note(f"note: left out: {reason}")
    profiles = tuned.profiles(config)
    if not profiles:
        raise InvalidError("nothing could be measured\nhint: raise --memory; see the notes above")
    chart = _chart(path, quiet=given.json)
    if given.json:
        console.json_data(_described(tuned, profiles, path))
        return
    for algorithm, profile in profiles.items():
        kind, medium = tuned.graph.graph_class, config.medium
        title = f"{algorithm} on {given.data_set} ({kind}), edges from {medium}"
        _print(title, profile)
    rows = [
        ("measured", f"{tuned.measured:,} points"),
        ("known before", f"{tuned.known:,} points"),
        *((f"turning point of {name}", f"{one.turning_point:g}") for name, one in profiles.items()),
        ("table", str(path)),
    ]
    console.table("controller", rows if chart is None else [*rows, ("chart", str(chart))])


def _config(given: _Options) -> TuneConfig:
    from outercore.scheduling.points import TuneConfig

    names = tuple(part.strip().replace("-", "_") for part in given.algorithms.split(","))
    return TuneConfig(
        algorithms=tuple(dict.fromkeys(names)),
        threads=_default_threads()
        if given.threads is None
        else _numbers("--threads", given.threads),
        far_ratios=_shares("--far-ratios", given.far_ratios),
        partitions=(None,)
        if given.partitions is None
        else _numbers("--partitions", given.partitions),
        queue_lengths=_numbers("--queue-lengths", given.queue_lengths) or (None,),
        repeat=given.repeat,
        memory=parse_size(given.memory),
        backend=given.backend,
        far=options.far(
            given.far,
            token_file=given.far_token_file,
            chunk=given.far_chunk,
            queues=given.far_queues,
            timeout=given.far_timeout,
        ),
    )


def _print(title: str, profile: Profile) -> None:
    console.data(title)
    several = len({one.settings for one in profile.measured}) > 1
    heads = ["threads", "ratio", *(["settings"] if several else []), *_HEADS, ""]
    table = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    ordered = sorted(
        profile.measured,
        key=lambda one: (one.settings.order, one.threads, one.far_ratio),
    )
    for _, same in groupby(ordered, key=lambda one: (one.settings, one.threads)):
        for one in same:
            beyond = one.far_ratio > profile.turning_point
            table.add_row(
                f"{one.threads}",
                f"{one.far_ratio:.2f}",
                *([str(one.settings)] if several else []),
                f"{one.seconds:.3f}",
                format_size(one.bytes_read),
                format_size(one.memory),
                format_size(one.peak_memory),
                "*" if beyond else "",
                style="dim" if beyond else "",
            )
        table.add_section()
    Console(highlight=False).print(table)
    if any(one.far_ratio > profile.turning_point for one in ordered):
        console.data("  * beyond the turning point\n")


def _chart(path: Path, *, quiet: bool) -> Path | None:
    """The page of the whole table beside it, where there is Plotly."""
    from outercore.report import write_table_report
    from outercore.scheduling.table_file import load_table

    page = path.with_suffix(".html")
    try:
        write_table_report(load_table(path)[0], page)
    except UnsupportedError as error:
        if not quiet:
            console.note(f"note: {error}")
        return None
    return page


def _described(tuned: Tuned, profiles: dict[str, Profile], path: Path) -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "table": str(path),
        "graph": {**asdict(tuned.graph), "class": str(tuned.graph.graph_class)},
        "measured": tuned.measured,
        "known": tuned.known,
        "left_out": list(tuned.left_out),
        "algorithms": {
            name: {
                "turning_point": profile.turning_point,
                "settings": asdict(profile.settings),
                "measurements": [asdict(one) for one in profile.measured],
            }
            for name, profile in profiles.items()
        },
    }


def _default_threads() -> tuple[int, ...]:
    cores = len(os.sched_getaffinity(0))
    return tuple(sorted({*(1 << power for power in range(cores.bit_length())), cores}))


def _numbers(option: str, text: str | None) -> tuple[int, ...]:
    if text is None:
        return ()
    try:
        return tuple(dict.fromkeys(int(part) for part in text.split(",")))
    except ValueError:
        raise InvalidError(f"{option}: expected numbers such as `1,2`, found `{text}`") from None


def _shares(option: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(dict.fromkeys(float(part) for part in text.split(",")))
    except ValueError:
        raise InvalidError(f"{option}: expected shares such as `0,0.5,1`, found `{text}`") from None
