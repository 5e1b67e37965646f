"""Helpers for tests of whole runs: a small data set, a configuration, and observers."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.store import EpochReport, Pool
from outercore.importing.build.triples import TripleOptions, import_triples
from outercore.runs.progress import Observer

ENTITIES, STEPS = 60, (1, 2, 3, 5)
SMALL: dict[str, Any] = {
    "model": {"kind": "complex", "dim": 16, "init_scale": 0.1},
    "negatives": {"count": 20},
    "optimiser": {
        "batch_size": 16,
        "chunk_size": 8,
        "epochs": 4,
        "learning_rate": 0.2,
        "validate_every": 2,
    },
    "budget": {"threads": 1, "memory": "256MiB"},
}
IN_PARTITIONS = {"partitions": 6, "slots": 3}


def small(**groups: Any) -> dict[str, Any]:
    return {name: {**SMALL.get(name, {}), **groups.get(name, {})} for name in {*SMALL, *groups}}


def circle(root: Path) -> Path:
    """A data set of triples (i, k, i + steps[k]) on a circle; every tenth triple is held out."""
    rows = [
        f"e{head}\tr{number}\te{(head + step) % ENTITIES}\n"
        for head in range(ENTITIES)
        for number, step in enumerate(STEPS)
    ]
    parts = {
        "valid": rows[3::20],
        "test": rows[13::20],
        "train": [row for place, row in enumerate(rows) if place % 10 != 3],
    }
    for name, some in parts.items():
        (root / f"{name}.tsv").write_text("".join(some))
    import_triples(
        root / "train.tsv",
        root / "set",
        valid=root / "valid.tsv",
        test=root / "test.tsv",
        options=TripleOptions(memory="16MiB"),
    )
    return root / "set"


class After(Observer):
    """Calls `act` once after a number of batches; records the epochs."""

    def __init__(self, batches: int = 0, act: Any = None) -> None:
        self.batches, self.act = batches, act
        self.reports: list[EpochReport] = []
        self.resumed_at: tuple[int, int] | None = None

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        self.batches -= 1
        if self.batches == 0 and self.act is not None:
            self.act()

    def epoch_done(self, report: EpochReport) -> None:
        self.reports.append(report)

    def resumed(self, epoch: int, triples: int) -> None:
        self.resumed_at = (epoch, triples)


def watch_pools(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that receives the number of triples of each pool from now on."""
    pools, sizes = PartitionStore.pools, []

    def watched(store: PartitionStore, epoch: int) -> Iterator[Pool]:
        for pool in pools(store, epoch):
            sizes.append(len(pool.triples))
            yield pool

    monkeypatch.setattr(PartitionStore, "pools", watched)
    return sizes


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def tables(run: Path) -> list[Any]:
    return [np.load(run / f"{name}.npy") for name in ("entities", "relations")]


def assert_same_bits(run: Path, other: Path) -> None:
    for actual, expected in zip(tables(run), tables(other), strict=True):
        np.testing.assert_array_equal(actual.view(np.uint32), expected.view(np.uint32))


def losses(run: Path) -> list[float]:
    return [epoch["loss"] for epoch in json.loads((run / "record.json").read_text())["epochs"]]
