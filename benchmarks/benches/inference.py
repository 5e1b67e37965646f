"""Outputs for all nodes: streamed, all in memory, and gathered from mapped files."""

from __future__ import annotations

import tempfile

from measure import Result, Series, Settings, Trial, by_turns, python
from workloads import Workload

from benches.inputs import interpreter_bytes, product_set, share_of, workload

WHAT = (
    "Nodes a second through a network of two layers (hidden 64, 16 outputs) for all nodes of "
    "R-MAT, 16 arcs a node, features of 512 bytes. `memory` has all in memory and runs each layer "
    "at once; its time without reading the features is `computing`. At 10 % each program has a "
    "cgroup of a tenth of the data, beside the interpreter; files are cold. `np.memmap` and the "
    "loader gather the neighbours of 8,192 and 256 nodes at a time, and are stopped after a while; "
    "the loader has 25 %, because at 10 % it refuses the busiest node. "
    "Workers of OpenMP wait passively."
)
SHARE = 0.10
MODELS = ("sage", "gcn", "gat")
PYTORCH = 96 << 20
"""Bytes for other allocations of PyTorch; every limited program gets them."""


def run(settings: Settings) -> Result:
    """Measure all programs for each model."""
    result = Result("inference", WHAT)
    name = "rmat18" if settings.quick else "rmat21"
    work, folder = workload(settings, name)
    ours = product_set(settings, name)
    budget = max(share_of(work, SHARE), 32 << 20)
    limit = budget + interpreter_bytes(settings) + PYTORCH
    result.details = {"data": work.data_bytes, "budget": budget, "limit": limit}
    cold = [folder / "x.npy", ours]
    with tempfile.TemporaryDirectory(dir=settings.work) as scratch:
        for model in MODELS:
            # The slow programs are measured with only one model.
            programs = _programs(budget, limit - budget, work.data_bytes, slow=model == MODELS[0])
            trials = [
                Trial(
                    Series(label, model, "nodes/s"),
                    python(
                        "workers/infer.py", program, ours, "--model", model, "--memory", memory,
                        "--threads", settings.threads, "--scratch", scratch,
                        "--seconds", settings.seconds,
                    ),
                    _nodes,
                    memory=most,
                    cold=cold if most else (),
                    timeout_s=6 * settings.seconds,
                    env={"OMP_WAIT_POLICY": "PASSIVE"},
                )
                for label, program, memory, most in programs
            ]  # fmt: skip
            by_turns(settings, trials)
            for trial in trials:
                result.details[f"{model}, {trial.series.program}"] = trial.runs
                result.series.append(trial.series)
                if trial.series.program == "memory":
                    computing = Series("computing", model, "nodes/s")
                    computing.values = [
                        printed["nodes"] / printed["compute_s"] for printed in trial.runs
                    ]
                    result.series.append(computing)
            _passes(result, model, trials, work)
            result.compare(f"{model}: all in memory", ("all", model), ("memory", model), 1 / 1.1)
            result.compare(f"{model}: all, to computing", ("all", model), ("computing", model))
            result.compare(f"{model}: 10 % to all", ("10 %", model), ("all", model))
        slow = MODELS[0]
        result.compare("10 % over np.memmap", ("10 %", slow), ("np.memmap, 10 %", slow), 5)
        result.compare("10 % over the loader at 25 %", ("10 %", slow), ("loader, 25 %", slow))
    return result


def _programs(
    budget: int, besides: int, data: int, *, slow: bool
) -> list[tuple[str, str, int, int | None]]:
    limit = budget + besides
    programs: list[tuple[str, str, int, int | None]] = [
        ("memory", "memory", 0, None),
        ("all", "outercore", 4 * data, None),
        ("10 %", "outercore", budget, limit),
    ]
    if slow:
        more = budget * 5 // 2
        programs += [
            ("np.memmap, 10 %", "memmap", 0, limit),
            ("loader, 25 %", "before", more, more + besides),
        ]
    return programs


def _passes(result: Result, model: str, trials: list[Trial], work: Workload) -> None:
    """Bytes moved, divided by the bytes of the features."""
    features = work.nodes * work.width * 4
    for trial in trials:
        for printed in trial.runs[:1]:
            name = f"{model}, {trial.series.program}: passes"
            if "moved" in printed:
                moved = printed["moved"]
                result.details[name] = {
                    what: moved[what] / features
                    for what in ("features_read", "scratch_read", "scratch_written")
                }
            if printed.get("reads"):
                # The first layer may be incomplete.
                first = printed["reads"][0]
                result.details[name] = first["bytes"] / (first["nodes"] * work.width * 4)


def _nodes(printed: dict) -> float:
    return printed["nodes"] / printed["seconds"]
