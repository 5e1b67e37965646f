"""Predictions: what completes a triple."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from embedded import (
    ENTITIES,
    RELATIONS,
    embed,
    plain,
    write_run,
)
from outercore.embedding.config import ModelConfig, ModelName
from outercore.embedding.gradients.models import build_model
from outercore.embedding.use.embedding import Embedding
from outercore.embedding.use.predict import predict
from outercore.errors import (
    InvalidError,
    NotFoundError,
)


def naive_predictions(
    embedding: Embedding, part: str, question: tuple[int, int, int], hidden: set[int]
) -> tuple[list[int], dict[int, float]]:
    """All answers in order, by the definition: the score of each triple by itself."""
    model = build_model(embedding.model)
    entities = torch.from_numpy(np.array(embedding.entities)).double()
    relations = torch.from_numpy(embedding.relations).double()
    count = embedding.num_relations if part == "relation" else embedding.num_entities
    scores = {}
    for answer in range(count):
        h, r, t = (
            answer if name == part else value
            for name, value in zip(("head", "relation", "tail"), question, strict=True)
        )
        if part == "head" and embedding.reciprocal:
            triple = (
                "tail",
                entities[[t]],
                relations[[r + embedding.num_relations]],
                entities[[h]],
            )
        else:
            triple = ("tail", entities[[h]], relations[[r]], entities[[t]])
        scores[answer] = float(model.paired(*triple))  # type: ignore[arg-type]
    order = sorted((a for a in scores if a not in hidden), key=lambda a: -scores[a])
    return order, scores


KINDS: tuple[ModelName, ...] = ("distmult", "complex", "transe", "rotate", "simple")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reciprocal", [False, True])
@pytest.mark.parametrize("part", ["head", "relation", "tail"])
def test_predictions_are_those_of_the_definition(
    tmp_path: Path, embedded_graph: oc.Graph, kind: ModelName, reciprocal: bool, part: str
) -> None:
    embedding = embed(tmp_path / "run", embedded_graph, kind, reciprocal=reciprocal)
    asked = {"head": [3, 9, 3], "relation": [0, 2, 1], "tail": [5, 5, 40]}
    given = {name: ids for name, ids in asked.items() if name != part}
    found = predict(embedding, **given, k=4, by_id=True)  # type: ignore[arg-type]
    assert found.part == part
    for row in range(3):
        question = (asked["head"][row], asked["relation"][row], asked["tail"][row])
        order, scores = naive_predictions(embedding, part, question, set())
        assert found.ids[row].tolist() == order[:4]
        expected = [scores[answer] for answer in order[:4]]
        assert found.scores[row] == pytest.approx(expected, rel=1e-4, abs=1e-4)


@pytest.mark.parametrize("part", ["head", "relation", "tail"])
def test_known_triples_are_left_out_on_request(
    embedding: Embedding, embedded_graph: oc.Graph, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("outercore.embedding.use.neighbours.GROUP", 7)
    every = np.concatenate(
        [embedded_graph.array("triples/train"), embedded_graph.array("triples/valid")]
    )
    column = {"head": 0, "relation": 1, "tail": 2}[part]
    # Questions that have answers, and one that has none; one twice.
    triples = np.concatenate([every[::11], every[:1], [[59, 3, 58]]])
    names = ("head", "relation", "tail")
    given = {name: triples[:, i] for i, name in enumerate(names) if name != part}
    found = predict(embedding, **given, k=200, by_id=True, leave_out_known=True)  # type: ignore[arg-type]
    rest = [i for i in range(3) if i != column]
    some_hidden = 0
    for row, triple in enumerate(triples):
        hidden = set(every[(every[:, rest] == triple[rest]).all(axis=1)][:, column].tolist())
        some_hidden += bool(hidden)
        count = RELATIONS if part == "relation" else ENTITIES
        answers = found.ids[row][found.ids[row] >= 0].tolist()
        assert sorted(answers) == sorted(set(range(count)) - hidden)
    assert some_hidden >= len(triples) - 1


def test_one_relation_goes_with_many_heads_by_name(embedding: Embedding) -> None:
    many = predict(embedding, head=["n1", "n2"], relation="r1", k=3)
    for row, name in enumerate(["n1", "n2"]):
        one = predict(embedding, head=name, relation="r1", k=3)
        assert one.ids[0].tolist() == many.ids[row].tolist()
    assert many.questions[:, 2].tolist() == [-1, -1]


@pytest.mark.parametrize("kind", ["dot", "distmult", "transe"])
@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("part", ["head", "tail"])
def test_of_a_plain_graph_its_links_are_known(
    tmp_path: Path, kind: ModelName, undirected: bool, part: str
) -> None:
    edges = [(0, 1), (0, 5), (2, 0), (3, 3), (4, 5), (1, 4)]
    graph = plain(tmp_path / "plain", edges, undirected=undirected)
    draws = np.random.default_rng(1)
    entities = draws.standard_normal((graph.num_nodes, 4), np.float32)
    model = ModelConfig(kind, 4)
    relations = draws.standard_normal((1, model.relation_width), np.float32)
    embedding = write_run(tmp_path / "run", graph.root, entities, relations, model, 1)
    arcs = set(edges) | ({(v, u) for u, v in edges} if undirected else set())
    asked: dict[str, Any] = {"tail" if part == "head" else "head": list(range(6))}
    found = predict(embedding, **asked, k=10, leave_out_known=True)
    for node in range(6):
        linked = {u for u, v in arcs if v == node} if part == "head" else set()
        linked = {v for u, v in arcs if u == node} if part == "tail" else linked
        answers = found.ids[node][found.ids[node] >= 0].tolist()
        assert sorted(answers) == sorted(set(range(6)) - linked - {node})
        question = (-1, 0, node) if part == "head" else (node, 0, -1)
        assert answers == naive_predictions(embedding, part, question, linked | {node})[0]


@pytest.mark.parametrize("part", ["head", "tail"])
def test_dot_is_asked_with_or_without_the_relation_of_triples(
    tmp_path: Path, embedded_graph: oc.Graph, part: str
) -> None:
    embedding = embed(tmp_path / "run", embedded_graph, "dot")
    triples = np.concatenate(
        [embedded_graph.array("triples/train"), embedded_graph.array("triples/valid")]
    )
    anchors, answers = (2, 0) if part == "head" else (0, 2)
    asked: dict[str, Any] = {"tail" if part == "head" else "head": np.arange(ENTITIES)}
    options: dict[str, Any] = {"k": ENTITIES, "by_id": True, "leave_out_known": True}
    without = predict(embedding, **asked, **options)
    with_one = predict(embedding, **asked, relation=2, **options)
    assert without.questions[:, 1].tolist() == [-1] * ENTITIES
    for entity in range(ENTITIES):
        known = triples[triples[:, anchors] == entity]
        for found, some in ((without, known), (with_one, known[known[:, 1] == 2])):
            ids = found.ids[entity][found.ids[entity] >= 0].tolist()
            # The entity itself is an answer as any other: a fact may be about one alone.
            assert sorted(ids) == sorted(set(range(ENTITIES)) - set(some[:, answers].tolist()))


def test_questions_by_id_need_no_data_set(embedding: Embedding) -> None:
    expected = predict(embedding, head=[3], relation=[1], by_id=True)
    embedding.data_set.rename(embedding.data_set.with_name("elsewhere"))
    found = predict(Embedding.open(embedding.root), head=[3], relation=[1], by_id=True)
    assert np.array_equal(found.ids, expected.ids)


@pytest.mark.parametrize(
    ("question", "message"),
    [
        ({"head": "n1"}, "expected two of head, relation and tail, found head"),
        ({}, "found nothing"),
        ({"head": "n1", "relation": "r1", "tail": "n2"}, "found head, relation, tail"),
        ({"head": ["n1", "n2"], "relation": ["r1", "r2", "r3"]}, "lists of 2, 3"),
    ],
)
def test_a_wrong_question_for_predictions_is_refused(
    embedding: Embedding, question: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidError, match=message):
        predict(embedding, **question)


def test_an_unknown_name_is_not_found(embedding: Embedding) -> None:
    with pytest.raises(NotFoundError, match="entity `Atlantis` is not in the data set"):
        predict(embedding, head="Atlantis", relation="r1")
    for name, hint in (
        ("n3a", "did you mean `n3`?"),
        ("a", "a name there is `n0`"),
        ("zoo", "a name there is `n0`"),
    ):
        with pytest.raises(NotFoundError, match=f"\\nhint: {re.escape(hint)}$"):
            embedding.entity_ids([name])
