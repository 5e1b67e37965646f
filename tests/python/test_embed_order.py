"""Orders of partitions from Python: the same as the core's, and refusals that help."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise

import pytest

import outercore as oc
from outercore.embedding.tables.order import (
    ORDER_KINDS,
    BufferState,
    PartitionOrder,
    partition_order,
)
from outercore.errors import InvalidError

PLAN = {
    "nodes": 12_000,
    "row_bytes": 800,
    "seconds_per_edge": 1e-5,
    "read_bandwidth": 1e9,
    "write_bandwidth": 5e8,
}


def check(order: PartitionOrder) -> None:
    """Every bucket once, its partitions there; one partition swapped at a time."""
    trained = [bucket for state in order.states for bucket in state.buckets]
    grid = {(a, b) for a in range(order.partitions) for b in range(order.partitions)}
    assert len(trained) == len(grid)
    assert set(trained) == grid
    for state in order.states:
        assert all({a, b} <= set(state.resident) for a, b in state.buckets)
    for before, after in pairwise(order.states):
        replaced = [
            after.loaded if p == before_swap else p
            for p, before_swap in zip(
                before.resident, [after.evicted] * len(before.resident), strict=True
            )
        ]
        assert tuple(replaced) == after.resident
        assert after.loaded not in before.resident
        assert all(after.evicted in bucket for bucket in before.before_swap)
        assert not any(after.evicted in bucket for bucket in before.during_swap)


@pytest.mark.parametrize("kind", ORDER_KINDS)
@pytest.mark.parametrize("spare", [False, True])
def test_every_order_trains_every_bucket_once_both_ways(kind: str, spare: bool) -> None:
    partitions, resident = (16, 4) if kind == "cover" else (11, 3)
    order = partition_order(
        kind, partitions=partitions, slots=resident + spare, spare=spare, work=100_000
    )
    check(order)
    back = order.reversed()
    check(back)
    assert back.states[0].resident == order.states[-1].resident
    assert back.reversed() == order
    assert {len(state.resident) for state in order.states} == {resident}


def test_three_slots_take_the_fewest_states_there_are() -> None:
    order = oc.partition_order("optimal", partitions=12, slots=3)
    assert len(order) == 33
    assert (order.swaps, order.prefetchable, order.loads) == (32, 32, 35)
    assert (order.evicts_last_loaded, order.nothing_new_stays) == (0, 0)
    assert order.states[0] == BufferState(
        (0, 1, 2), None, None, order.states[0].before_swap, order.states[0].during_swap
    )


def test_an_order_is_the_same_again_and_another_by_another_seed() -> None:
    first, again, other = (partition_order(partitions=12, slots=3, seed=seed) for seed in (7, 7, 8))
    assert first == again
    assert first != other


def test_a_plan_says_what_an_epoch_costs() -> None:
    order = partition_order("legend", partitions=12, slots=3)
    plan = order.plan(edges=1_440_000, **PLAN)
    assert plan.partition_bytes == 800_000
    assert (plan.states, plan.least_states) == (36, 33)
    assert plan.bytes_read == plan.bytes_written == 38 * 800_000
    assert plan.bytes_between == 35 * 800_000
    assert plan.compute_seconds == pytest.approx(14.4)
    assert plan.swap_seconds == pytest.approx(35 * 0.0024)
    # Nothing can be trained during four swaps, all others are hidden.
    assert plan.hidden == plan.prefetchable == 31
    assert plan.stall_seconds == pytest.approx(4 * 0.0024)
    assert plan.epoch_seconds == pytest.approx(14.4 + 4 * 0.0024)
    assert plan.hides


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "hilbert", "partitions": 4, "slots": 3}, "`hilbert` is not an order"),
        ({"kind": "optimal", "partitions": 4, "slots": 1}, "1 slots, expected at least 2"),
        ({"kind": "legend", "partitions": 9, "slots": 4}, "4 partitions in memory, expected 3"),
        ({"kind": "cover", "partitions": 12, "slots": 4}, "hint: choose 16 or 64"),
        ({"kind": "beta", "partitions": 0, "slots": 3}, "found 0"),
        ({"kind": "beta", "partitions": -1, "slots": 3}, "partitions: expected 0 to .*, found -1"),
        (
            {"kind": "beta", "partitions": 2.5, "slots": 3},
            "partitions: expected a whole number, found 2.5",
        ),
    ],
)
def test_impossible_orders_are_refused(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        partition_order(**arguments)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"read_bandwidth": 0.0}, "read bandwidth is 0"),
        ({"write_bandwidth": float("nan")}, "write bandwidth is nan"),
        ({"edges": -1}, "edges: expected 0 to 9223372036854775807, found -1"),
        ({"nodes": 0}, "expected nodes"),
    ],
)
def test_plans_of_nothing_sensible_are_refused(changed: dict[str, object], message: str) -> None:
    order = partition_order("beta", partitions=4, slots=3)
    with pytest.raises(InvalidError, match=message):
        order.plan(**{"edges": 1000, **PLAN, **changed})


def test_orders_need_no_pytorch() -> None:
    code = (
        "import sys; sys.modules['torch'] = None; import outercore as oc;"
        "print(len(oc.partition_order('beta', partitions=6, slots=3)))"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "8"
