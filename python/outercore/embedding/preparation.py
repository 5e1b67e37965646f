"""The triples of a run and the placement of its tables, before its first batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from outercore import _core
from outercore.base.native import Progress
from outercore.data.triples import fill
from outercore.embedding.config import EmbedConfig
from outercore.embedding.data.parts import EmbedData, data_of, watched
from outercore.embedding.ranking.scoring import (
    AnswersByPart,
    RankedTriples,
    answers_in,
    choose_parts,
    count_answers,
)
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.partitions import PartitionStore, sorting
from outercore.embedding.tables.placement import (
    Decision,
    Placement,
    Size,
    decide,
    order_of,
    placement_changes,
    resolved,
    walks_of,
    with_pools,
)
from outercore.embedding.tables.store import Store, TableLayout
from outercore.errors import BudgetError
from outercore.files.atomic import Storage
from outercore.runs.progress import Observer

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.data.warm_start import WarmStart

_BUCKETS = "buckets.bin"
"""The core's file of buckets."""


class BucketCounter:
    """Counts the triples per bucket, for tables with several numbers of partitions."""

    def __init__(
        self,
        run: EmbedDirectory,
        data: EmbedData,
        size: Size,
        memory: int,
        seed: int,
        progress: Progress | None = None,
    ) -> None:
        """Sorts triples in `memory` bytes; more memory gives longer writes.

        `progress` is called during each pass. An error that it raises stops the work.
        """
        self._run, self._source, self._size = run, data.train.to_core(run.fingerprint), size
        self._memory, self._seed, self._progress = memory, seed, progress
        self._has_counted = False

    def __call__(self, parts: int) -> dict[str, Any]:
        """Counts for a table with this number of partitions, in the form of the core.

        Cost: two passes over the triples. Writes 12 bytes per triple (16 with weights), which
        replace the previously counted buckets.
        Errors: `InvalidError` names a triple that is out of range; `NoSpaceError`, `DeviceError`.
        """
        if self._has_counted:
            # The disk may not have room for two sets of buckets.
            (self._run.state / _BUCKETS).unlink(missing_ok=True)
        self._has_counted = True
        try:
            return self._sort(parts, self._memory)
        except BudgetError as error:
            # For the message: a table with this number of partitions needs more memory.
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
        return _core.sort_triples(self._run.state, how, self._progress)


def open_store(
    run: EmbedDirectory,
    data: EmbedData,
    config: EmbedConfig,
    placement: Placement,
    layout: TableLayout,
    device: torch.device,
    warm: WarmStart | None,
    progress: Progress | None = None,
) -> Store:
    """Opens the tables of a run at its last checkpoint, or creates new ones.

    `progress` is called while triples are read and initial rows are written. An error that it
    raises stops the work.

    Errors: `BudgetError` if partitions exceed their part of the budget; `InvalidError` for invalid
    triples.
    """
    relations = None if warm is None else torch.from_numpy(warm.relations)
    if not placement.in_memory:
        degrees = config.negatives.degree_share > 0.0
        if run.begun:
            return PartitionStore(
                run.state,
                placement.for_partitions,
                degrees=degrees,
                device=device,
                progress=progress,
            )
        return PartitionStore.create(
            run.state,
            data.train.to_core(run.fingerprint),
            layout,
            entity_count=data.entities,
            relation_count=data.relations,
            order=order_of(config, placement),
            walks=walks_of(config, placement),
            memory=placement.for_partitions,
            seed=config.run.seed,
            degrees=degrees,
            device=device,
            start=warm,
            relations=relations,
            progress=progress,
        )
    chunks = watched(data.train.chunks(), "read triples", data.triples, progress)
    triples = torch.from_numpy(fill(np.empty((data.triples, 3), np.int64), chunks))
    weights = data.train.read_weights(progress)
    found = None if weights is None else torch.from_numpy(weights)
    if run.begun:
        return MemoryStore.open(run.state, triples, weights=found, device=device)
    return MemoryStore.create(
        run.state,
        triples,
        data.entities,
        data.relations,
        layout,
        seed=config.run.seed,
        weights=found,
        device=device,
        start=warm,
        relations=relations,
    )


