"""Batches that the core trains whole, on a CPU: of all models but those of one's own.

`Trainer` says what a batch is, in PyTorch; here the same is asked of the core, which passes over a
block of rows once and keeps it in the cache between query, scores, loss, gradient and step.
"""

from __future__ import annotations

import torch
from torch import Tensor

from outercore import _core
from outercore.embedding.config import EmbedConfig
from outercore.embedding.gradients.kernels import Euclidean, Manhattan, fits_core
from outercore.embedding.gradients.losses import (
    LogisticLoss,
    Loss,
    MarginLoss,
    SelfAdversarialLoss,
    SoftmaxLoss,
)
from outercore.embedding.gradients.models import (
    ComplEx,
    DistMult,
    Dot,
    Model,
    RotatE,
    SimplE,
    TransE,
)
from outercore.embedding.gradients.pool_negatives import PoolNegatives
from outercore.embedding.tables.protocol import Pool, Store

_MODELS = (Dot, DistMult, ComplEx, RotatE, SimplE)
_TRANSE = {Manhattan: "transe-manhattan", Euclidean: "transe-euclidean"}
_SIZES = {"n3": "cubes", "l2": "squares"}


class CoreBatches:
    """The core's training of a run's batches."""

    def __init__(self, config: EmbedConfig, model: Model, loss: Loss, relation_count: int) -> None:
        options, name = _loss_options(loss), _name(model)
        assert options is not None
        assert name is not None
        regulariser = config.regulariser
        size = _SIZES.get(regulariser.kind)
        if size == "cubes" and model.complex_rows:
            size = "cubes-of-moduli"
        of_relations = regulariser.relation_weight
        if of_relations is None:
            of_relations = regulariser.weight
        # A row of angles has no size.
        if model.relation_width(config.model.dim) != config.model.dim:
            of_relations = 0.0
        self._core = _core.BatchTrainer(
            name,
            options,
            size,
            (regulariser.weight, of_relations),
            relation_count if config.model.reciprocal else None,
            (config.optimiser.kind, config.optimiser.relations),
            hides_own=config.negatives.filter == "own",
        )

    @staticmethod
    def for_run(
        config: EmbedConfig, model: Model, loss: Loss, relation_count: int
    ) -> CoreBatches | None:
        """The core's training, where the core knows all that the run is made of."""
        if _name(model) is None:
            return None
        if _loss_options(loss) is None:
            return None
        return CoreBatches(config, model, loss, relation_count)

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


def _name(model: Model) -> str | None:
    """What the core calls a model; `None` where it does not know it."""
    # A subclass may be another model.
    if type(model) is TransE:
        return _TRANSE.get(type(model.similarity))
    return model.name if type(model) in _MODELS else None


def _loss_options(loss: Loss) -> _core.LossOptions | None:
    """The loss as the core knows it, name, margin and temperature; `None` for any other."""
    match loss:
        case SoftmaxLoss(contrastive):
            return ("contrastive" if contrastive else "softmax", 0.0, 1.0)
        case LogisticLoss(margin):
            return ("logistic", margin, 1.0)
        case MarginLoss(margin):
            return ("margin", margin, 1.0)
        case SelfAdversarialLoss(margin, temperature):
            return ("self-adversarial", margin, temperature)
    return None
