"""The gradients of a chunk are those of the definition, whatever the model, loss and side."""

from __future__ import annotations

import itertools
from typing import get_args

import numpy as np
import pytest
import torch
from torch import Tensor

import embed_reference as reference
from outercore import _core
from outercore.embedding.config import BuiltInModel, LossConfig, LossName, ModelConfig, ModelName
from outercore.embedding.gradients.chunk import Chunk, Side
from outercore.embedding.gradients.losses import build_loss
from outercore.embedding.gradients.models import BUILT_IN, CustomModel, Model, build_model
from outercore.embedding.gradients.trainer import summed
from outercore.errors import InvalidError

MODELS = [ModelConfig(kind=kind, dim=12) for kind in get_args(BuiltInModel)]
MODELS.append(ModelConfig(kind="transe", dim=12, norm=2))
LOSSES = [LossConfig(kind=kind, margin=0.7, temperature=1.3) for kind in get_args(LossName)]
LOSSES.append(LossConfig(kind="self-adversarial", margin=0.7, temperature=0.0))
SIDES: tuple[Side, ...] = get_args(Side)


def a_chunk(config: ModelConfig, side: Side, rows: int, negatives: int, *, seed: int) -> Chunk:
    """Random rows in float64, some negatives masked, uneven weights and a bias."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=random, dtype=torch.float64)

    dim = config.dim
    hidden = torch.rand(rows, negatives, generator=random) < 0.2
    hidden[:, 0] = False
    return Chunk(
        side=side,
        anchors=normal(rows, dim),
        relations=normal(rows, config.relation_width),
        targets=normal(rows, dim),
        candidates=normal(negatives, dim),
        weights=torch.rand(rows, generator=random, dtype=torch.float64) + 0.1,
        known=hidden,
        bias=normal(negatives) * 0.1,
    )


def by_hand(model: Model, config: LossConfig, chunk: Chunk) -> tuple[Tensor, list[Tensor]]:
    to_candidates = torch.zeros_like(chunk.candidates)
    found = model.gradients(chunk, build_loss(config), to_candidates)
    return found.value, [found.anchors, found.relations, found.targets, to_candidates]


def assert_same(actual: tuple[Tensor, list[Tensor]], expected: tuple[Tensor, list[Tensor]]) -> None:
    torch.testing.assert_close(actual[0], expected[0], rtol=1e-9, atol=1e-12)
    for mine, theirs in zip(actual[1], expected[1], strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-10)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("loss", LOSSES, ids=lambda config: config.kind)
@pytest.mark.parametrize("config", MODELS, ids=lambda config: f"{config.kind}{config.norm}")
def test_gradients_by_hand_are_those_of_autograd(
    config: ModelConfig, loss: LossConfig, side: Side
) -> None:
    model = build_model(config)
    for seed, (rows, negatives) in enumerate([(7, 11), (1, 1), (5, 1), (1, 9), (13, 4)]):
        chunk = a_chunk(config, side, rows, negatives, seed=seed)
        assert_same(by_hand(model, loss, chunk), reference.chunk_gradients(config, loss, chunk))


@pytest.mark.parametrize("side", SIDES)
def test_a_model_worked_on_in_blocks_gives_the_same_gradients(
    side: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig(kind="rotate", dim=6)
    model = build_model(config)
    chunk = a_chunk(config, side, 23, 10, seed=3)
    monkeypatch.setattr(BUILT_IN["rotate"].similarity, "block_numbers", 7 * 60)
    loss = LossConfig(kind="self-adversarial", margin=2.0)
    assert_same(by_hand(model, loss, chunk), reference.chunk_gradients(config, loss, chunk))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", get_args(BuiltInModel))
def test_a_model_of_ones_own_gives_the_gradients_of_the_built_in_one(
    kind: ModelName, side: Side
) -> None:
    config = ModelConfig(kind=kind, dim=8)
    built_in = build_model(config)
    own = CustomModel(
        lambda heads, relations, tails: reference.score(config, heads, relations, tails),
        block_numbers=8 * 9 * 4,
    )
    chunk = a_chunk(config, side, 13, 9, seed=1)
    loss = LossConfig()
    assert_same(by_hand(own, loss, chunk), by_hand(built_in, loss, chunk))


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("config", MODELS, ids=lambda config: f"{config.kind}{config.norm}")
def test_scores_of_pairs_are_the_definition(config: ModelConfig, side: Side) -> None:
    model = build_model(config)
    chunk = a_chunk(config, side, 6, 5, seed=2)
    scores = model.scores(side, chunk.anchors, chunk.relations, chunk.candidates)
    for row, column in itertools.product(range(6), range(5)):
        anchor, relation = chunk.anchors[row], chunk.relations[row]
        other = chunk.candidates[column]
        ends = (anchor, other) if side == "tail" else (other, anchor)
        expected = reference.score(config, ends[0], relation, ends[1])
        torch.testing.assert_close(scores[row, column], expected)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda config: config.kind)
def test_a_row_whose_negatives_are_all_masked_has_a_finite_loss(loss: LossConfig) -> None:
    positives = torch.tensor([0.5, -1.0], dtype=torch.float64)
    negatives = torch.tensor([[-torch.inf] * 3, [0.1, -torch.inf, 2.0]], dtype=torch.float64)
    weights = torch.ones(2, dtype=torch.float64)
    found = build_loss(loss).gradients(positives, negatives, weights)
    assert bool(found.value.isfinite())
    assert bool(found.negatives.isfinite().all())
    assert found.negatives[0].tolist() == [0.0, 0.0, 0.0]


def test_softmax_neither_overflows_nor_loses_small_scores() -> None:
    positives = torch.tensor([1000.0, -1000.0, 0.0])
    negatives = torch.tensor([[990.0, 1000.0], [-1000.0, 500.0], [-300.0, -300.0]])
    weights = torch.ones(3)
    found = build_loss(LossConfig()).gradients(positives, negatives.clone(), weights)
    expected = reference.loss(LossConfig(), positives, negatives, weights)
    torch.testing.assert_close(found.value, expected)
    torch.testing.assert_close(found.positives, torch.tensor([-0.5, -1.0, 0.0]), atol=1e-4, rtol=0)


def test_equal_rows_have_no_direction_but_a_finite_gradient() -> None:
    for kind in ("transe", "rotate"):
        for norm in (1, 2):
            config = ModelConfig(kind=kind, dim=4, norm=norm)
            rows = torch.zeros(3, 4)
            chunk = Chunk(
                "tail",
                rows,
                torch.zeros(3, config.relation_width),
                rows,
                rows,
                torch.ones(3),
            )
            _, gradients = by_hand(build_model(config), LossConfig(), chunk)
            assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def in_single(chunk: Chunk) -> Chunk:
    """The same chunk in float32, which the core's kernels take."""
    assert chunk.bias is not None
    return chunk._replace(
        anchors=chunk.anchors.float(),
        relations=chunk.relations.float(),
        targets=chunk.targets.float(),
        candidates=chunk.candidates.float(),
        weights=chunk.weights.float(),
        bias=chunk.bias.float(),
    )


