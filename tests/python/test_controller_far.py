"""The controller's measuring and running through a memory server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from far_server import FarServer
from outercore.analytics.scheduling.decide import Table
from outercore.analytics.scheduling.launch import run_jobs
from outercore.analytics.scheduling.machine import Machine
from outercore.analytics.scheduling.measure import TuneConfig, tune
from outercore.cli.jobs import parse


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarServer]:
    with FarServer(tmp_path_factory.mktemp("far")) as server:
        yield server


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(8)
    root = tmp_path_factory.mktemp("controller") / "graph"
    source, target = random.integers(0, 50_000, (2, 1_000_000))
    naive.write(root, 50_000, source, target)
    oc.grid(root)
    return root


def record(directory: Path) -> dict[str, Any]:
    return json.loads((directory / "record.json").read_text())


def test_far_ratios_are_measured_through_a_memory_server(
    data_set: Path, server: FarServer, outcome: Any
) -> None:
    code, out, err = outcome(
        *("tune", data_set, "--algorithms", "wcc", "--threads", "1", "--far-ratios", "0.3,1"),
        *("--repeat", "1", "--out", "t.json", "--json"),
        *server.settings("unix", path="far"),
    )
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert (printed["measured"], printed["left_out"]) == (2, [])
    points = printed["algorithms"]["wcc"]["measurements"]
    assert {point["medium"] for point in points} == {"unix"}
    # Rounded up to whole segments.
    near, far = sorted(points, key=lambda point: point["far_ratio"])
    assert 0.3 <= near["far_ratio"] < 0.4
    assert far["far_ratio"] == 1
    assert near["memory"] > far["memory"]


def test_a_server_that_is_lost_is_not_measured_as_a_disk(data_set: Path, tmp_path: Path) -> None:
    with FarServer(tmp_path / "far") as mortal:
        options = mortal.options()
    config = TuneConfig(algorithms=("wcc",), threads=(1,), far_ratios=(1.0,), repeat=1, far=options)
    tuned = tune(data_set, config, tmp_path / "t.json")
    assert tuned.measured == 0
    assert options.address in tuned.left_out[0]


def test_a_job_leaves_to_the_server_what_its_turning_point_says(
    data_set: Path, server: FarServer, tmp_path: Path
) -> None:
    words = ["run", "wcc", str(data_set), *server.settings(path="far")]
    requests = [
        parse("assumed", words),
        parse("told", [*words, "--set", "far_ratio=0.9", "--set", "far.queue_length=3"]),
    ]
    states = run_jobs(requests, Table(), tmp_path, Machine())
    assert [(state.status, state.error) for state in states] == [("done", None)] * 2
    for name, ratio in (("assumed", 0.6), ("told", 0.9)):
        written = record(tmp_path / name)
        assert ratio <= written["plan"]["far_ratio"] < ratio + 0.1
        assert written["counters"]["far"]["far_bytes"] > 0
    assert record(tmp_path / "told")["config"]["run"]["far"]["queue_length"] == 3
