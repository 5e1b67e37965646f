"""What Python and the core tell each other arrives as it was."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from outercore import _core
from outercore.data.far import FarSegment

ORDER = {"kind": "beta", "partitions": 6, "slots": 3, "mode": "in_place", "seed": 0}
PLAN: dict[str, Any] = {
    "nodes": 1000,
    "row_bytes": 8,
    "partition_bytes": None,
    "edges": {"even": 10_000},
    "seconds_per_edge": 1e-7,
    "read_bandwidth": 1e9,
    "write_bandwidth": 1e9,
    "walks": {},
}


def test_numbers_keep_all_their_bits(tmp_path: Path) -> None:
    options = {
        "nodes": 50,
        "degree": 2,
        "features": 2,
        "classes": 2,
        "seed": 2**64 - 1,
        "homophily": 0.1 + 0.2,
        "noise": float(np.nextafter(1.0, 2.0)),
        "memory": 64 << 20,
        "splits": [0.5, 0.25, 0.25],
    }
    _core.generate_planted(tmp_path / "graph", options, lambda *_: None)
    kept = _core.DataSet(tmp_path / "graph").manifest()["provenance"]["options"]
    assert kept == options
    assert all(type(kept[name]) is type(value) for name, value in options.items())


@pytest.mark.parametrize(
    ("seed", "shown"),
    [(2**64, "1.8446744073709552e[+]?19"), (-1, "-1"), (True, "true"), (1.5, "1.5")],
)
def test_what_is_no_whole_number_is_refused(seed: Any, shown: str) -> None:
    expected = f"order of partitions: expected a whole number, 0 or more, found `{shown}`"
    with pytest.raises(oc.InvalidError, match=expected):
        _core.partition_order({**ORDER, "seed": seed})


def test_numbers_of_numpy_and_pytorch_are_numbers() -> None:
    plain = _core.partition_order(ORDER)
    for kind in (np.int64, np.uint8, np.array, torch.tensor):
        assert _core.partition_order({**ORDER, "partitions": kind(6), "slots": kind(3)}) == plain


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, np.float32("nan"), 10**400])
def test_a_number_that_is_not_finite_is_refused(value: float) -> None:
    order = _core.partition_order(ORDER)["order"]
    with pytest.raises(oc.InvalidError, match="plan of an order: expected a finite number, found"):
        _core.plan_order(order, {**PLAN, "read_bandwidth": value})


def test_a_result_that_is_not_finite_is_none() -> None:
    order = _core.partition_order(ORDER)["order"]
    plan = _core.plan_order(order, {**PLAN, "row_bytes": 2**40, "write_bandwidth": 1e-300})
    assert plan["swap_seconds"] is None


def test_keys_come_in_the_order_of_the_fields() -> None:
    assert list(_core.partition_order(ORDER)) == ["order", "facts"]
    plan = _core.plan_order(_core.partition_order(ORDER)["order"], PLAN)
    assert list(plan)[:4] == ["kind", "partitions", "slots", "mode"]


def test_what_is_no_plain_value_is_refused() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value, text in [
        (object(), "expected a text, a number or a list of them, found <object"),
        ({1: 2}, "expected a text, a number or a list of them, found 1"),
        (np.zeros(2), r"expected a text, a number or a list of them, found array"),
        (b"beta", "expected a text, a number or a list of them, found b'beta'"),
        (endless, "nested too deeply"),
        ("\udc80", "surrogates not allowed"),
    ]:
        with pytest.raises(oc.InvalidError, match=f"order of partitions: .*{text}"):
            _core.partition_order({**ORDER, "kind": value})


def test_lists_and_tuples_are_lists() -> None:
    segment = {"group": 3, "bytes": 40, "reads": 7, "transferable": False}
    for segments in ([segment], (segment,)):
        assert _core.add_transferable_flag(segments, 1.0) == [True]
    assert oc.far.add_transferable_flag([FarSegment(3, 40, 7)], 1.0)[0].transferable
