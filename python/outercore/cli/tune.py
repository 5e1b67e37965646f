"""`outercore tune`: measure algorithms on this machine, for `outercore jobs`."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from outercore.analytics.scheduling.decide import Profile
from outercore.analytics.scheduling.files import table_path
from outercore.analytics.scheduling.measure import TuneConfig, Tuning
from outercore.analytics.scheduling.measure import tune as measure
from outercore.base.options import Option
from outercore.base.sizes import format_size
from outercore.cli import console, options
from outercore.data.outputs import check_ending
from outercore.errors import InvalidError


@options.command
def tune(
    data_set: options.DataSet,
    config: TuneConfig,
    out: Annotated[
        Path | None,
        Option(
            "Write the table to this `.json` file. The default is a file in the user's data "
            "directory."
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Measure time, bytes and memory of algorithms, by numbers of threads and far ratios.

    A far ratio is a share of the edges outside memory: on the disk, or with `--far` on a memory
    server. Each combination runs in a separate process, with the smallest memory for its far ratio.
    Measure a graph of every kind that you use; one table holds all graphs. Run the command again to
    measure only the missing points.

    **Examples**

        outercore tune papers

        outercore tune papers --algorithms bfs,wcc --threads 1,2 --far-ratios 0,0.5,1

        outercore tune papers --far unix:/run/far.sock
    """
    if out is not None:
        check_ending(out, (".json",), option="--out")
    path = out or table_path()
    with console.bars(quiet=json) as progress:
        tuned = measure(data_set, config, path, progress)
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
        *(
            (f"turning point of {name}", f"{profile.turning_point:g}")
            for name, profile in profiles.items()
        ),
        ("table", str(path)),
    ]
    console.table("controller", rows)


def _print(title: str, profile: Profile) -> None:
    console.data(title)
    cells: console.Cells = {
        "threads": lambda point: f"{point.threads}",
        "ratio": lambda point: f"{point.far_ratio:.2f}",
        "seconds": lambda point: f"{point.seconds:.3f}",
        "read": lambda point: format_size(point.bytes_read),
        "budget": lambda point: format_size(point.memory),
        "peak": lambda point: format_size(point.peak_memory),
        "": lambda point: "*" if point.far_ratio > profile.turning_point else "",
    }
    console.columns(
        sorted(profile.measured, key=lambda point: (point.threads, point.far_ratio)),
        cells,
        by=lambda point: point.threads,
        style=lambda point: "dim" if point.far_ratio > profile.turning_point else "",
    )
    if any(point.far_ratio > profile.turning_point for point in profile.measured):
        console.data("  * beyond the turning point\n")


def _described(tuned: Tuning, profiles: dict[str, Profile], path: Path) -> dict[str, Any]:
    return {
        "table": str(path),
        "graph": {**asdict(tuned.graph), "class": tuned.graph.graph_class},
        "measured": tuned.measured,
        "known": tuned.known,
        "left_out": tuned.left_out,
        "algorithms": {
            name: {
                "turning_point": profile.turning_point,
                "measurements": [asdict(point) for point in profile.measured],
            }
            for name, profile in profiles.items()
        },
    }
