"""Small batches: the share of the device's bandwidth that groups of batches reach."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from limits import drop_cached
from measure import Result, Series, Settings, Trial, by_turns, python, say
from product import command

from benches.inputs import product_set, share_of, workload

WHAT = (
    "Bytes of features read a second in the second epoch of `oc.NeighborLoader`, whose batches "
    "are dropped: fan-out 5,5, rows of 512 bytes (2^22) and of a page (2^19), a share of the data "
    "in memory. `plan`: as many batches in a group as the plan chooses; `single`: one. `engine`: "
    "the very reads of the plan's epoch, and of the single one's, made in one go without waiting "
    "between groups, their bytes dropped: the limit of the device for them."
)
CASES = (
    ("rows512", 0.25, 32, 0.9),
    ("rows512", 0.25, 1024, None),
    ("rows4096", 0.1, 32, 0.9),
    ("rows4096", 0.1, 1024, None),
    ("rows4096", 0.25, 32, None),
)
"""Graph of `workloads.py`, share of its data in memory, seeds per batch, goal.

In the last case, delivering the rows in memory takes longer than reading the other rows.
"""


@dataclass
class _Replay:
    """The reads of a loader's epoch, repeated by the I/O engine."""

    series: Series
    program: Path
    dataset: Path
    loader: Trial
    cold: list[Path]
    runs: list[dict] = field(default_factory=list)

    def run(self, settings: Settings) -> None:
        if self.loader.failed:
            return
        drop_cached(self.cold)
        config = json.dumps(self.loader.runs[-1]["config"])
        finished = subprocess.run(
            [str(self.program), str(self.dataset), config],
            check=True,
            capture_output=True,
            text=True,
        )
        printed = json.loads(finished.stdout)
        self.runs.append(printed)
        self.series.values.append(printed["bytes"] / printed["seconds"])


def run(settings: Settings) -> Result:
    """Measure all cases."""
    result = Result("accumulator", WHAT)
    if not settings.replay.exists():
        raise RuntimeError(f"no program {settings.replay}; see `--replay`")
    for case in (("rmat18", 0.25, 32, None),) if settings.quick else CASES:
        _measure(result, settings, *case)
    return result


def _measure(
    result: Result,
    settings: Settings,
    name: str,
    share: float,
    batch_size: int,
    least: float | None,
) -> None:
    work, folder = workload(settings, name)
    data = product_set(settings, name)
    if not (data / "device.json").exists():
        say(f"probing the device of {name}")
        subprocess.run(command("probe", data), check=True, capture_output=True)
    cold = [folder / "x.npy", data]
    case = f"{work.width * 4} bytes, {share:.0%} in memory, {batch_size} seeds"
    loaders = {}
    for program, more in (("plan", ()), ("single", ("--group", 1))):
        loaders[program] = Trial(
            Series(program, case, "bytes/s"),
            python(
                "workers/load_outercore.py", data, "--memory", share_of(work, share),
                "--batch-size", batch_size, "--fanout", "5,5", "--epochs", 2,
                "--threads", settings.threads, *more,
            ),
            _bytes,
            cold=cold,
        )  # fmt: skip
    replays = {
        program: _Replay(
            Series(f"engine, reads of {program}", case, "bytes/s"),
            settings.replay, data, loader, cold,
        )
        for program, loader in loaders.items()
    }  # fmt: skip
    by_turns(
        settings,
        [loaders["plan"], replays["plan"], loaders["single"], replays["single"]],
    )
    seeds = {}
    for program, loader in loaders.items():
        seeds[program] = Series(program, f"{case}, rate", "seeds/s")
        seeds[program].values = [_seeds(printed) for printed in loader.runs]
        result.series += [loader.series, replays[program].series, seeds[program]]
        result.details[f"{case}, {program}"] = [
            {"plan": printed["plan"], "epoch": printed["epochs"][-1]} for printed in loader.runs
        ]
    limit = (replays["plan"].series.program, case)
    result.compare(f"{case}: plan over engine", ("plan", case), limit, least)
    alone = (replays["single"].series.program, case)
    result.compare(f"{case}: single over engine", ("single", case), alone)
    result.compare(f"{case}: single over the plan's engine", ("single", case), limit)
    rate = f"{case}, rate"
    result.compare(f"{case}: seeds/s, plan over single", ("plan", rate), ("single", rate))


def _bytes(printed: dict) -> float:
    epoch = printed["epochs"][-1]
    return epoch["counters"]["counters"]["feature_reads"]["bytes"] / epoch["seconds"]


def _seeds(printed: dict) -> float:
    epoch = printed["epochs"][-1]
    return epoch["seeds"] / epoch["seconds"]
