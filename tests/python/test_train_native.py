"""Training on the real loader: same losses whatever the budget."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from outercore import _core, cli  # noqa: E402
from outercore.errors import InterruptError  # noqa: E402
from outercore.importing.build.graph import import_graph  # noqa: E402
from outercore.importing.edges import from_edge_index  # noqa: E402
from outercore.importing.source import GraphSource  # noqa: E402
from outercore.importing.table.rows import NodeArray, from_array  # noqa: E402
from outercore.runs.progress import Observer  # noqa: E402
from outercore.training import TrainConfig, evaluate, resume, train  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "Importer"), reason="the native module has no importer yet"
)
torch.set_num_threads(1)

NODES, CLASSES, WIDTH = 2000, 4, 24


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Communities, imported through the sources as `Data` objects are."""
    root = tmp_path_factory.mktemp("data") / "graph"
    random = np.random.default_rng(0)
    y = random.integers(CLASSES, size=NODES)
    order = np.argsort(y, kind="stable")
    place = np.empty(NODES, np.int64)
    place[order] = np.arange(NODES)
    target = np.repeat(np.arange(NODES), 6)
    near = (place[target] + random.integers(-40, 41, size=len(target))) % NODES
    source = np.where(
        random.random(len(target)) < 0.8, order[near], random.integers(NODES, size=len(target))
    )
    x = (np.eye(CLASSES, WIDTH)[y] + random.normal(size=(NODES, WIDTH))).astype(np.float32)
    shuffled = random.permutation(NODES)
    splits = {"train": shuffled[:1000], "valid": shuffled[1000:1500], "test": shuffled[1500:]}
    arrays = [
        NodeArray("features", "x", from_array("x", x)),
        NodeArray("labels", "y", from_array("y", y)),
        *(NodeArray("split", name, from_array(name, ids)) for name, ids in splits.items()),
    ]
    edges = from_edge_index("edges", np.stack([source, target]))
    import_graph(GraphSource([edges], arrays, NODES), root)
    return root


