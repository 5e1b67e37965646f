"""Ranks by the book, whatever the blocks, the candidates and the ties."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import embed_reference as reference
from embed_reference import evaluate
from outercore.embedding.config import ModelConfig, ModelName
from outercore.embedding.gradients import negatives
from outercore.embedding.gradients.models import CustomModel, build_model
from outercore.embedding.ranking import ranks
from outercore.embedding.ranking import ranks as evaluation
from outercore.embedding.ranking.ranks import (
    Candidates,
    Evaluation,
    RankMetrics,
)
from outercore.embedding.tables.memory import MemoryStore
from outercore.errors import InvalidError

ENTITIES, RELATIONS, DIM = 23, 3, 8


def a_store(
    config: ModelConfig, *, seed: int = 0, block_rows: int = 5, rows: Tensor | None = None
) -> MemoryStore:
    """Random tables in float64."""
    random = torch.Generator().manual_seed(seed)
    store = MemoryStore(random_triples(40, seed), ENTITIES, RELATIONS, block_rows=block_rows)
    store.entities = torch.randn(ENTITIES, DIM, generator=random, dtype=torch.float64)
    if rows is not None:
        store.entities = rows
    width = config.relation_width
    many = RELATIONS * (2 if config.reciprocal else 1)
    store.relations = torch.randn(many, width, generator=random, dtype=torch.float64)
    store.relations = store.relations.to(store.entities.dtype)
    return store


def random_triples(count: int, seed: int) -> Tensor:
    random = torch.Generator().manual_seed(seed)
    ends = torch.randint(ENTITIES, (2, count), generator=random)
    return torch.stack([ends[0], torch.randint(RELATIONS, (count,), generator=random), ends[1]], 1)


def naive_ranks(
    config: ModelConfig,
    store: MemoryStore,
    triples: Tensor,
    known: set[tuple[int, int, int]],
    candidates: list[int],
) -> list[float]:
    """The rank of each tail, then of each head, one triple at a time."""
    ranks = []
    for side in ("tail", "head"):
        for triple in triples.tolist():
            head, relation, tail = triple

            def score(other: int, side: str = side, triple: Any = triple) -> float:
                head, relation, tail = triple
                if side == "tail":
                    ends = (head, relation, other)
                elif config.reciprocal:
                    ends = (tail, relation + RELATIONS, other)
                else:
                    ends = (other, relation, tail)
                rows = store.entities[ends[0]], store.relations[ends[1]], store.entities[ends[2]]
                return float(reference.score(config, *rows))

            own = tail if side == "tail" else head
            higher = equal = 0
            for other in candidates:
                made = (head, relation, other) if side == "tail" else (other, relation, tail)
                if other == own or made in known:
                    continue
                higher += score(other) > score(own) + 1e-9
                equal += abs(score(other) - score(own)) <= 1e-9
            ranks.append(1 + higher + equal / 2)
    return ranks


def metrics(ranks: list[float]) -> list[float]:
    reciprocal = sum(1 / rank for rank in ranks)
    hits = [sum(rank <= k for rank in ranks) for k in (1, 3, 10)]
    return [value / len(ranks) for value in (reciprocal, sum(ranks), *hits)]


def found(result: RankMetrics | None) -> list[float]:
    assert result is not None
    return [result.mrr, result.mean_rank, result.hits_at_1, result.hits_at_3, result.hits_at_10]


CASES = [
    ModelConfig(kind=kind, dim=DIM, norm=norm, reciprocal=reciprocal)
    for kind, norm, reciprocal in [
        ("complex", 1, False),
        ("complex", 1, True),
        ("distmult", 1, False),
        ("simple", 1, False),
        ("transe", 1, False),
        ("transe", 2, True),
        ("rotate", 1, False),
    ]
]


@pytest.mark.parametrize("config", CASES, ids=lambda one: f"{one.kind}{one.norm}{one.reciprocal}")
def test_ranks_are_those_of_a_naive_loop(config: ModelConfig) -> None:
    store, test = a_store(config), random_triples(15, 7)
    known = [store.triples, test]
    result = evaluate(
        store, build_model(config), test, reciprocal=config.reciprocal, known=known, group=4
    )
    everyone = list(range(ENTITIES))
    triples = {tuple(triple) for part in known for triple in part.tolist()}
    assert found(result.raw) == pytest.approx(
        metrics(naive_ranks(config, store, test, set(), everyone))
    )
    ranks = naive_ranks(config, store, test, triples, everyone)
    assert found(result.filtered) == pytest.approx(metrics(ranks))
    assert found(result.filtered_by_side["tail"]) == pytest.approx(metrics(ranks[:15]))
    assert found(result.filtered_by_side["head"]) == pytest.approx(metrics(ranks[15:]))


def test_without_loops_an_entity_is_no_candidate_for_its_own_neighbour() -> None:
    config = ModelConfig(dim=DIM)
    store, test = a_store(config), random_triples(15, 7)
    test[3, 2] = test[3, 0]
    loops = {(each, relation, each) for each in range(ENTITIES) for relation in range(RELATIONS)}
    everyone = list(range(ENTITIES))
    model = build_model(config)
    for known in ([], [store.triples, test, torch.tensor(sorted(loops)[::5])]):
        result = evaluate(store, model, test, known=known, loops=False, group=4)
        triples = {tuple(triple) for part in known for triple in part.tolist()}
        raw = metrics(naive_ranks(config, store, test, loops, everyone))
        assert found(result.raw) == pytest.approx(raw)
        if known:
            ranks = naive_ranks(config, store, test, triples | loops, everyone)
            assert found(result.filtered) == pytest.approx(metrics(ranks))
        assert 0.0 <= result.raw.auc <= 1.0
        assert "the node itself left out" in result.protocol


def test_a_known_triple_that_stands_twice_counts_once() -> None:
    config = ModelConfig(dim=DIM)
    store, test = a_store(config), random_triples(15, 7)
    once = evaluate(store, build_model(config), test, known=[store.triples, test])
    twice = evaluate(store, build_model(config), test, known=[store.triples, test] * 2)
    assert twice == once


def run(**options: Any) -> Evaluation:
    config = ModelConfig(dim=DIM)
    store = a_store(config, block_rows=options.pop("block_rows", 5))
    test = random_triples(30, 3)
    return evaluate(store, build_model(config), test, known=[store.triples, test], **options)


def test_neither_blocks_nor_groups_change_a_figure(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = run(block_rows=100)
    for block_rows, group, numbers in itertools.product((1, 7, 23), (1, 13), (1, 40)):
        monkeypatch.setattr(ranks, "_BLOCK_NUMBERS", numbers)
        assert run(block_rows=block_rows, group=group) == expected


class Read(MemoryStore):
    """Counts passes over the table, and rows that are read besides."""

    passes = others = 0

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        self.passes += 1
        return super().blocks()

    def rows(self, entities: Tensor) -> Tensor:
        self.others += len(entities)
        return super().rows(entities)


@pytest.mark.parametrize("group", [1, 7, 25, 45, 100])
@pytest.mark.parametrize("kind", ["all", "uniform"])
def test_a_group_of_triples_takes_one_pass_and_reads_its_ends_once(group: int, kind: Any) -> None:
    config = ModelConfig(dim=DIM, reciprocal=True)
    model, store = build_model(config), a_store(config)
    triples, candidates = random_triples(45, 3), Candidates(kind, 9)
    store.__class__ = Read
    evaluate(store, model, triples, candidates=candidates, reciprocal=True, group=group)
    assert isinstance(store, Read)
    # Both sides share the rows of their ends, and all groups the candidates that are drawn.
    expected = (-(-45 // group), 2 * 45) if kind == "all" else (0, 2 * 45 + 9)
    assert (store.passes, store.others) == expected


class Scattered(MemoryStore):
    """Blocks of entities that do not follow each other, as partitions have them."""

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        for first in range(4):
            entities = torch.arange(first, self.entity_count, 4)
            yield entities, self.entities[entities]


@pytest.mark.parametrize("kind", ["blocks", "scattered", "uniform"])
def test_the_answers_of_a_hub_are_never_in_memory_for_all_its_questions(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of a hub's links asks for one end and knows all others: their pairs are squares."""
    hub = torch.zeros(ENTITIES - 1, 3, dtype=torch.int64)
    hub[:, 2] = torch.arange(1, ENTITIES)
    config = ModelConfig(dim=DIM)
    model, store = build_model(config), a_store(config)
    candidates = Candidates("uniform", 9) if kind == "uniform" else Candidates()
    expected = evaluate(store, model, hub, known=[hub], candidates=candidates)
    if kind == "scattered":
        store.__class__ = Scattered
    seen, among = [], negatives.known_among

    def watched(*given: Any) -> Iterator[negatives.Pairs]:
        for found in among(*given):
            seen.append(len(found.rows))
            yield found

    monkeypatch.setattr(ranks, "known_among", watched)
    monkeypatch.setattr(ranks, "_BLOCK_NUMBERS", 30)
    assert evaluate(store, model, hub, known=[hub], candidates=candidates) == expected
    assert seen
    assert max(seen) <= 30


