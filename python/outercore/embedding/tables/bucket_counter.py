"""Sorts triples into buckets before there is a table, to count them."""

from __future__ import annotations

from typing import Any

from outercore import _core
from outercore.base.native import Progress
from outercore.embedding.config import EmbedConfig
from outercore.embedding.data.parts import EmbedData
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.partitions import sorting
from outercore.embedding.tables.placement import Placement, Size, decide
from outercore.errors import BudgetError
from outercore.files.atomic import Storage

_BUCKETS = "buckets.bin"
"""The core's file of them."""


def place_new(
    run: EmbedDirectory,
    data: EmbedData,
    config: EmbedConfig,
    size: Size,
    first: Placement,
    told: Progress | None = None,
) -> Placement:
    """Where everything of a new run is: `first` if there is room for its pools, which is known once
    triples are counted, else another placement that `config` leaves open.

    The run's table takes the buckets over, if they are its own.

    Errors: as `decide` and `BucketCounter`.
    """
    if first.in_memory:
        # Of a run that was to have partitions when it was stopped.
        (run.state / _BUCKETS).unlink(missing_ok=True)
        return first
    # Somebody may have deleted it.
    Storage().make_directory(run.state)
    counter = BucketCounter(run, data, size, first.for_partitions, config.run.seed, told)
    return decide(config, size, counter).placement


class BucketCounter:
    """How many triples the buckets of tables of some numbers of parts have."""

    def __init__(
        self,
        run: EmbedDirectory,
        data: EmbedData,
        size: Size,
        memory: int,
        seed: int,
        told: Progress | None = None,
    ) -> None:
        """`memory`: in which triples are sorted, in bytes; the more, the longer the writes. `told`
        hears of it, and what it raises ends the work."""
        self._run, self._source, self._size = run, data.train.to_core(run.fingerprint), size
        self._memory, self._seed, self._told = memory, seed, told
        self._has_counted = False

    def __call__(self, parts: int) -> dict[str, Any]:
        """Those of a table of so many parts, as the core writes them.

        Cost: two passes over the triples, and writes 12 bytes of each (16 with weights), instead of
        the buckets that were counted before.
        Errors: `InvalidError` for a triple that is out of range, which is named; `NoSpaceError` and
        `DeviceError`.
        """
        if self._has_counted:
            # There may be no room for these and for others.
            (self._run.state / _BUCKETS).unlink(missing_ok=True)
        self._has_counted = True
        try:
            return self._sort(parts, self._memory)
        except BudgetError as error:
            # To say the least memory: a table of so many parts needs more than there is.
            return self._sort(parts, error.needed or self._memory)

    def _sort(self, parts: int, memory: int) -> dict[str, Any]:
        how = sorting(
            self._source,
            entity_count=self._size.entities,
            relation_count=self._size.relations,
            partitions=parts,
            memory=memory,
            seed=self._seed,
        )
        return _core.sort_triples(self._run.state, how, self._told)
