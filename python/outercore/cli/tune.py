"""`outercore tune`: measure what algorithms take on this machine, for `outercore jobs` to use."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outercore.analytics.scheduling.config import TuneConfig
from outercore.base.options import configuration
from outercore.base.sizes import format_size
from outercore.cli import console, options
from outercore.data.outputs import check_ending
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.analytics.scheduling.decide import Profile
    from outercore.analytics.scheduling.measure import Tuned


@options.takes(TuneConfig)
def tune(
    data_set: options.DataSet,
    out: Annotated[
        Path | None,
        typer.Option(help="The table, a `.json`; that of the user's data directory by default."),
    ] = None,
    json: options.Json = False,
    *,
    values: dict[str, Any],
) -> None:
    """Measure time, bytes and memory of algorithms by threads and far ratio.

    Every combination is run in a process of its own, with the least memory of its far ratio.
    Without `--far`, what is not kept in memory is read from the disk. Call it for graphs of every
    kind that you work with: one table holds them all. Stopped or called again, it measures only
    what is missing.

    **Examples**

        outercore tune papers

        outercore tune papers --algorithms bfs,wcc --threads 1,2 --far-ratios 0,0.5,1

        outercore tune papers --far unix:/run/far.sock
    """
    from outercore.analytics.scheduling import files, measure

    if out is not None:
        check_ending(out, (".json",), option="--out")
    with options.named(TuneConfig, values):
        config = configuration(TuneConfig, None, values)
    path = out or files.table_path()
    with console.bars(quiet=json) as progress:
        tuned = measure.tune(data_set, config, path, progress)
    for reason in tuned.left_out:
        console.note(f"note: left out: {reason}")
    profiles = tuned.profiles()
    if not profiles:
        raise InvalidError("nothing could be measured\nhint: raise --memory; see the notes above")
    if json:
        console.json_data(_described(tuned, profiles, path))
        return
    for algorithm, profile in profiles.items():
        kind, medium = tuned.graph.graph_class, profile.measured[0].medium
        _print(f"{algorithm} on {data_set} ({kind}), edges from {medium}", profile)
    rows = [
        ("measured", f"{tuned.measured:,} points"),
        ("known before", f"{tuned.known:,} points"),
        *((f"turning point of {name}", f"{one.turning_point:g}") for name, one in profiles.items()),
        ("table", str(path)),
    ]
    console.table("controller", rows)


def _print(title: str, profile: Profile) -> None:
    console.data(title)
    cells: console.Cells = {
        "threads": lambda one: f"{one.threads}",
        "ratio": lambda one: f"{one.far_ratio:.2f}",
        "seconds": lambda one: f"{one.seconds:.3f}",
        "read": lambda one: format_size(one.bytes_read),
        "budget": lambda one: format_size(one.memory),
        "peak": lambda one: format_size(one.peak_memory),
        "": lambda one: "*" if one.far_ratio > profile.turning_point else "",
    }
    console.columns(
        sorted(profile.measured, key=lambda one: (one.threads, one.far_ratio)),
        cells,
        by=lambda one: one.threads,
        style=lambda one: "dim" if one.far_ratio > profile.turning_point else "",
    )
    if any(one.far_ratio > profile.turning_point for one in profile.measured):
        console.data("  * beyond the turning point\n")


def _described(tuned: Tuned, profiles: dict[str, Profile], path: Path) -> dict[str, Any]:
    return {
        "table": str(path),
        "graph": {**asdict(tuned.graph), "class": tuned.graph.graph_class},
        "measured": tuned.measured,
        "known": tuned.known,
        "left_out": tuned.left_out,
        "algorithms": {
            name: {
                "turning_point": profile.turning_point,
                "measurements": [asdict(one) for one in profile.measured],
            }
            for name, profile in profiles.items()
        },
    }
