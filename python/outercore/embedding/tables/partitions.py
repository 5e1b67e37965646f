"""The store for a table that is larger than memory, with a few partitions in memory at a time.

The core (`crates/outercore-embed`) chooses the slot of each partition, and moves the partitions.
This module turns its steps into pools, and adds relations, progress and best tables to its commits.
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
from outercore.embedding.tables.store import DAMAGED, Pool, Progress, TableLayout
from outercore.errors import CorruptError, InvalidError
from outercore.files.atomic import Storage
from outercore.files.npy import checksum_of_rows, read_table, write_npy

_BLOCK_NUMBERS = 1 << 20
_CPU = torch.device("cpu")


class SlotCopies:
    """Copies of the partitions of a step in the memory of a GPU, for training.

    After the first batch of a step, a slot is older than its copy. `send` updates the slots: before
    the next step only those of leaving partitions, and before other reads all slots. If the core
    moves partitions for another reason, such as a checkpoint, end the step first. Otherwise its
    copies would overwrite new partitions.

    Shapes: `embeddings` float32 [slots x rows of a slot, width], `state` [the same, state width].
    """

    def __init__(
        self, embeddings: Tensor, state: Tensor, slot_rows: int, device: torch.device
    ) -> None:
        self._slots = (embeddings, state)
        self._slot_rows = slot_rows
        self._copies = tuple(torch.empty_like(table, device=device) for table in self._slots)
        # For each slot of the step: its partition, and the range of its rows.
        self._there: dict[int, tuple[int, slice]] = {}
        # Slots whose copies may be newer than the slots.
        self._trained: set[int] = set()

    @property
    def embeddings(self) -> Tensor:
        """The rows of all slots, on the device."""
        return self._copies[0]

    @property
    def state(self) -> Tensor:
        """The optimiser state of the rows of all slots, on the device."""
        return self._copies[1]

    def bring(self, resident: Iterable[tuple[int, int, int]]) -> None:
        """Copies the partitions of a step, (partition, slot, rows), to the device if necessary."""
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
        """Writes trained copies to their slots: of leaving partitions, or of all partitions."""
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
        """Ends a step after `send`. The core may then load other partitions into the slots."""
        self._trained.clear()

    def forget(self) -> None:
        """Discards all copies, because the slots have changed."""
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
    """The settings for sorting triples into buckets, in the form of the core.

    `source` is the result of `Triples.to_core`.
    """
    return {
        "nodes": entity_count,
        "relations": relation_count,
        "partitions": partitions,
        "seed": seed,
        "source": source,
        "memory": memory,
    }


class PartitionStore:
    """A store with entities in partitions on disk, of which some are in memory.

    Relations are in memory. A pool is a step of the core's executor: the new buckets of a buffer
    state, or parts of all its buckets. With swaps in place (not in turn), the buckets of the
    leaving partition are trained first. The rows of a pool are in the slots of the executor. If the
    device is not the CPU, they are in copies of the slots on the device, together with the
    relations and the results of the store.

    Memory: the budget, the triples of a pool in the form for training, and the tables of relations.
    """

    def __init__(
        self,
        directory: Path,
        memory: int,
        *,
        degrees: bool = False,
        device: torch.device | None = None,
        progress: native.Progress | None = None,
    ) -> None:
        """Opens the table in `directory` at its last checkpoint; `memory` in bytes.

        With `degrees`, pools have the degrees of their rows. This takes 4 bytes per entity and per
        row of a slot in addition to `memory`, and one pass over the triples. On a `device` other
        than the CPU, partitions are trained in copies of the slots on the device. They take as many
        bytes there as the slots take in host memory.

        Errors: `NotFoundError` for a missing table; `InvalidError` if another process trains it;
        `BudgetError` names the smallest sufficient budget; `CorruptError` and `VersionError`.
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
            self._copies = SlotCopies(
                self._entities, self._state, self.shape["slot_rows"], self._device
            )
        # The most recent pool.
        self._pool: Pool | None = None
        # Whether a state is in training. Until it ends, other operations are not possible.
        self._within_state = False
        self.entity_count: int = self.shape["nodes"]
        self.relation_count: int = self.shape["relations"]
        saved = _Resident.decode(self._core.resident(), directory)
        self.relations = saved.relations.to(self._device)
        self.relation_state = saved.relation_state.to(self._device)
        self.progress: Progress | None = saved.progress
        self._kept = self._committed = saved.kept
        # Degrees of all rows, partition after partition.
        self._degrees: Tensor | None = None
        if degrees:
            try:
                self._degrees = torch.from_numpy(self._core.degrees(progress).astype(np.int32))
            except BaseException:
                # The exception refers to this object, which would keep the table locked.
                self.close()
                raise
            rows = self.shape["slots"] * self.shape["slot_rows"]
            self._slot_degrees = torch.zeros(rows, dtype=torch.int32)

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
        degrees: bool = False,
        device: torch.device | None = None,
        walks: Walks | None = None,
        progress: native.Progress | None = None,
    ) -> PartitionStore:
        """Creates a store with a new table in `directory`.

        `source` is the result of `Triples.to_core`. `walks` describes how an epoch passes through
        `order`; by default once. The table has the order's number of partitions, times the group.
        For `memory`, `degrees` and `device`, see `PartitionStore`.

        Cost: two passes over the triples; writes every partition once.
        Errors: `InvalidError` if `directory` holds a table, or names a triple that is out of range;
        `BudgetError` names the smallest sufficient budget.
        """
        rows, state = layout.new_relations(_CPU)
        walks = walks or Walks()
        creation = {
            "sorting": sorting(
                source,
                entity_count=entity_count,
                relation_count=relation_count,
                partitions=order.partitions * walks.group,
                memory=memory,
                seed=layout.seed,
            ),
            "dim": layout.width,
            "state_width": layout.state_width,
            "walks": asdict(walks),
        }

        done = 0

        def first_rows(nodes: NDArray[np.int64]) -> NDArray[np.float32]:
            nonlocal done
            done += len(nodes)
            if progress is not None:
                progress("first rows", done, entity_count, "entities")
            return layout.new_entities(torch.from_numpy(nodes)).numpy()

        resident = _Resident(rows, state, None, None).encode()
        # Free the relations, which may be many. Opening the table reads them again.
        del rows, state
        _core.create_partitions(
            str(directory), creation, order.to_core(), resident, first_rows, progress
        )
        del resident
        return cls(directory, memory, degrees=degrees, device=device, progress=progress)

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
                # The slots get no local name here: closing the store must free them.
                entities=self._entities if self._copies is None else self._copies.embeddings,
                entity_state=self._state if self._copies is None else self._copies.state,
                ranges=[(slot * slot_rows, slot * slot_rows + rows) for _, slot, rows in resident],
                pairs=[(place[head], place[tail]) for head, tail in step["buckets"]],
                # If all buckets have equal numbers of parts, their shares are equal.
                shares=[1.0 / count for count in step["parts"]]
                if len(set(step["parts"])) > 1
                else None,
                weights=None if weights is None else torch.from_numpy(weights),
                degrees=self._degrees_of(resident),
                ends_state=step["ends_state"],
            )
            # Drop these references before the next pool creates its triples.
            del step, weights
            yield self._pool
            if self._pool is not None:
                self._pool.release()
                self._pool = None
            if self._copies is not None:
                self._copies.send(leaving)

    def _settle(self) -> None:
        """Copies all trained rows to the slots, from which the core reads."""
        if self._copies is not None:
            self._copies.send()

    @contextmanager
    def _step_ended(self) -> Iterator[None]:
        """Context in which the core may move partitions. It ends the step of the copies."""
        self._settle()
        yield
        if self._copies is not None:
            self._copies.end_step()

    def _degrees_of(self, resident: list[tuple[int, int, int]]) -> Tensor | None:
        """Degrees of the entities in memory, by row of the slots; `None` if not requested."""
        if self._degrees is None:
            return None
        for partition, slot, rows in resident:
            start = slot * self.shape["slot_rows"]
            first = self._first_row(partition)
            self._slot_degrees[start : start + rows] = self._degrees[first : first + rows]
        return self._slot_degrees

    def _first_row(self, partition: int) -> int:
        """Number of rows before a partition; the first partitions may have one more than others."""
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
                rows_of_nodes = torch.from_numpy(numbers[order]).to(self._device)
                yield torch.from_numpy(nodes[order]), rows_of_nodes

    def keep(self) -> None:
        """See `Store`. The copies are files next to the table."""
        # Do not overwrite the files of the last checkpoint.
        place = 1 if self._committed is not None and self._committed[0] == 0 else 0
        with self._step_ended():
            checksum = self._core.save(str(self.directory / f"kept-{place}.bin"))
        of_relations = write_npy(
            self._storage, self._kept_relations(place), self.relations.cpu().numpy()
        )
        self._kept = (place, checksum, of_relations)

    def restore(self) -> None:
        """See `Store`. It skips the rest of a state in training."""
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
        """See `Store`. It reads the file once more, for the checksum."""
        with self._step_ended():
            self._core.write_npy(str(path))
        return checksum_of_rows(path, DAMAGED)

    def write_relations(self, path: Path) -> int:
        """See `Store`."""
        return write_npy(self._storage, path, self.relations.cpu().numpy())

    def counters(self) -> dict[str, Any]:
        """See `Store`."""
        return self._core.counters()

    def largest_pool(self) -> tuple[int, int]:
        """Number of triples in the largest pool of any epoch, and in the largest bucket.

        The second number matters if pools have parts of buckets, because whole buckets are read.
        """
        return self._core.largest_pool()

    def close(self) -> None:
        """See `Store`."""
        # The core unlocks the table when the last reference to it is gone. Pools that the caller
        # still holds keep only their own memory.
        for name in ("_core", "_entities", "_state", "_copies"):
            self.__dict__.pop(name, None)
        self._pool = None

    def _pass_over(self) -> None:
        """Ends the current state without further training. Rows keep their current values."""
        if self._pool is not None:
            # Release the triples before the next pool creates its triples.
            self._pool.release()
            self._pool = None
        with self._step_ended():
            while self._within_state:
                step = self._core.advance()
                self._within_state = step is not None and not step["ends_state"]

    def _kept_relations(self, place: int) -> Path:
        return self.directory / f"kept-{place}-relations.npy"


@dataclass(frozen=True)
class _Resident:
    """The part of a commit outside the partitions. It is stored as a line of JSON, then arrays."""

    relations: Tensor
    relation_state: Tensor
    progress: Progress | None
    kept: tuple[int, str, int] | None
    """The valid one of the two copies of the best tables (0 or 1), and the checksums of its
    entities and relations.
    """

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
        progress, kept = header["progress"], header["kept"]
        return cls(
            relations,
            state,
            None if progress is None else Progress(**progress),
            None if kept is None else (int(kept[0]), str(kept[1]), int(kept[2])),
        )