@pytest.mark.parametrize("kind", ["transe", "rotate"])
def test_scores_of_pairs_by_the_core_are_within_their_rounding(kind: ModelName) -> None:
    config, model = ModelConfig(kind, 1000), BUILT_IN[kind]
    chunk = in_single(a_chunk(config, "tail", 70, 70, seed=5))
    queries = model.queries("tail", chunk.anchors, chunk.relations)
    scores = model.similarity.scores(queries, chunk.candidates)
    distance = (scores.diagonal() - model.similarity.paired(queries, chunk.candidates)).abs()
    assert bool((distance <= model.similarity.rounding(queries, chunk.candidates)).all())


def test_scores_far_apart_leave_the_gradients_finite() -> None:
    for loss in LOSSES:
        for config in (ModelConfig("transe", 12), ModelConfig("rotate", 12)):
            model = build_model(config)
            chunk = in_single(a_chunk(config, "tail", 20, 30, seed=6))
            chunk = chunk._replace(anchors=chunk.anchors * 1e4, candidates=chunk.candidates * 1e4)
            value, gradients = by_hand(model, loss, chunk)
            assert bool(value.isfinite())
            assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_the_core_refuses_a_matrix_by_columns_instead_of_mixing_its_rows() -> None:
    table = np.arange(12, dtype=np.float32).reshape(4, 3)
    out = np.zeros((4, 4), np.float32)
    with pytest.raises(InvalidError, match=r"array \[4, 3\]: expected rows one after the other"):
        _core.kernel_distance_scores("manhattan", np.asfortranarray(table), table, out, 1)
    with pytest.raises(InvalidError, match=r"array \[4, 4\]: expected rows one after the other"):
        _core.kernel_distance_scores("manhattan", table, table, np.asfortranarray(out), 1)
    assert not out.any()
    _core.kernel_distance_scores("manhattan", table, table, out, 1)
    assert out[:, 0].tolist() == [0, -9, -18, -27]


def test_gradients_of_equal_rows_are_added_up() -> None:
    random = torch.Generator().manual_seed(7)
    pieces = [
        (torch.randint(60, (count,), generator=random), torch.randn(count, 9, generator=random))
        for count in (700, 0, 1, 90)
    ]
    rows, sums = summed(pieces)
    by_pytorch = summed([(rows, gradients.double()) for rows, gradients in pieces])
    assert torch.equal(rows, by_pytorch[0])
    torch.testing.assert_close(sums, by_pytorch[1].float())
