"""What somebody asked for: one command of the list."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outercore.far import FarOptions


@dataclass(frozen=True)
class Request:
    """One `outercore run` that somebody asked for."""

    name: str
    words: tuple[str, ...]
    """The command, from `run` on."""
    algorithm: str
    data_set: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the algorithm is told, as `outercore.analytics.run` takes it."""
    threads: int | None = None
    """As the command says, or for the controller to choose."""
    memory: int | None = None
    far: FarOptions | None = None
    far_ratio: float | None = None
    queue_length: int | None = None
    backend: str = "auto"
    record: Path | None = None
    """Where its record goes; into the directory of the jobs by default."""
    saves: bool = False
    """Whether it writes to its data set, which one at a time may do."""
