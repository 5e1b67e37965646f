"""`outercore layout`: a second copy of the features, which changes no answer."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore import _core
from outercore.data.layouts import build_layout, layouts, remove_layouts
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.serving.server import Server, ServerConfig
from outercore.training import ModelConfig, OptimiserConfig, SamplingConfig, TrainConfig, train
from test_live import random_model, trained, update
from test_serve import ask, infer

CONFIG = ServerConfig(port=0, memory="64MiB", deadline_ms=60_000)
ORDERS = ["glist", "degree", "rcm"]
ROWS = "layout/nodes/node/x/{}/rows"
PLACES = "layout/nodes/node/x/{}/places"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("layout") / "graph"
    described = {"nodes": 600, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return root


@pytest.fixture
def graph(planted: Path, tmp_path: Path) -> oc.Graph:
    return oc.open(shutil.copytree(planted, tmp_path / "graph"))


@pytest.fixture(scope="module")
def run(planted: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("runs") / "sage"
    config = TrainConfig(
        model=ModelConfig(kind="sage", hidden=8),
        sampling=SamplingConfig(fanout=(4, 3)),
        optimiser=OptimiserConfig(epochs=1),
    )
    train(planted, config, out=out)
    return out


def assert_laid_out(graph: oc.Graph, precision: str) -> None:
    """Every row is at its place, as NumPy says."""
    x, rows = graph.array("x"), graph.array(ROWS.format(precision))
    key = PLACES.format(precision)
    places = graph.array(key) if key in graph.arrays else np.arange(graph.num_nodes)
    assert sorted(places) == list(range(graph.num_nodes))
    if precision == "exact":
        np.testing.assert_array_equal(rows[places], x)
        return
    scale, offset = (
        graph.array(f"layout/nodes/node/x/int8/{part}") for part in ("scale", "offset")
    )
    assert scale.dtype == offset.dtype == np.float32
    steps = np.clip(np.rint((x - offset) / scale), -128, 127).astype(np.int8)
    np.testing.assert_array_equal(rows[places], steps)
    worst = np.abs(offset + scale * rows[places].astype(np.float32) - x).max(axis=0)
    assert (worst <= 0.51 * scale).all()


@pytest.mark.parametrize("precision", ["exact", "int8"])
@pytest.mark.parametrize("order", [*ORDERS, "none"])
def test_rows_are_where_the_table_says_as_numpy_stores_them(
    order: str, precision: str, graph: oc.Graph, outcome: Any
) -> None:
    arguments = ["layout", graph.root, "--order", order, "--precision", precision]
    if (order, precision) == ("none", "exact"):
        code, _, error = outcome(*arguments)
        assert (code, "would be the array itself" in error) == (1, True)
        return
    before = graph.array("x")
    code, out, error = outcome(*arguments, "--json")
    assert code == 0, error
    summary = json.loads(out)
    assert (summary["order"]["method"], summary["precision"]) == (order, precision)
    assert summary["bytes"] == 600 * 12 * (1 if precision == "int8" else 4)
    graph.reload()
    np.testing.assert_array_equal(graph.array("x"), before)
    assert_laid_out(graph, precision)
    code, out, _ = outcome("info", graph.root)
    assert (code, f"nodes/node/x: {precision}, order {order}" in out) == (0, True)
    assert outcome("check", graph.root)[0] == 0
    # A second time there is nothing to do; another order replaces it.
    code, out, _ = outcome(*arguments)
    assert (code, "there already" in out) == (0, True)
    build_layout(graph, order="degree", precision=precision)  # type: ignore[arg-type]
    assert [found.order for found in layouts(graph)] == ["degree"]
    assert_laid_out(graph, precision)
    code, out, _ = outcome("layout", graph.root, "--remove")
    assert (code, "1 layouts removed" in out) == (0, True)
    # The graph that is open here had the layout's files open.
    graph.reload()
    assert not (Path(graph.root) / "layout" / "nodes" / "node" / "x" / precision).exists()


def test_whole_numbers_and_constants_are_exact_in_int8(graph: oc.Graph) -> None:
    random = np.random.default_rng(1)
    values = np.stack(
        [random.integers(2, size=600), np.full(600, 0.3), random.integers(-90, 100, size=600)],
        axis=1,
    ).astype(np.float32)
    graph.add_node_array("flags", values)
    build_layout(graph, array="flags", order="none", precision="int8")
    prefix = "layout/nodes/node/flags/int8/"
    rows, scale, offset = (graph.array(prefix + part) for part in ("rows", "scale", "offset"))
    np.testing.assert_array_equal(offset + scale * rows.astype(np.float32), values)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_int8_does_not_have_is_refused_with_its_place(
    value: float, graph: oc.Graph
) -> None:
    values = np.zeros((600, 3), np.float32)
    values[421, 2] = value
    graph.add_node_array("z", values)
    with pytest.raises(InvalidError, match=r"row 421: column 2: .* expected a finite value"):
        build_layout(graph, array="z", precision="int8")
    assert layouts(graph) == []


def test_an_order_changes_no_bit_of_an_answer(graph: oc.Graph, run: Path) -> None:
    nodes = [int(node) for node in np.random.default_rng(1).integers(600, size=50)]
    answers = []
    for order in ("none", *ORDERS):
        if order != "none":
            build_layout(graph, order=order)  # type: ignore[arg-type]
        with Server(graph.root, run, CONFIG) as server:
            assert server.notice is None
            answers.append([infer(server, [node], seed=node) for node in nodes])
    assert all(answer == answers[0] for answer in answers[1:])


def test_a_stale_layout_is_told_and_not_used(graph: oc.Graph, run: Path, outcome: Any) -> None:
    with Server(graph.root, run, CONFIG) as server:
        before = infer(server, [3, 4], seed=1)
    build_layout(graph, order="rcm")
    # As an older release would have it, which knows nothing of layouts.
    manifest = json.loads((Path(graph.root) / "graph.json").read_text())
    del manifest["checksum"]
    x = graph.array("x")
    x[0] += 1
    file = Path(graph.root) / manifest["arrays"]["nodes/node/x"]["file"]
    content = file.read_bytes()
    file.write_bytes(content[:4096] + x.tobytes())
    code, out, _ = outcome("check", graph.root, "--json")
    # Of the array, and of the layout, which has other rows.
    problem, of_layout = json.loads(out)["problems"]
    assert "not those of the array" in of_layout["message"]
    found = problem["message"].split()[1].rstrip(",")
    manifest["arrays"]["nodes/node/x"]["checksum"] = found
    (Path(graph.root) / "graph.json").write_text(json.dumps(manifest))
    graph.reload()
    assert [layout.stale for layout in layouts(graph)] == [True]
    code, out, _ = outcome("info", graph.root)
    assert (code, "stale: the array has changed" in out) == (0, True)
    code, _, error = outcome("check", graph.root)
    assert (code, "it is stale" in error, "outercore layout" in error) == (1, True, True)
    with Server(graph.root, run, CONFIG) as server:
        assert "stale" in str(server.notice)
        assert infer(server, [3, 4], seed=1)["model_name"] == before["model_name"]
    build_layout(graph, order="rcm")
    assert_laid_out(graph, "exact")
    assert outcome("check", graph.root)[0] == 0


@pytest.mark.parametrize("part", ["header", "places", "rows"])
def test_a_damaged_layout_is_never_read_in_silence(
    part: str, graph: oc.Graph, run: Path, outcome: Any
) -> None:
    build_layout(graph, order="degree")
    file = Path(graph.root) / f"layout/nodes/node/x/exact/{part}.npy"
    content = file.read_bytes()
    file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    code, _, error = outcome("check", graph.root)
    assert (code, f"exact/{part}" in error) == (1, True)
    if part != "rows":
        with pytest.raises(CorruptError, match="checksum"):
            Server(graph.root, run, CONFIG)
    file.write_bytes(content[:-1])
    with pytest.raises(CorruptError, match="cut short"):
        Server(graph.root, run, CONFIG)
    # Building it anew is no way out of a data set that cannot be opened: the copy has to be mended.
    file.write_bytes(content)
    with Server(graph.root, run, CONFIG) as server:
        assert infer(server, [1], seed=1)


def test_updates_reach_the_layouts_when_they_are_folded(tmp_path: Path) -> None:
    model = random_model(9, undirected=True)
    graph = model.write(tmp_path / "graph")
    run = trained(graph, "sage", tmp_path / "sage")
    build_layout(graph, order="rcm")
    build_layout(graph, order="none", precision="int8")
    config = ServerConfig(port=0, memory="64MiB", deadline_ms=60_000, updates=True)
    with Server(graph.root, run, config) as server:
        values = {"x": [0.5, -0.5, 0.25, 9.0, -9.0]}
        assert update(server, {"op": "update_node", "node": 7, "values": values})[0] == 200
        assert update(server, {"op": "add_node", "values": values})[0] == 200
        assert update(server, {"op": "add_edge", "source": 40, "target": 3})[0] == 200
        before = infer(server, [3, 7, 40], seed=1)
        assert ask(server, "/graph/compact", {})[0] == 200
        after = infer(server, [3, 7, 40], seed=1)
        assert after == before
    graph = oc.open(tmp_path / "graph")
    assert graph.num_nodes == 41
    assert [(found.precision, found.stale) for found in layouts(graph)] == [
        ("exact", False),
        ("int8", False),
    ]
    # Values beyond those that were measured are the nearest step.
    for precision in ("exact", "int8"):
        rows = graph.array(ROWS.format(precision))
        assert rows.shape == (41, 5)
    places = graph.array(PLACES.format("exact"))
    assert places[40] == 40
    np.testing.assert_array_equal(graph.array(ROWS.format("exact"))[places], graph.array("x"))
    steps = graph.array(ROWS.format("int8"))[[7, 40]]
    assert steps[:, 3].tolist() == [127, 127]
    assert steps[:, 4].tolist() == [-128, -128]
    report = _core.check(graph.root, lambda *_: None)
    assert report["sound"], report
    # The edges have changed: the same command computes the order anew, and the scales.
    for arguments in ({"order": "rcm"}, {"order": "none", "precision": "int8"}):
        assert build_layout(graph, **arguments)["written"] > 0  # type: ignore[arg-type]
        assert build_layout(graph, **arguments)["written"] == 0  # type: ignore[arg-type]
    assert_laid_out(graph, "exact")
    assert_laid_out(graph, "int8")
    with Server(graph.root, run, CONFIG) as server:
        assert server.notice is None
        assert infer(server, [3, 7, 40], seed=1) == before


def test_too_little_memory_is_told_with_the_command_that_works(
    graph: oc.Graph, outcome: Any
) -> None:
    code, _, error = outcome("layout", graph.root, "--memory", "1MiB")
    assert code == 1
    assert "outercore layout" in error
    enough = error.split("--memory ")[1].split("`")[0]
    assert outcome("layout", graph.root, "--memory", enough)[0] == 0


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--order", "random"], "--order: expected one of none, glist, degree, rcm"),
        (["--precision", "int4"], "--precision: expected one of exact, int8"),
        (["--array", "nothing"], "nodes/node/nothing"),
        (["--array", "splits/train"], "expected a matrix with a row for each node"),
    ],
)
def test_what_cannot_be_laid_out_is_told(
    arguments: list[str], text: str, graph: oc.Graph, outcome: Any
) -> None:
    code, _, error = outcome("layout", graph.root, *arguments)
    assert (code, text in error) == (1, True), error
    with pytest.raises(NotFoundError):
        remove_layouts(graph, array="nothing")


@pytest.mark.parametrize("part", ["places", "scale", "rows", "header"])
def test_a_build_that_is_killed_leaves_what_was_there(part: str, tmp_path: Path) -> None:
    root = tmp_path / "graph"
    described = {"nodes": 20_000, "degree": 8, "features": 64, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    command = [sys.executable, "-m", "outercore", "layout", str(root), "--precision", "int8"]
    file = root / f"layout/nodes/node/x/int8/{part}.npy"
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while not file.exists() and process.poll() is None:
            time.sleep(0.001)
        process.kill()
    graph = oc.open(root)
    # The manifest names a whole layout or none.
    if layouts(graph):
        assert_laid_out(graph, "int8")
    subprocess.run(command, check=True, capture_output=True)
    graph = oc.open(root)
    assert_laid_out(graph, "int8")
    named = {root / entry["file"] for entry in graph.manifest["arrays"].values()}
    there = {found for found in (root / "layout").rglob("*") if found.is_file()}
    assert there <= named, "files are left over"