def imported(root: Path, y: np.ndarray) -> Path:
    """A small data set with these labels."""
    random = np.random.default_rng(0)
    nodes = len(y)
    splits = {"train": np.arange(nodes // 2), "val": np.arange(nodes // 2, nodes)}
    arrays = [
        NodeArray("features", "x", from_array("x", random.normal(size=(nodes, 4)).astype("f4"))),
        NodeArray("labels", "y", from_array("y", y)),
        *(NodeArray("split", name, from_array(name, ids)) for name, ids in splits.items()),
    ]
    edges = from_edge_index("edges", random.integers(nodes, size=(2, 4 * nodes)))
    import_graph(GraphSource([edges], arrays, nodes), root)
    return root


@pytest.mark.parametrize("columns", [0, 2])
def test_numbers_are_imported_checked_and_learnt(columns: int, tmp_path: Path) -> None:
    random = np.random.default_rng(1)
    y = 100 * random.random((300, columns) if columns else 300)
    y[random.random(y.shape) < 0.2] = np.nan
    if columns:
        # Several columns are numbers only on request.
        root = imported(tmp_path / "data", (y > 50).astype(np.float64))
        oc.open(root).add_node_array("target", y)
        labels = "target"
    else:
        root, labels = imported(tmp_path / "data", y), "y"
        graph = oc.open(root)
        assert (graph.arrays["nodes/node/y"]["dtype"], graph.num_classes) == ("float64", 0)
        assert np.array_equal(graph.array("y"), y, equal_nan=True)
    assert cli.run(["check", str(root)]) == 0
    values = config().to_dict()
    values["sampling"] |= {"labels": labels, "fanout": [3]}
    values["optimiser"]["epochs"] = 1
    values["run"]["task"] = "regression" if columns else "auto"
    record = train(root, TrainConfig.from_dict(values), out=tmp_path / "run")
    assert record["description"]["task"] == "regression"
    assert record["result"]["scores"]["valid"] is not None
    scored = evaluate(tmp_path / "run", split="val", predictions=tmp_path / "p.parquet")
    predicted = pq.read_table(tmp_path / "p.parquet")
    assert predicted["id"].to_pylist() == list(range(150, 300))
    assert len(predicted.column_names) == 1 + max(columns, 1)
    found = np.stack([predicted[name] for name in predicted.column_names[1:]], axis=1)
    actual = y[150:].reshape(150, -1)
    error = np.nanmean((found - actual) ** 2, axis=0).mean()
    assert np.isclose(scored["mse"], error)


def test_a_training_is_resumed_after_another_algorithm_has_built_a_grid(tmp_path: Path) -> None:
    root = imported(tmp_path / "data", np.arange(300) % 3)

    class Stop(Observer):
        def batch_done(self, *_: Any) -> None:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(InterruptError):
        train(root, config(), out=tmp_path / "run", observer=Stop())
    before = (root / "graph.json").read_bytes()
    oc.wcc(root)
    assert (root / "graph.json").read_bytes() != before
    assert resume(tmp_path / "run")["status"] == "finished"


def config(kind: str = "sage", memory: str = "64MiB", **budget: Any) -> TrainConfig:
    return TrainConfig.from_dict(
        {
            "model": {"kind": kind, "hidden": 16, "heads": 2},
            "sampling": {"fanout": [4, 3], "batch_size": 100},
            "optimiser": {"epochs": 3, "learning_rate": 0.01},
            "budget": {"memory": memory, **budget},
        }
    )


def losses(record: dict[str, Any]) -> list[float]:
    return [epoch["loss"] for epoch in record["epochs"]]


def weights(run: Path) -> dict[str, Any]:
    return load_model(run / "model").model.state_dict()


def test_losses_and_scores_are_the_same_whatever_decides_the_cost(
    data_set: Path, tmp_path: Path
) -> None:
    expected = train(data_set, config(), out=tmp_path / "expected")
    variants: list[dict[str, Any]] = [
        {"memory": "6MiB", "threads": 1},
        {"backend": "threads", "threads": 2, "topology": "paged"},
        {"backend": "mmap", "policy": "lru", "hotness": "none"},
        {"hotness": "in_degree", "validation_share": 0.0},
    ]
    for number, variant in enumerate(variants):
        record = train(data_set, config(**variant), out=tmp_path / str(number))
        assert losses(record) == losses(expected), variant
        assert record["result"] == expected["result"], variant


@pytest.mark.parametrize("kind", ["sage", "gcn", "gat", "gin"])
def test_exact_inference_out_of_core_equals_pyg_in_memory(
    kind: str, data_set: Path, tmp_path: Path
) -> None:
    train(data_set, config(kind), out=tmp_path / "run")
    evaluate(tmp_path / "run", split="all", logits=tmp_path / "all.npy", memory="6MiB")
    model = load_model(tmp_path / "run/model").model
    gnn: Any = model.gnn
    for conv in gnn.convs if kind == "gcn" else ():
        conv.normalize = conv.add_self_loops = True
    graph = oc.open(data_set)
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    target = np.repeat(np.arange(NODES), np.diff(offsets))
    source = graph.array("edges/edge/sources").astype(np.int64)
    with torch.no_grad():
        expected = gnn(
            torch.from_numpy(graph.array("x")), torch.from_numpy(np.stack([source, target]))
        )
    np.testing.assert_allclose(np.load(tmp_path / "all.npy"), expected, rtol=2e-5, atol=2e-5)


def test_from_pyg_writes_a_data_set_that_loads_the_same(tmp_path: Path) -> None:
    from torch_geometric.data import Data

    generator = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.randn(40, 3, generator=generator),
        y=torch.arange(40) % 3,
        edge_index=torch.randint(40, (2, 90), generator=generator),
        train_mask=torch.arange(40) < 30,
    )
    graph = oc.from_pyg(data, tmp_path / "graph")
    assert (graph.num_nodes, graph.num_edges, graph.num_classes) == (40, 90, 3)
    assert np.array_equal(graph.array("x"), data.x.numpy())
    assert graph.split("train").tolist() == list(range(30))
    loader = oc.NeighborLoader(graph, [-1], batch_size=40, memory="16MiB")
    batch = next(iter(loader))
    ids = batch.n_id[batch.edge_index]
    # Edge ids lead back to the imported list.
    assert torch.equal(ids, data.edge_index[:, batch.e_id])
