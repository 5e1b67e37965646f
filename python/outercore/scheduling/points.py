"""What to measure: every combination of some choices."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass

from outercore import analytics
from outercore.errors import InvalidError
from outercore.far import FarOptions
from outercore.scheduling.decide import Medium

FAR_RATIOS = (0.0, 0.25, 0.5, 0.75, 1.0)
_MOST_MEMORY = 1 << 50


@dataclass(frozen=True)
class TuneConfig:
    """What to measure: every combination of these."""

    algorithms: tuple[str, ...] = ("bfs", "pagerank")
    threads: tuple[int, ...] = (1,)
    far_ratios: tuple[float, ...] = FAR_RATIOS
    partitions: tuple[int | None, ...] = (None,)
    """Nodes of a partition as a power of two; `None` for the data set's own grid."""
    queue_lengths: tuple[int | None, ...] = (None,)
    """Transfers in flight in each queue; `None` for the default. Only with `far`."""
    repeat: int = 3
    memory: int = _MOST_MEMORY
    """Points that need more are left out."""
    backend: str = "auto"
    far: FarOptions | None = None

    def __post_init__(self) -> None:
        known = ", ".join(analytics.ALGORITHMS)
        cores = len(os.sched_getaffinity(0))
        for algorithm in self.algorithms:
            if algorithm not in analytics.ALGORITHMS:
                raise InvalidError(f"algorithm `{algorithm}`: expected one of {known}")
        for threads in self.threads:
            if not 1 <= threads <= cores:
                raise InvalidError(f"threads {threads}, expected 1 to {cores}, the cores")
        for ratio in self.far_ratios:
            if not 0 <= ratio <= 1:
                raise InvalidError(f"far ratio {ratio}, expected 0 to 1")
        if self.repeat < 1:
            raise InvalidError(f"repeat {self.repeat}, expected 1 or more")
        if self.far is None and self.queue_lengths != (None,):
            raise InvalidError("queue lengths: expected a memory server with them")

    @property
    def medium(self) -> Medium:
        """Where the edges lie that do not stay in memory."""
        return medium_of(self.far)


@dataclass(frozen=True)
class Point:
    """One combination."""

    algorithm: str
    threads: int
    far_ratio: float
    partition_log2: int | None
    queue_length: int | None

    def __str__(self) -> str:
        words = [f"{self.threads} threads", f"far ratio {self.far_ratio:g}"]
        if self.partition_log2 is not None:
            words.append(f"partitions of 2^{self.partition_log2}")
        if self.queue_length is not None:
            words.append(f"queue length {self.queue_length}")
        return f"{self.algorithm}, {', '.join(words)}"


def points(config: TuneConfig) -> Iterator[Point]:
    """Every combination, those of one grid together."""
    for partition, algorithm, queue_length, threads, ratio in itertools.product(
        config.partitions,
        config.algorithms,
        config.queue_lengths,
        sorted(config.threads),
        sorted(config.far_ratios),
    ):
        yield Point(algorithm, threads, ratio, partition, queue_length)


def medium_of(far: FarOptions | None) -> Medium:
    """Where edges are read from."""
    if far is None:
        return "disk"
    scheme = far.address.partition(":")[0]
    return "unix" if scheme == "unix" else "fabric" if scheme == "fabric" else "tcp"
