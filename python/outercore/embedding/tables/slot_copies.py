"""Partitions on a GPU: copies of the slots that the core reads and writes in host memory."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor


class SlotCopies:
    """The partitions of a step in a device's memory, where they are trained.

    A slot is behind its copy from the step's first batch on. `send` makes them equal again: for
    partitions that leave before the next step is asked for, for all before anybody else reads the
    slots. What stays is not copied. Where the core moves partitions otherwise, for a checkpoint
    for instance, the step is to be ended: its copies must not be written over what has come.

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
        """What the optimiser remembers of them."""
        return self._copies[1]

    def bring(self, resident: Iterable[tuple[int, int, int]]) -> None:
        """Copies what a step trains, (partition, slot, rows), where it is not on the device yet."""
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
