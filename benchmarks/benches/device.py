"""The device and its caches: the effect of reads in flight, memory and groups."""

from __future__ import annotations

import json
import subprocess

import svg
from limits import drop_cached
from measure import HERE, Result, Series, Settings, Trial, by_turns, python, say
from product import command

import outercore as oc
from benches.inputs import product_set, share_of, workload
from outercore.errors import BudgetError

WHAT = (
    "Bytes a second by reads in flight, measured by `outercore probe`, and by a model of it: as "
    "many reads at a time as are in flight, each taking as long as alone, up to the device's most. "
    "Then features handed over a second in the second epoch of `oc.NeighborLoader` by columns: "
    "batches of 256 seeds, fan-out 5,5, with a quarter more than the least memory that works and "
    "with a tenth of the data. In the manner of figures 8 and 9 of GIDS and 7, 9 and 10 of Helios."
)
WIDTHS = (128, 256, 512, 1024)
SHARE = 0.1
READ_BYTES = (4096, 65536)
OPTIONS = {
    "least memory": ("--hotness", "none", "--group", "1"),
    "dynamic part, one batch a group": ("--hotness", "none", "--group", "1"),
    "both parts, one batch a group": ("--group", "1"),
    "both parts, groups of the plan": (),
    "the same, threads": ("--backend", "threads"),
}
LEAST = "least memory"


def run(settings: Settings) -> Result:
    """Measure the device, then loaders by width of features; draw both."""
    result = Result("device", WHAT)
    widths = (128,) if settings.quick else WIDTHS
    panels = _by_depth(result, settings, _name(settings, widths[-1]))
    for width in widths:
        _loaders(result, settings, width)
    lines = {
        program: [(float(width), _gigabytes(result, program, width)) for width in widths]
        for program in OPTIONS
    }
    panels.append(svg.Panel("features handed over", "columns", "GB/s", lines))
    say(f"drawn: {svg.write(panels, HERE / 'results' / 'device.svg')}")
    return result


def _name(settings: Settings, width: int) -> str:
    return "rmat18" if settings.quick else f"wide19-{width}"


def _by_depth(result: Result, settings: Settings, name: str) -> list[svg.Panel]:
    data = product_set(settings, name)
    _, folder = workload(settings, name)
    drop_cached([folder / "x.npy", data])
    subprocess.run(command("probe", data), check=True, capture_output=True)
    profile = json.loads((data / "device.json").read_text())
    panels = []
    for size in READ_BYTES:
        points = [point for point in profile["points"] if point["read_bytes"] == size]
        alone = next(point for point in points if point["depth"] == 1)
        most = max(point["bytes_per_s"] for point in points)
        lines: dict[str, list[tuple[float, float]]] = {"measured": [], "model": []}
        for point in points:
            depth, case = point["depth"], f"reads of {size} bytes, {point['depth']} in flight"
            programs = {
                "measured": point["bytes_per_s"],
                "model": min(depth * alone["bytes_per_s"], most),
            }
            for program, value in programs.items():
                result.series.append(Series(program, case, "bytes/s", [value]))
                lines[program].append((float(depth), value / 1e6))
        panels.append(svg.Panel(f"reads of {size // 1024} KiB", "in flight", "MB/s", lines))
    return panels


def _loaders(result: Result, settings: Settings, width: int) -> None:
    name = _name(settings, width)
    work, folder = workload(settings, name)
    data = product_set(settings, name)
    trials, least = [], _least(data)
    for program, options in OPTIONS.items():
        memory = least if program == LEAST else share_of(work, SHARE)
        trials.append(
            Trial(
                Series(program, f"{width} columns", "bytes/s"),
                python(
                    "workers/load_outercore.py", data, "--memory", memory, "--batch-size", 256,
                    "--fanout", "5,5", "--epochs", 2, "--threads", settings.threads, *options,
                ),
                lambda run: 4 * width * run["epochs"][-1]["rows"] / run["epochs"][-1]["seconds"],
                cold=[folder / "x.npy", data],
            )
        )  # fmt: skip
    by_turns(settings, trials)
    best = ("both parts, groups of the plan", f"{width} columns")
    for trial in trials:
        result.series.append(trial.series)
        result.details[f"{trial.series.program}, {width} columns"] = [
            printed["epochs"][-1]["counters"] for printed in trial.runs
        ]
    for trial in trials:
        if trial.series.program != best[0]:
            over = (trial.series.program, f"{width} columns")
            result.compare(f"{width} columns: plan over {trial.series.program}", best, over)


def _least(data: object) -> int:
    """A quarter more than the smallest budget that a loader accepts, in bytes."""
    graph = oc.open(str(data))
    try:
        with oc.NeighborLoader(
            graph, [5, 5], "train", batch_size=256, memory="1MiB", group=1, hotness="none",
        ) as loader:  # fmt: skip
            loader.plan()
    except BudgetError as error:
        least = error.needed or 0
        return least + least // 4
    return 1 << 20


def _gigabytes(result: Result, program: str, width: int) -> float:
    return (result.median(program, f"{width} columns") or 0.0) / 1e9