@dataclass(frozen=True)
class Planned:
    """The data and the placement of a run."""

    data: EmbedData
    size: Size
    decision: Decision
    """The placement by the core, before triples were counted by bucket."""
    placement: Placement
    config: EmbedConfig
    """The configuration, with the values that the budget determined."""
    held_out: list[RankedTriples]
    known: AnswersByPart
    """The counted true answers to the held-out triples."""


def plan_session(
    graph: Graph,
    config: EmbedConfig,
    progress: Progress | None = None,
    warm: WarmStart | None = None,
) -> Planned:
    """Opens the triples, counts true answers to held-out triples, and divides the budget.

    `progress` is called during passes over the triples. An error that it raises stops the work.

    Errors: `BudgetError` with the smallest sufficient budget; `NotFoundError` for missing triples.
    """
    limits = config.evaluation
    data = data_of(graph, config, progress)
    held_out = choose_parts(data, config, progress)
    known = count_answers(data, held_out, progress) if limits.filtered else {}
    size = Size(
        data.entities,
        data.relations,
        data.triples,
        data.weighted,
        held_out=data.ranked(limits),
        answers=answers_in(known),
        first_rows=0 if warm is None else warm.memory,
    )
    decision = decide(config, size)
    chosen = resolved(config, decision.placement)
    return Planned(data, size, decision, decision.placement, chosen, held_out, known)


def place_tables(
    planned: Planned,
    config: EmbedConfig,
    run: EmbedDirectory,
    observer: Observer,
    progress: Progress,
) -> Planned:
    """The plan of a run without a table, with memory for the pools of its triples.

    Counting the triples gives the sizes of the pools. Then other partitions may be chosen, unless
    `config` fixes them; a note tells the user. All chosen values are saved, so that a resumed run
    has the same values. The table of the run reuses the counted buckets if they match.

    Errors: as `decide` and `BucketCounter`.
    """
    found = first = planned.placement
    if first.in_memory:
        # A stopped run may have left counted buckets for partitions.
        (run.state / _BUCKETS).unlink(missing_ok=True)
    else:
        # The user may have deleted it.
        Storage().make_directory(run.state)
        memory, seed = first.for_partitions, config.run.seed
        counter = BucketCounter(run, planned.data, planned.size, memory, seed, progress)
        found = decide(config, planned.size, counter).placement
    if (note := placement_changes(found, first)) is not None:
        observer.note(note)
    chosen = resolved(config, found)
    run.settle(chosen.budget)
    return replace(planned, placement=found, config=chosen)


def open_tables(
    run: EmbedDirectory,
    planned: Planned,
    layout: TableLayout,
    device: torch.device,
    warm: WarmStart | None,
    progress: Progress,
) -> tuple[Store, Placement]:
    """The store of a run, and the placement with the real sizes of its pools.

    Errors: as `open_store`; `BudgetError` names the smallest sufficient budget.
    """
    config, size, placement = planned.config, planned.size, planned.placement

    def opened() -> Store:
        return open_store(run, planned.data, config, placement, layout, device, warm, progress)

    try:
        store = opened()
    except BudgetError as error:
        # The core knows only its own share of the budget.
        if placement.in_memory or error.needed is None or not run.begun:
            raise
        store = PartitionStore(run.state, error.needed)
        pools = store.largest_pool()
    else:
        if not isinstance(store, PartitionStore):
            return store, placement
        pools = store.largest_pool()
        if pools[0] <= placement.pool:
            return store, placement
    store.close()
    # Before there is another one.
    del store
    placement = with_pools(config, size, pools)
    return opened(), placement
