"""A table of entities larger than memory: a few partitions of it at a time.

The core (`crates/outercore-embed`) decides which partition is where, and when it moves. Here its
steps become pools, and relations, progress and best tables go into its commits.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.base import native
from outercore.embedding.tables.order import PartitionOrder, Walks
from outercore.embedding.tables.store import DAMAGED, Pool, Progress, StartRows, TableLayout
from outercore.errors import CorruptError, InvalidError
from outercore.files.atomic import Storage
from outercore.files.npy import checksum_of_rows, read_table, write_npy

_BLOCK_NUMBERS = 1 << 20
_CPU = torch.device("cpu")


class SlotCopies:
    """The partitions of a step in a device's memory, for training.

    A slot is behind its copy from the step's first batch on. `send` makes them equal again: for
    leaving partitions before the next step, for all before the slots are read otherwise. What stays
    is not copied. Where the core moves partitions otherwise, for a checkpoint for instance, the
    step is to be ended: its copies must not be written over what has come.

    Shapes: `embeddings` float32 [slots x rows of a slot, width], `state` [the same, state width].
    Memory: as much on the device.
    """

    def __init__(
        self, embeddings: Tensor, state: Tensor, slot_rows: int, device: torch.device
    ) -> None:
        self._slots = (embeddings, state)
        self._slot_rows = slot_rows
        self._copies = tuple(torch.empty_like(table, device=device) for table in self._slots)
        # Of each slot of the step: its partition and the rows of it, first to last.
        self._there: dict[int, tuple[int, slice]] = {}
        # Slots whose copies have changed, or may yet.
        self._trained: set[int] = set()

    @property
    def embeddings(self) -> Tensor:
        """All slots' rows, on the device."""
        return self._copies[0]

    @property
    def state(self) -> Tensor:
        """Their state of the optimiser."""
        return self._copies[1]

    def bring(self, resident: Iterable[tuple[int, int, int]]) -> None:
        """Copies the partitions of a step, (partition, slot, rows), that are not on the device
        yet."""
        before, self._there = self._there, {}
        for partition, slot, rows in resident:
            first = slot * self._slot_rows
            place = (partition, slice(first, first + rows))
            if before.get(slot) != place:
                for copy, table in zip(self._copies, self._slots, strict=True):
                    copy[place[1]] = table[place[1]]
            self._there[slot] = place
            self._trained.add(slot)

    def send(self, leaving: Iterable[int] | None = None) -> None:
        """Writes what was trained to its slots: partitions that leave, or all, which stay."""
        chosen = None if leaving is None else set(leaving)
        for slot in sorted(self._trained):
            partition, rows = self._there[slot]
            if chosen is not None and partition not in chosen:
                continue
            for copy, table in zip(self._copies, self._slots, strict=True):
                table[rows] = copy[rows]
            if chosen is not None:
                self._trained.remove(slot)

    def end_step(self) -> None:
        """Everything was sent, and the core has moved on: slots may have other partitions."""
        self._trained.clear()

    def forget(self) -> None:
        """The slots hold something else now."""
        self._there.clear()
        self._trained.clear()


def sorting(
    source: dict[str, Any],
    *,
    entity_count: int,
    relation_count: int,
    partitions: int,
    memory: int,
    seed: int,
) -> dict[str, Any]:
    """How triples are sorted into buckets, as the core takes it; `source` is `Triples.to_core`."""
    return {
        "nodes": entity_count,
        "relations": relation_count,
        "partitions": partitions,
        "seed": seed,
        "source": source,
        "memory": memory,
    }


