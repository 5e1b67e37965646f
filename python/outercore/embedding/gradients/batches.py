"""Batches that the core trains whole, on a CPU: of all models but those of one's own.

`Trainer` says what a batch is, in PyTorch; here the same is asked of the core, which passes over a
block of rows once and keeps it in the cache between query, scores, loss, gradient and step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outercore import _core
from outercore.embedding.config import EmbedConfig
from outercore.embedding.gradients.kernels import fits_core
from outercore.embedding.gradients.models import Model, QueryModel
from outercore.embedding.gradients.pool_negatives import PoolNegatives
from outercore.embedding.tables.protocol import Pool, Store

_SIZES = {"n3": "cubes", "l2": "squares"}


class CoreBatches:
    """The core's training of a run's batches."""

    def __init__(self, config: EmbedConfig, model: Model, relation_count: int) -> None:
        name: str = config.model.kind
        if name == "transe":
            name += "-manhattan" if config.model.norm == 1 else "-euclidean"
        loss = config.loss
        regulariser = config.regulariser
        size = _SIZES.get(regulariser.kind)
        if size == "cubes" and model.complex_rows:
            size = "cubes-of-moduli"
        of_relations = regulariser.relation_weight
        if of_relations is None:
            of_relations = regulariser.weight
        # A row of angles has no size.
        if config.model.relation_width != config.model.dim:
            of_relations = 0.0
        self._core = _core.BatchTrainer(
            name,
            (loss.kind, loss.ahead if loss.kind == "margin" else loss.margin, loss.temperature),
            size,
            (regulariser.weight, of_relations),
            relation_count if config.model.reciprocal else None,
            (config.optimiser.kind, config.optimiser.relations),
            hides_own=config.negatives.filter == "own",
        )

    @staticmethod
    def for_run(config: EmbedConfig, model: Model, relation_count: int) -> CoreBatches | None:
        """The core's training of a built-in model, which `config` describes."""
        # A model of one's own may be given beside a configuration that names another.
        own = not isinstance(model, QueryModel)
        return None if own else CoreBatches(config, model, relation_count)

    @staticmethod
    def fit(pool: Pool, store: Store) -> bool:
        """Whether the core can work on these tables."""
        return fits_core(pool.entities, pool.entity_state, store.relations, store.relation_state)

    def know(self, triples: Tensor, *, undirected: bool) -> None:
        """From now on candidates do not count that make one of `triples`, those of a pool.

        Cost: 8 bytes a triple.
        """
        self._core.know(triples.numpy(), undirected, torch.get_num_threads())

    def forget(self) -> None:
        """Lets go of known triples."""
        self._core.forget()

    def train(
        self,
        pool: Pool,
        store: Store,
        places: Tensor,
        negatives: PoolNegatives,
        at: _core.At,
        unit: float,
        rates: tuple[float, float],
    ) -> float | None:
        """Moves the rows of a batch, the pool's triples at `places`, and returns its loss; `None`,
        and nothing has moved, where the loss or a gradient is not finite.

        `at` is the batch's seed, epoch, pool and number; `unit` is what each triple counts for
        each side, beside its weight; `rates` are of entities and relations.
        """
        weights = pool.weights
        return self._core.train(
            (pool.entities.numpy(), pool.entity_state.numpy()),
            (store.relations.numpy(), store.relation_state.numpy()),
            pool.triples.numpy(),
            None if weights is None else weights.numpy(),
            places.numpy(),
            negatives.core,
            at,
            unit,
            rates,
            torch.get_num_threads(),
        )
