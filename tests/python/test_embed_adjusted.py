"""Ranks with their candidates, adjusted ranks, and candidates that are given for each triple."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from embedded import Rows, facts, random_triples, write_run
from outercore import embedding as embeddings
from outercore.embedding.config import ModelConfig
from outercore.embedding.use.embedding import Embedding
from outercore.errors import InvalidError

WIDTH = 4


class Case(NamedTuple):
    """Rows of small whole numbers: scores are exact, and many are equal."""

    embedding: Embedding
    held_out: NDArray[np.int64]
    known: set[tuple[int, int, int]]

    def scores(self, side: str) -> NDArray[np.float64]:
        """DistMult's score of every entity as the end asked for, [triples, entities]."""
        entities = self.embedding.entities.astype(np.float64)
        relations = self.embedding.relations.astype(np.float64)
        asked = entities[self.held_out[:, 0 if side == "tail" else 2]]
        return (asked * relations[self.held_out[:, 1]]) @ entities.T

    def others(self, side: str) -> NDArray[np.bool_]:
        """Which entities compete with the true one once other true answers are left out."""
        found = np.ones((len(self.held_out), self.embedding.num_entities), bool)
        for row, (head, relation, tail) in enumerate(self.held_out.tolist()):
            for entity in range(found.shape[1]):
                ends = (head, relation, entity) if side == "tail" else (entity, relation, tail)
                found[row, entity] = ends not in self.known
        return found

    def target(self, side: str) -> NDArray[np.int64]:
        return self.held_out[:, 2 if side == "tail" else 0]


@pytest.fixture(scope="module")
def case(tmp_path_factory: pytest.TempPathFactory) -> Case:
    root = tmp_path_factory.mktemp("adjusted")
    train: Rows = random_triples(1)
    graph = facts(root / "facts", train, random_triples(2)[:50])
    draws = np.random.default_rng(3)
    shape = (graph.num_nodes, WIDTH)
    rows = draws.integers(-1, 2, shape).astype(np.float32)
    relations = draws.integers(-1, 2, (4, WIDTH)).astype(np.float32)
    model = ModelConfig(kind="distmult", dim=WIDTH)
    embedding = write_run(root / "run", root / "facts", rows, relations, model, 4)
    parts = {part: graph.array(f"triples/{part}").astype(np.int64) for part in ("train", "valid")}
    known = {tuple(triple) for part in parts.values() for triple in part.tolist()}
    return Case(embedding, parts["valid"], known)


class Naive(NamedTuple):
    """Ranks as PyKEEN defines them, [triples]."""

    optimistic: NDArray[np.float64]
    pessimistic: NDArray[np.float64]
    candidates: NDArray[np.int64]

    @classmethod
    def of(cls, own: NDArray, scores: NDArray, others: NDArray[np.bool_]) -> Naive:
        higher = ((scores > own[:, None]) & others).sum(axis=1)
        not_lower = ((scores >= own[:, None]) & others).sum(axis=1)
        return cls(1.0 + higher, 1.0 + not_lower, 1 + others.sum(axis=1))

    def metrics(self, rule: str) -> dict[str, float]:
        realistic = (self.optimistic + self.pessimistic) / 2
        ranks = {"optimistic": self.optimistic, "pessimistic": self.pessimistic}.get(
            rule, realistic
        )
        expected = ((self.candidates + 1) / 2).mean()
        return {
            "mrr": (1 / ranks).mean(),
            "mean_rank": ranks.mean(),
            "hits_at_1": (ranks <= 1).mean(),
            "hits_at_3": (ranks <= 3).mean(),
            "hits_at_10": (ranks <= 10).mean(),
            "adjusted_mean_rank": ranks.mean() / expected,
            "adjusted_mean_rank_index": 1 - (ranks.mean() - 1) / (expected - 1),
        }


