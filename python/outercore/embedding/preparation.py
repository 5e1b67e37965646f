"""What a run embeds and where everything will be, found before its first batch."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch

from outercore.base.native import Progress
from outercore.embedding.config import EmbedConfig
from outercore.embedding.data.parts import EmbedData, data_of
from outercore.embedding.ranking.scoring import (
    Answers,
    HeldOut,
    answers_in,
    choose_parts,
    count_answers,
)
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.bucket_counter import place_new
from outercore.embedding.tables.layout import TableLayout
from outercore.embedding.tables.opening import open_store
from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.placement import (
    Decision,
    Placement,
    Size,
    decide,
    instead_of,
    resolved,
    with_pools,
)
from outercore.embedding.tables.protocol import Store
from outercore.errors import BudgetError
from outercore.runs.progress import Observer

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.data.warm_start import WarmStart


@dataclass(frozen=True)
class Planned:
    """What is embedded, and where everything will be."""

    data: EmbedData
    size: Size
    decision: Decision
    """As the core made it, before any triples were counted by bucket."""
    placement: Placement
    config: EmbedConfig
    """With the numbers that the budget gave."""
    held_out: list[HeldOut]
    known: Answers
    """True answers to these, counted."""


def plan_session(
    graph: Graph,
    config: EmbedConfig,
    told: Progress | None = None,
    warm: WarmStart | None = None,
) -> Planned:
    """Opens the triples, counts true answers to what is ranked, and divides the budget.

    `told` hears of going through the triples; what it raises ends the work.

    Errors: `BudgetError` with the least that would do; `NotFoundError` for missing triples.
    """
    limits = config.evaluation
    data = data_of(graph, config, told)
    held_out = choose_parts(data, config, told)
    known = count_answers(data, held_out, told) if limits.filtered else {}
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


def placed_anew(
    planned: Planned,
    config: EmbedConfig,
    run: EmbedDirectory,
    observer: Observer,
    told: Progress,
) -> Planned:
    """The plan of a run that has no table yet, with room for the pools that its triples make.

    Tells the observer of another placement than was planned, and writes down what `config` leaves
    open, so that the run goes on with it.

    Errors: as `place_new`.
    """
    first = planned.placement
    found = place_new(run, planned.data, config, planned.size, first, told)
    if (note := instead_of(found, first)) is not None:
        observer.note(note)
    chosen = resolved(config, found)
    run.settle(chosen.budget)
    return replace(planned, placement=found, config=chosen)


def open_fitting(
    run: EmbedDirectory,
    planned: Planned,
    layout: TableLayout,
    device: torch.device,
    warm: WarmStart | None,
    told: Progress,
) -> tuple[Store, Placement]:
    """The store of a run, and the placement with pools as large as they are.

    Errors: as `open_store`; `BudgetError` says the least memory.
    """
    config, size, placement = planned.config, planned.size, planned.placement

    def opened() -> Store:
        return open_store(run, planned.data, config, placement, layout, device, warm, told)

    try:
        store = opened()
    except BudgetError as error:
        # The core knows its own share of the budget only.
        if placement.in_memory or error.needed is None or not run.begun:
            raise
        store = PartitionStore.open(run.state, error.needed)
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