@pytest.mark.parametrize("kind", ["uniform", "degree"])
def test_sampled_candidates_count_every_time_they_are_drawn(kind: Any) -> None:
    config, test = ModelConfig(dim=DIM), random_triples(12, 5)
    store = a_store(config)
    candidates = Candidates(kind=kind, count=60, seed=4)
    result = evaluate(
        store,
        build_model(config),
        test,
        known=[store.triples],
        candidates=candidates,
        degree_sums=store.degrees.cumsum(0),
    )
    sampled = evaluation._sample(store, candidates, store.degrees.cumsum(0))
    drawn = sampled[0].tolist()
    assert len(drawn) == 60 > len(set(drawn))
    known = {tuple(triple) for triple in store.triples.tolist()}
    assert found(result.filtered) == pytest.approx(
        metrics(naive_ranks(config, store, test, known, drawn))
    )
    assert found(result.raw) == pytest.approx(
        metrics(naive_ranks(config, store, test, set(), drawn))
    )


def test_candidates_are_drawn_by_degree() -> None:
    store = MemoryStore(torch.tensor([[1, 0, 4], [4, 0, 4], [4, 0, 2]]), 6, 1)
    store.entities = torch.zeros(6, DIM)
    sampled = evaluation._sample(store, Candidates("degree", 6000), store.degrees.cumsum(0))
    counts = torch.bincount(sampled[0], minlength=6).tolist()
    assert counts == pytest.approx([0, 1000, 1000, 0, 4000, 0], abs=150)


