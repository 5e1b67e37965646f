"""Epochs of loading with a tenth of the data in memory: mapped files, DGL on disk, Outercore."""

from __future__ import annotations

from measure import Result, Series, Settings, python, repeated

from benches.inputs import (
    batches_of,
    dgl_set,
    interpreter_bytes,
    product_set,
    share_of,
    workload,
)

SHARE = 0.10
BATCHES = 128 << 20
"""Bytes for batches in the caller: the memory of finished tensors belongs to PyTorch."""
WHAT = (
    "Rows delivered a second: GraphSAGE batches of 1,024 seeds, fan-out 15,10, features of 512 "
    "bytes a row, each program in a cgroup of 10 % of the data (features and topology), page "
    "cache and interpreter included; files cold at the start. The mapped programs only gather "
    "the rows of given batches, DGL and Outercore sample them too."
)


def run(settings: Settings) -> Result:
    """Measure all four programs."""
    result = Result("loading", WHAT)
    work, folder = workload(settings, settings.big)
    # A tenth of the workload of `--quick` is less than the memory of the interpreter.
    limit = (
        share_of(work, SHARE) if not settings.quick else interpreter_bytes(settings) + (256 << 20)
    )
    budget = max(limit - interpreter_bytes(settings) - BATCHES, 32 << 20)
    result.details = {"data": work.data_bytes, "limit": limit, "outercore_budget": budget}
    cold = [folder / "x.npy"]
    plan = batches_of(settings, settings.big, 64)
    # The first batch may take minutes if every page fault reads far ahead.
    timeout = 6 * settings.seconds

    for advice in ("none", "random"):
        name = "np.memmap" if advice == "none" else "np.memmap, random advice"
        series = Series(name, "gather", "rows/s")
        command = python(
            "workers/gather_memmap.py", folder / "x.npy", plan, "--advice", advice,
            "--seconds", settings.seconds,
        )  # fmt: skip
        repeated(series, settings, command, _rows, memory=limit, cold=cold, timeout_s=timeout)
        result.series.append(series)

    series = Series("DGL 2.1 on disk", "epoch", "rows/s")
    prepared = dgl_set(settings, settings.big)
    if prepared is not None:
        command = python(
            "peers/dgl_ondisk.py", prepared, "--features", "--threads", settings.threads,
            "--seconds", settings.seconds, interpreter=settings.dgl_python,
        )  # fmt: skip
        repeated(series, settings, command, _rows, memory=limit, cold=cold, timeout_s=timeout)
        if not series.values:
            series.note = f"no batch within {timeout:.0f} s: {series.note}"
    result.series.append(series)

    ours = product_set(settings, settings.big)
    cold_epoch = Series("Outercore", "first epoch", "rows/s")
    warm_epoch = Series("Outercore", "warm epoch", "rows/s")
    command = python(
        "workers/load_outercore.py", ours, "--memory", budget, "--epochs", 3,
        "--threads", settings.threads,
    )  # fmt: skip
    runs = repeated(
        cold_epoch, settings, command, _rows, memory=limit, cold=[*cold, ours], timeout_s=timeout
    )
    warm_epoch.values = [_rows(printed, epoch=-1) for printed in runs]
    result.details["outercore"] = runs
    result.series += [cold_epoch, warm_epoch]

    for mine in ("first epoch", "warm epoch"):
        for peer, least in (("np.memmap", 10), ("np.memmap, random advice", 3)):
            result.compare(f"{mine} / {peer}", ("Outercore", mine), (peer, "gather"), least)
        result.compare(
            f"{mine} / DGL 2.1 on disk", ("Outercore", mine), ("DGL 2.1 on disk", "epoch"), 10
        )
    return result


def _rows(printed: dict, epoch: int = 0) -> float:
    timed = printed["epochs"][epoch]
    return timed["rows"] / timed["seconds"]
