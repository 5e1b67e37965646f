"""The predictions of `outercore plan train`, compared with the run, on five workloads."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from limits import drop_cached
from measure import Result, Series, Settings, Target, say
from product import command, sets

from benches.inputs import product_set, workload
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import TypedInputs
from outercore.importing.splits import SplitChoice
from outercore.importing.typed_graph import open_typed

WHAT = (
    "`outercore plan train`, then `outercore train` with the same options for three epochs, files "
    "cold before each: seconds of an epoch, hit ratio and bytes read. `later` is the median of the "
    "second and third epoch. Deviations are of the prediction, in percent of what was measured; of "
    "hit ratios in points. There is no validation."
)
EPOCHS = 3


@dataclass(frozen=True)
class Workload:
    """A training to plan and to measure."""

    name: str
    graph: str
    """Name of a graph in `workloads.py`; `typed` for the graph of several types."""
    options: dict[str, object] = field(default_factory=dict)


WORKLOADS = (
    Workload("sage, small budget", "rows512", {"budget.memory": "256MiB"}),
    Workload("sage, all in memory", "rows512", {"budget.memory": "6GiB"}),
    Workload(
        "rgcn, several types",
        "typed",
        {"budget.memory": "896MiB", "model.kind": "rgcn", "sampling.fanout": "10,5"},
    ),
    Workload(
        "gat, wide fan-out",
        "rows512",
        {"budget.memory": "1GiB", "model.kind": "gat", "sampling.fanout": "30,10"},
    ),
    Workload(
        "sage, rows of a page, small batches",
        "rows4096",
        {"budget.memory": "512MiB", "sampling.fanout": "5,5", "sampling.batch_size": 64},
    ),
)


def run(settings: Settings) -> Result:
    """Plan and train every workload."""
    result = Result("plan", WHAT)
    for work in WORKLOADS:
        for _ in range(settings.repeats):
            _measure(result, settings, work)
    for work in WORKLOADS:
        _judge(result, work)
    return result


def _measure(result: Result, settings: Settings, work: Workload) -> None:
    if work.graph == "typed":
        data = _typed(settings)
        cold = [data]
    else:
        name = "rmat18" if settings.quick else work.graph
        _, folder = workload(settings, name)
        data = product_set(settings, name)
        cold = [folder / "x.npy", data]
    if not (data / "device.json").exists():
        say(f"probing the device of {data.name}")
        subprocess.run(command("probe", data), check=True, capture_output=True)
    options = sets(
        {
            "model.hidden": 128,
            "optimiser.epochs": EPOCHS,
            "optimiser.patience": 0,
            "budget.threads": settings.threads,
            **work.options,
        }
    )
    drop_cached(cold)
    planned = json.loads(_run(settings, command("plan", "train", data, "--json", *options)))
    out = settings.work / "plan-run"
    shutil.rmtree(out, ignore_errors=True)
    drop_cached(cold)
    _run(settings, command("train", data, "--out", out, *options))
    record = json.loads((out / "record.json").read_text())
    shutil.rmtree(out, ignore_errors=True)
    result.details.setdefault(work.name, []).append(
        {"planned": planned, "plan": record["plan"], "epochs": record["epochs"]}
    )
    for part, epochs in (("first", record["epochs"][:1]), ("later", record["epochs"][1:])):
        expected = planned["forecast"]["first_epoch" if part == "first" else "later_epochs"]
        for what, unit, predicted, measured in (
            ("time", "s", expected["seconds"], _median(epochs, lambda epoch: epoch["seconds"])),
            ("hit ratio", "", expected["hit_ratio"], _median(epochs, _hit_ratio)),
            ("bytes", "bytes", expected["bytes"], _median(epochs, _bytes)),
        ):
            case = f"{work.name}, {part}: {what}"
            _series(result, "predicted", case, unit).values.append(predicted)
            _series(result, "measured", case, unit).values.append(measured)
            say(f"{case}: predicted {predicted:.4g}, measured {measured:.4g}")


def _judge(result: Result, work: Workload) -> None:
    """Records deviations as targets; a target is met if the ratio is at least the bound."""
    for part in ("first", "later"):
        for what in ("time", "bytes"):
            case = f"{work.name}, {part}: {what}"
            predicted, measured = result.median("predicted", case), result.median("measured", case)
            nearness = None
            if predicted is not None and measured:
                nearness = 1 - abs(predicted / measured - 1)
            least = 0.75 if what == "time" else None
            result.targets.append(Target(f"{case}, nearness", nearness, least))
        case = f"{work.name}, {part}: hit ratio"
        predicted, measured = result.median("predicted", case), result.median("measured", case)
        nearness = None
        if predicted is not None and measured is not None:
            nearness = 1 - abs(predicted - measured)
        result.targets.append(Target(f"{case}, nearness", nearness, 0.97))


def _series(result: Result, program: str, case: str, unit: str) -> Series:
    for series in result.series:
        if (series.program, series.case) == (program, case):
            return series
    made = Series(program, case, unit)
    result.series.append(made)
    return made


def _median(epochs: list[dict], value: Callable[[dict], float]) -> float:
    return statistics.median(value(epoch) for epoch in epochs)


def _hit_ratio(epoch: dict) -> float:
    cache = epoch["counters"]["cache"]
    return 1 - cache["misses"] / cache["accesses"] if cache["accesses"] else 0.0


def _bytes(epoch: dict) -> float:
    parts = ("feature_reads", "topology_reads")
    return sum(epoch["counters"][part]["bytes"] for part in parts)


def _run(settings: Settings, arguments: list[str]) -> str:
    env = {**os.environ, "OMP_NUM_THREADS": str(settings.threads)}
    done = subprocess.run(arguments, capture_output=True, text=True, check=False, env=env)
    if done.returncode:
        raise RuntimeError(f"`{' '.join(arguments)}` failed: {done.stderr[-1500:]}")
    return done.stdout


def _typed(settings: Settings) -> Path:
    """A graph of four types: papers and authors have features of different widths."""
    shrink = 20 if settings.quick else 1
    folder = settings.work / f"papers-{shrink}"
    if (folder / "graph" / "graph.json").exists():
        return folder / "graph"
    say("making a graph of several types")
    folder.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(0)
    nodes = {"paper": 600_000 // shrink, "author": 600_000 // shrink, "venue": 500, "field": 2_000}
    texts = []
    for (source, relation, target), count in {
        ("author", "writes", "paper"): 3_000_000,
        ("paper", "cites", "paper"): 5_000_000,
        ("paper", "in", "venue"): 600_000,
        ("paper", "has", "field"): 2_000_000,
    }.items():
        size = count // shrink
        ends = [
            (nodes[end] * random.random(size) ** 2).astype(np.int64) for end in (source, target)
        ]
        path = folder / f"{relation}.parquet"
        pq.write_table(pa.table({"source": ends[0], "target": ends[1]}), path)
        texts.append(f"{source},{relation},{target}={path}:source,target")
    for name, width in (("paper", 256), ("author", 32)):
        np.save(folder / f"{name}.npy", random.random((nodes[name], width), np.float32))
    np.save(folder / "labels.npy", random.integers(0, 8, nodes["paper"]))
    np.save(folder / "train.npy", random.choice(nodes["paper"], 40_960 // shrink, replace=False))
    inputs = TypedInputs(
        tuple(f"{name}={count}" for name, count in nodes.items()),
        tuple(texts),
        features=tuple(f"{name}={folder / name}.npy" for name in ("paper", "author")),
        label=f"paper={folder / 'labels.npy'}",
        splits=SplitChoice((f"train={folder / 'train.npy'}",)),
        add_reverse=True,
    )
    import_graph(open_typed(inputs), folder / "graph")
    return folder / "graph"
