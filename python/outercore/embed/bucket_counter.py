"""Deals triples into buckets before there is a table, to count them."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.embed.config import EmbedConfig
from outercore.embed.data import EmbedData
from outercore.embed.links import Links
from outercore.embed.order import Walks, partition_order
from outercore.embed.partitions import ArraySource
from outercore.embed.planning import Placement, Size
from outercore.embed.run_directory import EmbedDirectory
from outercore.embed.skewed import BucketCounts, place_counted
from outercore.errors import BudgetError
from outercore.storage import Storage
from outercore.train.stopping import StopRequest

_BUCKETS = "buckets.bin"


def place_new(
    run: EmbedDirectory,
    data: EmbedData,
    config: EmbedConfig,
    size: Size,
    first: Placement,
    stop: StopRequest,
) -> Placement:
    """Where everything of a new run is: `first` if there is room for its pools, which is known once
    triples are counted, else another placement that `config` leaves open, see `place_counted`.

    The buckets are left to the run's table.

    Errors: as `place_counted` and `BucketCounter`.
    """
    directory = run.state / "counted"
    # Left by a process that was killed.
    Storage().remove_tree(directory)
    if first.in_memory:
        return first
    memory, seed = first.for_partitions, config.run.seed
    with (
        data.source(run.fingerprint, run.state) as source,
        BucketCounter(directory, source, size, memory=memory, seed=seed, stop=stop) as counter,
    ):
        found = place_counted(config, size, first, counter)
        counter.hand_over(run.state)
    return found


class BucketCounter:
    """How many triples the buckets of tables of some numbers of parts have.

    The core deals triples for a table only, so there is one meanwhile, of one number an entity.
    Within a `with` block, after which its directory is gone.
    """

    def __init__(
        self,
        directory: Path,
        source: ArraySource | Links,
        size: Size,
        *,
        memory: int,
        seed: int,
        stop: StopRequest,
    ) -> None:
        """`memory`: of which triples are dealt, in bytes; the more, the longer the writes."""
        self._directory, self._storage = directory, Storage()
        self._source, self._size = source, size
        self._memory, self._seed, self._stop = memory, seed, stop
        self._found: dict[int, BucketCounts] = {}

    def __enter__(self) -> BucketCounter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._storage.remove_tree(self._directory)

    def __call__(self, parts: int) -> BucketCounts:
        """Those of a table of so many parts.

        Cost: two passes over the triples, writes 12 bytes of each (16 with weights) and 4 of each
        entity; nothing for those that were counted before.
        Errors: `InvalidError` for a triple that is out of range, which is named; `InterruptError`
        where somebody asked to stop; `NoSpaceError` and `DeviceError`.
        """
        if parts not in self._found:
            self._stop.check()
            # Of the buckets counted before, too.
            self._storage.remove_tree(self._directory)
            self._found[parts] = BucketCounts(self._count(parts))
        return self._found[parts]

    def hand_over(self, directory: Path) -> None:
        """Leaves the buckets that were counted last to a table that is to be in `directory`, which
        deals them anew if they are others than its own."""
        self._storage.rename(self._directory / _BUCKETS, directory / _BUCKETS)

    def _count(self, parts: int) -> NDArray[np.int64]:
        try:
            self._create(parts, self._memory)
        except BudgetError as error:
            # For pools that nobody is going to read; buckets are kept.
            self._create(parts, error.needed or self._memory)
        edges = json.loads(self._open().edges())["counted"]
        return np.array(edges, np.int64).reshape(parts, parts)

    def _create(self, parts: int, memory: int) -> None:
        creation = {
            "nodes": self._size.entities,
            "relations": self._size.relations,
            "partitions": parts,
            "seed": self._seed,
            "dim": 1,
            "state_width": 0,
            "source": self._source.to_core(),
            "walks": asdict(Walks()),
            "memory": memory,
        }
        order = partition_order("sequential", partitions=parts, slots=2).to_json()
        directory = str(self._directory)
        _core.create_partitions(directory, json.dumps(creation), order, b"", self._rows)

    def _open(self) -> _core.PartitionExecutor:
        """The table with the least memory, which is none for triples to be kept in."""
        try:
            return _core.PartitionExecutor(str(self._directory), 0)
        except BudgetError as error:
            return _core.PartitionExecutor(str(self._directory), error.needed or 0)

    def _rows(self, entities: NDArray[np.int64]) -> NDArray[np.float32]:
        self._stop.check()
        return np.zeros((len(entities), 1), np.float32)
