"""Negatives: who is drawn how often, and who does not count."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some
from torch import Tensor

from outercore import _core
from outercore.embedding.config import Correction, EmbedConfig, NegativesConfig
from outercore.embedding.gradients.chunk import Side
from outercore.embedding.gradients.negatives import (
    COLUMNS,
    Negatives,
    PoolNegatives,
    known_among,
    known_answers,
    occurrences,
    population,
    repeat_ranges,
)
from outercore.embedding.tables.store import Pool
from outercore.errors import InvalidError


def drawn(
    config: NegativesConfig,
    ranges: list[tuple[int, int]],
    degrees: Tensor | None = None,
    shares: list[float] | None = None,
    seed: int = 0,
) -> Negatives:
    """What is drawn for a triple whose answers are in all of the ranges."""
    first = ranges[0][0]
    nothing = torch.empty(0)
    pairs = None if shares is None else [(0, number) for number in range(len(ranges))]
    pool = Pool(0, torch.tensor([[first, 0, first]]), nothing, nothing, ranges, degrees=degrees)
    pool = replace(pool, pairs=pairs, shares=shares)
    negatives = PoolNegatives(config, pool, 1000, weighs=False)
    [one] = negatives.draw(torch.tensor([0]), (seed, 0, 0, 0))["tail"]
    [(_, found)] = one.apart()
    return found


def _draws(times: int, rows: int, *arguments: Any, **options: Any) -> torch.Tensor:
    counts = torch.zeros(rows, dtype=torch.int64)
    for seed in range(times):
        found = drawn(*arguments, **options, seed=seed)
        counts += torch.bincount(found.rows, minlength=rows)
    return counts


def test_uniform_draws_come_from_the_ranges_only_and_evenly() -> None:
    counts = _draws(40, 60, NegativesConfig(count=500), [(40, 50), (10, 20)])
    inside = torch.cat([counts[10:20], counts[40:50]])
    assert int(counts.sum()) == int(inside.sum()) == 20_000
    assert bool(((inside - 1000).abs() < 5 * 1000**0.5).all())


def test_draws_by_degree_are_in_proportion_to_it() -> None:
    degrees = torch.tensor([9, 0, 1, 4, 0, 2])
    config = NegativesConfig(count=400, degree_share=0.5, degree_power=0.5)
    counts = _draws(50, 6, config, [(0, 4), (5, 6)], degrees)
    roots = torch.tensor([3.0, 0.0, 1.0, 2.0, 0.0, 2.0**0.5])
    expected = 20_000 * (0.5 * roots / roots.sum() + 0.1)
    expected[4] = 0.0
    assert counts[4] == 0
    assert bool(((counts - expected).abs() < 5 * expected.clamp_min(1).sqrt()).all())


def test_the_correction_makes_the_sum_over_negatives_an_estimate_of_the_sum_over_all() -> None:
    degrees = torch.arange(1, 51)
    values = torch.rand(50, generator=torch.Generator().manual_seed(0)).double()
    config = NegativesConfig(count=200, degree_share=0.3, correction="frequency")
    estimates = []
    for seed in range(200):
        found = drawn(config, [(0, 50)], degrees, seed=seed)
        assert found.bias is not None
        estimates.append(float((values[found.rows] * found.bias.double().exp()).sum()))
    mean = torch.tensor(estimates).mean()
    torch.testing.assert_close(float(mean), float(values.sum()), rtol=0.02, atol=0)


def test_all_entities_are_negatives_in_order() -> None:
    found = drawn(NegativesConfig(kind="all"), [(5, 8), (0, 2)])
    assert found.rows.tolist() == [0, 1, 5, 6, 7]


def test_rows_ascend_and_keep_their_bias() -> None:
    degrees = torch.arange(10) + 1
    config = NegativesConfig(count=300, degree_share=0.5, correction="frequency")
    found = drawn(config, [(5, 10), (0, 5)], degrees, seed=1)
    assert found.bias is not None
    assert bool((found.rows[1:] >= found.rows[:-1]).all())
    for row in range(10):
        expected = 150 / 10 + 150 * (row + 1) / 55
        torch.testing.assert_close(
            found.bias[found.rows == row].exp() * expected,
            torch.ones(int((found.rows == row).sum())),
        )


def test_no_entity_and_unknown_degrees_are_refused() -> None:
    with pytest.raises(InvalidError, match="at least one entity"):
        population(NegativesConfig(), [(3, 3)])
    by_degree = NegativesConfig(degree_share=1.0)
    with pytest.raises(InvalidError, match="knows no degrees"):
        population(by_degree, [(0, 3)])


def test_draws_by_degree_are_even_where_no_entity_has_a_triple() -> None:
    config = NegativesConfig(count=500, degree_share=1.0)
    counts = _draws(40, 7, config, [(0, 4)], torch.tensor([0, 0, 0, 0, 7, 7, 7]))
    assert bool(((counts[:4] - 5000).abs() < 5 * 5000**0.5).all())


triples_of_few = some.lists(
    some.tuples(some.integers(0, 5), some.integers(0, 2), some.integers(0, 5)), max_size=40
)


@settings(max_examples=200, deadline=None)
@given(
    known=triples_of_few,
    asked=triples_of_few,
    candidates=some.lists(some.integers(0, 7), max_size=12),
    together=some.sampled_from([1, 3, 1 << 16]),
)
def test_known_answers_among_candidates_are_found_some_at_a_time(
    known: list[tuple[int, int, int]],
    asked: list[tuple[int, int, int]],
    candidates: list[int],
    together: int,
) -> None:
    candidates.sort()
    table, questions = (torch.tensor(rows).long().reshape(-1, 3) for rows in (known, asked))
    answers = known_answers(table)
    for side, (anchor, relation, target) in COLUMNS.items():
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("outercore.embedding.gradients.negatives._TOGETHER", together)
            pieces = list(known_among(answers[side], questions, torch.tensor(candidates).long()))
        assert all(len(piece.rows) < together + len(candidates) for piece in pieces)
        found = [pair for piece in pieces for pair in zip(*map(Tensor.tolist, piece), strict=True)]
        triples = {(row[anchor], row[relation], row[target]) for row in known}
        assert found == [
            (row, column)
            for row, triple in enumerate(asked)
            for column, candidate in enumerate(candidates)
            if (triple[anchor], triple[relation], candidate) in triples
        ]


@settings(max_examples=100, deadline=None)
@given(
    candidates=some.lists(some.integers(0, 8)),
    targets=some.lists(some.tuples(some.integers(0, 4), some.integers(0, 9))),
)
def test_occurrences_are_all_places_of_each_target(
    candidates: list[int], targets: list[tuple[int, int]]
) -> None:
    candidates, targets = sorted(candidates), sorted(targets)
    pairs = torch.tensor(targets, dtype=torch.int64).reshape(-1, 2)
    found = occurrences(torch.tensor(candidates, dtype=torch.int64), *pairs.unbind(1))
    expected = [
        (row, place)
        for row, target in targets
        for place, candidate in enumerate(candidates)
        if candidate == target
    ]
    assert list(zip(found.rows.tolist(), found.columns.tolist(), strict=True)) == expected


def test_ranges_are_repeated_with_their_offsets() -> None:
    owners, offsets = repeat_ranges(torch.tensor([2, 0, 3]))
    assert owners.tolist() == [0, 0, 2, 2, 2]
    assert offsets.tolist() == [0, 1, 0, 1, 2]


SIDES: tuple[Side, ...] = ("tail", "head")
AT = (0, 0, 0, 0)


def seen(negatives: PoolNegatives, places: Tensor, side: Side) -> dict[int, Negatives]:
    """By place of a triple: the negatives that it is compared with."""
    return {
        place: one
        for chunk in negatives.draw(places, AT)[side]
        for some, one in chunk.apart()
        for place in some.tolist()
    }


def test_negatives_are_entities_that_the_pool_could_have_as_answers() -> None:
    # Three partitions of ten rows in slots of twelve; two lie the other way round.
    ranges = [(12, 22), (0, 10), (24, 34)]
    triples = torch.tensor([[13, 0, 5], [3, 0, 25], [26, 0, 14], [14, 0, 15], [21, 1, 9]])
    nothing = torch.empty(0)
    pairs = [(0, 1), (1, 2), (2, 0), (0, 0)]
    pool = Pool(0, triples, nothing, nothing, ranges, pairs=pairs)
    negatives = PoolNegatives(NegativesConfig(kind="all"), pool, 1000, weighs=True)

    def drawn(side: Side) -> dict[int, list[int]]:
        found = seen(negatives, torch.tensor([4, 0, 1, 2, 3]), side)
        return {place: one.rows.tolist() for place, one in found.items()}

    first, second, third = (list(range(*ranges[number])) for number in range(3))
    both = second + first
    assert drawn("tail") == {0: both, 1: third, 2: first, 3: both, 4: both}
    assert drawn("head") == {
        0: first,
        1: second,
        2: [*first, *third],
        3: [*first, *third],
        4: first,
    }
    whole = PoolNegatives(NegativesConfig(kind="all"), replace(pool, pairs=None), 1000, weighs=True)
    for side in SIDES:
        [chunk] = whole.draw(torch.arange(5), AT)[side]
        assert chunk.places.tolist() == [0, 1, 2, 3, 4]
        assert chunk.kinds is None
        assert chunk.rows.tolist() == second + first + third


def test_a_range_that_no_bucket_has_is_the_anchors_of_no_triple() -> None:
    pool = Pool(0, torch.tensor([[0, 0, 1]]), *[torch.empty(0)] * 2, [(0, 2), (2, 4)])
    negatives = PoolNegatives(
        NegativesConfig(kind="all"), replace(pool, pairs=[(0, 0)]), 1000, weighs=True
    )
    for side in SIDES:
        assert seen(negatives, torch.tensor([0]), side)[0].rows.tolist() == [0, 1]


def test_entities_of_buckets_that_a_pool_has_more_of_are_drawn_more_often() -> None:
    ranges, shares = [(40, 50), (10, 20), (0, 5)], [1.0, 0.25, 0.5]
    counts = _draws(60, 60, NegativesConfig(count=500), ranges, shares=shares).double()
    expected = torch.zeros(60, dtype=torch.float64)
    for (start, stop), share in zip(ranges, shares, strict=True):
        expected[start:stop] = 30_000 * share / (10 + 2.5 + 2.5)
    assert bool(((counts - expected).abs() <= 5 * expected.sqrt()).all())


def sides_of(logs: Any, owners: Any = ((0,), (0,))) -> tuple[Any, ...]:
    """Two ranges, of which the first comes later, for the anchors of all rows."""
    shared = ([(40, 42), (10, 13)], None, None, logs)
    return np.array([0]), np.array(owners, np.int64), [shared]


def test_the_core_is_given_arrays_of_the_right_shapes_only() -> None:
    triples, places = np.array([[0, 0, 9], [5, 0, 1]], np.int64), np.array([1, 0], np.int64)
    logs = np.array([[0.0, -1.0], [2.0, 0.5]], np.float32)
    options: dict[str, Any] = {"every": True, "biased": False}
    good = sides_of(logs)
    made = _core.PoolComparisons(good, good, 10, (0, 0), **options)
    (_, sizes, rows, bias, kinds), _ = made.ask(triples, places, AT, 1)
    assert sizes == [(2, 5, 2)]
    # Ranges stand in the order of their rows, and what is said of each with them.
    assert rows.tolist() == [10, 11, 12, 40, 41]
    assert bias is not None
    assert bias.tolist() == [-1.0, -1.0, -1.0, 0.0, 0.0, 0.5, 0.5, 0.5, 2.0, 2.0]
    assert kinds is not None
    assert kinds.tolist() == [0, 0]
    # Of three ranges; for one range; owners of two.
    for bad in (np.zeros((2, 3), np.float32), np.zeros((4, 1), np.float32)):
        with pytest.raises(InvalidError, match="of 2 ranges"):
            _core.PoolComparisons(sides_of(bad), good, 10, (0, 0), **options)
    with pytest.raises(InvalidError, match="of 1 ranges"):
        _core.PoolComparisons(sides_of(logs, [[0, 0], [0, 0]]), good, 10, (0, 0), **options)
    for wrong in (np.array([2]), np.array([-1])):
        with pytest.raises(InvalidError, match="no triple"):
            made.ask(triples, wrong, AT, 1)
    with pytest.raises(InvalidError, match="one after the other"):
        made.ask(np.asfortranarray(triples), places, AT, 1)
    with pytest.raises(InvalidError, match=r"expected \[triples, 3\]"):
        made.ask(np.zeros((3, 2), np.int64), places, AT, 1)


def shared_pool() -> Pool:
    """A bucket of each pair of two partitions; of some the pool has more than of others."""
    return Pool(
        number=0,
        triples=torch.tensor([[0, 0, 2], [2, 0, 0], [2, 0, 2]]),
        entities=torch.zeros(4, 1),
        entity_state=torch.zeros(4, 1),
        ranges=[(0, 2), (2, 4)],
        pairs=[(0, 0), (0, 1), (1, 0), (1, 1)],
        shares=[0.1, 0.2, 0.2, 0.1],
    )


def test_a_triple_s_negatives_have_the_shares_of_its_anchor_s_buckets() -> None:
    pool = shared_pool()
    negatives = PoolNegatives(NegativesConfig(kind="all"), pool, 1000, weighs=True)
    found = {}
    for side in SIDES:
        # One draw for all of them, which each sees in its own way.
        [chunk] = negatives.draw(torch.arange(3), AT)[side]
        assert (len(chunk.places), len(chunk.rows)) == (3, 4)
        assert chunk.bias is not None
        assert len(chunk.bias) == 2
        for place, one in seen(negatives, torch.arange(3), side).items():
            assert one.bias is not None
            found[side, place] = one.bias.exp().tolist()
    low, high = pytest.approx([0.5, 0.5, 1.0, 1.0]), pytest.approx([1.0, 1.0, 0.5, 0.5])
    assert found["tail", 0] == low
    assert found["tail", 1] == found["tail", 2] == high
    assert found["head", 0] == found["head", 2] == high
    assert found["head", 1] == low
    # Anchors whose buckets are alike have a bias as the others of their pool have one.
    mixed = replace(pool, shares=[0.1, 0.1, 0.2, 0.1])
    negatives = PoolNegatives(NegativesConfig(kind="all"), mixed, 1000, weighs=True)
    for one in seen(negatives, torch.arange(3), "tail").values():
        assert one.bias is not None
    pool = replace(pool, shares=None)
    whole = PoolNegatives(NegativesConfig(kind="all"), pool, 1000, weighs=True)
    assert seen(whole, torch.arange(3), "tail")[0].bias is None


@pytest.mark.parametrize("weighs", [False, True])
@pytest.mark.parametrize(
    ("correction", "by_degree"), [("none", 0.0), ("frequency", 0.0), ("frequency", 0.4)]
)
def test_a_shared_draw_estimates_what_draws_of_one_s_own_do(
    weighs: bool, correction: Correction, by_degree: float
) -> None:
    ranges, shares = [(0, 10), (10, 25)], [0.1, 0.4, 0.4, 0.2]
    pool = replace(shared_pool(), ranges=ranges, shares=shares, degrees=torch.arange(1, 26))
    pool = replace(pool, triples=torch.tensor([[3, 0, 12], [14, 0, 4]]))
    config = NegativesConfig(count=200, correction=correction, degree_share=by_degree)
    negatives = PoolNegatives(config, pool, 1000, weighs=weighs)
    values = torch.rand(25, generator=torch.Generator().manual_seed(0)).double()
    sums = torch.zeros(2, dtype=torch.float64)
    for seed in range(300):
        for one in negatives.draw(torch.arange(2), (seed, 0, 0, 0))["tail"]:
            assert len(one.places) == (2 if weighs else 1)
            for places, seen_so in one.apart():
                assert seen_so.bias is not None
                sums[places] += (values[seen_so.rows] * seen_so.bias.double().exp()).sum()
    by_anchor = torch.tensor([[0.25, 1.0], [1.0, 0.5]], dtype=torch.float64)
    weights = by_anchor[:, [0] * 10 + [1] * 15]
    exact = weights @ values
    if correction == "none":
        exact = 200 * exact / weights.sum(1)
    assert bool(((sums / 300 / exact - 1).abs() < 0.02).all())


def test_losses_that_sum_no_exponentials_have_draws_of_their_own() -> None:
    def weighs(loss: str, **negatives: object) -> bool:
        return EmbedConfig.from_dict({"loss": {"kind": loss}, "negatives": negatives}).bias_weighs

    for loss in ("softmax", "contrastive"):
        assert weighs(loss)
        assert weighs(loss, correction="frequency", degree_share=0.5)
        assert not weighs(loss, degree_share=0.5)
    for loss in ("logistic", "margin", "self-adversarial"):
        assert not weighs(loss)
        assert not weighs(loss, correction="frequency")
        assert weighs(loss, kind="all")


def test_pieces_of_a_batch_keep_the_kinds_of_their_triples() -> None:
    places = torch.tensor([2, 0, 1])
    config = NegativesConfig(kind="all")
    whole, pieces = (
        PoolNegatives(config, shared_pool(), size, weighs=True).draw(places, AT)["tail"]
        for size in (3, 2)
    )
    assert [len(chunk.places) for chunk in pieces] == [2, 1]
    kinds = [chunk.kinds for chunk in (*whole, *pieces) if chunk.kinds is not None]
    assert len(kinds) == 3
    assert kinds[0].tolist() == [*kinds[1].tolist(), *kinds[2].tolist()]
