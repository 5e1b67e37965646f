"""`outercore convert`: features in a smaller type, in place."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import outercore as oc
from outercore import _core
from outercore.cli import app
from outercore.data.layouts import build_layout, convert, layouts
from outercore.errors import CorruptError, InvalidError, NotFoundError


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("convert") / "graph"
    described = {"nodes": 400, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return root


@pytest.fixture
def graph(planted: Path, tmp_path: Path) -> oc.Graph:
    return oc.open(shutil.copytree(planted, tmp_path / "graph"))


def to_bfloat16(values: np.ndarray) -> np.ndarray:
    """Rounded to the nearest of 8 significant bits, ties to even, bit by bit."""
    bits = values.astype(np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return rounded.astype(np.uint32).view(np.float32)


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
def test_every_value_becomes_the_nearest_one(graph: oc.Graph, to: str) -> None:
    before = graph.array("x")
    file = Path(graph.root) / graph.arrays["nodes/node/x"]["file"]
    (found,) = convert(graph, to)  # type: ignore[arg-type]
    expected = before.astype(np.float16).astype(np.float32) if to == "float16" else None
    expected = to_bfloat16(before) if expected is None else expected
    assert np.array_equal(graph.array("x").astype(np.float32), expected)
    assert (found["array"], found["from"], found["to"]) == ("nodes/node/x", "float32", to)
    assert found["before"] == 2 * found["after"] == 4 * before.size
    assert found["largest_change"] == pytest.approx(float(np.abs(before - expected).max()))
    assert not file.exists()
    assert CliRunner().invoke(app, ["check", str(graph.root)]).exit_code == 0


def test_loaders_deliver_the_converted_values(graph: oc.Graph) -> None:
    pytest.importorskip("torch")
    convert(graph, "float16")
    loader = oc.NeighborLoader(graph, [3], np.arange(50), batch_size=50, memory="8MiB")
    batch = next(iter(loader))
    assert batch.x.dtype.is_floating_point
    expected = graph.array("x").astype(np.float32)[batch.n_id.numpy()]
    assert np.array_equal(batch.x.numpy(), expected)


def test_numbers_of_eight_bytes_become_float32(graph: oc.Graph) -> None:
    random = np.random.default_rng(1)
    wide = random.normal(size=(400, 3))
    whole = random.integers(-(2**50), 2**50, size=(400, 2))
    graph.add_node_array("wide", wide)
    graph.add_node_array("whole", whole)
    convert(graph, "float32", array="wide")
    convert(graph, "float32", array="whole")
    assert np.array_equal(graph.array("wide"), wide.astype(np.float32))
    assert np.array_equal(graph.array("whole"), whole.astype(np.float32))


def test_what_is_not_finite_stays_and_what_would_become_infinite_is_told(graph: oc.Graph) -> None:
    values = np.zeros((400, 2), np.float32)
    values[3] = np.nan, np.inf
    graph.add_node_array("odd", values)
    (found,) = convert(graph, "float16", array="odd")
    assert np.isnan(graph.array("odd")[3, 0])
    assert np.isinf(graph.array("odd")[3, 1])
    assert found["largest_change"] == 0
    values[200, 1] = 70_000
    graph.add_node_array("large", values)
    with pytest.raises(
        InvalidError, match=r"row 200: column 1: 70000 is beyond the largest float16"
    ):
        convert(graph, "float16", array="large")
    assert graph.arrays["nodes/node/large"]["dtype"] == "float32"
    convert(graph, "bfloat16", array="large")
    stored = {str(file.relative_to(graph.root)) for file in Path(graph.root).rglob("*.npy")}
    assert stored == {entry["file"] for entry in graph.arrays.values()}


def test_types_that_are_not_smaller_and_arrays_that_are_not_there(graph: oc.Graph) -> None:
    convert(graph, "float16")
    with pytest.raises(InvalidError, match="float16 are not larger than bfloat16"):
        convert(graph, "bfloat16")
    with pytest.raises(NotFoundError, match="`nothing`"):
        convert(graph, "float16", array="nothing")
    for fixed in ("y", "edges/edge/offsets"):
        with pytest.raises(InvalidError, match="its type is fixed"):
            convert(graph, "float16", array=fixed)


def test_other_bytes_than_were_written_are_refused(graph: oc.Graph) -> None:
    entry = graph.arrays["nodes/node/x"]
    with (Path(graph.root) / entry["file"]).open("r+b") as file:
        file.seek(entry["data_offset"] + 5)
        file.write(b"\1")
    with pytest.raises(CorruptError, match=r"`nodes/node/x`: checksum .*expected"):
        convert(graph, "float16")


def test_layouts_of_the_old_values_go_with_them(graph: oc.Graph) -> None:
    build_layout(graph, precision="int8")
    build_layout(graph, order="degree")
    (found,) = convert(graph, "float16")
    assert found["layout_removed"]
    assert layouts(graph) == []
    report = _core.check(Path(graph.root), None)
    assert report["sound"], report["problems"]


def test_the_command_can_be_repeated_after_it_has_come_to_its_end(graph: oc.Graph) -> None:
    build_layout(graph, precision="int8")
    command = ["convert", str(graph.root), "--to", "float16"]
    first, second = (CliRunner().invoke(app, command) for _ in range(2))
    assert (first.exit_code, second.exit_code) == (0, 0), second.output
    assert "its layout was removed" in first.stdout
    assert second.stdout.strip() == "nodes/node/x: float16 already, nothing was changed"


def test_the_command_says_what_was_saved(graph: oc.Graph) -> None:
    run = CliRunner().invoke(app, ["convert", str(graph.root), "--to", "float16"])
    assert run.exit_code == 0, run.output
    assert "nodes/node/x: float32 to float16, 18.8 KiB to 9.4 KiB" in run.stdout
    run = CliRunner().invoke(
        app, ["convert", str(graph.root), "--to", "bfloat16", "--array", "x", "--json"]
    )
    assert run.exit_code != 0
    again = CliRunner().invoke(app, ["info", str(graph.root), "--json"])
    assert "float16" in json.dumps(json.loads(again.stdout))