class PartitionStore:
    """Entities in partitions on disk, some of them in memory; relations in memory.

    A pool is a step of the core's executor: the buckets that a buffer state newly allows, or parts
    of all buckets that it allows; in place, unless in turn, the buckets of the leaving partition
    first. Its rows lie in the slots of the executor, or in copies of them on another device, where
    the relations and the results of the store are, too.

    Memory: the budget that it is opened with, a pool's triples as training takes them, and the
    relations' tables.
    """

    def __init__(
        self,
        directory: Path,
        memory: int,
        *,
        degrees: bool = False,
        device: torch.device | None = None,
        told: native.Progress | None = None,
    ) -> None:
        """Opens the table in `directory` at its last checkpoint; `memory` in bytes.

        With `degrees` pools know the degrees of their rows: 4 bytes an entity and a slot's row in
        addition to `memory`, and one pass over the triples, whose progress `told` gets. On a
        `device` other than the CPU partitions are trained in copies of the slots, as large as
        these.

        Errors: `NotFoundError` for a missing table; `InvalidError` if another process trains it;
        `BudgetError` says the least memory; `CorruptError` and `VersionError`.
        """
        self.directory = directory
        self._device = device or _CPU
        self._storage = Storage()
        self._core = _core.PartitionExecutor(str(directory), memory)
        self.shape = self._core.shape()
        """Sizes: nodes, relations, partitions, slots, rows of a slot, bytes of a partition."""
        self._entities, self._state = (torch.from_numpy(table) for table in self._core.slots())
        self._copies: SlotCopies | None = None
        if self._device.type != "cpu":
            slot_rows = self.shape["slot_rows"]
            self._copies = SlotCopies(self._entities, self._state, slot_rows, self._device)
        # The one that was asked for last.
        self._pool: Pool | None = None
        # Whether a state's partitions are being trained, so that nothing else can be done.
        self._within_state = False
        self.entity_count: int = self.shape["nodes"]
        self.relation_count: int = self.shape["relations"]
        saved = _Resident.decode(self._core.resident(), directory)
        self.relations = saved.relations.to(self._device)
        self.relation_state = saved.relation_state.to(self._device)
        self.progress: Progress | None = saved.progress
        self._kept = self._committed = saved.kept
        self._degrees: Tensor | None = None
        if degrees:
            self._degrees = self._count_degrees(told)
            rows = self.shape["slots"] * self.shape["slot_rows"]
            self._slot_degrees = torch.zeros(rows, dtype=torch.int32)

    def _count_degrees(self, told: native.Progress | None) -> Tensor:
        """Degrees of all rows, partition after partition."""
        try:
            return torch.from_numpy(self._core.degrees(told).astype(np.int32))
        except BaseException:
            # Whoever keeps the exception would keep the table's lock with it.
            self.close()
            raise

    @classmethod
    def create(
        cls,
        directory: Path,
        source: dict[str, Any],
        layout: TableLayout,
        *,
        entity_count: int,
        relation_count: int,
        order: PartitionOrder,
        memory: int,
        seed: int,
        degrees: bool = False,
        device: torch.device | None = None,
        start: StartRows | None = None,
        relations: Tensor | None = None,
        walks: Walks | None = None,
        told: native.Progress | None = None,
    ) -> PartitionStore:
        """A store with a new table in `directory`.

        An epoch goes through `order` as `walks` says, once and as it is by default. The table has
        as many partitions as the order, times the group. `start` and `relations` give first rows;
        one that is not a number is the model's own. `degrees` and `device`: see `PartitionStore`.
        `told` gets the progress of sorting triples and of first rows; an error that it raises ends
        the work.

        Cost: two passes over the triples; writes every partition once.
        Errors: `InvalidError` where `directory` holds a table, or for a triple that is out of
        range, which is named; `BudgetError` says the least memory.
        """
        rows, state = layout.new_relations(seed, _CPU, relations)
        walks = walks or Walks()
        creation = {
            "sorting": sorting(
                source,
                entity_count=entity_count,
                relation_count=relation_count,
                partitions=order.partitions * walks.group,
                memory=memory,
                seed=seed,
            ),
            "dim": layout.width,
            "state_width": layout.state_width,
            "walks": asdict(walks),
        }

        done = 0

        def first_rows(nodes: NDArray[np.int64]) -> NDArray[np.float32]:
            nonlocal done
            done += len(nodes)
            if told is not None:
                told("first rows", done, entity_count, "entities")
            return layout.new_entities(seed, torch.from_numpy(nodes), start).numpy()

        resident = _Resident(rows, state, None, None).encode()
        # Relations may be many: what opens the table reads them anew.
        del rows, state
        _core.create_partitions(
            str(directory), creation, order.to_core(), resident, first_rows, told
        )
        del resident
        return cls(directory, memory, degrees=degrees, device=device, told=told)

    def pools(self, epoch: int) -> Iterator[Pool]:
        """See `Store`."""
        position = self._core.position()
        if position[0] < epoch:
            raise InvalidError(
                f"epoch {epoch + 1}: expected epoch {position[0] + 1}, after which the table is"
            )
        if position[0] > epoch:
            return
        slot_rows = self.shape["slot_rows"]
        while (step := self._core.advance()) is not None:
            self._within_state = not step["ends_state"]
            weights = step["weights"]
            resident, leaving = step["resident"], step["leaving"]
            if self._copies is not None:
                self._copies.bring(resident)
            place = {partition: number for number, (partition, _, _) in enumerate(resident)}
            self._pool = Pool(
                number=step["number"],
                triples=torch.from_numpy(step["triples"]),
                # No name for them here: they go when the store is closed.
                entities=self._entities if self._copies is None else self._copies.embeddings,
                entity_state=self._state if self._copies is None else self._copies.state,
                ranges=[(slot * slot_rows, slot * slot_rows + rows) for _, slot, rows in resident],
                pairs=[(place[head], place[tail]) for head, tail in step["buckets"]],
                shares=_shares(step["parts"]),
                weights=None if weights is None else torch.from_numpy(weights),
                degrees=self._degrees_of(resident),
                ends_state=step["ends_state"],
            )
            # These references go before the next pool's triples are made.
            del step, weights
            yield self._pool
            if self._pool is not None:
                self._pool.release()
                self._pool = None
            if self._copies is not None:
                self._copies.send(leaving)

    def _settle(self) -> None:
        """Has everything that was trained in the slots, where the core reads it."""
        if self._copies is not None:
            self._copies.send()

    @contextmanager
    def _step_ended(self) -> Iterator[None]:
        """The same where the core moves on to the next step's partitions."""
        self._settle()
        yield
        if self._copies is not None:
            self._copies.end_step()

    def _degrees_of(self, resident: list[tuple[int, int, int]]) -> Tensor | None:
        """Degrees by slot row of the partitions in memory."""
        if self._degrees is None:
            return None
        for partition, slot, rows in resident:
            start = slot * self.shape["slot_rows"]
            first = self._first_row(partition)
            self._slot_degrees[start : start + rows] = self._degrees[first : first + rows]
        return self._slot_degrees

    def _first_row(self, partition: int) -> int:
        """Rows of the partitions before it; the first ones may have one more than the others."""
        each, longer = divmod(self.entity_count, self.shape["partitions"])
        return partition * each + min(partition, longer)

    def checkpoint(self, progress: Progress) -> None:
        """See `Store`."""
        resident = _Resident(self.relations, self.relation_state, progress, self._kept)
        with self._step_ended():
            self._core.commit(resident.encode())
        self._committed = self._kept

    def rows(self, entities: Tensor) -> Tensor:
        """See `Store`."""
        self._settle()
        rows = torch.from_numpy(self._core.rows_of(entities.cpu().contiguous().numpy()))
        return rows.to(self._device)

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """See `Store`."""
        self._settle()
        step = max(1, _BLOCK_NUMBERS // self.shape["dim"])
        for partition in range(self.shape["partitions"]):
            rows = self._first_row(partition + 1) - self._first_row(partition)
            for first in range(0, rows, step):
                count = min(step, rows - first)
                nodes, numbers = self._core.read_rows(partition, first, count)
                order = np.argsort(nodes)
                found = torch.from_numpy(numbers[order]).to(self._device)
                yield torch.from_numpy(nodes[order]), found

    def keep(self) -> None:
        """See `Store`; as files next to the table."""
        # Not over those that the last checkpoint names.
        place = 1 if self._committed is not None and self._committed[0] == 0 else 0
        with self._step_ended():
            checksum = self._core.save(str(self.directory / f"kept-{place}.bin"))
        of_relations = write_npy(
            self._storage, self._kept_relations(place), self.relations.cpu().numpy()
        )
        self._kept = (place, checksum, of_relations)

    def restore(self) -> None:
        """See `Store`.

        Skips the rest of a state in training.
        """
        self._pass_over()
        if self._kept is not None:
            place, checksum, of_relations = self._kept
            relations = read_table(self._kept_relations(place), DAMAGED, of_relations)
            with self._step_ended():
                self._core.load(str(self.directory / f"kept-{place}.bin"), checksum)
            if self._copies is not None:
                self._copies.forget()
            self.relations = torch.from_numpy(relations).to(self._device)

    def write_entities(self, path: Path) -> int:
        """See `Store`. Reads the file once more."""
        with self._step_ended():
            self._core.write_npy(str(path))
        return checksum_of_rows(path, DAMAGED)

    def write_relations(self, path: Path) -> int:
        """See `Store`."""
        return write_npy(self._storage, path, self.relations.cpu().numpy())

    def counters(self) -> dict[str, Any]:
        """What moving partitions has cost since the store was opened."""
        return self._core.counters()

    def largest_pool(self) -> tuple[int, int]:
        """Triples of the largest pool of any epoch, and of a bucket that is read whole meanwhile,
        if pools have parts of buckets."""
        return self._core.largest_pool()

    def close(self) -> None:
        """Lets go of the table, which another process may then train; nothing else can be done."""
        # The core lets go of the table's lock when nothing refers to it any more; pools that
        # somebody still holds keep the memory that they lie in, and no more.
        for name in ("_core", "_entities", "_state", "_copies"):
            self.__dict__.pop(name, None)
        self._pool = None

    def _pass_over(self) -> None:
        """Moves on to the end of the state under way, with the rows as they are by now."""
        if self._pool is not None:
            # Before the next pool's triples are made.
            self._pool.release()
            self._pool = None
        with self._step_ended():
            while self._within_state:
                step = self._core.advance()
                self._within_state = step is not None and not step["ends_state"]

    def _kept_relations(self, place: int) -> Path:
        return self.directory / f"kept-{place}-relations.npy"


def _shares(parts: list[int]) -> list[float] | None:
    """Of each bucket, dealt into so many parts: what one of them is, if they are not all alike."""
    return None if len(set(parts)) <= 1 else [1.0 / count for count in parts]


@dataclass(frozen=True)
class _Resident:
    """The part of a commit that is not in partitions: a line of JSON, then the numbers."""

    relations: Tensor
    relation_state: Tensor
    progress: Progress | None
    kept: tuple[int, str, int | None] | None
    """Which of the two places of best tables counts, and the checksums of its embeddings and
    relations; a table of an earlier release knows the first one only."""

    def encode(self) -> bytes:
        tables = [self.relations.cpu(), self.relation_state.cpu()]
        header = {
            "shapes": [list(table.shape) for table in tables],
            "progress": None if self.progress is None else asdict(self.progress),
            "kept": self.kept,
        }
        arrays = [np.ascontiguousarray(table.numpy(), np.float32) for table in tables]
        text = json.dumps(header, allow_nan=False).encode()
        numbers = [array.data.cast("B") for array in arrays if array.size]
        return b"".join([text, b"\n", *numbers])

    @classmethod
    def decode(cls, data: bytes, directory: Path) -> _Resident:
        end = data.find(b"\n")
        try:
            header = json.loads(data[:end])
            shapes = [tuple(shape) for shape in header["shapes"]]
            values = np.frombuffer(data, np.float32, offset=end + 1)
            ends = np.cumsum([np.prod(shape, dtype=np.int64) for shape in shapes])
            relations, state = [
                torch.from_numpy(part.reshape(shape).copy())
                for part, shape in zip(np.split(values, ends[:-1]), shapes, strict=True)
            ]
        except (ValueError, KeyError) as error:
            raise CorruptError(f"`{directory}`: what is beside the partitions: {error}") from error
        progress = header["progress"]
        kept = header["kept"]
        return cls(
            relations,
            state,
            None if progress is None else Progress(**progress),
            None if kept is None else (int(kept[0]), str(kept[1]), (*kept, None)[2]),
        )
