"""Sorts triples into buckets before there is a table, to count them."""

from __future__ import annotations

import json

import numpy as np

from outercore import _core
from outercore.embedding.config import EmbedConfig
from outercore.embedding.data import EmbedData
from outercore.embedding.observe import Preparing
from outercore.embedding.partitions import sorting
from outercore.embedding.planning import Placement, Size
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.skewed import BucketCounts, place_counted
from outercore.errors import BudgetError
from outercore.storage import Storage

_BUCKETS = "buckets.bin"
"""The core's file of them."""


def place_new(
    run: EmbedDirectory,
    data: EmbedData,
    config: EmbedConfig,
    size: Size,
    first: Placement,
    told: Preparing | None = None,
) -> Placement:
    """Where everything of a new run is: `first` if there is room for its pools, which is known once
    triples are counted, else another placement that `config` leaves open, see `place_counted`.

    The run's table takes the buckets over, if they are its own.

    Errors: as `place_counted` and `BucketCounter`.
    """
    buckets = run.state / _BUCKETS
    if first.in_memory:
        # Of a run that was to have partitions when it was stopped.
        buckets.unlink(missing_ok=True)
        return first
    # Somebody may have deleted it.
    Storage().make_directory(run.state)
    counter = BucketCounter(run, data, size, first.for_partitions, config.run.seed, told)
    return place_counted(config, size, first, counter)


class BucketCounter:
    """How many triples the buckets of tables of some numbers of parts have."""

    def __init__(
        self,
        run: EmbedDirectory,
        data: EmbedData,
        size: Size,
        memory: int,
        seed: int,
        told: Preparing | None = None,
    ) -> None:
        """`memory`: in which triples are sorted, in bytes; the more, the longer the writes. `told`
        hears of it, and what it raises ends the work."""
        self._run, self._source, self._size = run, data.source(run.fingerprint), size
        self._memory, self._seed, self._told = memory, seed, told
        self._found: dict[int, BucketCounts] = {}

    def __call__(self, parts: int) -> BucketCounts:
        """Those of a table of so many parts.

        Cost: two passes over the triples, and writes 12 bytes of each (16 with weights), instead of
        the buckets that were counted before; nothing for those whose number is known.
        Errors: `InvalidError` for a triple that is out of range, which is named; `NoSpaceError` and
        `DeviceError`.
        """
        if parts not in self._found:
            if self._found:
                # There may be no room for these and for others.
                (self._run.state / _BUCKETS).unlink(missing_ok=True)
            try:
                found = self._sort(parts, self._memory)
            except BudgetError as error:
                # To say the least memory: a table of so many parts needs more than there is.
                found = self._sort(parts, error.needed or self._memory)
            counted = json.loads(found)["counted"]
            self._found[parts] = BucketCounts(np.array(counted, np.int64).reshape(parts, parts))
        return self._found[parts]

    def _sort(self, parts: int, memory: int) -> str:
        how = sorting(
            self._source,
            entity_count=self._size.entities,
            relation_count=self._size.relations,
            partitions=parts,
            memory=memory,
            seed=self._seed,
        )
        return _core.sort_triples(str(self._run.state), json.dumps(how), self._told)
