"""A run without `--time` on a data set with times says in a line what that means."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from typer.testing import CliRunner  # noqa: E402

import outercore as oc  # noqa: E402
from outercore.cli import app, run  # noqa: E402
from outercore.training.config import TrainConfig  # noqa: E402
from outercore.training.open_work import unused_times  # noqa: E402

NODES, EDGES = 60, 400
SMALL = {"fanout": (2,), "hidden": 4, "epochs": 1, "batch_size": 32, "memory": "64MiB"}


def frames(nodes: dict[str, Any] = {}, edges: dict[str, Any] = {}) -> tuple[Any, Any]:  # noqa: B006
    random = np.random.default_rng(1)
    ends = random.integers(NODES, size=(2, EDGES))
    every = {"id": np.arange(NODES), "a": random.normal(size=NODES), "y": np.arange(NODES) % 2}
    return (
        pd.DataFrame({"source": ends[0], "target": ends[1], **edges}),
        pd.DataFrame({**every, **nodes}),
    )


def data_set(place: Path, **columns: Any) -> oc.Graph:
    edges, nodes = frames(**columns)
    order = np.random.default_rng(2).permutation(NODES)
    return oc.from_pandas(
        edges,
        place / "graph",
        nodes=nodes,
        features=["a"],
        labels="y",
        splits={"train": order[:40], "valid": order[40:50], "test": order[50:]},
    )


def said(graph: oc.Graph, out: Path, **options: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        oc.train(graph, out=out, **{**SMALL, **options})
    return [str(one.message) for one in told if "times" in str(one.message)]


def test_nodes_with_times_are_told_what_to_pass_and_it_works(tmp_path: Path) -> None:
    times = {"time": np.arange(NODES)}
    graph = data_set(tmp_path, nodes=times, edges={"time": np.arange(EDGES)})
    (line,) = said(graph, tmp_path / "run", model="sage")
    assert "\n" not in line
    assert "`--time time`" in line
    assert said(graph, tmp_path / "again", model="sage", time="time") == []


def test_the_command_line_says_it_too(tmp_path: Path) -> None:
    graph = data_set(tmp_path, nodes={"signup_date": np.arange(NODES)})
    command = ["train", str(graph.root), "--model", "sage", "--fanout", "2", "--epochs", "1"]
    shown = CliRunner().invoke(app, [*command, "--out", str(tmp_path / "run")])
    assert shown.exit_code == 0, shown.output
    found = re.search(r"warning: .*pass `(--time signup_date)`", shown.stderr.replace("\n", " "))
    assert found is not None, shown.stderr
    again = CliRunner().invoke(app, [*command, *found[1].split(), "--out", str(tmp_path / "again")])
    assert again.exit_code == 0, again.output
    assert "warning" not in again.stderr


def test_a_model_that_takes_no_times_is_replaced_in_the_hint(tmp_path: Path) -> None:
    graph = data_set(tmp_path, nodes={"ts": np.arange(NODES)})
    (line,) = said(graph, tmp_path / "run", model="gcn")
    assert "`--time ts --model sage`" in line
    assert said(graph, tmp_path / "again", model="sage", time="ts") == []


def test_links_with_times_are_told_what_to_pass(tmp_path: Path) -> None:
    graph = data_set(tmp_path, edges={"created_at": np.arange(EDGES)})
    (line,) = said(graph, tmp_path / "run", model="sage", task="link")
    assert "edges are predicted from what comes after them" in line
    assert "`--time created_at`" in line
    assert said(graph, tmp_path / "again", model="sage", task="link", time="created_at") == []


def test_times_of_edges_alone_need_times_of_the_labelled_nodes(
    tmp_path: Path, outcome: Any
) -> None:
    graph = data_set(tmp_path, edges={"time": np.arange(EDGES)})
    (line,) = said(graph, tmp_path / "run", model="sage")
    np.save(tmp_path / "times.npy", np.arange(NODES))
    found = re.search(r"`outercore (add [^`]*)`", line)
    assert found is not None, line
    added = found[1].replace("FILE", str(tmp_path / "times.npy")).split()
    code, _, told = outcome(*added)
    assert code == 0, told
    assert said(oc.open(graph.root), tmp_path / "again", model="sage", time="time") == []


def test_nothing_is_said_where_nothing_is_lost(tmp_path: Path) -> None:
    plain = data_set(tmp_path, edges={"weight": np.ones(EDGES)}, nodes={"age": np.arange(NODES)})
    assert said(plain, tmp_path / "run", model="sage") == []
    timed = data_set(tmp_path / "timed", edges={"time": np.arange(EDGES)})
    assert unused_times(timed, TrainConfig()) is not None
    assert said(timed, tmp_path / "mlp", model="mlp") == []
    # Fractions are no times that a run could take.
    floats = data_set(tmp_path / "floats", edges={"time": np.random.default_rng(0).random(EDGES)})
    assert unused_times(floats, TrainConfig()) is None


def test_types_with_times_are_told_of_the_labelled_type(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    rows = "".join(f"{at},{at % 5},2020-01-{1 + at % 28:02},{at % 2}\n" for at in range(80))
    (tmp_path / "shop/orders.csv").write_text("id,user,day,late\n" + rows)
    (tmp_path / "shop/users.csv").write_text(
        "id,age\n" + "".join(f"{at},{20 + at}\n" for at in range(5))
    )
    (tmp_path / "shop/tables.yaml").write_text(
        "tables:\n  users: {primary_key: id}\n"
        "  orders: {primary_key: id, foreign_keys: {user: users}, time: day}\n"
    )
    out = tmp_path / "graph"
    run(["import", str(tmp_path / "shop"), "--add-reverse", "--label", "orders.late",
         "--out", str(out)])  # fmt: skip
    (line,) = said(oc.open(out), tmp_path / "run", model="sage")
    assert "`--time time`" in line
    assert "`orders`" in line
    assert said(oc.open(out), tmp_path / "again", model="sage", time="time") == []
