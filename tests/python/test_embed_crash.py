"""Runs that are killed, or whose device fails: what goes on ends with the bits of one that was not.

The partitions' own writes are tested at every operation in `crates/outercore-embed/tests`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from embed_reference import train_epoch
from embed_stores import MEMORY, NaivePartitions, Setting, dealt, order_of, table_of
from outercore.embedding.epochs import Epochs
from outercore.embedding.gradients.trainer import Trainer
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.order import Walks
from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.store import Progress
from outercore.errors import CorruptError, InvalidError, NoSpaceError, VersionError
from outercore.files.atomic import Storage
from outercore.files.checked_json import checked_json_bytes, parse_checked_json

ALWAYS = 1e-9
"""Seconds between checkpoints: one whenever it is allowed."""


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Tables this small gain nothing from a second thread, and lose by waiting for it."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def setting_of(kind: str) -> Setting:
    """Small enough to be trained often."""
    if kind == "walks":
        walks = Walks(sweeps=2, spread=True, rename=True, seed=3)
        return Setting(order_of(6, 4, spare=True), entities=61, walks=walks)
    if kind == "in-turn":
        walks = Walks(spread=True, rename=True, in_turn=True, seed=3)
        return Setting(order_of(4, 2), entities=61, walks=walks)
    if kind == "groups":
        walks = Walks(spread=True, rename=True, group=2, seed=3)
        return Setting(order_of(4, 3), entities=61, walks=walks)
    return Setting(order_of(6, 4 if kind == "spare" else 3, spare=kind == "spare"), entities=61)


def train_on(
    setting: Setting, store: Any, told: Any = lambda: None, every: float = ALWAYS
) -> dict[str, Tensor]:
    """Trains what is left, with checkpoints and best tables; everything that came of it.

    What is best is a function of the tables, so that `keep` and `restore` are part of the run.
    """
    trainer = Trainer(store, setting.config)
    taken = trainer._step

    def step(*arguments: Any) -> float:
        told()
        return taken(*arguments)

    trainer._step = step  # type: ignore[method-assign]

    def validate() -> float:
        return -float((store.rows(torch.arange(9)) - 0.3).norm())

    epochs = Epochs(trainer, validate=validate, checkpoint_seconds=every)
    reports = epochs.run()
    figures = [[report.loss, report.score, report.best, report.triples] for report in reports]
    return {
        "entities": table_of(store),
        "relations": store.relations.clone(),
        "figures": torch.tensor(figures, dtype=torch.float64),
    }


def open_memory(setting: Setting, directory: Path, storage: Storage | None = None) -> MemoryStore:
    """The last checkpoint, or a new store where there is none."""
    try:
        store = MemoryStore.open(directory, setting.triples)
    except InvalidError:
        store = setting.in_memory(directory)
    store.storage = storage or Storage()
    return store


def open_partitions(setting: Setting, directory: Path) -> PartitionStore:
    """The last checkpoint, or a new store where there is none."""
    if (directory / "table" / "journal.json").exists():
        return PartitionStore(directory / "table", MEMORY)
    return setting.create(directory)


def same(found: dict[str, Tensor], expected: dict[str, Tensor]) -> bool:
    return all(torch.equal(found[name], expected[name]) for name in expected)


CHILD = """
import sys
from pathlib import Path
import torch
import test_embed_crash as tests

