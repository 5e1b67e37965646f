"""The inputs of a run, its triples and the placement of its tables, before its first batch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

import outercore
from outercore import _core
from outercore.base.native import Progress
from outercore.data.triples import fill
from outercore.embedding.config import EmbedConfig, configuration
from outercore.embedding.data.parts import EmbedData, data_of, is_plain, watched
from outercore.embedding.data.warm_start import WarmStart, warm_start
from outercore.embedding.gradients.custom import check_score, load_score
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
from outercore.errors import BudgetError, InvalidError
from outercore.files.atomic import Storage
from outercore.runs.custom_code import CustomCode
from outercore.runs.progress import Observer

if TYPE_CHECKING:
    from outercore.data.graph import Graph, Source
    from outercore.embedding.gradients.models import ScoreFunction

_BUCKETS = "buckets.bin"
"""The core's file of buckets."""


class BucketCounter:
    """Counts the triples of each bucket, for a table with any number of partitions."""

    def __init__(
        self,
        run: EmbedDirectory,
        data: EmbedData,
        size: Size,
        memory: int,
        seed: int,
        progress: Progress | None = None,
    ) -> None:
        """Prepares counting the training triples of `data` for the run in the directory `run`.

        `memory` is in bytes; more memory gives larger writes.
        """
        self._run, self._memory, self._progress = run, memory, progress
        self._sorting = sorting(
            data.train.to_core(run.fingerprint),
            entity_count=size.entities,
            relation_count=size.relations,
            partitions=0,
            memory=memory,
            seed=seed,
        )
        self._has_counted = False

    def __call__(self, parts: int) -> dict[str, Any]:
        """Counts the triples for a table with `parts` partitions, in the form of the core.

        Cost: two passes over the triples. It writes 12 bytes per triple (16 with weights), which
        replace the previously counted buckets.
        Errors: `InvalidError` names a triple that is out of range; `NoSpaceError`, `DeviceError`.
        """
        if self._has_counted:
            # Remove the previous buckets first: the disk may not have room for both.
            (self._run.state / _BUCKETS).unlink(missing_ok=True)
        self._has_counted = True
        settings = {**self._sorting, "partitions": parts}
        try:
            return _core.sort_triples(self._run.state, settings, self._progress)
        except BudgetError as error:
            # Count with the needed memory, so that the later error can name the whole budget.
            settings["memory"] = error.needed or self._memory
            return _core.sort_triples(self._run.state, settings, self._progress)


@dataclass(frozen=True)
class Inputs:
    """The inputs of a run."""

    graph: Graph
    config: EmbedConfig
    score: CustomCode | None = None
    """The custom score function."""
    warm: WarmStart | None = None
    """The initial rows from another run."""

    @classmethod
    def of(
        cls,
        data_set: Source,
        config: EmbedConfig | Mapping[str, Any] | str | Path | None,
        options: Mapping[str, Any],
        *,
        recipe: str | None,
        start_from: str | Path | None,
        from_data: str | Path | None,
        score: ScoreFunction | str | None,
    ) -> Inputs:
        """Checks the arguments of `embed`, and opens their data sets and files.

        Errors: as `embed`.
        """
        if from_data is not None and start_from is None:
            raise InvalidError(
                "from_data (`--from-data`): expected with start_from (`--from`), whose data set "
                "it is"
            )
        graph = outercore.open(data_set)
        code = None if score is None else load_score(score)
        plain, custom = is_plain(graph), code is not None
        chosen = configuration(
            config, recipe=recipe, plain_graph=plain, has_score=custom, **options
        )
        if code is not None:
            check_score(code, chosen.model.dim, chosen.model.relation_width)
        warm = None
        if start_from is not None:
            warm = warm_start(start_from, graph, chosen.model, data_set=from_data)
        return cls(graph, chosen, code, warm)


