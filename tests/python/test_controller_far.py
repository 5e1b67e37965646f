"""The controller's measuring and running through a memory server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from far_server import FarServer
from outercore.cli.jobs import parse
from outercore.scheduling.decide import Table
from outercore.scheduling.machines import ThisMachine
from outercore.scheduling.measuring import tune
from outercore.scheduling.points import TuneConfig
from outercore.scheduling.running import run_jobs


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


def test_far_ratios_and_queue_lengths_are_measured_through_a_memory_server(
    data_set: Path, server: FarServer, outcome: Any
) -> None:
    code, out, err = outcome(
        *("tune", data_set, "--algorithms", "wcc", "--threads", "1", "--far-ratios", "0.3,1"),
        *("--queue-lengths", "4,32", "--repeat", "1", "--out", "t.json", "--json"),
        *server.flags("unix"),
    )
    assert (code, err) == (0, "")
    printed = json.loads(out)
    assert (printed["measured"], printed["left_out"]) == (4, [])
    points = printed["algorithms"]["wcc"]["measurements"]
    assert {point["medium"] for point in points} == {"unix"}
    assert sorted({point["queue_length"] for point in points}) == [4, 32]
    # Rounded up to whole segments.
    near, far = sorted(points[:2], key=lambda point: point["far_ratio"])
    assert 0.3 <= near["far_ratio"] < 0.4
    assert far["far_ratio"] == 1
    assert near["memory"] > far["memory"]


def test_a_server_that_is_lost_is_not_measured_as_a_disk(data_set: Path, tmp_path: Path) -> None:
    with FarServer(tmp_path / "far") as mortal:
        options = mortal.options()
    config = TuneConfig(algorithms=("wcc",), far_ratios=(1.0,), repeat=1, far=options)
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
    states = run_jobs(requests, Table(), tmp_path, ThisMachine(1 << 40))
    assert [(state.status, state.error) for state in states] == [("done", None)] * 2
    for name, ratio in (("assumed", 0.6), ("told", 0.9)):
        written = record(tmp_path / name)
        assert ratio <= written["plan"]["far_ratio"] < ratio + 0.1
        assert written["counters"]["far"]["far_bytes"] > 0
    assert record(tmp_path / "told")["config"]["run"]["far"]["queue_length"] == 3


def test_the_best_queue_length_of_the_table_is_used(
    data_set: Path, server: FarServer, tmp_path: Path
) -> None:
    config = TuneConfig(
        algorithms=("wcc",), far_ratios=(1.0,), repeat=1, far=server.options(), queue_lengths=(5,)
    )
    measured = tune(data_set, config, tmp_path / "t.json").table.measurements[0]
    slower = replace(measured, seconds=measured.seconds * 2, queue_length=7)
    request = parse("job", ["run", "wcc", str(data_set), *server.settings(path="far")])
    states = run_jobs([request], Table([slower, measured]), tmp_path / "out", ThisMachine(1 << 40))
    assert states[0].status == "done", states[0].error
    assert record(tmp_path / "out/job")["config"]["run"]["far"]["queue_length"] == 5
