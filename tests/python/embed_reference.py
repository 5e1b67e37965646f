"""Scores, losses and gradients from their definitions, by autograd: the slow reference.

Every implementation of a chunk's gradients must agree with `chunk_gradients`. Only tests and
benchmarks call it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from outercore.embedding.config import LossConfig, ModelConfig
from outercore.embedding.gradients.chunk import Chunk
from outercore.embedding.gradients.models import Model
from outercore.embedding.gradients.negatives import known_answers
from outercore.embedding.gradients.trainer import Trainer
from outercore.embedding.ranking.ranks import Candidates, Evaluation, rank
from outercore.embedding.tables.store import EpochReport, Store


def score(config: ModelConfig, heads: Tensor, relations: Tensor, tails: Tensor) -> Tensor:
    """The score of triples; all extents but the last one broadcast."""
    match config.kind:
        case "dot":
            return (heads * tails).sum(-1)
        case "distmult":
            return (heads * relations * tails).sum(-1)
        case "complex":
            product = _complex(heads) * _complex(relations) * _complex(tails).conj()
            return product.real.sum(-1)
        case "simple":
            head_first, head_second = heads.chunk(2, dim=-1)
            forward, inverse = relations.chunk(2, dim=-1)
            tail_first, tail_second = tails.chunk(2, dim=-1)
            there = (head_first * forward * tail_second).sum(-1)
            back = (tail_first * inverse * head_second).sum(-1)
            return (there + back) / 2
        case "transe":
            return -torch.linalg.vector_norm(heads + relations - tails, ord=config.norm, dim=-1)
        case "rotate":
            turn = torch.polar(torch.ones_like(relations), relations)
            return -(_complex(heads) * turn - _complex(tails)).abs().sum(-1)
        case "custom":
            raise ValueError("a score function of one's own is its own reference")


def loss(config: LossConfig, positives: Tensor, negatives: Tensor, weights: Tensor) -> Tensor:
    """The loss of rows of scores; negatives of minus infinity do not count."""
    counted = ~negatives.isneginf()
    finite = torch.where(counted, negatives, 0.0)
    match config.kind:
        case "softmax":
            every = torch.cat([positives.unsqueeze(1), negatives], dim=1)
            rows = every.logsumexp(dim=1) - positives
        case "contrastive":
            rows = negatives.logsumexp(dim=1) - positives
        case "logistic":
            costs = torch.where(counted, -logsigmoid(-(finite + config.margin)), 0.0)
            rows = -logsigmoid(positives + config.margin) + costs.mean(dim=1)
        case "margin":
            missing = (config.ahead - positives.unsqueeze(1) + finite).relu()
            rows = torch.where(counted, missing, 0.0).mean(dim=1)
        case "self-adversarial":
            steep = torch.where(counted, finite * config.temperature, -torch.inf)
            shares = steep.softmax(dim=1).detach()
            costs = torch.where(counted, -logsigmoid(-(finite + config.margin)), 0.0)
            rows = (-logsigmoid(positives + config.margin) + (shares * costs).sum(dim=1)) / 2
    return (weights * rows).sum()


def chunk_gradients(
    model: ModelConfig, objective: LossConfig, chunk: Chunk
) -> tuple[Tensor, list[Tensor]]:
    """The loss, and its gradients by anchors, relations, targets and candidates."""
    leaves = [
        rows.detach().clone().requires_grad_(True)
        for rows in (chunk.anchors, chunk.relations, chunk.targets, chunk.candidates)
    ]
    anchors, relations, targets, candidates = leaves
    many, of_many = anchors.unsqueeze(1), relations.unsqueeze(1)
    if chunk.side == "tail":
        positives = score(model, anchors, relations, targets)
        negatives = score(model, many, of_many, candidates)
    else:
        positives = score(model, targets, relations, anchors)
        negatives = score(model, candidates, of_many, many)
    if chunk.bias is not None:
        negatives = negatives + chunk.bias
    if chunk.known is not None:
        negatives = negatives.masked_fill(chunk.known, -torch.inf)
    value = loss(objective, positives, negatives, chunk.weights)
    derivatives = torch.autograd.grad(value, leaves, allow_unused=True)
    gradients = [
        torch.zeros_like(rows) if gradient is None else gradient
        for rows, gradient in zip(leaves, derivatives, strict=True)
    ]
    return value.detach(), gradients


def _complex(rows: Tensor) -> Tensor:
    real, imaginary = rows.chunk(2, dim=-1)
    return torch.complex(real, imaginary)


def evaluate(
    store: Store,
    model: Model,
    triples: Tensor,
    *,
    known: Sequence[Tensor] = (),
    candidates: Candidates | None = None,
    **options: Any,
) -> Evaluation:
    """The figures of the tails and the heads of some triples.

    `known` need not have more than the triples that share head and relation, or relation and
    tail, with one of `triples`. `options` are those of `rank`.

    Shapes: `triples` and each of `known` int64 [m, 3], entities by number.
    """
    answers = known_answers(torch.cat(list(known))) if known else None
    found = rank(store, model, triples, candidates or Candidates(), answers, **options)
    return found.evaluation()


def train_epoch(
    trainer: Trainer, epoch: int, *, after_batch: Callable[[int], None] | None = None
) -> EpochReport:
    """Trains every triple once. `after_batch` gets the number of triples that are done."""
    total, triples, batches, pools = 0.0, 0, 0, 0

    def count(loss: float, more: int) -> None:
        nonlocal total, triples, batches
        total, triples, batches = total + loss * more, triples + more, batches + 1
        if after_batch is not None:
            after_batch(triples)

    for pool in trainer.store.pools(epoch):
        trainer.train_pool(pool, epoch, after_batch=count)
        pools += 1
    return EpochReport(epoch, total / max(triples, 1), triples, batches, 0.0, pools=pools)
