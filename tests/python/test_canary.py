"""Planted leaks: samples and splits that are sound, and such as are not."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

import outercore as oc  # noqa: E402
from outercore.cli import app  # noqa: E402
from outercore.errors import NotFoundError  # noqa: E402
from outercore.training import canary as module  # noqa: E402
from outercore.training.canary import Canary, canaries, without_times  # noqa: E402
from typed_fakes import write_typed  # noqa: E402

COUNTS = {"author": 200, "paper": 300}


def typed(root: Path, *, reverse_times: bool) -> oc.Graph:
    """Authors and papers with times of edges, and the other direction with times or without."""
    random = np.random.default_rng(3)
    come, to = random.integers(200, size=4000), random.integers(300, size=4000)
    times = random.integers(1000, size=4000)
    edges = {
        ("author", "writes", "paper"): (come, to),
        ("paper", "rev_writes", "author"): (to, come),
    }
    arrays = {
        "edges/author__writes__paper/time": times,
        "nodes/paper/y": random.integers(3, size=300).astype(np.int64),
        "nodes/paper/x": random.normal(size=(300, 2)).astype(np.float32),
    }
    if reverse_times:
        arrays["edges/paper__rev_writes__author/time"] = times
    order = random.permutation(300).astype(np.int64)
    splits = {"train": order[:200], "valid": order[200:250], "test": order[250:]}
    return oc.Graph(write_typed(root, COUNTS, edges, arrays, splits, 3))


def by_guard(found: list[Canary], guard: str) -> Canary:
    (one,) = (one for one in found if one.guard.startswith(guard))
    return one


def test_samples_by_time_leave_the_model_at_chance(tmp_path: Path) -> None:
    heard: list[str] = []
    graph = typed(tmp_path / "graph", reverse_times=True)
    found = canaries(graph, on_start=heard.append)
    assert heard == [
        "canary: times, seeds of `author`",
        "canary: times, seeds of `paper`",
        "canary: splits",
    ]
    for node_type, count in COUNTS.items():
        one = by_guard(found, f"times `time`, seeds of `{node_type}`")
        assert one.is_sound
        assert one.seeds == count
        assert abs(one.score - 0.5) < 0.12
        assert one.without is not None
        assert one.without > 0.9
    assert by_guard(found, "splits").score == 0.5


def test_the_other_direction_without_times_shows_the_future(tmp_path: Path) -> None:
    graph = typed(tmp_path / "graph", reverse_times=False)
    one = by_guard(canaries(graph), "times `time`, seeds of `paper`")
    assert list(one.seen) == ["edges of `paper,rev_writes,author`, as `writes` is later"]
    assert one.score > 0.6


def test_nodes_are_asked_at_their_own_time(data: Path) -> None:
    graph = oc.Graph(data)
    (one,) = (one for one in canaries(graph, "born") if one.guard.startswith("times"))
    assert one.is_sound
    assert one.without is not None
    assert one.without > 0.8
    with pytest.raises(NotFoundError, match="no array `when` of nodes or edges"):
        canaries(graph, "when")


def test_edges_of_one_type_have_times(tmp_path: Path) -> None:
    random = np.random.default_rng(6)
    edges = np.column_stack([random.integers(120, size=(1500, 2)), random.integers(90, size=1500)])
    np.savetxt(tmp_path / "edges.csv", edges, fmt="%d", delimiter=",", header="a,b,at", comments="")
    file, out = str(tmp_path / "edges.csv"), str(tmp_path / "graph")
    done = CliRunner().invoke(app, ["import", file, "--edge-time", "at", "--out", out])
    assert done.exit_code == 0, done.output
    found = canaries(oc.Graph(out))
    assert [one.guard.partition(",")[0] for one in found] == [
        "times `time`",
        "edges held out of `outercore train --task link`",
    ]
    assert found[0].is_sound
    assert found[0].without is not None
    assert found[0].without > 0.9


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """One type of nodes, with times, an edge in both directions and copies."""
    random = np.random.default_rng(5)
    edges = random.integers(150, size=(1500, 2))
    edges = np.concatenate([edges, edges[:400], edges[:400, ::-1]])
    np.savetxt(tmp_path / "edges.csv", edges, fmt="%d", delimiter=",")
    np.save(tmp_path / "born.npy", random.integers(100, size=150))
    np.save(tmp_path / "y.npy", random.integers(2, size=150))
    for name, ids in (("train", range(100)), ("valid", range(90, 120)), ("test", range(120, 150))):
        np.save(tmp_path / f"{name}.npy", np.array(ids))
    options = [
        *("--array", f"born={tmp_path / 'born.npy'}", "--labels", str(tmp_path / "y.npy")),
        *(
            text
            for name in ("train", "valid", "test")
            for text in ("--split", f"{name}={tmp_path / name}.npy")
        ),
    ]
    arguments = ["import", str(tmp_path / "edges.csv"), "--out", str(tmp_path / "graph")]
    done = CliRunner().invoke(app, [*arguments, *options])
    assert done.exit_code == 0, done.output
    return tmp_path / "graph"


def test_the_command_tells_nodes_in_two_splits_and_fails(data: Path) -> None:
    run = CliRunner().invoke(app, ["check", str(data), "--canary", "--json"])
    assert run.exit_code == 1
    found = {one["guard"]: one for one in json.loads(run.stdout)["canary"]}
    splits = found["splits train, valid, test"]
    assert splits["seen"] == {"nodes of `valid` in a split before": 10}
    assert 0.5 < splits["auc"] < 0.75
    edges = found["edges held out of `outercore train --task link`"]
    assert (edges["leaks"], edges["auc"], edges["auc_without"]) == (False, 0.5, 1.0)
    shown = CliRunner().invoke(app, ["check", str(data), "--canary"])
    assert shown.exit_code == 1
    assert "10 nodes of `valid` in a split before" in shown.stderr
    assert "whole and unaltered" in shown.stdout


def test_a_division_that_keeps_the_other_direction_is_found(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    divide: Any = module.divide

    def careless(graph: oc.Graph, config: Any) -> Any:
        divided = divide(graph, config)
        mirrored = divided.held_out["test"][:, ::-1]
        return replace(divided, train=lambda: iter([*divided.train(), mirrored]))

    monkeypatch.setattr(module, "divide", careless)
    one = by_guard(canaries(oc.Graph(data)), "edges held out")
    assert not one.is_sound
    assert one.score > 0.6


def edges_at(place: Path, times: str) -> Path:
    """A data set of 60 edges, whose column of times is called `times`."""
    random = np.random.default_rng(8)
    rows = np.column_stack([random.integers(20, size=(60, 2)), np.full(60, 7)])
    file, out = place / "edges.csv", place / "graph"
    np.savetxt(file, rows, fmt="%d", delimiter=",", header="a,b,at", comments="")
    chosen = ["--edge-time", "at"] if times == "time" else []
    done = CliRunner().invoke(app, ["import", str(file), *chosen, "--out", str(out)])
    assert done.exit_code == 0, done.output
    if times != "time":
        np.save(place / "at.npy", rows[:, 2])
        added = ["add", str(out), "--edge-array", f"{times}={place / 'at.npy'}"]
        assert CliRunner().invoke(app, added).exit_code == 0
    return out


def test_where_nothing_comes_later_a_canary_has_no_power(tmp_path: Path) -> None:
    graph = edges_at(tmp_path, "time")
    one = by_guard(canaries(oc.Graph(graph)), "times")
    assert (one.verdict, one.is_sound, one.has_power) == ("no power", True, False)
    shown = CliRunner().invoke(app, ["check", str(graph), "--canary"])
    assert shown.exit_code == 0, shown.output
    (line,) = (line for line in shown.stdout.splitlines() if "seeds of `node`" in line)
    assert line.rstrip().endswith("no power")
    assert "a leak would not show" in shown.stderr
    told = CliRunner().invoke(app, ["check", str(graph), "--canary", "--json"])
    verdicts = [one["verdict"] for one in json.loads(told.stdout)["canary"]]
    assert "no power" in verdicts


def test_few_seeds_have_no_power() -> None:
    scores = {"guard": "", "seen": {}, "score": 0.5, "without": 0.8}
    assert [Canary(seeds=seeds, **scores).verdict for seeds in (0, 4, 400)] == [
        "no power",
        "no power",
        "chance",
    ]
    assert Canary("", 4, {"edges": 1}, 0.5, 0.5).verdict == "leaks"
    assert Canary("", 0, {}, 0.5, None).verdict == "no power"


def test_types_without_times_are_listed(tmp_path: Path) -> None:
    graph = typed(tmp_path / "graph", reverse_times=False)
    expected = [
        *("nodes of `author`", "nodes of `paper`", "edges of `paper,rev_writes,author`"),
    ]
    assert without_times(graph) == expected
    shown = CliRunner().invoke(app, ["check", str(graph.root), "--canary"])
    assert ", ".join(expected) in shown.stderr.replace("\n", " ")
    # Where nothing has times, no type lacks them.
    assert without_times(graph, "when") == []


def test_times_of_another_name_are_named(tmp_path: Path) -> None:
    graph = edges_at(tmp_path, "created_at")
    shown = CliRunner().invoke(app, ["check", str(graph), "--canary"])
    assert "`--time created_at`" in shown.stderr
    again = CliRunner().invoke(app, ["check", str(graph), "--canary", "--time", "created_at"])
    assert again.exit_code == 0, again.output
    assert "seeds of `node`" in again.stdout