def naive(case: Case, *, filtered: bool) -> list[Naive]:
    """Of tails, and of heads."""
    found = []
    for side in ("tail", "head"):
        scores, target = case.scores(side), case.target(side)
        others = case.others(side) if filtered else np.ones_like(scores, bool)
        rows = np.arange(len(target))
        others[rows, target] = False
        found.append(Naive.of(scores[rows, target], scores, others))
    return found


def joined(sides: list[Naive]) -> Naive:
    return Naive(*(np.concatenate(column) for column in zip(*sides, strict=True)))


@pytest.mark.parametrize("filtered", [True, False])
def test_metrics_of_each_rule_for_ties_are_those_of_the_definition(
    case: Case, filtered: bool
) -> None:
    (figures,) = embeddings.assess(case.embedding, parts=("valid",), filtered=filtered)
    found = figures["filtered" if filtered else "raw"]
    every = joined(naive(case, filtered=filtered))
    for rule, of_rule in (
        ("realistic", found),
        ("optimistic", found["optimistic"]),
        ("pessimistic", found["pessimistic"]),
    ):
        expected = every.metrics(rule)
        assert {name: of_rule[name] for name in expected} == pytest.approx(expected), rule
    assert found["candidates"] == pytest.approx(every.candidates.mean())
    assert found["optimistic"]["mrr"] > found["mrr"] > found["pessimistic"]["mrr"]


@pytest.mark.parametrize("filtered", [True, False])
def test_each_rank_comes_with_its_candidates(case: Case, filtered: bool) -> None:
    found = embeddings.ranks(case.embedding, part="valid", filtered=filtered)
    sides = naive(case, filtered=filtered)
    for name in ("optimistic", "pessimistic", "candidates"):
        expected = np.stack([getattr(side, name) for side in sides], axis=1)
        np.testing.assert_array_equal(getattr(found, name), expected)
    assert found.candidates.dtype == np.int64


def test_a_constant_score_is_chance(case: Case, tmp_path: Path) -> None:
    rows = np.ones((case.embedding.num_entities, WIDTH), np.float32)
    relations = np.ones((4, WIDTH), np.float32)
    model = ModelConfig(kind="distmult", dim=WIDTH)
    data_set = case.embedding.graph.root
    flat = write_run(tmp_path / "flat", data_set, rows, relations, model, 4)
    (figures,) = embeddings.assess(flat, parts=("valid",))
    found = figures["filtered"]
    assert found["adjusted_mean_rank"] == pytest.approx(1.0)
    assert found["adjusted_mean_rank_index"] == pytest.approx(0.0)
    assert found["optimistic"]["adjusted_mean_rank_index"] == pytest.approx(1.0)
    assert found["pessimistic"]["adjusted_mean_rank_index"] == pytest.approx(-1.0)


# ---- candidates that are given


def given(case: Case, seed: int, count: int = 17) -> dict[str, NDArray[np.int64]]:
    draws = np.random.default_rng(seed)
    shape = (len(case.held_out), count)
    return {name: draws.integers(0, 60, shape) for name in ("head_neg", "tail_neg")}


def naive_given(case: Case, negatives: dict[str, NDArray[np.int64]]) -> list[Naive]:
    found = []
    for side in ("tail", "head"):
        if f"{side}_neg" not in negatives:
            continue
        scores, target = case.scores(side), case.target(side)
        drawn, rows = negatives[f"{side}_neg"], np.arange(len(target))
        of_drawn = np.take_along_axis(scores, drawn, axis=1)
        found.append(Naive.of(scores[rows, target], of_drawn, drawn != target[:, None]))
    return found


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("sides", [("tail_neg", "head_neg"), ("tail_neg",), ("head_neg",)])
def test_given_candidates_are_all_that_a_triple_is_ranked_among(
    case: Case, seed: int, sides: tuple[str, ...]
) -> None:
    negatives = {name: given(case, seed)[name] for name in sides}
    (figures,) = embeddings.assess(case.embedding, parts=("valid",), negatives=negatives)
    expected = naive_given(case, negatives)
    every = joined(expected)
    for rule in ("optimistic", "pessimistic"):
        assert figures["raw"][rule] == pytest.approx(every.metrics(rule)), f"seed {seed}, {rule}"
    assert figures["mrr"] == pytest.approx(every.metrics("realistic")["mrr"])
    assert (figures["candidates"], figures["filtered"]) == ("given", None)
    assert "17 entities given for each" in figures["protocol"]
    ranks = embeddings.ranks(case.embedding, part="valid", negatives=negatives)
    for name in ("optimistic", "pessimistic", "candidates"):
        columns = np.stack([getattr(side, name) for side in expected], axis=1)
        np.testing.assert_array_equal(getattr(ranks, name), columns)


