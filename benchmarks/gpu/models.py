"""Check every kind of network: training on the device ends as it does on the CPU."""

from __future__ import annotations

import shutil
from typing import Any

import inputs
from bench import Bench

import outercore as oc

WITHIN = {"loss": 0.02, "score": 0.03}
"""Relative for the loss of the first epoch, absolute for scores. A device adds float32 values in
another order."""


def run(bench: Bench) -> None:
    """Train without dropout, because its random numbers depend on the device."""
    plain: dict[str, Any] = {"fanout": (5, 4), "batch_size": 256, "hidden": 32}
    kinds = bench.pick(("sage", "gcn", "gat", "gin", "mlp"), ("sage", "gat"))
    cases = {kind: (inputs.tiny(bench), {"model": kind, **plain}) for kind in kinds}
    if not bench.small:
        cases["sage, batch norm, residual"] = (
            inputs.tiny(bench), {"model": "sage", "norm": "batch", "residual": True, **plain}
        )  # fmt: skip
    typed = {"fanout": (4, 3), "batch_size": 256, "hidden": 16, "heads": 2}
    for kind in bench.pick(("rgcn", "sage", "gat", "hgt"), ("rgcn",)):
        cases[f"typed {kind}"] = (inputs.typed(bench), {"model": kind, **typed})
    cases["links"] = (inputs.tiny(bench), {"model": "sage", "task": "link", **plain})
    for name, (data, options) in cases.items():
        try:
            _compare(bench, name, data, options)
        except Exception as error:
            bench.check(f"{name}: trains on both", False, f"{type(error).__name__}: {error}")


def _compare(bench: Bench, name: str, data: Any, options: dict[str, Any]) -> None:
    records = {}
    for device in dict.fromkeys(("cpu", bench.device)):
        out = bench.work / "model-run"
        shutil.rmtree(out, ignore_errors=True)
        records[device] = oc.train(
            data, out=out, device=device, dropout=0.0, epochs=1, patience=0,
            memory="512MiB", seed=3, threads=bench.pick(None, 1), **options,
        )  # fmt: skip
    cpu, there = records["cpu"], records[bench.device]
    losses = [record["epochs"][0]["loss"] for record in (cpu, there)]
    apart = abs(losses[1] - losses[0]) / losses[0]
    bench.check(f"{name}: loss of the first epoch", apart <= WITHIN["loss"], losses)
    scores = cpu["result"]["scores"], there["result"]["scores"]
    apart = max(abs(scores[1][part] - scores[0][part]) for part in scores[0])
    bench.check(f"{name}: final scores", apart <= WITHIN["score"], scores)
