"""`outercore run`: what it prints, how it ends."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from outercore.analytics import ALGORITHMS
from outercore.base.sizes import parse_size
from outercore.cli.run_ import largest

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
    assert "exists already\nhint: choose another name, or `--overwrite`" in err


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_plan_prints_the_plan_and_runs_nothing(
    algorithm: str, data_set: Path, outcome: Any
) -> None:
    outcome("grid", data_set)
    command = ["run", algorithm.replace("_", "-"), data_set, *SOURCE.get(algorithm, []), "--plan"]
    code, out, err = outcome(*command, "--memory", "64MiB", "--save", "never")
    assert (code, err) == (0, "")
    assert "64.0 MiB" in out
    assert "_" not in out.partition("\n")[2]
    code, out, _ = outcome(*command, "--memory", "64MiB", "--json")
    assert json.loads(out)["budget"] == 64 << 20
    assert "nodes/node/never" not in oc.open(data_set).arrays


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_algorithm_says_the_least_memory_that_works(
    algorithm: str, data_set: Path, outcome: Any
) -> None:
    command = ["run", algorithm.replace("_", "-"), data_set, *SOURCE.get(algorithm, [])]
    command += ["--threads", "2", "--json", "--record", "none"]
    outcome("grid", data_set)
    code, _, said = outcome(*command, "--memory", "1KiB")
    assert code == 1
    assert "the least that works is" in said
    assert "hint: `outercore run " in said
    least = parse_size(said.split("works is ")[1].split("\n")[0])
    code, _, again = outcome(*command, "--memory", "1KiB", "--plan")
    assert (code, again.splitlines()[0]) == (1, said.splitlines()[0])
    code, planned, _ = outcome(*command, "--plan")
    assert code == 0
    # The message rounds it up to the tenth of its unit.
    printed, least = least, json.loads(planned)["least"]
    assert 0 <= printed - least < 110 << 10
    assert outcome(*command, "--memory", str(printed), "--plan")[0] == 0
    code, done, _ = outcome(*command, "--memory", str(least))
    assert code == 0
    plan = json.loads(done)["plan"]
    assert plan["budget"] == plan["least"] == least
    assert outcome(*command, "--memory", str(least - 1), "--plan")[0] == 1


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
        (
            ["run", "pagerank", "DATA", "--personalization", "no.npy"],
            "--personalization: array `no.npy` does not exist",
        ),
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
    assert largest("sssp", values, 4, 1 << 20) == [(2, 3.0), (3, 3.0), (5, 3.0), (6, 2.0)]
    assert largest("wcc", np.array([0, 0, 2, 0, 2, 5]), 2, 1 << 20) == [(0, 3), (2, 2)]
    assert largest("kcore", np.array([], np.int64), 5, 1 << 20) == []
    assert largest("sssp", np.array([np.inf]), 5, 1 << 20) == []


@pytest.mark.parametrize("kept", ["in memory", "mapped"])
def test_components_are_counted_within_the_budget(kept: str, tmp_path: Path) -> None:
    nodes = 2_000_000
    values = np.random.default_rng(5).integers(0, nodes, nodes) // 3 * 3
    values[nodes - 1000 :] = nodes - 4
    sizes = np.bincount(values, minlength=nodes)
    expected = np.lexsort((np.arange(nodes), -sizes))[:7]
    if kept == "mapped":
        np.save(tmp_path / "values.npy", values)
        values = np.load(tmp_path / "values.npy", mmap_mode="r")
    # Beside values in memory there is nothing left but the least: four windows of names each.
    memory = (values.nbytes if kept == "in memory" else 0) + (4 << 20)
    tracemalloc.start()
    found = largest("label_propagation", values, 7, memory)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found == [(int(node), int(sizes[node])) for node in expected]
    assert found[0][0] == nodes - 4
    # Half of it for the counts, the rest for a block's.
    assert peak < 6 << 20, peak


def test_lengths_that_are_rounded_are_told(tmp_path: Path, outcome: Any) -> None:
    for step, told in ((2**51, False), (2**53 + 2, True)):
        root = tmp_path / f"path-{step}"
        naive.write(root, 3, np.array([0, 1]), np.array([1, 2]), weight=np.array([step, step]))
        for mode in ([], ["--json"]):
            code, _, err = outcome("run", "sssp", root, "--source", 0, "--weights", "weight", *mode)
            assert (code, "are rounded" in err) == (0, told)


def test_a_run_that_writes_no_file_imports_no_pyarrow(data_set: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from outercore.cli import run; "
        f"run(['run', 'degrees', {str(data_set)!r}, '--record', 'none']); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    modules = set(done.stdout.splitlines()[-1].split())
    assert "outercore.analytics" in modules
    assert modules & {"pyarrow", "ssl", "torch", "outercore.data.outputs"} == set()
