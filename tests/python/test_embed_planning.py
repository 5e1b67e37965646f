"""What an embedding keeps in memory, said beforehand; and the known answers that matter."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from outercore import _core
from outercore.data.triples import Triples
from outercore.embedding.config import EmbedConfig, EvaluationConfig, NegativesConfig, Swap
from outercore.embedding.data.parts import EmbedData
from outercore.embedding.forecast import compare_orders
from outercore.embedding.tables.order import Walks
from outercore.embedding.tables.placement import (
    Placement,
    Size,
    decide,
    order_of,
    quality_warning,
    resolved,
    row_bytes,
    walks_of,
)
from outercore.errors import BudgetError, InvalidError

MIB = 1 << 20
LARGE = Size(entities=1_000_000, relations=50, triples=8_000_000)


def config(memory: int, **budget: Any) -> EmbedConfig:
    return EmbedConfig.from_dict(
        {"model": {"dim": 64}, "budget": {"memory": str(memory), **budget}}
    )


def place(config: EmbedConfig, size: Size) -> Placement:
    return decide(config, size).placement


def parts_of(config: EmbedConfig, size: Size, **budget: Any) -> dict[str, int]:
    """What these numbers take, whatever the memory."""
    asked = replace(config.budget, memory="1TiB", **budget)
    return place(replace(config, budget=asked), size).parts


def in_memory(config: EmbedConfig, size: Size) -> dict[str, int]:
    return parts_of(config, size, partitions=1)


SIXTEEN: dict[str, Any] = {"partitions": 16, "slots": 4, "swap": "in-place"}


def least_of(size: Size, **budget: Any) -> int:
    with pytest.raises(BudgetError, match="needs at least") as caught:
        place(config(MIB, **budget), size)
    return int(str(caught.value).partition("which is ")[2].split()[0])


def test_what_fits_is_in_memory() -> None:
    placed = place(config(4096 * MIB), LARGE)
    assert placed.in_memory
    assert placed.needed <= placed.memory
    assert placed.parts["embeddings"] == 1_000_000 * 64 * 4
    assert placed.parts["embeddings"] + placed.parts["optimiser"] == 1_000_000 * 512


@pytest.mark.parametrize("memory", [100, 150, 200, 300, 400, 500, 700])
def test_what_does_not_fit_is_in_partitions_within_the_budget(memory: int) -> None:
    chosen = config(memory * MIB)
    placed = place(chosen, LARGE)
    assert not placed.in_memory
    assert 2 <= placed.slots < placed.partitions
    assert placed.needed <= memory * MIB
    assert placed.parts["slots"] >= placed.slots * row_bytes(chosen) * (
        LARGE.entities // placed.partitions
    )
    assert placed.parts["slots"] <= placed.for_partitions
    order = order_of(chosen, placed)
    assert (order.partitions, order.slots, order.spare) == (
        placed.partitions,
        placed.slots,
        placed.spare,
    )


def test_a_byte_below_the_least_is_refused_and_the_least_is_not() -> None:
    some = ({"partitions": 16, "slots": 4}, {"partitions": 1}, {"slots": 5})
    for budget in ({}, *some, {"swap": "spare-slot"}):
        least = least_of(LARGE, **budget)
        assert place(config(least, **budget), LARGE).needed <= least
        with pytest.raises(BudgetError, match=f"which is {least} bytes"):
            place(config(least - 1, **budget), LARGE)


def test_what_slots_need_is_said_where_everything_in_memory_needs_less() -> None:
    few = Size(entities=200, relations=4, triples=800)
    least = least_of(few, slots=3)
    assert least > least_of(few)
    assert place(config(least, slots=3), few).slots == 3


def test_partitions_and_slots_that_are_asked_for_are_taken() -> None:
    placed = place(config(1024 * MIB, partitions=16, slots=4, swap="in-place"), LARGE)
    assert (placed.partitions, placed.slots, placed.spare) == (16, 4, False)
    only_slots = place(config(1024 * MIB, slots=5), LARGE)
    assert only_slots.slots == 5
    assert not only_slots.in_memory


def test_two_slots_take_turns_with_training_unless_said_otherwise() -> None:
    two = {"partitions": 8, "slots": 2}
    for swap in ("auto", "in-turn"):
        chosen = config(1024 * MIB, **two, swap=swap)
        placed = place(chosen, LARGE)
        assert (placed.slots, placed.swap) == (2, "in-turn")
        assert walks_of(chosen, placed).in_turn
        assert resolved(chosen, placed).budget.swap == "in-turn"
    assert place(config(1024 * MIB, **two, swap="in-place"), LARGE).swap == "in-place"
    three = {"partitions": 8, "slots": 3, "swap": "in-turn"}
    assert place(config(1024 * MIB, **three), LARGE).swap == "in-turn"


def test_more_slots_take_turns_where_waiting_is_little_beside_training() -> None:
    chosen = config(1024 * MIB, partitions=8, slots=3)
    assert place(chosen, LARGE).swap == "in-turn"
    # A hundredth of the products, and as much to move.
    quick = replace(chosen, negatives=replace(chosen.negatives, count=10))
    assert place(quick, LARGE).swap in ("in-place", "spare-slot")
    for swap in ("in-place", "spare-slot"):
        assert place(config(1024 * MIB, partitions=8, slots=3, swap=swap), LARGE).swap == swap


def test_swaps_wait_where_triples_would_be_compared_with_few_entities_otherwise() -> None:
    # Moving takes a quarter of the time of training: too long, if not for quality.
    few = Size(entities=3_000_000, relations=50, triples=8_000_000)
    some, many = ({"partitions": 48, "slots": slots} for slots in (3, 8))
    assert place(config(1024 * MIB, **some), few).swap == "in-turn"
    assert place(config(1024 * MIB, **many), few).swap in ("in-place", "spare-slot")
    for swap in ("in-place", "spare-slot"):
        assert place(config(1024 * MIB, **some, swap=swap), few).swap == swap


def test_of_partitions_about_as_fast_the_fewest_with_enough_to_compare_are_taken() -> None:
    placed = [place(config(memory * MIB), LARGE) for memory in (150, 200, 300, 500)]
    assert [one.partitions for one in placed] == [32, 12, 6, 4]
    assert all(one.compared >= 0.1 for one in placed)


def test_with_known_answers_buckets_are_whole_and_so_are_their_draws() -> None:
    known = EmbedConfig.from_dict({"negatives": {"filter": "known"}})
    whole = EmbedConfig.from_dict({"negatives": {"filter": "known"}, "budget": {"spread": False}})
    ways: tuple[Swap, ...] = ("in-place", "in-turn", "spare-slot")
    for swap in ways:
        for chosen in (known, whole):
            budget = replace(chosen.budget, partitions=8, slots=4, swap=swap)
            assert place(replace(chosen, budget=budget), LARGE).negative_sets == 2


def test_triples_are_read_while_others_are_trained_as_far_as_the_device_can() -> None:
    chosen = EmbedConfig.from_dict(
        {
            "model": {"kind": "dot", "dim": 64},
            "negatives": {"count": 100},
            "budget": {"memory": "384MiB"},
        }
    )
    size = Size(1 << 20, 1, 1 << 23)
    placement = place(chosen, size)
    assert not placement.in_memory
    assert not placement.keeps_triples(size)
    for bandwidth, waits in ((1e9, False), (1e7, True)):
        rates = {"triples_per_second": 1e6, "read_bandwidth": bandwidth, "write_bandwidth": 1e9}
        for one in compare_orders(chosen, size, placement, rates)[0]:
            read = one["bytes_of_triples"] / bandwidth
            assert read > 0.2
            trained = one["compute_seconds"] + one["stall_seconds"]
            device = one["swap_seconds"] + read
            assert (device > trained) == waits
            assert one["epoch_seconds"] == pytest.approx(device if waits else trained)


def test_an_order_that_there_is_not_is_refused() -> None:
    for options, reason in (
        ({"partitions": 16, "slots": 5, "order": "legend"}, "5 partitions in memory, expected 3"),
        ({"slots": 5, "order": "legend"}, "5 partitions in memory, expected 3"),
        ({"partitions": 8, "slots": 4, "order": "cover"}, "hint: choose 16 or 64 partitions"),
        ({"partitions": 8, "slots": 2, "swap": "spare-slot"}, "2 slots, expected at least 3"),
        ({"partitions": 5, "slots": 9}, "hint: choose 5 `slots` at most"),
        ({"slots": 600}, "hint: choose 64 `slots` at most"),
        ({"slots": 4, "group": 512}, ", 512 parts each, in 4 slots"),
    ):
        with pytest.raises(InvalidError, match="there is no such order") as found:
            place(config(1024 * MIB, **options), LARGE)
        assert reason in str(found.value)
    placed = place(config(300 * MIB, order="legend"), LARGE)
    assert placed.slots - placed.spare == 3


def test_a_resolved_configuration_gives_the_same_placement_again() -> None:
    chosen = config(200 * MIB)
    placed = place(chosen, LARGE)
    again = resolved(chosen, placed)
    assert again.budget.partitions == placed.partitions

    def without_parts(one: Placement) -> tuple[int, int, bool]:
        return one.partitions, one.slots, one.spare

    assert without_parts(place(again, LARGE)) == without_parts(placed)


def test_ranked_triples_and_their_answers_are_counted() -> None:
    ranked = Size(LARGE.entities, LARGE.relations, LARGE.triples, held_out=100_000)
    more = least_of(ranked) - least_of(LARGE)
    # 40 bytes a triple and 64 its ranks, 16 an end, 4 an answer: at least the other triples of
    # both ends.
    assert more >= 100_000 * (40 + 64 + 2 * 16 + 4 * 2 * 16)
    # Once they are counted, so many: a hub's may be most of all triples.
    hubs = replace(ranked, answers=30_000_000)
    counted = least_of(hubs) - least_of(LARGE)
    assert counted == 100_000 * (40 + 64 + 2 * 16) + 4 * 30_000_000


def test_ranks_among_further_candidates_are_counted_with_these() -> None:
    ranked = replace(LARGE, held_out=100_000)
    plain = config(1024 * MIB)
    more = replace(plain, evaluation=EvaluationConfig(also=("all", "uniform"), count=500))
    parts, of_one = in_memory(more, ranked), in_memory(plain, ranked)
    assert parts["ranked triples"] - of_one["ranked triples"] == 2 * 64 * 100_000
    assert parts["candidates"] == 2 * 500 * (4 * 64 + 16)


def test_questions_have_the_memory_of_a_pool_in_training() -> None:
    placed = place(config(200 * MIB), LARGE)
    assert not placed.in_memory
    lent = placed.parts["triples in training"]
    assert lent > 0
    assert placed.for_evaluation == placed.parts["evaluation"] + lent
    whole = place(config(4096 * MIB), LARGE)
    assert whole.for_evaluation == whole.parts["evaluation"]


def test_candidates_by_degree_take_a_running_sum_of_each() -> None:
    plain = config(1024 * MIB)
    by_degree = replace(plain, evaluation=EvaluationConfig(also=("degree",)))
    ways: tuple[dict[str, Any], ...] = ({"partitions": 1}, SIXTEEN)
    for way in ways:
        found = parts_of(by_degree, LARGE, **way)
        assert found["degrees of candidates"] == 8 * LARGE.entities
        assert "degrees of candidates" not in parts_of(plain, LARGE, **way)


def test_known_negatives_take_a_flag_each_and_what_looks_for_them() -> None:
    own = EmbedConfig.from_dict({"optimiser": {"chunk_size": 300, "batch_size": 600}})
    rotate = replace(own, model=replace(own.model, kind="rotate"))
    filtered = NegativesConfig(filter="known")
    for chosen, of_pair in ((own, 1), (rotate, 33)):
        known = replace(chosen, negatives=filtered)
        parts = in_memory(known, LARGE)
        assert parts["known negatives"] == (14 << 20) + of_pair * 449 * 1000
        assert "known negatives" not in in_memory(chosen, LARGE)


def test_a_commit_has_another_copy_of_relations_in_partitions() -> None:
    plain, many = config(1024 * MIB), replace(LARGE, relations=200_000)
    parts = parts_of(plain, many, **SIXTEEN)
    assert parts["relations"] >= 4 * 64 * many.relations
    assert parts["a commit"] == parts["relations"]
    assert "a commit" not in in_memory(plain, many)


def test_degrees_are_counted_without_an_array_for_each_chunk() -> None:
    entities, rows = 100_000, 40
    triples = np.random.default_rng(2).integers(0, entities, (rows, 3))

    class InChunks(Triples):
        def chunks(self, rows: int = 1) -> Iterator[NDArray[np.int64]]:
            yield from np.array_split(triples, self.count)

    train = InChunks(Path("nowhere"), counted=rows, key="triples/train")
    expected = np.bincount(triples[:, [0, 2]].reshape(-1), minlength=entities)
    tracemalloc.start()
    found = EmbedData(entities, 1, {"train": train}).degrees()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert np.array_equal(found, expected)
    assert peak < 1.1 * found.nbytes


def test_few_triples_are_not_cut_into_many_buckets() -> None:
    few = Size(entities=1_000_000, relations=1, triples=20_000)
    placed = place(config(400 * MIB), few)
    assert not placed.in_memory
    pool = few.triples * (2 * placed.slots - 1) / placed.partitions**2
    assert pool >= 1000 == EmbedConfig().optimiser.batch_size
    # Nothing else fits here.
    assert place(config(100 * MIB), few).partitions > placed.partitions


def test_known_answers_are_found_among_all_triples() -> None:
    draws = np.random.default_rng(3)
    every = np.stack(
        [draws.integers(0, 40, 900), draws.integers(0, 3, 900), draws.integers(0, 40, 900)], axis=1
    )
    asked = every[::45]
    found = known_answers(asked, 40, 3, np.array_split(every, 7))
    questions = sorted({(head, relation) for head, relation, _ in asked.tolist()})
    assert found == {
        head * 3 + relation: sorted({t for h, r, t in every.tolist() if (h, r) == (head, relation)})
        for head, relation in questions
    }
    assert 0 < sum(map(len, found.values())) < 900
    assert known_answers(asked[:0], 40, 3, [every]) == {}
    assert known_answers(asked[:1], 40, 3, [every[:0]]) == {int(asked[0, 0] * 3 + asked[0, 1]): []}


def test_known_answers_of_a_hub_are_each_kept_once_across_pieces() -> None:
    random, entities = np.random.default_rng(4), 150_000
    triples = np.zeros((3 * entities, 3), np.int64)
    triples[:, 0] = random.choice([5, 7], len(triples), p=[0.9, 0.1])
    triples[:, 2] = random.integers(0, entities, len(triples))
    found = known_answers(np.array([[5, 0, 1], [6, 0, 1], [7, 0, 1]]), entities, 1, [triples] * 2)
    for hub in (5, 6, 7):
        assert found[hub] == np.unique(triples[triples[:, 0] == hub, 2]).tolist()


def test_known_answers_are_collected_without_a_second_copy() -> None:
    """In a process of its own, whose memory is that of the answers."""
    code = """
