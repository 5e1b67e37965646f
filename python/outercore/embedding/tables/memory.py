"""The store for tables that fit in memory, with checkpoints in files."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outercore.embedding.tables.store import (
    DAMAGED,
    Pool,
    Progress,
    TableLayout,
    check_triples,
)
from outercore.errors import InvalidError
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import checked_json_bytes, read_checked_json
from outercore.files.npy import read_table, table_blocks, write_npy
from outercore.runs.places import Lock, hold

_TABLES = ("entities", "entity_state", "relations", "relation_state")
_KEPT = ("entities", "relations")
_JOURNAL = "checkpoint.json"
_LOCK = "lock"
_VERSION = 3
_FILL_NUMBERS = 1 << 21
"""Number of values per block of initial rows; the same as in partitions."""


@dataclass
class MemoryStore:
    """A store with all tables and triples in memory. An epoch is one pool.

    With a directory, it writes checkpoints: the tables as `.npy` files, alternately in `tables-0`
    and `tables-1`. `checkpoint.json` names the valid directory and is replaced atomically.

    Errors: `InvalidError` names the first triple that is out of range.
    """

    triples: Tensor
    """int64 [triples, 3]: head, relation, tail."""
    entity_count: int
    relation_count: int
    weights: Tensor | None = None
    block_rows: int = 1 << 14
    directory: Path | None = None
    """The directory of checkpoints; `None` disables them."""
    storage: Storage = field(default_factory=Storage)
    entities: Tensor = field(init=False)
    entity_state: Tensor = field(init=False)
    relations: Tensor = field(init=False)
    relation_state: Tensor = field(init=False)
    degrees: Tensor = field(init=False)
    shape: dict[str, Any] = field(init=False, default_factory=dict)
    progress: Progress | None = field(init=False, default=None)
    _generation: int = field(init=False, default=0)
    _kept: tuple[Tensor, Tensor] | None = field(init=False, default=None)
    _kept_on_disk: int | None = field(init=False, default=None)
    _kept_committed: int | None = field(init=False, default=None)
    _kept_sums: dict[str, int] = field(init=False, default_factory=dict)
    _lock: Lock | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        check_triples("triples", self.triples, self.entity_count, self.relation_count)
        # The array may be column-major, but the core reads row-major triples.
        self.triples = self.triples.contiguous()
        self.degrees = torch.zeros(self.entity_count, dtype=torch.int64)
        for column in (0, 2):
            # Head and tail are counted separately: a copy of both would take twice the memory of
            # an epoch's order.
            np.add.at(self.degrees.numpy(), self.triples[:, column].numpy(), 1)

    @classmethod
    def create(
        cls,
        directory: Path | None,
        triples: Tensor,
        entity_count: int,
        relation_count: int,
        layout: TableLayout,
        *,
        weights: Tensor | None = None,
        device: torch.device | None = None,
    ) -> MemoryStore:
        """Creates a store with new tables.

        Errors: `InvalidError` if `directory` holds a checkpoint, if another process trains in it,
        or for invalid triples or rows.
        """
        if directory is not None and (directory / _JOURNAL).exists():
            raise InvalidError(
                f"`{directory}` holds a checkpoint\nhint: go on with it, or choose another one"
            )
        store = cls(triples, entity_count, relation_count, weights, directory=directory)
        store.allocate(layout, device or torch.device("cpu"))
        if directory is not None:
            store._lock = hold(directory / _LOCK)
        return store

    @classmethod
    def open(
        cls,
        directory: Path,
        triples: Tensor,
        *,
        weights: Tensor | None = None,
        device: torch.device | None = None,
    ) -> MemoryStore:
        """Opens the store at the last checkpoint in `directory`.

        Errors: `InvalidError` for a missing checkpoint, for a different number of triples, and if
        another process trains in it; `CorruptError` and `VersionError` name the file.
        """
        _read_journal(directory)
        with ExitStack() as failed:
            lock = failed.enter_context(closing(hold(directory / _LOCK)))
            saved = _read_journal(directory)
            counts = saved["entities"], saved["relations"]
            store = cls(triples, *counts, weights, directory=directory)
            if saved["triples"] != len(triples):
                raise InvalidError(
                    f"`{directory}`: expected the {saved['triples']:,} triples that it was made "
                    f"from, found {len(triples):,}\nhint: go on with the data set of the run"
                )
            tables = directory / f"tables-{saved['generation'] % 2}"
            for name in _TABLES:
                table = read_table(tables / f"{name}.npy", DAMAGED, saved["sums"][name])
                setattr(store, name, torch.from_numpy(table).to(device or torch.device("cpu")))
            failed.pop_all()
        store._lock = lock
        store._generation = saved["generation"]
        store._kept_on_disk = store._kept_committed = saved["kept"]
        store._kept_sums = saved["kept_sums"]
        store.progress = Progress(**saved["progress"])
        return store

    def allocate(self, layout: TableLayout, device: torch.device) -> None:
        """Allocates the tables, with initial values and an optimiser state of zeros.

        Cost: a few MiB in addition to the tables.
        """
        self.entities = torch.empty(self.entity_count, layout.width, device=device)
        step = max(1, _FILL_NUMBERS // max(1, layout.width))
        for first in range(0, self.entity_count, step):
            block = torch.arange(first, min(first + step, self.entity_count))
            self.entities[first : first + step] = layout.new_entities(block)
        self.entity_state = torch.zeros(self.entity_count, layout.state_width, device=device)
        self.relations, self.relation_state = layout.new_relations(device)

    def checkpoint(self, progress: Progress) -> None:
        """See `Store`. Does nothing without a directory."""
        if self.directory is None:
            return
        generation = self._generation + 1
        saved = {
            "version": _VERSION,
            "generation": generation,
            "entities": self.entity_count,
            "relations": self.relation_count,
            "triples": len(self.triples),
            "kept": self._kept_on_disk,
            "kept_sums": self._kept_sums,
            "progress": asdict(progress),
        }
        with device_errors(f"checkpoint `{self.directory}`"):
            saved["sums"] = self._write_tables(f"tables-{generation % 2}", _TABLES)
            replace_file(self.storage, self.directory / _JOURNAL, checked_json_bytes(saved))
        self._generation = generation
        self._kept_committed = self._kept_on_disk

    def keep(self) -> None:
        """See `Store`. The copy is in the directory, or in memory without one."""
        if self.directory is None:
            self._kept = (self.entities.clone(), self.relations.clone())
            return
        # Do not overwrite the files of the last checkpoint.
        place = 1 if self._kept_committed == 0 else 0
        with device_errors(f"best tables in `{self.directory}`"):
            self._kept_sums = self._write_tables(f"kept-{place}", _KEPT)
        self._kept_on_disk = place

    def restore(self) -> None:
        """See `Store`."""
        if self.directory is not None and self._kept_on_disk is not None:
            kept = self.directory / f"kept-{self._kept_on_disk}"
            for name in _KEPT:
                table, path = getattr(self, name), kept / f"{name}.npy"
                sums = self._kept_sums[name]
                for first, rows in table_blocks(path, DAMAGED, sums, tuple(table.shape)):
                    table[first : first + len(rows)] = torch.from_numpy(np.array(rows))
        elif self._kept is not None:
            for name, table in zip(_KEPT, self._kept, strict=True):
                getattr(self, name).copy_(table)

    def pools(self, epoch: int) -> Iterator[Pool]:
        """See `Store`."""
        if self.progress is not None and (epoch, 0) < (self.progress.epoch, self.progress.pools):
            return
        yield Pool(
            number=0,
            triples=self.triples,
            entities=self.entities,
            entity_state=self.entity_state,
            ranges=[(0, self.entity_count)],
            weights=self.weights,
            degrees=self.degrees,
            ends_batches=True,
        )

    def rows(self, entities: Tensor) -> Tensor:
        """See `Store`."""
        return self.entities.index_select(0, entities.to(self.entities.device))

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Store`."""
        for start in range(0, self.entity_count, self.block_rows):
            stop = min(start + self.block_rows, self.entity_count)
            yield torch.arange(start, stop), self.entities[start:stop]

    def write_entities(self, path: Path) -> int:
        """See `Store`."""
        return write_npy(self.storage, path, self.entities.cpu().numpy())

    def write_relations(self, path: Path) -> int:
        """See `Store`."""
        return write_npy(self.storage, path, self.relations.cpu().numpy())

    def counters(self) -> dict[str, Any]:
        """See `Store`."""
        return {}

    def close(self) -> None:
        """See `Store`."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _write_tables(self, name: str, tables: tuple[str, ...]) -> dict[str, int]:
        """Writes tables into the directory `name`. Returns their checksums."""
        assert self.directory is not None
        into, sums = self.directory / name, {}
        self.storage.make_directory(into)
        for table in tables:
            rows = getattr(self, table).cpu().numpy()
            sums[table] = write_npy(self.storage, into / f"{table}.npy", rows)
        self.storage.sync_directory(into)
        self.storage.sync_directory(self.directory)
        return sums


def _read_journal(directory: Path) -> dict[str, Any]:
    path = directory / _JOURNAL
    if not path.exists():
        raise InvalidError(f"`{directory}`: expected a checkpoint, found none")
    return read_checked_json(path, _VERSION, hint=DAMAGED, what=f"checkpoint `{path}`")
