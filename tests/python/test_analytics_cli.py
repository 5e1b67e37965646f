"""`outercore run`: what it prints, how it ends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from outercore.analytics import ALGORITHMS
from outercore.cli.run_ import _largest

VERBS = [["run", name.replace("_", "-")] for name in ALGORITHMS]
SOURCE = {"bfs": ["--source", "3"], "sssp": ["--source", "3"]}


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(2)
    source, target = random.integers(0, 100, (2, 600))
    root = tmp_path_factory.mktemp("cli") / "graph"
    naive.write(root, 120, source, target, weight=random.random(600))
    return root


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_analytics_verb_explains_itself_with_an_example(
    verb: list[str], outcome: Any
) -> None:
    code, out, _ = outcome(*verb, "--help")
    assert code == 0
    assert f"outercore {' '.join(verb)} " in out.split("Example")[1]


def test_run_lists_the_algorithms(outcome: Any) -> None:
    _, out, _ = outcome("run", "--help")
    assert [line for line in out.splitlines() if "pagerank" in line]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_run_prints_facts_and_counters_and_the_largest(
    algorithm: str, data_set: Path, outcome: Any, tmp_path: Path
) -> None:
    command = ["run", algorithm.replace("_", "-"), data_set, *SOURCE.get(algorithm, [])]
    values = tmp_path / "values.npy"
    code, out, err = outcome(*command, "--out", values, "--top", "3")
    assert (code, err) == (0, "")
    assert "passes" in out
    assert "largest" in out
    options = {"source": 3} if algorithm in SOURCE else {}
    expected = oc.run(algorithm, data_set, **options)
    np.testing.assert_array_equal(np.load(values), expected.values)
    code, out, err = outcome(*command, "--json", "--top", "2")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert printed["algorithm"] == algorithm
    assert printed["facts"] == expected.facts
    assert len(printed["top"]) == 2
    assert printed["counters"]["passes"] == expected.counters["passes"]
    code, out, err = outcome(*command, "--out", values)
    assert (code, out) == (1, "")
    assert "exists\nhint: choose another, or `--overwrite`" in err


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_plan_prints_the_plan_and_runs_nothing(
    algorithm: str, data_set: Path, outcome: Any
) -> None:
    outcome("grid", data_set)
    command = ["run", algorithm.replace("_", "-"), data_set, *SOURCE.get(algorithm, []), "--plan"]
    code, out, err = outcome(*command, "--memory", "64MiB", "--save", "never")
    assert (code, err) == (0, "")
    assert "64.0 MiB" in out
    code, out, _ = outcome(*command, "--memory", "64MiB", "--json")
    assert json.loads(out)["budget"] == 64 << 20
    assert "nodes/node/never" not in oc.open(data_set).arrays


def test_save_keeps_the_values(data_set: Path, outcome: Any) -> None:
    code, out, _ = outcome("run", "wcc", data_set, "--save", "component")
    assert code == 0
    assert "component" in out
    np.testing.assert_array_equal(oc.open(data_set).array("component"), oc.wcc(data_set))
    code, out, err = outcome("run", "wcc", data_set, "--save", "component")
    assert (code, out) == (1, "")
    assert "hint: choose another name, or `--overwrite`" in err
    code, _, _ = outcome("run", "wcc", data_set, "--save", "component", "--overwrite")
    assert code == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "walk", "DATA"], "walk"),
        (["run", "bfs", "DATA"], "'--source'"),
        (["run", "bfs", "DATA", "--source", "120"], "the graph has 120 nodes (0 to 119)"),
        (["run", "pagerank", "DATA", "--damping", "2"], "expected 0 <= damping < 1"),
        (["run", "pagerank", "DATA", "--personalization", "a"], "expected nodes such as `3,17`"),
        (["run", "pagerank", "DATA", "--personalization", "no.npy"], "--personalization: `no.npy`"),
        (["run", "wcc", "DATA", "--memory", "1KiB"], "the least that works is"),
    ],
)
def test_a_users_mistake_ends_with_1_and_one_line(
    arguments: list[str], message: str, data_set: Path, outcome: Any
) -> None:
    code, out, err = outcome(*[data_set if word == "DATA" else word for word in arguments])
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


def test_the_largest_are_finite_and_equals_come_by_id() -> None:
    values = np.array([1.0, np.inf, 3.0, 3.0, np.nan, 3.0, 2.0])
    assert _largest("sssp", values, 4) == [(2, 3.0), (3, 3.0), (5, 3.0), (6, 2.0)]
    assert _largest("wcc", np.array([0, 0, 2, 0, 2, 5]), 2) == [(0, 3), (2, 2)]
    assert _largest("kcore", np.array([], np.int64), 5) == []
    assert _largest("sssp", np.array([np.inf]), 5) == []
