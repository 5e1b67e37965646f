"""Feature fetch alone: against fio on the same reads, and against mapped files by density."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from limits import drop_cached
from measure import HERE, REPOSITORY, Result, Series, Settings, python, repeated, say

from benches.inputs import workload

WHAT = (
    "Random rows of 512 bytes out of the first 2 GiB of features, cold. fio replays the very "
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
    chosen = np.random.default_rng(5).random(count) < density
    rows = np.flatnonzero(chosen) if density < 1 else np.arange(count)
    listed, plan, trace = scratch / "rows.u64", scratch / "rows.npz", scratch / "reads.fio"
    rows.astype("<u8").tofile(listed)
    np.savez(plan, nodes=rows, begins=_groups(len(rows)))

    ours = Series("Outercore", case, "bytes/s read")
    gathered = Series("Outercore", f"{case} rows", "rows/s")
    command = [
        str(program), str(x), str(listed), "--group", str(GROUP), "--depth", str(DEPTH),
        "--trace", str(trace),
    ]  # fmt: skip
    runs = repeated(ours, settings, command, lambda one: one["bytes"] / one["seconds"], cold=[x])
    gathered.values = [one["rows"] / one["seconds"] for one in runs]
    result.details[case] = runs
    result.series += [ours, gathered]

    if shutil.which("fio"):
        for name, huge_pages, least in (("fio", False, 0.9), ("fio, huge pages", True, None)):
            series = Series(name, case, "bytes/s read")
            for _ in range(settings.repeats):
                drop_cached([x])
                series.values.append(max(_fio(trace, depth, huge_pages) for depth in FIO_DEPTHS))
            result.series.append(series)
            what = f"{case}: bytes/s over {name}"
            result.compare(what, ("Outercore", case), (name, case), least)
    else:
        say("fio is not installed: nothing to compare the reads with")

    for advice in ("none", "random"):
        name = "np.memmap" if advice == "none" else "np.memmap, random advice"
        series = Series(name, f"{case} rows", "rows/s")
        command = python("workers/gather_memmap.py", x, plan, "--advice", advice)
        command += ["--seconds", str(settings.seconds)]
        repeated(series, settings, command, _rows, cold=[x], timeout_s=6 * settings.seconds)
        result.series.append(series)
        result.compare(
            f"{case}: rows/s over {name}",
            ("Outercore", f"{case} rows"),
            (name, f"{case} rows"),
            1.0,
        )


def _groups(rows: int) -> np.ndarray:
    return np.append(np.arange(0, rows, GROUP), rows)


def _fio(trace: Path, depth: int, huge_pages: bool) -> float:
    """Bytes a second of fio on a log of reads."""
    # fio 3.33 has no option for transparent huge pages; the C library's allocator has.
    tunables = f"glibc.malloc.hugetlb={int(huge_pages)}"
    found = subprocess.run(
        [
            "fio", "--name=planned", f"--read_iolog={trace}", "--ioengine=io_uring", "--direct=1",
            f"--iodepth={depth}", "--output-format=json",
        ],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "GLIBC_TUNABLES": tunables},
    )  # fmt: skip
    read = json.loads(found.stdout[found.stdout.index("{") :])["jobs"][0]["read"]
    # `runtime` has whole milliseconds only, too coarse for the sparse cases; it also starts when
    # the log is read. The bandwidth fio itself reports rests on the same clock.
    return read["io_bytes"] * 1000 / max(read["runtime"], 1)


def _rows(printed: dict) -> float:
    return statistics.median(one["rows"] / one["seconds"] for one in printed["epochs"])
