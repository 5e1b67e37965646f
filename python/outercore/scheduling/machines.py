"""What the controller may deal: cores and memory that are free."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from outercore.scheduling.machine import Cores, available_memory, total_memory


class Machine(Protocol):
    """What is free."""

    def cores(self, held: Sequence[int]) -> list[list[int]]:
        """Free cores by NUMA node, those in `held` not counted."""

    def memory(self) -> int:
        """Bytes that are free now."""

    def most(self) -> tuple[int, int]:
        """Cores and bytes that there ever are."""


class ThisMachine:
    """The machine that we run on, with at most `memory` bytes of it."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._cores = Cores()

    def cores(self, held: Sequence[int]) -> list[list[int]]:
        """Free cores by NUMA node, those in `held` not counted."""
        return self._cores.free(held)

    def memory(self) -> int:
        """Bytes that are free now."""
        return available_memory()

    def most(self) -> tuple[int, int]:
        """Cores and bytes that there ever are."""
        return self._cores.count, min(self._memory, total_memory())