torch.set_num_threads(1)
kind, root = sys.argv[1], Path(sys.argv[2])
setting = tests.setting_of(kind)
opened = tests.open_memory if kind == "memory" else tests.open_partitions
found = tests.train_on(setting, opened(setting, root), lambda: print("batch", flush=True))
torch.save(found, root / "found.pt")
"""


@pytest.mark.parametrize("kind", ["memory", "in-place", "in-turn", "spare", "walks", "groups"])
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_again_and_again_ends_as_one_that_is_not(
    tmp_path: Path, kind: str
) -> None:
    setting = setting_of(kind)
    opened = open_memory if kind == "memory" else open_partitions
    uninterrupted = train_on(setting, opened(setting, tmp_path / "whole"))
    root = tmp_path / "killed"
    root.mkdir()
    random = np.random.default_rng(1)
    kills = 0
    for _ in range(20):
        child = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", CHILD, kind, str(root)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert child.stdout is not None
        batches = int(random.integers(5, 30))
        with child.stdout:
            for _ in range(batches if kills < 3 else 1_000_000):
                if not child.stdout.readline():
                    break
            else:
                child.send_signal(signal.SIGKILL)
        if child.wait() == 0:
            break
        assert child.returncode == -signal.SIGKILL
        kills += 1
    assert kills == 3
    assert same(torch.load(root / "found.pt"), uninterrupted)


@pytest.mark.parametrize("kind", ["in-place", "spare"])
def test_a_store_that_is_dropped_after_any_state_goes_on_exactly(tmp_path: Path, kind: str) -> None:
    setting = setting_of(kind)
    store = setting.create(tmp_path)
    naive = NaivePartitions(setting, dealt(store))
    epochs = 2
    plain = Trainer(naive, setting.config)
    for epoch in range(epochs):
        train_epoch(plain, epoch)
    directory = store.directory
    number = 0
    while (progress := store.progress or Progress()).epoch < epochs:
        trainer, pool = Trainer(store, setting.config), None
        pools = store.pools(progress.epoch)
        for pool in pools:
            trainer.train_pool(pool, progress.epoch)
            progress = replace(progress, pools=progress.pools + 1)
            number += 1
            if pool.ends_state and number % 3 == 0:
                store.checkpoint(progress)
                break
        else:
            store.checkpoint(Progress(epoch=progress.epoch + 1))
        # What no checkpoint knows of is gone.
        for pool in pools:
            trainer.train_pool(pool, 9)
            break
        del store, trainer, pools, pool
        store = PartitionStore(directory, MEMORY)
    assert torch.equal(table_of(store), naive.entities)
    assert torch.equal(store.relations, naive.relations)


class CrashError(Exception):
    """The power went."""


class FaultyStorage(Storage):
    """Fails at the n-th operation, and waits for no device; half of a failed write is there."""

    def __init__(self, failing: int | None, error: Exception) -> None:
        self.count = 0
        self._failing = failing
        self._error = error

    def _step(self) -> None:
        self.count += 1
        if self.count - 1 == self._failing:
            raise self._error

    def write_pieces(self, path: Path, pieces: Any) -> None:
        data = b"".join(bytes(piece) for piece in pieces)
        try:
            self._step()
        except Exception:
            path.write_bytes(data[: len(data) // 2])
            raise
        path.write_bytes(data)

    def rename(self, old: Path, new: Path) -> None:
        self._step()
        super().rename(old, new)

    def remove(self, path: Path) -> None:
        # Once the power is gone nothing cleans up.
        if not isinstance(self._error, CrashError):
            super().remove(path)

    def sync_directory(self, path: Path) -> None:
        self._step()

    def make_directory(self, path: Path) -> None:
        self._step()
        super().make_directory(path)


@pytest.mark.timeout(600)
@pytest.mark.parametrize("fault", ["crash", "full"])
def test_a_checkpoint_in_memory_survives_a_fault_at_every_operation(
    tmp_path: Path, fault: str
) -> None:
    setting = setting_of("memory")
    setting.triples = setting.triples[:60]

    def run(store: MemoryStore) -> dict[str, Tensor]:
        return train_on(setting, store, every=0.0)

    counting = FaultyStorage(None, CrashError())
    uninterrupted = run(open_memory(setting, tmp_path / "whole", counting))
    assert counting.count > 60
    for failing in range(counting.count):
        root = tmp_path / str(failing)
        error: Exception = CrashError() if fault == "crash" else OSError(28, "no space left")
        store = open_memory(setting, root, FaultyStorage(failing, error))
        with pytest.raises(CrashError if fault == "crash" else NoSpaceError):
            run(store)
        store.close()
        if fault == "full":
            assert not list(root.rglob(".*.tmp")), failing
        store = open_memory(setting, root, FaultyStorage(None, error))
        assert same(run(store), uninterrupted), failing
        store.close()


def test_kept_tables_are_read_into_those_that_are_there_and_damaged_ones_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Blocks of a few rows, the last one shorter.
    monkeypatch.setattr("outercore.files.npy._BLOCK_NUMBERS", 100)
    setting = setting_of("memory")
    for directory in (tmp_path / "run", None):
        store = setting.in_memory(directory)
        best = store.entities.clone(), store.relations.clone()
        store.keep()
        tables = store.entities, store.relations
        for table in tables:
            table.fill_(3.0)
        store.restore()
        for table, expected in zip(tables, best, strict=True):
            assert torch.equal(table, expected)
        assert store.entities is tables[0]
        assert store.relations is tables[1]
        if directory is not None:
            path = directory / "kept-0" / "entities.npy"
            whole = path.read_bytes()
            path.write_bytes(whole[:-1])
            with pytest.raises(CorruptError, match=r"entities\.npy"):
                store.restore()
            np.save(path, best[0][1:].numpy())
            with pytest.raises(CorruptError, match=r"expected float32 \[61, 8\], found"):
                store.restore()
            assert torch.equal(store.entities, best[0])
            path.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
            with pytest.raises(CorruptError, match=r"entities\.npy`: found checksum"):
                store.restore()


def test_a_checkpoint_of_other_triples_a_damaged_one_and_a_newer_one_are_refused(
    tmp_path: Path,
) -> None:
    setting = setting_of("memory")
    store = setting.in_memory(tmp_path)
    store.checkpoint(Progress(epoch=1, reports=[{"loss": 0.5}]))
    with pytest.raises(InvalidError, match="another process holds it"):
        MemoryStore.open(tmp_path, setting.triples)
    store.close()
    again = MemoryStore.open(tmp_path, setting.triples)
    assert again.progress == Progress(epoch=1, reports=[{"loss": 0.5}])
    again.close()
    with pytest.raises(InvalidError, match="holds a checkpoint"):
        setting.in_memory(tmp_path)
    with pytest.raises(InvalidError, match=r"expected the 700 triples .* found 699"):
        MemoryStore.open(tmp_path, setting.triples[1:])
    table = tmp_path / "tables-1" / "entities.npy"
    whole = table.read_bytes()
    table.write_bytes(whole[:-1])
    with pytest.raises(CorruptError, match=r"entities\.npy"):
        MemoryStore.open(tmp_path, setting.triples)
    table.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(CorruptError, match=r"entities\.npy`: found checksum"):
        MemoryStore.open(tmp_path, setting.triples)
    table.write_bytes(whole)
    journal = tmp_path / "checkpoint.json"
    text = journal.read_text()
    values = parse_checked_json(journal.read_bytes(), "checkpoint")
    journal.write_bytes(checked_json_bytes({**values, "version": 4}))
    with pytest.raises(VersionError, match="expected version 3, found 4"):
        MemoryStore.open(tmp_path, setting.triples)
    journal.write_text(text.replace('"epoch": 1', '"epoch": 3'))
    with pytest.raises(CorruptError, match=r"checkpoint\.json`: found checksum .*\nhint: "):
        MemoryStore.open(tmp_path, setting.triples)
    journal.write_text(text[:-3])
    with pytest.raises(CorruptError, match=r"checkpoint\.json"):
        MemoryStore.open(tmp_path, setting.triples)
