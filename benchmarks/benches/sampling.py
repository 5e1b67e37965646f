"""Sampled edges per second of DGL 2.1 and Outercore, with all data and a tenth in memory."""

from __future__ import annotations

import statistics
import sys
from contextlib import nullcontext
from pathlib import Path

from limits import swap_file
from measure import Result, Series, Settings, Trial, busy_cores, by_turns, python, say

from benches.inputs import dgl_set, import_bytes, interpreter_bytes, product_set, workload

SHARE = 0.10
ROW_BYTES = 512
"""Bytes of features per node in training. The tenth is of features and topology."""
BATCHES = 64 << 20
"""Bytes for batches in the caller, and for the memory that invariant 2 allows above a budget."""
SWAP = 4 << 30
WHAT = (
    "Sampled edges a second on the R-MAT graph, fan-out 15,10 without replacement, batches of "
    "1,024 seeds, sampled nodes made unique and numbered, the same number of threads. Outercore "
    "and GraphBolt deliver arrays by target (`NeighborSampler`, without PyTorch in the process), "
    "DGL's classic sampler blocks, `NeighborLoader` PyG's batches with ids of 64 bits. `memory`: "
    "topology in memory, the median of 15 short epochs in each run. `busy`: likewise, 3 epochs, "
    "beside a program on each core that always has something to do. `limited`: every program in a "
    "cgroup of the same size: what Python with PyTorch and PyG takes, as in the other benchmarks, "
    "and 10 % of the data (topology, and 512 bytes of features a node). From a cold disk epochs "
    "for at least 3 s, each stopped after the given seconds, loading and planning not counted: the "
    "edges of all of them by their seconds, and the first one on its own (`first`). `swapped`: as "
    "`limited`, with a swap file on the disk. `wide`: likewise, what DGL's interpreter and "
    "libraries take instead, the files read of them included. `own`: Outercore in what its own "
    "interpreter takes and the same 10 %."
)
EPOCHS = 15
BUSY_EPOCHS = 3
LEAST_S = 3.0
"""Least seconds of the epochs in a run. An epoch of Outercore takes a tenth of a second, which a
short disturbance can double."""
WORKERS = {
    "Outercore": ("workers/load_outercore.py", "--no-features", "--arrays"),
    "Outercore, PyG batches": ("workers/load_outercore.py", "--no-features"),
}
# OpenMP's threads spin while they wait for each other. If another program needs a core, DGL loses
# nine tenths of its speed by this. With passive waits it does not, so both are measured.
PASSIVE = {"OMP_WAIT_POLICY": "PASSIVE"}
PEERS = (
    ("DGL 2.1 GraphBolt", "peers/dgl_ondisk.py", {}),
    ("DGL 2.1 GraphBolt, passive waiting", "peers/dgl_ondisk.py", PASSIVE),
    ("DGL 2.1 classic", "peers/dgl_classic.py", {}),
    ("DGL 2.1 classic, passive waiting", "peers/dgl_classic.py", PASSIVE),
)


def run(settings: Settings) -> Result:
    """Measure both samplers of DGL, and Outercore."""
    result = Result("sampling", WHAT)
    prepared, ours = dgl_set(settings, settings.dense), product_set(settings, settings.dense)
    _in_memory(result, settings, prepared, ours)
    with busy_cores(settings.threads):
        _in_memory(result, settings, prepared, ours, "busy", BUSY_EPOCHS)
    _limited(result, settings, prepared, ours)
    return result


def _in_memory(
    result: Result,
    settings: Settings,
    prepared: Path | None,
    ours: Path,
    case: str = "memory",
    epochs: int = EPOCHS,
) -> None:
    options = ("--epochs", epochs, "--threads", settings.threads)
    trials = []
    for name, script, env in PEERS:
        series = Series(name, case, "edges/s")
        result.series.append(series)
        if prepared is not None:
            command = python(script, prepared, *options, interpreter=settings.dgl_python)
            trials.append(Trial(series, command, _edges, env=env))
    for name, worker in WORKERS.items():
        series = Series(name, case, "edges/s")
        result.series.append(series)
        command = python(*worker, ours, "--memory", "4GiB", "--topology", "resident", *options)
        trials.append(Trial(series, command, _edges))
        result.details[f"{name}, {case}"] = trials[-1].runs
    by_turns(settings, trials)
    for peer, _, _ in PEERS:
        result.compare(f"Outercore / {peer}, {case}", ("Outercore", case), (peer, case), 10)


def _limited(result: Result, settings: Settings, prepared: Path | None, ours: Path) -> None:
    work, _ = workload(settings, settings.dense)
    topology = work.edges * 4 + (work.nodes + 1) * 8
    tenth = int((topology + work.nodes * ROW_BYTES) * SHARE)
    options = ("--seconds", settings.seconds / 2, "--least", LEAST_S)
    options += ("--threads", settings.threads)
    if settings.quick:
        tenth = max(tenth, 2 * BATCHES)

    own = import_bytes(sys.executable, "import outercore.loading.sampler, outercore.data.far")
    limits = {"limited": interpreter_bytes(settings) + tenth, "own": own + tenth}
    if prepared is not None:
        program = "import dgl, dgl.graphbolt, torch"
        limits["wide"] = import_bytes(settings.dgl_python, program, files=True) + tenth
    result.details["limits"] = {"tenth": tenth, **limits}
    trials = []
    for case, limit in limits.items():
        memory = ("--memory", limit - own - BATCHES)
        command = python(*WORKERS["Outercore"], ours, *memory, *options)
        series = Series("Outercore", case, "edges/s")
        trials.append(Trial(series, command, _all_edges, limit, cold=[ours]))
        result.details[f"Outercore, {case}"] = trials[-1].runs
    # A program that thrashes may take long to start.
    timeout = 4 * settings.seconds
    peers = PEERS if prepared is not None else ()
    with swap_file(settings.work / "sampling.swap", SWAP) if peers else nullcontext(True) as swaps:
        cases = ("limited", "wide", "swapped") if swaps else ("limited", "wide")
        for name, script, env in peers:
            command = python(script, prepared, *options, interpreter=settings.dgl_python)
            for case in cases:
                limit = limits["limited" if case == "swapped" else case]
                trials.append(
                    Trial(
                        Series(name, case, "edges/s"), command, _all_edges, limit,
                        swap=case == "swapped", cold=[prepared], timeout_s=timeout, env=env,
                    )
                )  # fmt: skip
        by_turns(settings, trials)
    for trial in trials:
        program, case = trial.series.program, trial.series.case
        firsts = [_edges({"epochs": run["epochs"][:1]}) for run in trial.runs]
        result.series += [trial.series, Series(program, f"{case}, first", "edges/s", firsts)]
    for name, _, _ in peers:
        for case in cases:
            beside = "wide" if case == "wide" else "limited"
            for which, least in (("", 10), (", first", None)):
                pair = ("Outercore", beside + which), (name, case + which)
                what = " / ".join(" ".join(words) for words in pair)
                result.compare(what, *pair, least)
    if not swaps:
        say("no swap file could be made: peers that do not fit are killed")


def _edges(printed: dict) -> float:
    return statistics.median(epoch["edges"] / epoch["seconds"] for epoch in printed["epochs"])


def _all_edges(printed: dict) -> float:
    epochs = printed["epochs"]
    return sum(epoch["edges"] for epoch in epochs) / sum(epoch["seconds"] for epoch in epochs)
