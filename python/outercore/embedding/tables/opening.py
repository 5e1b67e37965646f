"""The store of a run: created by its first start, opened again by a later one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from outercore.base.native import Progress
from outercore.data.triples import fill
from outercore.embedding.config import EmbedConfig
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.layout import TableLayout
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.placement import Placement, order_of, walks_of
from outercore.embedding.tables.protocol import Store
from outercore.runs.progress import watched

if TYPE_CHECKING:
    from outercore.embedding.data.parts import EmbedData
    from outercore.embedding.data.warm_start import WarmStart


def open_store(
    run: EmbedDirectory,
    data: EmbedData,
    config: EmbedConfig,
    placement: Placement,
    layout: TableLayout,
    device: torch.device,
    warm: WarmStart | None,
    told: Progress | None = None,
) -> Store:
    """The tables of a run as its last checkpoint left them, or new ones.

    `told` hears of reading triples and of first rows; what it raises ends the work.

    Errors: `BudgetError` where partitions do not fit their part of the budget; `InvalidError`
    for bad triples.
    """
    relations = None if warm is None else torch.from_numpy(warm.relations)
    if not placement.in_memory:
        degrees = config.negatives.degree_share > 0.0
        if run.begun:
            return PartitionStore.open(
                run.state, placement.for_partitions, degrees=degrees, device=device, told=told
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
            told=told,
        )
    chunks = watched(data.train.chunks(), "read triples", data.triples, told)
    triples = torch.from_numpy(fill(np.empty((data.triples, 3), np.int64), chunks))
    weights = data.train.read_weights(told)
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
