"""Groups of options that training and embedding share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from outercore.base.fields import within
from outercore.base.options import DeviceOption, MemoryOption, SeedOption
from outercore.base.sizes import parse_size
from outercore.base.threads import MOST_THREADS
from outercore.errors import InvalidError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Budget:
    """Memory budget and threads. Each job documents the use of its threads."""

    memory: MemoryOption = "2GiB"
    threads: int | None = None

    def __post_init__(self) -> None:
        parse_size(self.memory, "budget.memory")
        if self.threads is not None:
            within("budget.threads", self.threads, 1, MOST_THREADS)


@dataclass(frozen=True)
class SeedAndDevice:
    """Seed, device and checkpoints. Each job documents when it takes checkpoints."""

    seed: SeedOption = 0
    device: DeviceOption = "auto"
    checkpoint_seconds: float = 60.0

    def __post_init__(self) -> None:
        within("run.seed", self.seed, 0, 2**63 - 1)
        within("run.checkpoint_seconds", self.checkpoint_seconds, 0.0, None)

    def torch_device(self) -> torch.device:
        """The PyTorch device; `auto` is a GPU if there is one.

        Errors: `InvalidError` for `cuda` without a GPU.
        """
        import torch

        if self.device == "cuda" and not torch.cuda.is_available():
            raise InvalidError(
                "device `cuda`: PyTorch finds none\nhint: use `--set run.device=cpu`"
            )
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        return torch.device(self.device)


class Stopping:
    """Base of optimiser options: when training ends."""

    epochs: int
    patience: int

    def is_over(self, done: int, stale: int) -> bool:
        """Whether training ends after `done` epochs.

        `stale`: number of validations since the best one.
        """
        return done >= self.epochs or self.is_impatient(stale)

    def is_impatient(self, stale: int) -> bool:
        """Whether `stale` validations without a better score end the training."""
        return 0 < self.patience <= stale
