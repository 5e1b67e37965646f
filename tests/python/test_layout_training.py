"""Layouts in training: another order changes no batch, `int8` gives the nearest steps."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from outercore import _core  # noqa: E402
from outercore.data.layouts import build_layout, convert  # noqa: E402
from outercore.errors import InvalidError, NotFoundError, UnsupportedError  # noqa: E402
from typed_fakes import planted_types  # noqa: E402

LINKS: dict[str, Any] = {"task": "link", "precision": "int8", "epochs": 1}


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("layout") / "graph"
    described = {"nodes": 600, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return root


@pytest.fixture
def graph(planted: Path, tmp_path: Path) -> oc.Graph:
    return oc.open(shutil.copytree(planted, tmp_path / "graph"))


def loader(graph: oc.Graph, seeds: Any = "train", **options: Any) -> oc.NeighborLoader:
    return oc.NeighborLoader(
        graph, [4, 3], seeds, batch_size=50, shuffle=True, memory="4MiB", **options
    )


def steps(values: np.ndarray, graph: oc.Graph, key: str = "nodes/node/x") -> np.ndarray:
    """The nearest step of each value."""
    scale, offset = (graph.array(f"layout/{key}/int8/{part}") for part in ("scale", "offset"))
    divisor = np.where(scale > 0, scale, 1)
    number = np.where(scale > 0, np.rint((values - offset) / divisor), 0)
    return offset + scale * np.clip(number, -128, 127).astype(np.float32)


@pytest.mark.parametrize("order", ["glist", "degree", "rcm"])
def test_rows_in_another_order_make_the_same_batches(graph: oc.Graph, order: Any) -> None:
    expected = list(loader(graph))
    build_layout(graph, order=order)
    moved = graph.array("layout/nodes/node/x/exact/rows")
    assert not np.array_equal(moved, graph.array("x"))
    entry = graph.arrays["nodes/node/x"]
    with (Path(graph.root) / entry["file"]).open("r+b") as file:
        # Who reads the array and not its layout gets zeros.
        file.seek(entry["data_offset"])
        file.write(bytes(moved.nbytes))
    for one, other in zip(loader(graph), expected, strict=True):
        assert torch.equal(one.n_id, other.n_id)
        assert torch.equal(one.x, other.x)
        assert torch.equal(one.edge_index, other.edge_index)


@pytest.mark.parametrize("order", ["glist", "none"])
def test_int8_rows_are_the_nearest_steps_and_a_quarter_of_the_bytes(
    graph: oc.Graph, order: Any
) -> None:
    build_layout(graph, precision="int8", order=order)
    expected = steps(graph.array("x"), graph)
    read = []
    for precision in ("exact", "int8"):
        one = loader(graph, precision=precision)
        for batch in one:
            values = expected if precision == "int8" else graph.array("x")
            assert np.array_equal(batch.x.numpy(), values[batch.n_id.numpy()])
        read.append(one.counters()["counters"]["feature_reads"]["useful_bytes"])
    assert 3 < read[0] / read[1] < 5


@pytest.mark.parametrize("order", ["glist", "none"])
def test_a_model_trained_on_int8_is_scored_on_the_same_values(
    graph: oc.Graph, order: Any, tmp_path: Path
) -> None:
    build_layout(graph, precision="int8", order=order)
    options: dict[str, Any] = {"fanout": (-1, -1), "hidden": 8, "epochs": 2, "dropout": 0.0}
    record = oc.train(graph.root, out=tmp_path / "run", precision="int8", **options)
    # The same steps as an array of their own give the same model and scores, to the bit.
    graph.add_node_array("stepped", steps(graph.array("x"), graph))
    same = oc.train(graph.root, out=tmp_path / "same", features="stepped", **options)
    losses = [[epoch["loss"] for epoch in one["epochs"]] for one in (record, same)]
    assert losses[0] == losses[1]
    assert record["result"]["scores"] == same["result"]["scores"]
    found = oc.predict(graph.root, tmp_path / "run", tmp_path / "scores.parquet")
    assert found["nodes"] == 600
    # Scales of other values would be wrong without a word: the layout goes with its array.
    convert(graph, "float16")
    with pytest.raises(NotFoundError, match=r"no int8 layout\nhint: build it: `outercore layout"):
        oc.evaluate(tmp_path / "run")


def test_types_of_nodes_have_int8_rows_of_their_own(tmp_path: Path) -> None:
    graph = oc.Graph(planted_types(tmp_path / "typed"))
    keys = [f"nodes/{name}/x" for name in ("paper", "topic", "venue")]
    for key in keys:
        build_layout(graph, array=key, precision="int8", order="none")
    batch = next(iter(loader(graph, ("paper", np.arange(50)), precision="int8")))
    for key in keys:
        store = batch[key.split("/")[1]]
        expected = steps(graph.array(key), graph, key)[store.n_id.numpy()]
        assert np.array_equal(store.x.numpy(), expected)
    oc.train(graph.root, out=tmp_path / "run", precision="int8", model="rgcn", hidden=8, epochs=1)
    with pytest.raises(InvalidError, match="a layout in another order takes a graph of one type"):
        build_layout(graph, array=keys[0])


def test_what_has_no_int8_rows_is_told(graph: oc.Graph, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"no int8 layout\nhint: build it: `outercore layout"):
        loader(graph, precision="int8").plan()
    np.save(tmp_path / "x.npy", graph.array("x"))
    with pytest.raises(InvalidError, match="a file has no int8 layout"):
        loader(graph, features=tmp_path / "x.npy", precision="int8").plan()
    with pytest.raises(UnsupportedError, match="int8 are for labels of nodes"):
        oc.train(graph.root, out=tmp_path / "run", **LINKS)
