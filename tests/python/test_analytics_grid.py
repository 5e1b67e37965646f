"""`oc.grid` and `outercore grid`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from fakes import seal
from outercore import _core
from outercore.data import far
from outercore.errors import BudgetError, InvalidError


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    random = np.random.default_rng(2)
    source, target = random.integers(0, 100, (2, 600))
    weight = random.random(600)
    naive.write(tmp_path / "graph", 120, source, target, undirected=True, weight=weight)
    return tmp_path / "graph"


def test_grid_explains_itself_with_an_example(outcome: Any) -> None:
    code, out, _ = outcome("grid", "--help")
    assert code == 0
    assert "outercore grid " in out.split("Example")[1]


def test_grid_says_what_it_built(data_set: Path, outcome: Any) -> None:
    code, out, err = outcome("grid", data_set)
    assert (code, err) == (0, "")
    assert "bytes per arc" in out
    code, out, _ = outcome("grid", data_set, "--json")
    assert code == 0
    assert json.loads(out)["nodes"] == 120


def test_a_grid_with_other_weights_or_order_is_replaced_only_if_told(tmp_path: Path) -> None:
    weight = np.ones(2)
    graph, _ = naive.write(tmp_path / "graph", 5, [0, 1], [1, 2], weight=weight)
    first = oc.grid(graph, order="degree")
    assert oc.grid(graph)["pieces"] == first["pieces"]
    for other in ({"weights": "weight"}, {"order": "natural"}):
        with pytest.raises(InvalidError, match="overwrite"):
            oc.grid(graph, **other)
    assert oc.grid(graph, weights="weight", overwrite=True)["edges"] == 2


@pytest.mark.parametrize("weights", [None, "weight"])
def test_the_bytes_depend_on_the_graph_alone(data_set: Path, weights: str | None) -> None:
    def stored(**options: Any) -> dict[str, bytes]:
        graph = oc.open(data_set)
        oc.grid(graph, weights=weights, partition_log2=4, overwrite=True, **options)
        keys = [key for key in graph.arrays if key.startswith("grid/")]
        assert _core.check(str(data_set), None)["sound"]
        return {key: graph.array(key).tobytes() for key in keys}

    first = stored(memory="1GiB", threads=1)
    assert stored(memory="8MiB", threads=3) == first


@pytest.mark.parametrize(
    ("options", "kind", "message"),
    [
        ({"memory": 1000}, BudgetError, "grid"),
        ({"partition_log2": 17}, InvalidError, "partition_log2 17, expected 1 to 16"),
        ({"memory": "-1"}, InvalidError, "memory size"),
    ],
)
def test_options_out_of_range_are_named(
    data_set: Path, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        oc.grid(data_set, **options)


def test_weights_must_be_finite(data_set: Path) -> None:
    weights = np.ones(600)
    weights[17] = np.nan
    oc.open(data_set).add_edge_array("w", weights)
    with pytest.raises(InvalidError, match="edge array `w`: row 17 is nan"):
        oc.grid(data_set, weights="w")
    assert not list(data_set.glob(".grid"))


def test_what_a_progress_callback_raises_ends_the_build(data_set: Path) -> None:
    class EnoughError(Exception):
        pass

    def stop(*_: object) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        oc.grid(data_set, progress=stop)
    assert not [key for key in oc.open(data_set).arrays if key.startswith("grid/")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["grid", "nowhere"], "nowhere`: no such directory"),
        (["grid", "DATA", "--order", "random"], "--order: expected one of auto, degree, natural"),
        (["grid", "DATA", "--weights", "w"], "edge array `w` is not in the data set"),
    ],
)
def test_a_users_mistake_ends_with_1_and_one_line(
    arguments: list[str], message: str, data_set: Path, outcome: Any
) -> None:
    code, out, err = outcome(*[data_set if word == "DATA" else word for word in arguments])
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err


def test_check_finds_a_changed_byte_of_the_grid(data_set: Path, outcome: Any) -> None:
    graph = oc.open(data_set)
    oc.grid(graph)
    assert outcome("check", data_set)[0] == 0
    path = data_set / graph.arrays["grid/edge/blocks"]["file"]
    damaged = bytearray(path.read_bytes())
    damaged[4096 + 100] ^= 0x10
    path.write_bytes(damaged)
    code, _, err = outcome("check", data_set)
    assert code == 1
    assert "piece" in err
    assert f"outercore grid {data_set} --overwrite" in err


def test_new_weights_remove_the_grid_of_the_old_ones(data_set: Path, outcome: Any) -> None:
    oc.grid(data_set, weights="weight")
    oc.open(data_set).add_edge_array("weight", np.zeros(600), overwrite=True)
    assert "grid/edge/header" not in oc.open(data_set).arrays
    assert outcome("check", data_set)[0] == 0
    oc.grid(data_set, weights="weight")
    assert outcome("check", data_set)[0] == 0


def test_a_grid_of_an_earlier_release_is_built_anew_by_whoever_needs_it(data_set: Path) -> None:
    expected = oc.wcc(data_set)
    header = data_set / oc.open(data_set).arrays["grid/edge/header"]["file"]
    header.write_bytes(header.read_bytes().replace(b'"version": 3', b'"version": 2'))
    seal(data_set, "grid/edge/header")
    with pytest.raises(InvalidError, match="build it anew: `outercore grid"):
        oc.grid(data_set)
    assert {array["what"] for array in far.arrays(data_set)} == {"topology"}
    problems = _core.check(str(data_set), None)["problems"]
    assert "Invalid" in {problem["kind"] for problem in problems}
    assert (oc.wcc(data_set) == expected).all()
    assert _core.check(str(data_set), None)["sound"]