@dataclass(frozen=True)
class Planned:
    """The data of a run, and the placement of its tables."""

    data: EmbedData
    size: Size
    decision: Decision
    """The placement by the core, and further sizes for `outercore plan embed`."""
    config: EmbedConfig
    """The configuration, with the values that the budget determined."""
    held_out: list[RankedTriples]
    known: AnswersByPart
    """The counted true answers to the held-out triples."""
    warm: WarmStart | None = None

    @property
    def placement(self) -> Placement:
        """The division of the budget."""
        return self.decision.placement

    def placed(
        self, config: EmbedConfig, run: EmbedDirectory, observer: Observer, progress: Progress
    ) -> Planned:
        """The plan of a run that has no table yet, with the real sizes of its pools.

        It counts the triples, which gives the sizes of the pools. Then it may choose other
        partitions than before, unless `config` fixes them; a note tells the user. All chosen values
        are saved, so that a resumed run has the same values. The table of the run reuses the
        counted buckets if they match.

        Errors: as `decide` and `BucketCounter`.
        """
        first, decision = self.placement, self.decision
        if first.in_memory:
            # A stopped run may have left counted buckets for partitions.
            (run.state / _BUCKETS).unlink(missing_ok=True)
        else:
            # The user may have deleted the directory.
            Storage().make_directory(run.state)
            memory, seed = first.for_partitions, config.run.seed
            counter = BucketCounter(run, self.data, self.size, memory, seed, progress)
            decision = decide(config, self.size, counter)
        if (note := placement_changes(decision.placement, first)) is not None:
            observer.note(note)
        chosen = resolved(config, decision.placement)
        run.settle(chosen.budget)
        return replace(self, decision=decision, config=chosen)

    def open_store(
        self,
        run: EmbedDirectory,
        layout: TableLayout,
        device: torch.device,
        progress: Progress | None = None,
    ) -> Store:
        """Opens the tables of a run at its last checkpoint, or creates new ones.

        Errors: `BudgetError` if partitions exceed their part of the budget; `InvalidError` for
        invalid triples.
        """
        data, config, placement = self.data, self.config, self.placement
        if self.warm is not None:
            relations = torch.from_numpy(self.warm.relations)
            layout = replace(layout, first_rows=self.warm, first_relations=relations)
        if not placement.in_memory:
            options: dict[str, Any] = {
                "memory": placement.for_partitions,
                "degrees": config.negatives.degree_share > 0.0,
                "device": device,
                "progress": progress,
            }
            if run.begun:
                return PartitionStore(run.state, **options)
            return PartitionStore.create(
                run.state,
                data.train.to_core(run.fingerprint),
                layout,
                entity_count=data.entities,
                relation_count=data.relations,
                order=order_of(config, placement),
                walks=walks_of(config, placement),
                **options,
            )
        chunks = watched(data.train.chunks(), "read triples", data.triples, progress)
        triples = torch.from_numpy(fill(np.empty((data.triples, 3), np.int64), chunks))
        values = data.train.read_weights(progress)
        weights = None if values is None else torch.from_numpy(values)
        if run.begun:
            return MemoryStore.open(run.state, triples, weights=weights, device=device)
        return MemoryStore.create(
            run.state,
            triples,
            data.entities,
            data.relations,
            layout,
            weights=weights,
            device=device,
        )

    def open_tables(
        self, run: EmbedDirectory, layout: TableLayout, device: torch.device, progress: Progress
    ) -> tuple[Store, Planned]:
        """The store of a run, and the plan with the real sizes of its pools.

        Errors: as `open_store`; `BudgetError` names the smallest sufficient budget.
        """
        try:
            store = self.open_store(run, layout, device, progress)
        except BudgetError as error:
            # The core knows only its share of the budget, but the message needs the whole budget.
            if self.placement.in_memory or error.needed is None or not run.begun:
                raise
            store = PartitionStore(run.state, error.needed)
            pools = store.largest_pool()
        else:
            if not isinstance(store, PartitionStore):
                return store, self
            pools = store.largest_pool()
            if pools[0] <= self.placement.pool:
                return store, self
        store.close()
        # Close this store before another one is opened.
        del store
        placement = with_pools(self.config, self.size, pools)
        planned = replace(self, decision=replace(self.decision, placement=placement))
        return planned.open_store(run, layout, device, progress), planned


def plan_session(
    graph: Graph,
    config: EmbedConfig,
    progress: Progress | None = None,
    warm: WarmStart | None = None,
) -> Planned:
    """Opens the triples, counts true answers to held-out triples, and divides the budget.

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
        held_out=sum(data.ranked_by_part(limits).values()),
        answers=answers_in(known),
        first_rows=0 if warm is None else warm.memory,
    )
    decision = decide(config, size)
    chosen = resolved(config, decision.placement)
    return Planned(data, size, decision, chosen, held_out, known, warm)
