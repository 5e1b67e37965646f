"""Where the rows of a table are while they are trained: the seam between training and storage.

A store yields pools: triples whose entities are all in memory, with the memory they are in.
Training knows rows of that memory and no entity; a store knows where entities are and no model.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TextIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.embed.models import Start
from outercore.embed.npy import read_npy, read_npy_into, write_npy
from outercore.embed.randomness import Purpose, initial_rows
from outercore.errors import CorruptError, InvalidError, VersionError
from outercore.lock import hold
from outercore.storage import Storage, device_errors, replace_file

StartRows = Callable[[Tensor], "Tensor | NDArray[np.float32]"]
"""Given entities, int64 [n], their first rows, float32 [n, width]; a row that is not a number is
one that begins with the model's own initial values."""


@dataclass(frozen=True)
class TableLayout:
    """Widths and initial values of the tables of a run."""

    width: int
    state_width: int
    relation_rows: int
    relation_width: int
    relation_state_width: int
    start: Start

    def new_entities(self, seed: int, entities: Tensor, start: StartRows | None = None) -> Tensor:
        """The first rows of `entities`, int64 [n]; each depends on its number and the seed only.

        Errors: `InvalidError` where `start` gives rows of another shape.
        """
        rows = torch.empty(len(entities), self.width)
        initial_rows(seed, Purpose.ENTITIES, entities, rows, self.start.entities)
        if start is not None:
            _overlay("start", torch.as_tensor(start(entities)), rows)
        return rows

    def new_relations(
        self, seed: int, device: torch.device, given: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """The relations' rows before training, and their state.

        Shapes: `given` float32 [relation rows, relation width]; a row that is not a number is one
        that begins with the model's own initial values.
        """
        relations = torch.empty(self.relation_rows, self.relation_width)
        initial_rows(
            seed,
            Purpose.RELATIONS,
            torch.arange(self.relation_rows),
            relations,
            self.start.relations or self.start.entities,
            uniform=self.start.uniform_relations,
        )
        if given is not None:
            _overlay("relations", given, relations)
        state = torch.zeros(self.relation_rows, self.relation_state_width, device=device)
        return relations.to(device), state


@dataclass(frozen=True)
class Pool:
    """Triples that can be trained now, and the rows that they are trained on.

    Rows of entities are places in `entities`, whichever partition lies there now. A pool is valid
    until the next one is asked for.
    """

    number: int
    """Of this epoch's pools; part of what randomness depends on."""
    triples: Tensor
    """int64 [triples, 3]: row of the head, relation, row of the tail."""
    entities: Tensor
    """float32 [rows, width]; trained in place."""
    entity_state: Tensor
    """float32 [rows, state width] of the optimiser; trained in place."""
    ranges: list[tuple[int, int]]
    """Rows that hold entities, from which negatives are drawn."""
    weights: Tensor | None = None
    """float32 [triples]: how much each counts; `None`: 1."""
    degrees: Tensor | None = None
    """[rows]: triples of each row's entity, for degree-weighted negatives."""
    ends_state: bool = True
    """Whether a checkpoint may be taken after it."""
    ends_batches: bool = False
    """Whether one may be taken after each of its batches."""
    pairs: list[tuple[int, int]] | None = None
    """By number of their ranges: where the pool's triples have their heads and tails.

    A triple's entity is replaced by those of the ranges that are paired with that of its other
    one. `None`: any with any.
    """
    shares: list[float] | None = None
    """Of each pair: which part of its triples the pool has; `None`: the same of all, or all of it.

    Where they differ, an entity is the likelier an answer the larger the share of its pair, and
    negatives have to be as likely.
    """

    def release(self) -> None:
        """Lets go of the triples and weights, whoever still holds the pool."""
        object.__setattr__(self, "triples", self.triples.new_empty(0, 3))
        object.__setattr__(self, "weights", None)


@dataclass(frozen=True)
class Progress:
    """How far training has come: what a checkpoint says beside the tables. Plain JSON values."""

    epoch: int = 0
    """The epoch under way, from 0."""
    pools: int = 0
    """Pools of that epoch that are done."""
    batch: int = 0
    """Batches of the pool after those that are done."""
    loss: float = 0.0
    """Sum over that epoch's triples so far."""
    triples: int = 0
    """Triples of that epoch that are done."""
    batches: int = 0
    """Batches of that epoch that are done."""
    seconds: float = 0.0
    """Spent training in that epoch."""
    reports: list[dict[str, Any]] = field(default_factory=list)
    """One entry for each finished epoch."""
    best: float | None = None
    """The best validation's score."""
    stale: int = 0
    """Validations since the best one."""
    counters: dict[str, Any] = field(default_factory=dict)
    """What moving partitions has cost in that epoch."""
    timeline: list[dict[str, Any]] = field(default_factory=list)
    """Spans of the whole run so far."""

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Progress:
        """Inverse of `dataclasses.asdict`; keys of a later release are left out."""
        known = {item.name for item in fields(cls)}
        return cls(**{name: value for name, value in values.items() if name in known})


class Store(Protocol):
    """Entities somewhere, relations in memory."""

    entity_count: int
    relation_count: int
    """Without the rows that reciprocal relations add."""
    relations: Tensor
    """float32 [relations, width]; twice as many rows with reciprocal relations."""
    relation_state: Tensor
    progress: Progress | None
    """Of the checkpoint that the store was opened from."""

    def pools(self, epoch: int) -> Iterator[Pool]:
        """Every triple once, in pools. Asking for the next pool gives the last one back.

        Of the epoch that the store was opened in the midst of, those that are not done yet.
        """

    def checkpoint(self, progress: Progress) -> None:
        """Makes tables, optimiser state, kept tables and `progress` durable together.

        Allowed after a pool that ends its state, after any batch of one that says so, and between
        epochs. A crash leaves this checkpoint
        or the one before.
        """

    def rows(self, entities: Tensor) -> Tensor:
        """The rows of these entities, a copy [entities, width]."""

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """The whole table once: (entities ascending, int64 [n]; their rows [n, width]).

        Each block is valid until the next one; several may cover the same range of numbers, with
        different entities of it.
        """

    def keep(self) -> None:
        """Remembers both tables as they are, for `restore`; between epochs.

        The next checkpoint makes them part of itself.
        """

    def restore(self) -> None:
        """Brings back the tables that `keep` remembered, if any; state stays as it is."""

    def write_entities(self, path: Path) -> None:
        """Writes all entities' rows, `.npy` float32 [entities, width], atomically; out of core."""

    def write_relations(self, path: Path) -> None:
        """Writes the relations' rows, `.npy` float32 [rows, relation width], atomically."""

    def close(self) -> None:
        """Lets go of the table, which another process may then train; nothing else can be done."""


_TABLES = ("entities", "entity_state", "relations", "relation_state")
_KEPT = ("entities", "relations")
_JOURNAL = "checkpoint.json"
_LOCK = "lock"
_VERSION = 2
_DAMAGED = "hint: go on from a copy of the directory, or train again"


@dataclass
class MemoryStore:
    """Everything in memory: one pool an epoch.

    With a directory a checkpoint is the tables as `.npy` files in `tables-0` or `tables-1`, by
    turns, and `checkpoint.json`, which says which of them counts and is replaced atomically.

    Errors: `InvalidError` names the first triple that is out of range.
    """

    triples: Tensor
    """int64 [triples, 3]: head, relation, tail."""
    entity_count: int
    relation_count: int
    weights: Tensor | None = None
    block_rows: int = 1 << 14
    directory: Path | None = None
    """Where checkpoints go; without one there are none."""
    storage: Storage = field(default_factory=Storage)
    entities: Tensor = field(init=False)
    entity_state: Tensor = field(init=False)
    relations: Tensor = field(init=False)
    relation_state: Tensor = field(init=False)
    degrees: Tensor = field(init=False)
    progress: Progress | None = field(init=False, default=None)
    _generation: int = field(init=False, default=0)
    _kept: tuple[Tensor, Tensor] | None = field(init=False, default=None)
    _kept_on_disk: int | None = field(init=False, default=None)
    _kept_committed: int | None = field(init=False, default=None)
    _kept_sums: dict[str, int] = field(init=False, default_factory=dict)
    _lock: TextIO | None = field(init=False, default=None, repr=False)

    def __post_init__(self) -> None:
        check_triples("triples", self.triples, self.entity_count, self.relation_count)
        if self.weights is not None:
            _check_weights(self.weights, len(self.triples))
        ends = self.triples[:, [0, 2]].reshape(-1)
        self.degrees = torch.bincount(ends, minlength=self.entity_count)

    @classmethod
    def create(
        cls,
        directory: Path | None,
        triples: Tensor,
        entity_count: int,
        relation_count: int,
        layout: TableLayout,
        *,
        seed: int,
        weights: Tensor | None = None,
        device: torch.device | None = None,
        start: StartRows | None = None,
        relations: Tensor | None = None,
    ) -> MemoryStore:
        """A store with new tables.

        `start` and `relations` give first rows; one that is not a number is the model's own.

        Errors: `InvalidError` where `directory` holds a checkpoint or another process trains in
        it, or for bad triples or rows.
        """
        if directory is not None and (directory / _JOURNAL).exists():
            raise InvalidError(
                f"`{directory}` holds a checkpoint\nhint: go on with it, or choose another one"
            )
        store = cls(triples, entity_count, relation_count, weights, directory=directory)
        store.allocate(
            layout, seed, device or torch.device("cpu"), start=start, relations=relations
        )
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
        """A store at the last checkpoint in `directory`.

        Errors: `InvalidError` where there is none, where it is of another number of triples, or
        where another process goes on with it; `CorruptError` and `VersionError` name the file.
        """
        _read_journal(directory)
        with ExitStack() as failed:
            lock = failed.enter_context(hold(directory / _LOCK))
            store = cls._load(directory, triples, weights, device or torch.device("cpu"))
            failed.pop_all()
        store._lock = lock
        return store

    @classmethod
    def _load(
        cls, directory: Path, triples: Tensor, weights: Tensor | None, device: torch.device
    ) -> MemoryStore:
        saved = _read_journal(directory)
        store = cls(triples, saved["entities"], saved["relations"], weights, directory=directory)
        if saved["triples"] != len(triples):
            raise InvalidError(
                f"`{directory}`: expected the {saved['triples']:,} triples that it was made from, "
                f"found {len(triples):,}\nhint: go on with the data set of the run"
            )
        tables = directory / f"tables-{saved['generation'] % 2}"
        for name in _TABLES:
            table = read_npy(tables / f"{name}.npy", saved["sums"].get(name))
            setattr(store, name, table.to(device))
        store._generation = saved["generation"]
        store._kept_on_disk = store._kept_committed = saved["kept"]
        store._kept_sums = saved["kept_sums"]
        store.progress = Progress.from_dict(saved["progress"])
        return store

    def allocate(
        self,
        layout: TableLayout,
        seed: int,
        device: torch.device,
        *,
        start: StartRows | None = None,
        relations: Tensor | None = None,
    ) -> None:
        """Makes the tables: initial values, and state of zeros."""
        entities = layout.new_entities(seed, torch.arange(self.entity_count), start)
        self.entities = entities.to(device)
        self.entity_state = torch.zeros(self.entity_count, layout.state_width, device=device)
        self.relations, self.relation_state = layout.new_relations(seed, device, relations)

    def checkpoint(self, progress: Progress) -> None:
        """See `Store`; does nothing without a directory."""
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
            text = json.dumps(saved, allow_nan=False).encode()
            replace_file(self.storage, self.directory / _JOURNAL, text)
        self._generation = generation
        self._kept_committed = self._kept_on_disk

    def keep(self) -> None:
        """See `Store`; in the directory, if there is one."""
        if self.directory is None:
            self._kept = (self.entities.clone(), self.relations.clone())
            return
        # Not over those that the last checkpoint names.
        place = 1 if self._kept_committed == 0 else 0
        with device_errors(f"best tables in `{self.directory}`"):
            self._kept_sums = self._write_tables(f"kept-{place}", _KEPT)
        self._kept_on_disk = place

    def restore(self) -> None:
        """See `Store`."""
        if self.directory is not None and self._kept_on_disk is not None:
            kept = self.directory / f"kept-{self._kept_on_disk}"
            for name in _KEPT:
                read_npy_into(kept / f"{name}.npy", getattr(self, name), self._kept_sums.get(name))
        elif self._kept is not None:
            for name, table in zip(_KEPT, self._kept, strict=True):
                getattr(self, name).copy_(table)

    def pools(self, epoch: int) -> Iterator[Pool]:
        """See `Store`."""
        if self.progress is not None:
            done = (self.progress.epoch, self.progress.pools)
            if (epoch, 0) < done:
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

    def write_entities(self, path: Path) -> None:
        """See `Store`."""
        write_npy(self.storage, path, self.entities)

    def write_relations(self, path: Path) -> None:
        """See `Store`."""
        write_npy(self.storage, path, self.relations)

    def close(self) -> None:
        """See `Store`."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _write_tables(self, name: str, tables: tuple[str, ...]) -> dict[str, int]:
        """Writes tables into a directory of that name; their checksums."""
        assert self.directory is not None
        into = self.directory / name
        self.storage.make_directory(into)
        sums = {
            table: write_npy(self.storage, into / f"{table}.npy", getattr(self, table))
            for table in tables
        }
        self.storage.sync_directory(into)
        self.storage.sync_directory(self.directory)
        return sums


def check_triples(name: str, triples: Tensor, entities: int, relations: int) -> None:
    """Raises `InvalidError` unless `triples` are int64 [m, 3] and within range."""
    if triples.dim() != 2 or triples.size(1) != 3 or triples.dtype != torch.int64:
        raise InvalidError(
            f"{name}: expected int64 [m, 3], found {triples.dtype} {list(triples.shape)}"
        )
    columns = ((0, "head", entities), (1, "relation", relations), (2, "tail", entities))
    for column, what, count in columns:
        wrong = (triples[:, column] < 0) | (triples[:, column] >= count)
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0])
            raise InvalidError(
                f"{name}: row {row}: {what} {int(triples[row, column])}: expected 0 to {count - 1}"
            )


def _read_journal(directory: Path) -> dict[str, Any]:
    path = directory / _JOURNAL
    if not path.exists():
        raise InvalidError(f"`{directory}`: expected a checkpoint, found none")
    try:
        saved: dict[str, Any] = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise CorruptError(f"checkpoint `{path}`: {error}\n{_DAMAGED}") from error
    if saved.get("version") not in (1, _VERSION):
        raise VersionError(
            f"checkpoint `{path}`: expected version {_VERSION}, found {saved.get('version')}\n"
            "hint: go on with the Outercore that wrote it"
        )
    # The first version knows no checksums.
    return {"sums": {}, "kept_sums": {}, **saved}


def _overlay(name: str, given: Tensor, rows: Tensor) -> None:
    """Puts the numbers of `given` into `rows`, except in rows that are not a number."""
    if given.shape != rows.shape:
        raise InvalidError(
            f"{name}: expected rows {list(rows.shape)}, found {list(given.shape)}\n"
            "hint: the same model and dimension as the run that they are from"
        )
    known = ~given.isnan().any(dim=1)
    rows[known] = given[known].to(rows)


def _check_weights(weights: Tensor, count: int) -> None:
    if weights.shape != (count,):
        raise InvalidError(f"weights: expected {count}, found {list(weights.shape)}")
    wrong = ~(weights.isfinite() & (weights >= 0))
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise InvalidError(
            f"weights: row {row}: expected a finite number, 0 or more, found {float(weights[row])}"
        )