def test_files_in_the_layout_of_ogb_are_read(case: Case, tmp_path: Path, outcome: Any) -> None:
    negatives = given(case, 5)
    head, relation, tail = case.held_out.T
    layout = {"head": head, "relation": relation, "tail": tail, **negatives}
    np.savez(tmp_path / "valid.npz", **layout)
    torch.save(layout, tmp_path / "valid.pt")
    expected = joined(naive_given(case, negatives)).metrics("realistic")
    for name in ("valid.npz", "valid.pt"):
        command = ("embedding", "evaluate", case.embedding.root, "--part", "valid", "--json")
        code, out, err = outcome(*command, "--negatives", tmp_path / name)
        assert code == 0, err
        (figures,) = json.loads(out)
        assert figures["mrr"] == pytest.approx(expected["mrr"]), name
    code, out, _ = outcome(*command[:-1], "--negatives", tmp_path / "valid.pt")
    assert code == 0
    assert "AMRI" in out
    assert "given for each" in out


def test_some_triples_keep_their_own_candidates(case: Case) -> None:
    negatives = given(case, 6)
    some = embeddings.ranks(case.embedding, part="valid", negatives=negatives, triples=9)
    every = embeddings.ranks(case.embedding, part="valid", negatives=negatives)
    assert len(some.triples) == 9
    by_triple = {tuple(t): r.tolist() for t, r in zip(every.triples, every.optimistic, strict=True)}
    for triple, ranks in zip(some.triples.tolist(), some.optimistic.tolist(), strict=True):
        assert by_triple[tuple(triple)] == ranks


WRONG: list[tuple[str, Any, dict[str, Any], str]] = [
    ("rows", lambda one: {"tail_neg": one["tail_neg"][1:]}, {}, "a row for each of the"),
    ("entity", lambda one: {"tail_neg": one["tail_neg"] + 50}, {}, "expected 0 to 59"),
    ("floats", lambda one: {"tail_neg": one["tail_neg"] / 2}, {}, "integers [n, candidates]"),
    ("flat", lambda one: {"tail_neg": one["tail_neg"].ravel()}, {}, "integers [n, candidates]"),
    ("name", lambda one: {"negatives": one["tail_neg"]}, {}, "`tail_neg`, `head_neg`"),
    ("order", lambda one: {**one, "head": "reversed"}, {}, "row 0: found"),
    ("parts", lambda one: one, {"parts": ("train", "valid")}, "expected one part"),
    ("candidates", lambda one: one, {"candidates": "all"}, "leave out `candidates`"),
    ("also", lambda one: one, {"also": ("uniform",)}, "leave out `candidates`"),
]


@pytest.mark.parametrize(("made", "options", "message"), [one[1:] for one in WRONG])
def test_candidates_of_other_triples_are_refused(
    case: Case, made: Any, options: dict[str, Any], message: str
) -> None:
    negatives = made(given(case, 7))
    if isinstance(negatives.get("head"), str):
        negatives["head"] = case.held_out[::-1, 0]
    with pytest.raises(InvalidError) as error:
        embeddings.assess(case.embedding, negatives=negatives, **{"parts": ("valid",), **options})
    assert message in str(error.value)
