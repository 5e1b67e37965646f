"""`outercore train` on the CPU and on the device: scores, seconds of a step, waits, copies."""

from __future__ import annotations

import shutil
from typing import Any

import inputs
from bench import Bench
from window import Window

import outercore as oc

LOSS_WITHIN = 0.05
"""Allowed relative difference. Dropout draws other random numbers on a device."""
SCORES_WITHIN = {"large": 0.01, "small": 0.05}
"""Allowed absolute difference, for 20,000 test nodes or 800."""


def run(bench: Bench) -> None:
    """Train GraphSAGE with all data in memory, and with a quarter of the features' bytes."""
    bench.keep("feature_bytes", inputs.feature_bytes(bench))
    _both(bench, "all in memory", bench.pick(6 << 30, 1 << 29), {"epochs": 2}, bench.pick(150, 4))
    if not bench.small:
        # Steps wait for the disk here, so the 20 steps of the smaller split are enough.
        few = {"epochs": 1, "train_split": "valid"}
        _both(bench, "a quarter of the features", inputs.feature_bytes(bench) // 4, few, 2)


def _both(bench: Bench, name: str, memory: int, options: dict[str, Any], first: int) -> None:
    """Train on the device, profiled from step `first` on, and on the CPU."""
    records = {}
    for device in dict.fromkeys((bench.device, "cpu")):
        steps = bench.pick(15 if options["epochs"] > 1 else 4, 3)
        window = Window(bench.work, first, steps) if device == bench.device else None
        records[device] = _train_within(bench, memory, device, window, options)
        bench.keep(f"{name}, {device}", _figures(records[device]))
        if window is not None:
            bench.keep(f"step, {name}, {device}", window.found)
    _compare(bench, name, records["cpu"], records[bench.device])


def _train_within(
    bench: Bench, memory: int, device: str, window: Window | None, options: dict[str, Any]
) -> Any:
    """Train with `memory`, or with the least that works if that is more."""
    try:
        return _train(bench, memory, device, window, options)
    except oc.BudgetError as error:
        if error.needed is None:
            raise
        bench.keep(f"memory instead of {memory}", error.needed)
        return _train(bench, error.needed, device, window, options)


def _train(
    bench: Bench, memory: int, device: str, window: Window | None, options: dict[str, Any]
) -> Any:
    out = bench.work / "train-run"
    shutil.rmtree(out, ignore_errors=True)
    return oc.train(
        inputs.planted(bench), out=out, model="sage", fanout=(15, 10),
        batch_size=bench.pick(1024, 64), hidden=bench.pick(256, 16), patience=0, memory=memory,
        device=device, validation="sampled", checkpoint_seconds=0, observer=window,
        threads=bench.pick(None, 1), **options,
    )  # fmt: skip


def _figures(record: Any) -> dict[str, Any]:
    """Values of the last epoch. With two epochs its caches are warm and no profiler runs."""
    steps = record["epochs"][-1]["counters"]["train"]
    return {
        "steps": steps["items"],
        "step_s": record["epochs"][-1]["seconds"] / steps["items"],
        "waiting_for_batches": steps["starved_s"] / record["epochs"][-1]["seconds"],
        "epochs_s": [epoch["seconds"] for epoch in record["epochs"]],
        "losses": [epoch["loss"] for epoch in record["epochs"]],
        "scores": record["result"]["scores"],
        "peak_memory_bytes": record["peak_memory_bytes"],
        "forecast": record["forecast"],
        "counters": record["epochs"][-1]["counters"],
        "timeline": record["timeline"],
    }


def _compare(bench: Bench, budget: str, cpu: Any, there: Any) -> None:
    losses = [record["epochs"][0]["loss"] for record in (cpu, there)]
    apart = abs(losses[1] - losses[0]) / losses[0]
    bench.check(f"training, {budget}: loss of the first epoch", apart <= LOSS_WITHIN, losses)
    if len(cpu["epochs"]) == 1:
        # After twenty steps scores still change much from step to step.
        return
    scores = cpu["result"]["scores"], there["result"]["scores"]
    apart = max(abs(scores[1][part] - scores[0][part]) for part in scores[0])
    within = SCORES_WITHIN["small" if bench.small else "large"]
    bench.check(f"training, {budget}: scores as on the CPU", apart <= within, scores)