@pytest.mark.parametrize("kind", ["dot", "distmult", "complex", "simple", "transe", "rotate"])
@pytest.mark.parametrize("norm", [1, 2])
def test_a_model_that_says_the_same_of_all_ranks_in_the_middle(kind: ModelName, norm: Any) -> None:
    """In float32, where rounding would otherwise decide."""
    config = ModelConfig(kind=kind, dim=DIM, norm=norm)
    row = torch.randn(DIM, generator=torch.Generator().manual_seed(1))
    for rows in (torch.zeros(ENTITIES, DIM), row.repeat(ENTITIES, 1)):
        store = a_store(config, rows=rows)
        result = evaluate(store, build_model(config), store.triples)
        assert result.raw.mean_rank == (ENTITIES + 1) / 2
        assert result.raw.auc == pytest.approx(0.5)


def test_a_perfect_model_ranks_first() -> None:
    config = ModelConfig(kind="dot", dim=ENTITIES)
    store = MemoryStore(torch.tensor([[i, 0, i] for i in range(ENTITIES)]), ENTITIES, 1)
    store.entities, store.relations = torch.eye(ENTITIES), torch.empty(1, 0)
    result = evaluate(store, build_model(config), store.triples, known=[store.triples])
    assert found(result.filtered) == [1.0] * 5
    assert result.raw.auc == 1.0


