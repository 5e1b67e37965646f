"""Only feature fetches: compared with fio on the same reads, and with mapped files by density."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from limits import drop_cached
from measure import HERE, REPOSITORY, Result, Series, Settings, Trial, by_turns, python, say

from benches.inputs import workload

WHAT = (
    "Random rows of 512 bytes out of the first 2 GiB of features, cold; where they are few, as "
    "many draws one after the other as make up a group of 131,072. fio replays the very "
    "reads that the planner made (io_uring, direct, the best of three queue depths), into buffers "
    "of ordinary pages as is its default, and of huge pages, as Outercore's are; `np.memmap` "
    "gathers the same rows in ascending order, with and without random advice."
)
DENSITIES = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0)
ROWS = 1 << 22
GROUP = 1 << 17
DEPTH = 128
FIO_DEPTHS = (8, 32, 128)


def build() -> Path:
    """The fetch program, compiled by Cargo."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target")) / "bench-fetch"
    subprocess.run(
        ["cargo", "build", "--release", "--quiet", "--target-dir", target],
        cwd=HERE / "fetch",
        check=True,
    )
    return target / "release" / "outercore-bench-fetch"


def run(settings: Settings) -> Result:
    """Measure every density."""
    result = Result("fetch", WHAT)
    program = build()
    work, folder = workload(settings, settings.big)
    x, count = folder / "x.npy", min(ROWS, work.nodes)
    with tempfile.TemporaryDirectory(dir=settings.work) as scratch:
        for density in DENSITIES:
            _density(result, settings, program, x, count, density, Path(scratch))
    return result


def _density(
    result: Result,
    settings: Settings,
    program: Path,
    x: Path,
    count: int,
    density: float,
    scratch: Path,
) -> None:
    case = f"{density:.1%}"
    rows, group = _drawn(count, density)
    listed, plan, trace = scratch / "rows.u64", scratch / "rows.npz", scratch / "reads.fio"
    rows.astype("<u8").tofile(listed)
    np.savez(plan, nodes=rows, begins=np.append(np.arange(0, len(rows), group), len(rows)))

    ours = Series("Outercore", case, "bytes/s read")
    gathered = Series("Outercore", f"{case} rows", "rows/s")
    command = [
        str(program), str(x), str(listed), "--group", str(group), "--depth", str(DEPTH),
        "--trace", str(trace),
    ]  # fmt: skip
    fetching = Trial(ours, command, lambda printed: printed["bytes"] / printed["seconds"], cold=[x])
    replayed = []
    if shutil.which("fio"):
        for name, huge_pages in (("fio", False), ("fio, huge pages", True)):
            replayed.append(_Fio(Series(name, case, "bytes/s read"), x, trace, huge_pages))
    else:
        say("fio is not installed: nothing to compare the reads with")
    mapped = []
    for advice in ("none", "random"):
        name = "np.memmap" if advice == "none" else "np.memmap, random advice"
        gather = python("workers/gather_memmap.py", x, plan, "--advice", advice)
        gather += ["--seconds", str(settings.seconds)]
        series = Series(name, f"{case} rows", "rows/s")
        mapped.append(Trial(series, gather, _rows, cold=[x], timeout_s=6 * settings.seconds))

    by_turns(settings, [fetching, *replayed, *mapped])
    gathered.values = [printed["rows"] / printed["seconds"] for printed in fetching.runs]
    result.details[case] = fetching.runs
    result.series += [ours, gathered, *(trial.series for trial in (*replayed, *mapped))]
    for trial in replayed:
        name, least = trial.series.program, None if trial.huge_pages else 0.9
        what = f"{case}: bytes/s over {name}"
        result.compare(what, ("Outercore", case), (name, case), least)
    for trial in mapped:
        name, rows_case = trial.series.program, trial.series.case
        what = f"{case}: rows/s over {name}"
        result.compare(what, ("Outercore", rows_case), (name, rows_case), 1.0)


@dataclass
class _Fio:
    """fio on the reads of the previous run of the planner."""

    series: Series
    x: Path
    trace: Path
    huge_pages: bool

    def run(self, settings: Settings) -> None:
        drop_cached([self.x])
        rates = [_fio(self.trace, depth, self.huge_pages) for depth in FIO_DEPTHS]
        self.series.values.append(max(rates))


def _drawn(count: int, density: float) -> tuple[np.ndarray, int]:
    """The rows to fetch, ascending within each group, and the number of rows per group.

    A single draw of few rows is too short to measure. So there are enough draws to make up a full
    group; each draw is a separate group.
    """
    rng = np.random.default_rng(5)
    each = max(round(count * density), 1)
    draws = max(GROUP // each, 1)
    drawn = [np.sort(rng.choice(count, each, replace=False)) for _ in range(draws)]
    return np.concatenate(drawn), min(each, GROUP)


def _fio(trace: Path, depth: int, huge_pages: bool) -> float:
    """Bytes per second of fio on a log of reads."""
    # fio 3.33 lacks an option for transparent huge pages, but the C library's allocator has one.
    tunables = f"glibc.malloc.hugetlb={int(huge_pages)}"
    finished = subprocess.run(
        [
            "fio", "--name=planned", f"--read_iolog={trace}", "--ioengine=io_uring", "--direct=1",
            f"--iodepth={depth}", "--output-format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GLIBC_TUNABLES": tunables},
    )  # fmt: skip
    read = json.loads(finished.stdout[finished.stdout.index("{") :])["jobs"][0]["read"]
    # `runtime` is in whole milliseconds, too coarse for the sparse cases, and includes reading the
    # log. The bandwidth that fio reports uses the same clock.
    return read["io_bytes"] * 1000 / max(read["runtime"], 1)


def _rows(printed: dict) -> float:
    return statistics.median(epoch["rows"] / epoch["seconds"] for epoch in printed["epochs"])
