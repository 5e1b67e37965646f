"""Measuring the offline table: what is measured, what is kept, how it goes on."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import outercore as oc
from outercore import analytics
from outercore.analytics import AnalysisConfig
from outercore.analytics.scheduling import measure
from outercore.analytics.scheduling.decide import GraphShape, Table
from outercore.analytics.scheduling.files import load_table, store, table_path
from outercore.analytics.scheduling.measure import TuneConfig, tune
from outercore.analytics.scheduling.needs import Work, graph_shape, least_budget, local_budget
from outercore.data.graph import Graph
from outercore.errors import InvalidError
from outercore.runs.places import only_one

CORES = len(os.sched_getaffinity(0))


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that the far ratio matters to the budget."""
    random = np.random.default_rng(5)
    root = tmp_path_factory.mktemp("tune") / "graph"
    source, target = random.integers(0, 50_000, (2, 1_000_000))
    naive.write(root, 50_000, source, target)
    oc.grid(root)
    return root


@settings(deadline=None)
@given(st.integers(0, 1 << 30), st.integers(1, 1 << 31))
def test_the_least_budget_is_found_by_halving(least: int, most: int) -> None:
    found = least_budget(lambda budget: budget >= least, most)
    if most < least:
        assert found is None
    else:
        assert found is not None
        assert least <= found <= most
        assert found - least < 64 << 10 or found == 64 << 10


def test_the_budget_of_a_far_ratio_keeps_the_rest_in_memory(data_set: Path) -> None:
    work, before = Work(data_set, AnalysisConfig("wcc", {})), 0
    for ratio in (1.0, 0.6, 0.3, 0.0):
        budget, reached = local_budget(work, ratio, 1, most=1 << 30)
        planned = analytics.plan("wcc", data_set, memory=budget, threads=1)
        assert planned["bytes_per_pass"] <= ratio * planned["bytes_first_pass"]
        assert reached <= ratio
        assert budget >= before
        before = budget
    with pytest.raises(InvalidError, match=r"far ratio 0 takes more memory than the 1\.0 MiB"):
        local_budget(work, 0.0, 1, most=1 << 20)


def test_the_shape_of_a_graph_is_that_of_its_in_degrees(
    data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(6)
    target = (random.random(3000) ** 4 * 100).astype(np.int64)
    root = tmp_path / "graph"
    naive.write(root, 120, random.integers(0, 120, 3000), target)
    degrees = np.bincount(target, minlength=120)
    expected = GraphShape(120, 3000, round(float(degrees.std() / degrees.mean()), 6))
    assert graph_shape(Graph(root)) == expected
    monkeypatch.setattr("outercore.analytics.scheduling.needs._ROWS", 7)
    assert graph_shape(Graph(root)) == expected


def test_each_combination_is_measured_once() -> None:
    config = TuneConfig(threads=(1,), far_ratios=(1.0, 0.0, 1.0))
    points = config.points(GraphShape(10, 20, 0.5))
    assert [(one.algorithm, one.far_ratio) for one in points] == [
        (algorithm, ratio) for algorithm in ("bfs", "pagerank") for ratio in (0.0, 1.0)
    ]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"algorithms": ("walk",)}, "algorithms: expected one of pagerank.*found 'walk'"),
        ({"threads": (CORES + 1,)}, f"threads: expected 1 to {CORES}, found {CORES + 1}"),
        ({"far_ratios": (1.5,)}, r"far_ratios: expected 0 to 1, found 1\.5"),
        ({"repeat": 0}, "repeat: expected at least 1, found 0"),
    ],
)
def test_what_cannot_be_measured_is_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidError, match=message):
        TuneConfig(**wrong)


