"""Groups of options that training and embedding have in common."""

from __future__ import annotations

from dataclasses import dataclass

from outercore.base.fields import within
from outercore.base.options import DeviceOption, MemoryOption, SeedOption
from outercore.base.sizes import parse_size
from outercore.base.threads import MOST_THREADS


@dataclass(frozen=True)
class Budget:
    """The memory promised to the data, and threads. Each job says which threads these are."""

    memory: MemoryOption = "2GiB"
    threads: int | None = None

    def __post_init__(self) -> None:
        parse_size(self.memory, "budget.memory")
        if self.threads is not None:
            within("budget.threads", self.threads, 1, MOST_THREADS)


@dataclass(frozen=True)
class SeedAndDevice:
    """Seed, device and checkpoints. Each job says when it takes checkpoints."""

    seed: SeedOption = 0
    device: DeviceOption = "auto"
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        within("run.seed", self.seed, 0, 2**63 - 1)
        within("run.checkpoint_seconds", self.checkpoint_seconds, 0.0, None)


class Stopping:
    """When training ends. A base of the options of optimisers, which have both fields."""

    epochs: int
    patience: int

    def is_over(self, done: int, stale: int) -> bool:
        """Whether training ends after `done` epochs, of which the last `stale` validations found
        nothing better."""
        return done >= self.epochs or self.is_impatient(stale)

    def is_impatient(self, stale: int) -> bool:
        """Whether so many validations without a better score end a run."""
        return 0 < self.patience <= stale
