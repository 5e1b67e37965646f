"""`outercore embed` on the CPU and on the device: quality, triples per second, kernels, waits."""

from __future__ import annotations

import shutil
from typing import Any

import inputs
from bench import Bench
from window import Window

import outercore as oc

WITHIN = 0.02
"""Allowed difference of filtered MRR. The device adds in another order, with products in TF32."""
RUNS: dict[str, dict[str, Any]] = {
    "complex": {"model": "complex"},
    "complex, batches of 100,000": {"model": "complex", "batch_size": 100_000},
    "complex, 4 partitions": {"model": "complex", "partitions": 4, "slots": 2, "epochs": 2},
    "transe": {"model": "transe", "norm": 2, "loss": "margin"},
    "rotate, 100 negatives": {
        "model": "rotate",
        "loss": "self-adversarial",
        "margin": 6.0,
        "negatives": 100,
        "epochs": 2,
    },
}


def run(bench: Bench) -> None:
    """Run each case on both devices."""
    for name, options in RUNS.items():
        if bench.small and name not in ("complex", "complex, 4 partitions"):
            continue
        try:
            _both(bench, name, options)
        except Exception as error:
            bench.check(f"embedding, {name}: runs", False, f"{type(error).__name__}: {error}")


def _both(bench: Bench, name: str, options: dict[str, Any]) -> None:
    records = {}
    for device in dict.fromkeys((bench.device, "cpu")):
        # With batches of 100,000 triples, an epoch has three batches.
        first, steps = (1, 2) if "batch_size" in options else (2, bench.pick(15, 2))
        window = Window(bench.work, first, steps) if device == bench.device else None
        record = _embed(bench, device, options, window)
        records[device] = record
        bench.keep(f"{name}, {device}", _figures(record))
        if window is not None:
            bench.keep(f"step, {name}, {device}", window.found)
    scores = {device: _mrr(record) for device, record in records.items()}
    apart = abs(scores["cpu"] - scores[bench.device])
    bench.check(f"embedding, {name}: MRR as on the CPU", apart <= WITHIN, scores)


def _embed(bench: Bench, device: str, options: dict[str, Any], window: Window | None) -> Any:
    out = bench.work / "embed-run"
    shutil.rmtree(out, ignore_errors=True)
    epochs = options.get("epochs", bench.pick(4, 2))
    chosen = {"dim": bench.pick(100, 8), "negatives": bench.pick(1000, 20), **options}
    chosen["epochs"] = epochs
    result = oc.embed(
        inputs.facts(bench), out=out, validate_every=epochs, test_triples=2000,
        valid_triples=2000, checkpoint_seconds=0, device=device, observer=window, seed=1,
        threads=bench.pick(None, 1), **chosen,
    )  # fmt: skip
    return result.record


def _figures(record: Any) -> dict[str, Any]:
    """Rates of the last epoch. The profiler runs in the first one."""
    last = record["epochs"][-1]
    return {
        "triples_per_second": last["triples"] / last["seconds"],
        "epochs_s": [epoch["seconds"] for epoch in record["epochs"]],
        "losses": [epoch["loss"] for epoch in record["epochs"]],
        "batches": last["batches"],
        "validation_s": last["validation_seconds"],
        "mrr": _mrr(record),
        "timeline": record["timeline"],
    }


def _mrr(record: Any) -> float:
    """Filtered MRR of the test triples."""
    metrics = [metric for metric in record["result"]["metrics"] if metric["part"] == "test"]
    return float(metrics[0]["mrr"])
