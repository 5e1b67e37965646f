"""Models: widths, initial values, scores of triples, and the configuration that names them."""

from __future__ import annotations

import json
from typing import get_args

import pytest
import torch

import embed_reference as reference
from outercore.embedding.config import (
    BuiltInModel,
    EmbedConfig,
    ModelConfig,
    ModelName,
    OptimiserConfig,
)
from outercore.embedding.gradients.models import build_model
from outercore.embedding.gradients.trainer import question_of, table_layout
from outercore.embedding.randomness import Purpose, generator, initial_rows
from outercore.errors import InvalidError

MODELS = [ModelConfig(kind=kind, dim=8) for kind in get_args(BuiltInModel)]
MODELS.append(ModelConfig(kind="transe", dim=8, norm=2))


@pytest.mark.parametrize("config", MODELS, ids=lambda config: f"{config.kind}{config.norm}")
def test_both_ends_of_a_triple_are_asked_for_with_the_same_score(config: ModelConfig) -> None:
    model = build_model(config)
    random = torch.Generator().manual_seed(4)
    heads, tails = torch.randn(2, 30, 8, generator=random, dtype=torch.float64)
    relations = torch.randn(30, config.relation_width, generator=random, dtype=torch.float64)
    expected = reference.score(config, heads, relations, tails)
    torch.testing.assert_close(model.paired("tail", heads, relations, tails), expected)
    torch.testing.assert_close(model.paired("head", tails, relations, heads), expected)


@pytest.mark.parametrize("config", MODELS, ids=lambda config: f"{config.kind}{config.norm}")
def test_pairs_and_paired_differ_by_no_more_than_the_rounding(config: ModelConfig) -> None:
    model = build_model(config)
    for scale in (1e-3, 1.0, 1e3):
        random = torch.Generator().manual_seed(5)
        anchors, targets = torch.randn(2, 40, 8, generator=random) * scale
        relations = torch.randn(40, config.relation_width, generator=random) * scale
        pairs = model.scores("tail", anchors, relations, targets).diagonal()
        paired = model.paired("tail", anchors, relations, targets)
        slack = model.rounding("tail", anchors, relations, targets)
        assert bool(((pairs - paired).abs() <= slack).all())
        assert bool((slack <= 1e-4 * (1 + pairs.abs().max())).all())


def test_complex_tells_a_relation_from_its_reverse_and_distmult_does_not() -> None:
    head, relation, tail = torch.randn(3, 1, 8, generator=torch.Generator().manual_seed(0))
    for kind, symmetric in (("complex", False), ("distmult", True)):
        model = build_model(ModelConfig(kind=kind, dim=8))
        there = model.paired("tail", head, relation, tail)
        back = model.paired("tail", tail, relation, head)
        assert torch.allclose(there, back) == symmetric


def test_a_reciprocal_head_question_is_a_tail_question_of_the_reverse_relation() -> None:
    triples = torch.tensor([[3, 1, 5], [0, 2, 4]])
    question = question_of(triples, "head", 7, reciprocal=True)
    assert question.side == "tail"
    assert question.anchors.tolist() == [5, 4]
    assert question.relations.tolist() == [8, 9]
    assert question.targets.tolist() == [3, 0]


@pytest.mark.parametrize("kind", ["complex", "rotate", "simple"])
def test_models_of_two_halves_refuse_an_odd_dimension(kind: ModelName) -> None:
    with pytest.raises(InvalidError, match="even number, found 99\nhint: use 100"):
        ModelConfig(kind=kind, dim=99)


def test_the_layout_of_tables_follows_model_and_optimiser() -> None:
    config = EmbedConfig(
        model=ModelConfig(kind="rotate", dim=10, reciprocal=True),
        optimiser=OptimiserConfig(kind="row-adagrad", relations="adam"),
    )
    layout = table_layout(config, build_model(config.model), 7)
    assert (layout.width, layout.state_width) == (10, 1)
    assert (layout.relation_rows, layout.relation_width) == (14, 5)
    assert layout.relation_state_width == 11
    relations, _ = layout.new_relations(torch.device("cpu"))
    assert 2.0 < float(relations.abs().max()) <= 3.1416


def test_initial_rows_do_not_depend_on_how_the_table_is_cut() -> None:
    whole = torch.empty(15_000, 3)
    initial_rows(9, Purpose.ENTITIES, torch.arange(15_000), whole, 0.5)
    for numbers in torch.randperm(15_000).split(4_000):
        part = torch.empty(len(numbers), 3)
        initial_rows(9, Purpose.ENTITIES, numbers, part, 0.5)
        assert torch.equal(part, whole[numbers])
    assert abs(float(whole.std()) - 0.5) < 0.02


def test_streams_differ_by_seed_purpose_and_place() -> None:
    places = [(0, 1, ()), (1, 1, ()), (0, 3, ()), (0, 3, (0, 1)), (0, 3, (1, 0))]
    drawn = {
        float(torch.rand(1, generator=generator(seed, Purpose(purpose), *place)))
        for seed, purpose, place in places
    }
    assert len(drawn) == len(places)


def test_a_configuration_survives_json_and_unknown_keys_are_refused() -> None:
    config = EmbedConfig(model=ModelConfig(kind="transe", norm=2))
    assert EmbedConfig.from_dict(json.loads(config.to_json())) == config
    with pytest.raises(InvalidError, match=r"did you mean `model\.kind`"):
        EmbedConfig.from_dict({"model": {"kinds": "dot"}})
    with pytest.raises(InvalidError, match="expected one of"):
        EmbedConfig.from_dict({"loss": {"kind": "hinge"}})
