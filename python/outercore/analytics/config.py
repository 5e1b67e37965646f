"""How an algorithm is run: its budget, what it reads from, and checkpoints."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from outercore.config.common import BackendOption, MemoryOption
from outercore.config.fields import Configuration, within
from outercore.config.options import Option
from outercore.config.sizes import parse_size
from outercore.far import FarOptions
from outercore.threads import checked_threads


@dataclass(frozen=True)
class RunConfig(Configuration):
    """How `outercore run` runs an algorithm; what it computes are the algorithm's own options."""

    memory: MemoryOption = "1GiB"
    threads: Annotated[int | None, Option("Threads; all cores by default.", common=True)] = None
    backend: BackendOption = "auto"
    far: FarOptions | None = None
    """A memory server that holds edges, too."""
    far_ratio: Annotated[
        float | None,
        Option("Share of the edges that is left to the memory server; the budget's by default."),
    ] = None
    buffering: Annotated[bool, Option("Read ahead of what is computed; for experiments.")] = True
    profile: Annotated[
        str | None, Option("Count the reads of each segment, and write them to this `.json`.")
    ] = None
    by_profile: Annotated[
        str | None, Option("Keep in memory what this profile has most reads of.")
    ] = None
    scratch: Annotated[
        str | None,
        Option("Directory for what exceeds the memory; that of the data set by default."),
    ] = None
    checkpoint_every: Annotated[
        float, Option("Seconds between two checkpoints in the run's directory.")
    ] = 60.0

    def __post_init__(self) -> None:
        parse_size(self.memory, "memory")
        checked_threads(self.threads)
        within("checkpoint_every", self.checkpoint_every, 0.0, None)