def test_the_protocol_comes_with_the_figures() -> None:
    protocol = run().protocol
    every = "30 triples, heads and tails, among all 23 entities; filtered and raw"
    assert protocol.startswith(every)
    sampled = run(candidates=Candidates("uniform", 50, 9)).protocol
    assert "among 50 entities drawn uniformly (seed 9)" in sampled
    alone = evaluate(
        a_store(ModelConfig(dim=DIM)), build_model(ModelConfig(dim=DIM)), random_triples(3, 1)
    )
    assert "other true answers count as wrong" in alone.protocol
    assert alone.filtered is None
    assert alone.mrr == alone.raw.mrr


def test_an_embedding_that_is_not_finite_is_named() -> None:
    config = ModelConfig(dim=DIM)
    store = a_store(config)
    test = store.triples[:5]
    unused = next(
        entity for entity in range(ENTITIES) if entity not in test[:, [0, 2]].flatten().tolist()
    )
    store.entities[unused, 3] = torch.nan
    with pytest.raises(InvalidError, match=f"entity {unused}: its embedding is not finite"):
        evaluate(store, build_model(config), test)
    store.entities[int(test[0, 0])] = torch.inf
    with pytest.raises(InvalidError, match="its score is not finite"):
        evaluate(store, build_model(config), test)


def test_nothing_to_rank_and_entities_out_of_range_are_refused() -> None:
    config = ModelConfig(dim=DIM)
    store, model = a_store(config), build_model(config)
    with pytest.raises(InvalidError, match="at least one triple"):
        evaluate(store, model, torch.empty(0, 3, dtype=torch.int64))
    with pytest.raises(InvalidError, match="tail 99"):
        evaluate(store, model, torch.tensor([[0, 0, 99]]))
    with pytest.raises(InvalidError, match="needs the degrees"):
        evaluate(store, model, store.triples, candidates=Candidates("degree"))


def test_a_model_of_ones_own_is_ranked_as_the_built_in_one() -> None:
    config = ModelConfig(kind="distmult", dim=DIM)
    store = a_store(config)
    own = CustomModel(lambda h, r, t: (h * r * t).sum(-1), block_numbers=999)
    expected = evaluate(store, build_model(config), store.triples, known=[store.triples])
    assert evaluate(store, own, store.triples, known=[store.triples]) == expected


@pytest.mark.parametrize("kind", ["distmult", "complex"])
def test_raw_figures_of_tails_are_those_of_pytorch_geometric(kind: ModelName) -> None:
    from torch_geometric.nn import kge

    config = ModelConfig(kind=kind, dim=DIM)
    store = a_store(config)
    if kind == "distmult":
        theirs: Any = kge.DistMult(ENTITIES, RELATIONS, DIM)
        theirs.node_emb.weight.data = store.entities
        theirs.rel_emb.weight.data = store.relations
    else:
        theirs = kge.ComplEx(ENTITIES, RELATIONS, DIM // 2)
        halves = store.entities.chunk(2, dim=1), store.relations.chunk(2, dim=1)
        (
            (theirs.node_emb.weight.data, theirs.node_emb_im.weight.data),
            (theirs.rel_emb.weight.data, theirs.rel_emb_im.weight.data),
        ) = halves
    heads, relations, tails = random_triples(25, 11).unbind(1)
    _, mrr, hits = theirs.test(heads, relations, tails, batch_size=10, k=3, log=False)
    result = evaluate(store, build_model(config), torch.stack([heads, relations, tails], 1))
    assert result.raw_by_side["tail"].mrr == pytest.approx(mrr, rel=1e-6)
    assert result.raw_by_side["tail"].hits_at_3 == pytest.approx(hits)