import numpy as np
from outercore import _core

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

asked = np.array([[0, 0, 1]])
chunk = np.tile(asked, (100_000, 1))
known = _core.KnownAnswers(asked, (0, 1, 2), 40, 3)
for _ in range(500):
    known.count(chunk)
assert known.counted == 50_000_000
before = status("VmRSS")
for _ in range(500):
    known.add(chunk)
known.finish()
print(status("VmHWM") - before, *(some.tolist() for some in known.of(asked)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    peak, found = done.stdout.split(maxsplit=1)
    assert found.strip() == "[0] [1]"
    # 4 bytes for each that was counted.
    assert int(peak) < 4 * 50_000_000 * 1.1


def known_answers(
    asked: NDArray[np.int64], entities: int, relations: int, chunks: list[NDArray[np.int64]]
) -> dict[int, list[int]]:
    """The answers by question."""
    known = _core.KnownAnswers(asked, (0, 1, 2), entities, relations)
    for chunk in chunks:
        known.count(chunk)
    assert known.counted <= sum(map(len, chunks))
    for chunk in chunks:
        known.add(chunk)
    known.finish()
    found: dict[int, list[int]] = {}
    for head, relation, tail in asked.tolist():
        questions, answers = known.of(np.array([[head, relation, tail]]))
        assert not questions.any()
        found[head * relations + relation] = answers.tolist()
    return found


def test_buckets_stay_whole_where_their_triples_are_the_filter() -> None:
    dense = Size(entities=50_000, relations=50, triples=8_000_000)
    budget = {"partitions": 16, "slots": 5, "swap": "spare-slot", "spread": True}
    chosen = config(500 * MIB, **budget)
    known = replace(chosen, negatives=NegativesConfig(filter="known"))
    assert walks_of(chosen, place(chosen, dense)) == Walks(16, spread=True, rename=True, group=8)
    assert walks_of(known, place(known, dense)) == Walks(1, rename=True, group=8)
    many = replace(known, budget=replace(known.budget, sweeps=4))
    with pytest.raises(InvalidError, match="sweeps: 4 with the filter `known`"):
        place(many, dense)


def test_sweeps_are_as_many_as_training_hides_or_as_asked() -> None:
    # Dense: computing takes long beside moving partitions.
    dense = Size(entities=50_000, relations=50, triples=8_000_000)
    budget = {"partitions": 16, "slots": 5, "swap": "spare-slot"}
    placed = place(config(300 * MIB, **budget), dense)
    assert placed.sweeps == 16
    chosen = resolved(config(300 * MIB, **budget), placed)
    assert chosen.budget.sweeps == 16
    assert place(chosen, dense).sweeps == 16
    # Sparse: one walk takes the device longer than computing.
    sparse = Size(entities=50_000_000, relations=50, triples=8_000_000)
    assert place(config(20_000 * MIB, **budget), sparse).sweeps == 1
    assert place(config(20_000 * MIB, **budget, sweeps=3), sparse).sweeps == 3
    # Batches would be small.
    few = Size(entities=50_000, relations=50, triples=80_000)
    assert place(config(300 * MIB, **budget), few).sweeps < 8
    assert place(config(4096 * MIB), LARGE).sweeps == 1


def test_partitions_have_as_many_parts_as_there_are_rows_for() -> None:
    def group(
        entities: int, partitions: int, dim: int = 128, triples: int = 400_000, **groups: Any
    ) -> int:
        budget = {"memory": "256MiB", "partitions": partitions, "slots": 4}
        budget |= groups.pop("budget", {})
        chosen = EmbedConfig.from_dict({"model": {"dim": dim}, "budget": budget, **groups})
        placed = place(chosen, Size(entities, relations=5, triples=triples))
        assert resolved(chosen, placed).budget.group == placed.group
        assert walks_of(chosen, placed).group == placed.group
        return placed.group

    # 64 parts, or 128 with triples between every two of them.
    assert [group(40_000, partitions) for partitions in (8, 16, 32, 64)] == [8, 8, 4, 2]
    few = [group(40_000, partitions, triples=200_000) for partitions in (8, 16, 32, 64)]
    assert few == [8, 4, 2, 1]
    # Parts are whole pages: rows of 300 numbers come 256 at a time.
    assert [group(entities, 8, dim=300) for entities in (8_192, 4_096, 2_048)] == [4, 2, 1]
    # A partition in one piece takes them, too.
    assert [group(entities, 8, dim=300) for entities in (14_541, 14_336)] == [8, 1]
    # What is padded to a MiB at most is soon moved, if there are entities in it.
    assert [group(entities, 8, dim=100) for entities in (2_048, 1_024, 512)] == [4, 4, 2]
    # As asked.
    assert group(40_000, 8, budget={"group": 3}) == 3
    # Parts that stay together are one; other losses have no bias for how often two meet, and
    # PyTorch would train what differs by it apart.
    assert group(40_000, 8, model={"kind": "custom", "dim": 128}) == 1
    assert group(40_000, 8, budget={"rename": False}) == 1
    assert group(40_000, 8, loss={"kind": "logistic"}) == 1
    assert group(40_000, 8, loss={"kind": "logistic"}, budget={"spread": False}) == 8


def test_parts_take_room_for_their_pages_and_buckets() -> None:
    size = Size(entities=4_096, relations=5, triples=400_000)

    def placed(group: int) -> Placement:
        budget = {"memory": "72MiB", "partitions": 8, "slots": 2, "group": group, "sweeps": 1}
        model = {"kind": "complex", "dim": 100}
        return place(EmbedConfig.from_dict({"model": model, "budget": budget}), size)

    one, two, eight = (placed(group) for group in (1, 2, 8))
    # 512 rows; twice 256; eight times 64 in 256 each.
    assert one.parts["slots"] == two.parts["slots"] == eight.parts["slots"] // 4
    # More is known of buckets, of which there are 64 times 64.
    assert one.parts["triples of a state"] < eight.parts["triples of a state"]


def test_triples_can_be_dealt_into_the_most_partitions() -> None:
    few = Size(entities=100_000, relations=5, triples=200_000)
    parts = parts_of(config(MIB), few, partitions=512, slots=2, swap="in-turn")
    # What the core asks for: a reader, and for each bucket its numbers and room for a triple.
    dealing = (512 << 10) + (56 + 16) * 512**2
    assert parts["slots"] + parts["triples of a state"] + parts["reads"] >= dealing


def test_groups_that_cannot_be_are_refused() -> None:
    with pytest.raises(InvalidError, match="group: 4 parts of partitions that keep their places"):
        EmbedConfig.from_dict({"budget": {"group": 4, "rename": False}})
    with pytest.raises(InvalidError, match=r"budget\.group"):
        EmbedConfig.from_dict({"budget": {"group": 513}})
    # More parts than entities, or than a table can have.
    tiny = Size(entities=20, relations=1, triples=300)
    with pytest.raises(InvalidError, match="4 partitions of 8 parts each: expected at most 20"):
        place(config(100 * MIB, partitions=4, slots=2, group=8), tiny)
    with pytest.raises(InvalidError, match="21 partitions: expected at most 20 parts of 20"):
        place(config(100 * MIB, partitions=21), tiny)
    with pytest.raises(
        InvalidError, match=r"512 partitions of 8 parts each: expected at most 512 .*, found 4,096"
    ):
        place(config(1024 * MIB, partitions=512, group=8), LARGE)
    # Without partitions asked for, what fits in memory does.
    assert place(config(100 * MIB, group=8), tiny).in_memory
    with pytest.raises(BudgetError, match="everything in memory"):
        place(config(MIB, group=8), tiny)


def test_walks_pay_for_what_moving_partitions_takes_of_the_cores() -> None:
    # R-MAT of scale 20: training hides the device's share of two walks, but not the cores'.
    graph = Size(entities=1 << 20, relations=1, triples=8_400_000)
    chosen = EmbedConfig.from_dict(
        {
            "model": {"kind": "dot", "dim": 64},
            "negatives": {"count": 100},
            "budget": {"memory": str(700 * MIB), "partitions": 16, "slots": 4},
        }
    )
    spare = replace(chosen, budget=replace(chosen.budget, swap="spare-slot"))
    assert place(spare, graph).sweeps == 1
    # Rows of half the bytes, and as much to compute.
    half = replace(spare.model, dim=32), replace(spare.negatives, count=200)
    assert place(replace(spare, model=half[0], negatives=half[1]), graph).sweeps == 2


def test_a_plan_warns_where_triples_are_compared_with_few_entities() -> None:
    size = Size(entities=17_050, relations=51, triples=185_584)

    def said(entities: int = 17_050, **budget: Any) -> str | None:
        some = replace(size, entities=entities)
        return quality_warning(some, place(config(1024 * MIB, **budget), some))

    assert said() is None
    for swap, share in (("spare-slot", "4.2%"), ("in-place", "4.2%"), ("in-turn", "6.2%")):
        warning = said(partitions=48, slots=3, swap=swap)
        assert warning is not None
        assert warning.startswith(f"warning: triples are compared with {share} of the entities")
        assert ("budget.swap=in-turn" in warning) == (swap != "in-turn")
    assert said(partitions=48, slots=6, swap="in-place") is None
    assert said(partitions=16, slots=3) is None
    # A quarter of few entities.
    warning = said(entities=2_034, partitions=16, slots=4, swap="in-turn")
    assert warning is not None
    assert "508" in warning
    assert "below 1,000 entities" in warning