def test_tune_measures_what_is_missing_and_no_more(data_set: Path, outcome: Any) -> None:
    command = ("tune", data_set, "--algorithms", "wcc,bfs", "--threads", "1", "--repeat", "2")
    code, out, err = outcome(*command, "--far-ratios", "0,1", "--out", "t.json", "--json")
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert (printed["measured"], printed["known"], printed["left_out"]) == (4, 0, [])
    assert printed["graph"]["nodes"] == 50_000
    for algorithm in ("wcc", "bfs"):
        found = printed["algorithms"][algorithm]
        assert 0 <= found["turning_point"] <= 1
        near, far = found["measurements"]
        assert near["memory"] < far["memory"] or near["far_ratio"] < far["far_ratio"]
        assert near["seconds"] > 0
        assert near["peak_memory"] > near["memory"]
    before = Path("t.json").read_bytes()
    code, out, _ = outcome(*command, "--far-ratios", "1,0", "--out", "t.json", "--json")
    assert json.loads(out)["known"] == 4
    assert Path("t.json").read_bytes() == before
    code, out, _ = outcome(*command, "--far-ratios", "0,0.5", "--out", "t.json")
    assert code == 0
    assert "measured              2 points" in out
    assert "known before          2 points" in out
    table = load_table(Path("t.json"))
    assert len(table.measurements) == 6


def test_points_that_need_too_much_memory_are_left_out(data_set: Path, outcome: Any) -> None:
    code, out, err = outcome(
        *("tune", data_set, "--algorithms", "wcc", "--threads", "1", "--far-ratios", "0"),
        *("--memory", "1MiB", "--out", "t.json"),
    )
    assert (code, out) == (1, "")
    assert "note: left out: wcc, 1 threads, far ratio 0: far ratio 0 takes more memory" in err
    assert "error: nothing could be measured" in err


def test_a_point_that_fails_is_told_and_the_others_are_measured(
    data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_child = measure.run_child

    def fails_at_first(work: Work, budget: int) -> dict[str, Any]:
        monkeypatch.setattr(measure, "run_child", run_child)
        return run_child(replace(work, data_set=Path("nowhere")), budget)

    monkeypatch.setattr(measure, "run_child", fails_at_first)
    config = TuneConfig(algorithms=("wcc",), threads=(1,), far_ratios=(0.0, 1.0), repeat=1)
    tuned = tune(data_set, config, tmp_path / "t.json")
    assert tuned.measured == 1
    assert len(tuned.left_out) == 1
    assert "wcc, 1 threads, far ratio 0: data set `" in tuned.left_out[0]


def test_a_table_of_another_machine_is_not_added_to(data_set: Path, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    store(path, Table(machine={"processor": "abacus"}))
    with pytest.raises(InvalidError, match=r"measured on another machine: .*abacus"):
        tune(data_set, TuneConfig(), path)


def test_the_table_is_in_the_users_data_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert table_path() == tmp_path / "outercore" / "controller.json"
    monkeypatch.delenv("XDG_DATA_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert table_path() == tmp_path / ".local" / "share" / "outercore" / "controller.json"
    assert load_table(table_path()) == Table()


def test_two_cannot_write_one_table(data_set: Path, tmp_path: Path) -> None:
    with (
        only_one(tmp_path / "t.json", "outercore tune"),
        pytest.raises(InvalidError, match="another `outercore tune` writes it"),
    ):
        tune(data_set, TuneConfig(), tmp_path / "t.json")


def test_what_was_measured_is_kept_when_tune_is_stopped_and_the_rest_follows(
    data_set: Path, tmp_path: Path
) -> None:
    out = tmp_path / "t.json"
    arguments = ("tune", str(data_set), "--algorithms", "wcc", "--threads", "1", "--repeat", "1")
    command = [sys.executable, "-m", "outercore", *arguments, "--out", str(out)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as stopped:
        while not out.exists() and stopped.poll() is None:
            os.sched_yield()
        stopped.send_signal(signal.SIGTERM)
        _, said = stopped.communicate(timeout=60)
    assert stopped.returncode == 130, said
    assert "hint: run the same command again to measure the others" in said
    kept = load_table(out).measurements
    assert kept
    config = TuneConfig(algorithms=("wcc",), threads=(1,), repeat=1)
    tuned = tune(data_set, config, out)
    assert tuned.table.measurements[: len(kept)] == kept
    assert tuned.known == len(kept)
    assert tuned.graph == graph_shape(Graph(data_set))
