"""Trains a pool of triples: batches, negatives, gradients and steps.

On a CPU, the core trains whole batches of the built-in models. Otherwise PyTorch trains.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
from torch import Tensor

from outercore import _core
from outercore.embedding.config import EmbedConfig
from outercore.embedding.gradients.chunk import Chunk, RowGradients, Side
from outercore.embedding.gradients.losses import REGULARISERS, build_loss
from outercore.embedding.gradients.models import Model, QueryModel, build_model, fits_core
from outercore.embedding.gradients.negatives import (
    Negatives,
    PoolNegatives,
    even_pieces,
    known_among,
    known_answers,
)
from outercore.embedding.gradients.optimizers import STEPS
from outercore.embedding.randomness import Purpose, generator
from outercore.embedding.tables.placement import state_width
from outercore.embedding.tables.store import Pool, Store, TableLayout
from outercore.errors import InvalidError

_SIZES = {"n3": "cubes", "l2": "squares"}


class DivergedError(InvalidError):
    """A loss, a gradient or the sum of its squares was not finite.

    The tables are in the state after the previous batch.
    """


@contextmanager
def torch_threads(count: int | None) -> Iterator[None]:
    """Context in which PyTorch uses this number of threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count or before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class CoreBatches:
    """Trains batches of a run by the core."""

    def __init__(self, config: EmbedConfig, model: Model, relation_count: int) -> None:
        name: str = config.model.kind
        if name == "transe":
            name += f"-{config.model.similarity}"
        loss, regulariser = config.loss, config.regulariser
        size = _SIZES.get(regulariser.kind)
        if size == "cubes" and model.complex_rows:
            size = "cubes-of-moduli"
        self._core = _core.BatchTrainer(
            name,
            (loss.kind, loss.ahead if loss.kind == "margin" else loss.margin, loss.temperature),
            size,
            (regulariser.weight, regulariser.of_relations(config.model)),
            relation_count if config.model.reciprocal else None,
            (config.optimiser.kind, config.optimiser.relations),
            hides_own=config.negatives.filter == "own",
        )

    @staticmethod
    def for_run(config: EmbedConfig, model: Model, relation_count: int) -> CoreBatches | None:
        """The training by the core; `None` for a custom model."""
        # The caller may pass a custom model although `config` names a built-in one.
        own = not isinstance(model, QueryModel)
        return None if own else CoreBatches(config, model, relation_count)

    @staticmethod
    def fit(pool: Pool, store: Store) -> bool:
        """Whether the core can work on these tables."""
        return fits_core(pool.entities, pool.entity_state, store.relations, store.relation_state)

    def know(self, triples: Tensor, *, undirected: bool) -> None:
        """Registers the triples of a pool. Candidates that complete one of them are then ignored.

        Cost: 8 bytes per triple.
        """
        self._core.know(triples.numpy(), undirected, torch.get_num_threads())

    def forget(self) -> None:
        """Releases the registered triples."""
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
        """Trains one batch and returns its loss.

        If the loss or a gradient is not finite, it returns `None` and does not change the tables.
        `places` are the positions of the batch's triples in the pool. `at` is the seed, the epoch,
        the pool and the number of the batch. `unit` is a factor for the weight of each triple.
        `rates` are the learning rates of entities and relations.
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


class Question(NamedTuple):
    """Triples with one open end: known ends (anchors), relations, and true ends (targets)."""

    side: Side
    anchors: Tensor
    relations: Tensor
    targets: Tensor


def question_of(triples: Tensor, side: Side, relation_count: int, *, reciprocal: bool) -> Question:
    """The triples as questions for `side`. With `reciprocal`, an open head becomes an open tail."""
    heads, relations, tails = triples.unbind(1)
    if side == "tail":
        return Question("tail", heads, relations, tails)
    if reciprocal:
        return Question("tail", tails, relations + relation_count, heads)
    return Question("head", tails, relations, heads)


def table_layout(config: EmbedConfig, model: Model, relation_count: int) -> TableLayout:
    """The widths and initial values of the tables of a run."""
    start, width = model.start(config.model.dim), config.model.relation_width
    if config.model.init_scale:
        start = start._replace(entities=config.model.init_scale)
    return TableLayout(
        width=config.model.dim,
        state_width=state_width(config.optimiser.kind, config.model.dim),
        relation_rows=relation_count * (2 if config.model.reciprocal else 1),
        relation_width=width,
        relation_state_width=state_width(config.optimiser.relations, width),
        start=start,
        seed=config.run.seed,
    )


class _PoolContext(NamedTuple):
    """Objects that all batches of a pool share."""

    pool: Pool
    negatives: PoolNegatives
    known: dict[str, _core.KnownAnswers]


class Trainer:
    """Trains the tables of a store. The result depends only on triples, configuration and model.

    With a custom `model`, it uses only the dimension from `config.model`. With `undirected`, a
    triple is stored once and also stands for its reverse. Without `native`, PyTorch computes whole
    batches, as on a GPU; this is the reference implementation for tests of the core.

    Errors: `DivergedError` for a loss that is not finite. The tables are in the state after the
    previous batch.
    """

    def __init__(
        self,
        store: Store,
        config: EmbedConfig,
        model: Model | None = None,
        *,
        undirected: bool = False,
        native: bool = True,
    ) -> None:
        self.store = store
        self.config = config
        self._undirected = undirected
        self.model = build_model(config.model) if model is None else model
        self._loss = build_loss(config.loss)
        self._move_entities = STEPS[config.optimiser.kind]
        self._move_relations = STEPS[config.optimiser.relations]
        self._regulariser = REGULARISERS.get(config.regulariser.kind)
        self._core = (
            CoreBatches.for_run(config, self.model, store.relation_count) if native else None
        )
        # The reference is weak, so that a store in partitions can free the triples of a pool.
        self._known_of: weakref.ref[Tensor] | None = None
        self._known: dict[str, _core.KnownAnswers] = {}

    def train_pool(
        self,
        pool: Pool,
        epoch: int,
        *,
        first: int = 0,
        after_batch: Callable[[float, int], bool | None] | None = None,
    ) -> bool:
        """Trains the batches of a pool from number `first`. Returns whether all were trained.

        `after_batch` receives the loss and the number of triples of each batch. If it returns
        `True`, training stops.
        """
        context = self._context(pool)
        for number, places in self._batches(pool, epoch):
            if number < first:
                continue
            value = self._step(context, places, (epoch, pool.number, number))
            if after_batch is not None and after_batch(value, len(places)):
                return False
        return True

    def _context(self, pool: Pool) -> _PoolContext:
        negatives = PoolNegatives(
            self.config.negatives,
            pool,
            self.config.optimiser.chunk_size,
            weighs=self.config.bias_weighs,
        )
        made = self._known_of is not None and self._known_of() is pool.triples
        if self.config.negatives.filter == "known" and not made:
            self._known_of = weakref.ref(pool.triples, self._know(pool))
        return _PoolContext(pool, negatives, self._known)

    def _know(self, pool: Pool) -> Callable[[object], None]:
        """Registers the triples of a pool. Returns a function that releases them.

        They are released at the end of the pool, because ranking needs their memory.
        """
        # Free the previous answers first: they are as large as the triples.
        known: dict[str, _core.KnownAnswers] = {}
        self._known_of, self._known = None, known
        if (core := self._core) is not None and core.fit(pool, self.store):
            core.know(pool.triples, undirected=self._undirected)
            return lambda _: core.forget()
        known |= known_answers(pool.triples)
        return lambda _: known.clear()

    def _batches(self, pool: Pool, epoch: int) -> Iterator[tuple[int, Tensor]]:
        random = generator(self.config.run.seed, Purpose.ORDER, epoch, pool.number)
        order = torch.randperm(len(pool.triples), generator=random)
        return enumerate(even_pieces(order, self.config.optimiser.batch_size))

    def _step(self, context: _PoolContext, places: Tensor, at: tuple[int, int, int]) -> float:
        """Trains one batch and returns its mean loss."""
        options = self.config.optimiser
        factor = options.factor(at[0])
        rate = options.learning_rate * factor
        rates = (rate, options.relation_learning_rate * factor or rate)
        unit = 0.5 / len(places)
        drawn_at = (self.config.run.seed, *at)
        pool, negatives = context.pool, context.negatives
        if self._core is not None and self._core.fit(pool, self.store):
            loss = self._core.train(pool, self.store, places, negatives, drawn_at, unit, rates)
            if loss is None:
                raise _diverged(at, "one that is not")
            return loss
        return self._step_by_pytorch(context, places, drawn_at, unit, rates)

    def _step_by_pytorch(
        self,
        context: _PoolContext,
        places: Tensor,
        drawn_at: _core.At,
        unit: float,
        rates: tuple[float, float],
    ) -> float:
        store, pool = self.store, context.pool
        # Pairs of rows and gradients. A row occurs once for each use in the batch.
        of_entities: list[tuple[Tensor, Tensor]] = []
        of_relations: list[tuple[Tensor, Tensor]] = []
        value = pool.entities.new_zeros(())
        for side, comparisons in context.negatives.draw(places, drawn_at).items():
            for some, negatives in (part for each in comparisons for part in each.apart()):
                value += self._chunk(
                    context, some, side, negatives, unit, of_entities, of_relations
                )
        loss, entities, relations = float(value), summed(of_entities), summed(of_relations)
        if not (
            math.isfinite(loss)
            and _fit(pool.entity_state, *entities)
            and _fit(store.relation_state, *relations)
        ):
            raise _diverged(drawn_at[1:], str(loss))
        self._move_entities(pool.entities, pool.entity_state, *entities, rates[0])
        # A model without relations has empty rows.
        if store.relations.size(1):
            self._move_relations(store.relations, store.relation_state, *relations, rates[1])
        return loss

    def _chunk(
        self,
        context: _PoolContext,
        places: Tensor,
        side: Side,
        negatives: Negatives,
        unit: float,
        of_entities: list[tuple[Tensor, Tensor]],
        of_relations: list[tuple[Tensor, Tensor]],
    ) -> Tensor:
        """Computes a chunk, adds its gradients to the two lists, and returns its loss."""
        pool, device = context.pool, context.pool.entities.device
        triples = pool.triples[places]
        question = question_of(
            triples, side, self.store.relation_count, reciprocal=self.config.model.reciprocal
        )
        if pool.weights is None:
            weights = pool.entities.new_full((len(places),), unit)
        else:
            weights = (pool.weights[places] * unit).to(device)
        anchors, relations, targets, candidates = (
            rows.to(device) for rows in (*question[1:], negatives.rows)
        )
        ignored = self.config.negatives.filter
        chunk = Chunk(
            side=question.side,
            anchors=pool.entities[anchors],
            relations=self.store.relations[relations],
            targets=pool.entities[targets],
            candidates=pool.entities[candidates],
            weights=weights,
            bias=None if negatives.bias is None else negatives.bias.to(device),
            own=(targets, candidates) if ignored == "own" else None,
            known=self._known_among(context, side, triples, negatives.rows).to(device)
            if ignored == "known"
            else None,
        )
        to_candidates = torch.zeros_like(chunk.candidates)
        result = self.model.gradients(chunk, self._loss, to_candidates)
        value = result.value + self._regularise(chunk, result)
        of_entities.append((anchors, result.anchors))
        of_entities.append((targets, result.targets))
        of_entities.append((candidates, to_candidates))
        of_relations.append((relations, result.relations))
        return value

    def _known_among(
        self, context: _PoolContext, side: Side, triples: Tensor, candidates: Tensor
    ) -> Tensor:
        """Mask of the candidates that complete a question to a triple of the pool.

        Shapes: bool [triples, candidates].
        """
        hidden = torch.zeros(len(triples), len(candidates), dtype=torch.bool)
        questions = [(side, triples)]
        if self._undirected:
            # The reverse of a known triple is known, too.
            questions.append(("head" if side == "tail" else "tail", triples.flip(1)))
        for open_side, some in questions:
            for pairs in known_among(context.known[open_side], some, candidates):
                hidden[pairs.rows, pairs.columns] = True
        return hidden

    def _regularise(self, chunk: Chunk, gradients: RowGradients) -> Tensor | float:
        if self._regulariser is None:
            return 0.0
        options, cost = self.config.regulariser, chunk.weights.new_zeros(())
        parts = (
            (chunk.anchors, gradients.anchors, options.weight),
            (chunk.targets, gradients.targets, options.weight),
            (chunk.relations, gradients.relations, options.of_relations(self.config.model)),
        )
        for rows, gradient, weight in parts:
            if weight:
                cost += self._regulariser(
                    rows, chunk.weights, weight, gradient, pairs=self.model.complex_rows
                )
        return cost


def summed(pieces: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor]:
    """Distinct rows in ascending order, and the sums of their gradients.

    Shapes: each piece is int64 [rows] and [rows, width].
    """
    rows, places = torch.unique(torch.cat([rows for rows, _ in pieces]), return_inverse=True)
    first = pieces[0][1]
    sums = first.new_zeros(len(rows), first.size(1))
    start = 0
    for _, gradients in pieces:
        stop = start + len(gradients)
        sums.index_add_(0, places[start:stop], gradients)
        start = stop
    return rows, sums


def _fit(state: Tensor, rows: Tensor, gradients: Tensor) -> bool:
    """Whether gradients are finite, and stay finite when their squares are added to the state.

    Shapes: `state` [all, state width], `rows` int64 [touched], `gradients` [touched, width].
    """
    squares = torch.linalg.vecdot(gradients, gradients)
    return bool(squares.add_(state[rows].sum(1)).isfinite().all())


def _diverged(at: tuple[int, int, int], loss: str) -> DivergedError:
    return DivergedError(
        f"epoch {at[0] + 1}, batch {at[2] + 1}: expected a finite loss and gradient, found "
        f"{loss}; the tables are as the batch before left them\n"
        "hint: lower the learning rate, or strengthen the regulariser"
    )
