"""Edge arrays and further node arrays reach batches, as PyG's indexing would give them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data

import outercore as oc
from fakes import planted
from multigraph import imported
from outercore.base import native
from outercore.runs.progress import Observer
from outercore.training.config import (
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.run import train

KINDS = {
    "weight": np.float64,
    "time": np.int64,
    "count": np.uint8,
    "half": np.float16,
    "sure": np.bool_,
}
"""Edge arrays of one value an edge."""


def values(dtype: type, shape: tuple[int, ...], seed: int) -> np.ndarray:
    random = np.random.default_rng(seed)
    if dtype is np.bool_:
        return random.random(shape) < 0.5
    if np.issubdtype(dtype, np.integer):
        return random.integers(0, np.iinfo(dtype).max, shape, dtype=dtype)
    return random.normal(size=shape).astype(dtype)


def with_arrays(root: Path, **options) -> oc.Graph:
    graph = imported(root, **options)
    rows, nodes = graph.num_edge_rows, graph.num_nodes
    for seed, (name, dtype) in enumerate(KINDS.items()):
        graph.add_edge_array(name, values(dtype, (rows,), seed))
    graph.add_edge_array("attr", values(np.float32, (rows, 5), 10))
    graph.add_edge_array("tensor", values(np.int16, (rows, 3, 2), 11))
    graph.add_node_array("year", values(np.int32, (nodes,), 12))
    graph.add_node_array("box", values(np.float64, (nodes, 2, 3), 13))
    graph.add_node_array("flag", values(np.bool_, (nodes, 1), 14))
    return graph


@pytest.fixture(scope="module", params=["directed", "undirected", "loops"])
def graph(request, tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    options = {
        "directed": {},
        "undirected": {"undirected": True},
        "loops": {"undirected": True, "self_loops": "add"},
    }[request.param]
    return with_arrays(tmp_path_factory.mktemp("arrays") / "graph", **options)


def in_memory(graph: oc.Graph) -> Data:
    """All arrays as PyG has them, by node and by row of the edge list."""
    data = Data(num_nodes=graph.num_nodes)
    for key in graph.arrays:
        kind, _, name = key.partition("/")
        name = name.partition("/")[2]
        if kind == "nodes":
            data[name] = torch.from_numpy(graph.array(key))
        elif kind == "edges" and name not in ("offsets", "sources", "ids"):
            data[f"edge_{name}"] = torch.from_numpy(graph.array(key))
    return data


SETTINGS = [
    {"memory": "64MiB"},
    {"memory": "64MiB", "features": None, "labels": None},
    {"memory": "6MiB", "topology": "paged", "group": 1},
    {"memory": "6MiB", "backend": "threads", "threads": 1},
    {"memory": "64MiB", "replace": True, "edge_ids": False, "group": 3},
]


@pytest.mark.parametrize("settings", SETTINGS)
def test_rows_of_every_array_are_those_that_pyg_would_index(graph: oc.Graph, settings) -> None:
    whole = in_memory(graph)
    options = {"batch_size": 64, "shuffle": True, "seed": 4, **settings}
    checked = {**options, "edge_ids": True, "arrays": []}
    with (
        oc.NeighborLoader(graph, [4, 3], None, **options) as loader,
        oc.NeighborLoader(graph, [4, 3], None, **checked) as ids,
    ):
        for _ in range(2):
            for batch, expected in zip(loader, ids, strict=True):
                assert torch.equal(batch.n_id, expected.n_id)
                names = {"year", "box", "flag", "edge_attr", "edge_tensor"}
                for name in names | {f"edge_{name}" for name in KINDS}:
                    places = expected.e_id if name.startswith("edge_") else expected.n_id
                    assert batch[name].dtype == whole[name].dtype
                    assert torch.equal(batch[name], whole[name][places]), name
                    assert name not in expected


@pytest.mark.parametrize("settings", SETTINGS)
def test_the_sampler_has_the_same_rows(graph: oc.Graph, settings) -> None:
    whole = in_memory(graph)
    options = {"batch_size": 64, "seed": 4, **settings, "edge_ids": True}
    sampler = oc.NeighborSampler(
        graph, [3], None, arrays=["edge_weight", "box", "edges/edge/attr"], **options
    )
    for batch in sampler:
        assert list(batch.arrays) == ["edge_weight", "box", "edge_attr"]
        for name, places in [
            ("edge_weight", batch.e_id),
            ("edge_attr", batch.e_id),
            ("box", batch.n_id),
        ]:
            np.testing.assert_array_equal(batch.arrays[name], whole[name].numpy()[places])


def test_arrays_larger_than_the_budget_are_read_from_disk(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph", nodes=3000, edges=40_000)
    attr = np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32)
    wide = np.random.default_rng(1).normal(size=(3000, 4, 8))
    graph.add_edge_array("attr", attr)
    graph.add_edge_array("weight", attr[:, 0].astype(np.float64))
    graph.add_node_array("wide", wide)
    options = {"batch_size": 32, "shuffle": True, "seed": 1}
    plans = []
    for memory in ["8MiB", "256MiB"]:
        with oc.NeighborLoader(graph, [5, 3], None, memory=memory, **options) as loader:
            plans.append(loader.plan()["arrays"])
            for batch in loader:
                assert np.array_equal(batch.edge_attr, attr[batch.e_id])
                assert np.array_equal(batch.edge_weight, attr[batch.e_id, 0].astype(np.float64))
                assert np.array_equal(batch.wide, wide[batch.n_id])
            assert loader.counters()["counters"]["feature_reads"]["requests"] > 0
    assert [(plan["resident"], plan["paged"]) for plan in plans] == [(1, 2), (3, 0)]


def test_batches_without_an_edge_have_arrays_of_no_row(tmp_path: Path) -> None:
    graph = with_arrays(tmp_path / "graph")
    for fan_outs in ([], [0]):
        batch = next(iter(oc.NeighborLoader(graph, fan_outs, [3, 1], batch_size=2)))
        assert batch.edge_attr.shape == (0, 5)
        assert batch.edge_weight.dtype == torch.float64
        assert batch.box.shape == (2, 2, 3)


def test_a_refusal_says_that_fewer_arrays_need_less(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph")
    graph.add_node_array("wide", np.ones((graph.num_nodes, 64, 64)))
    with pytest.raises(
        oc.BudgetError, match=r"the least that works is (.*)\nhint: .*`arrays`"
    ) as no:
        oc.NeighborLoader(graph, [5, 5], batch_size=100, memory="4MiB").plan()
    assert no.value.needed is not None
    oc.NeighborLoader(graph, [5, 5], batch_size=100, memory=no.value.needed).plan()
    oc.NeighborLoader(graph, [5, 5], batch_size=100, memory="4MiB", arrays=[]).plan()


def test_results_are_delivered_only_where_they_are_named(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph")
    oc.pagerank(graph.root, save="rank")
    graph.reload()
    assert "rank" not in next(iter(oc.NeighborLoader(graph, [2])))
    batch = next(iter(oc.NeighborLoader(graph, [2], arrays=["rank"], batch_size=9)))
    assert torch.equal(batch.rank, torch.from_numpy(graph.array("rank"))[batch.n_id])


def test_an_array_delivered_as_features_or_labels_comes_once(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph")
    graph.add_node_array("other", np.ones((graph.num_nodes, 3), np.float32))
    graph.add_node_array("year", np.arange(graph.num_nodes))
    batch = next(iter(oc.NeighborLoader(graph, [2], features="other", labels="year")))
    assert batch.x.shape[1] == 3
    assert "other" not in batch
    assert "year" not in batch


@pytest.mark.parametrize(
    ("arrays", "error", "text"),
    [
        (["nonsense"], oc.NotFoundError, "array `nonsense` .*\nhint: it has edge_attr"),
        (["edges/edge/sources"], oc.NotFoundError, "sources"),
        ("edge_weight", oc.InvalidError, "arrays: expected a list of names"),
        (["x"], oc.InvalidError, "something else under the name `x`\nhint: list the arrays"),
    ],
)
def test_arrays_that_cannot_be_delivered_are_named(graph, arrays, error, text) -> None:
    for kind in (oc.NeighborLoader, oc.NeighborSampler):
        with pytest.raises(error, match=text):
            kind(graph, [2], arrays=arrays)


def test_two_arrays_of_one_name_are_refused_unless_one_is_chosen(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph")
    graph.add_edge_array("weight", np.ones(graph.num_edge_rows))
    graph.add_node_array("edge_weight", np.ones(graph.num_nodes))
    with pytest.raises(oc.InvalidError, match="under the name `edge_weight`"):
        oc.NeighborLoader(graph, [2])
    with pytest.raises(oc.InvalidError, match=r"expected one, found .*\nhint: give the key"):
        oc.NeighborLoader(graph, [2], arrays=["edge_weight"])
    for key in ("edges/edge/weight", "nodes/node/edge_weight"):
        assert "edge_weight" in next(iter(oc.NeighborLoader(graph, [2], arrays=[key])))


def test_an_edge_array_with_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    """As a loop has that an import adds: its row is its own."""
    graph = imported(tmp_path / "graph", self_loops="add")
    native.add_array(graph.root, "edges/edge/short", np.ones(7), "")
    graph.reload()
    with pytest.raises(oc.InvalidError, match=r"`edges/edge/short`: 7 rows, expected one for each"):
        oc.NeighborLoader(graph, [2])
    assert "edge_short" not in next(iter(oc.NeighborLoader(graph, [2], arrays=[])))


def test_an_edge_id_without_a_row_ends_in_an_error_that_names_it(tmp_path: Path) -> None:
    """Where the manifest does not say how many edges were imported."""
    root = planted(tmp_path / "graph", nodes=100, degree=5)
    native.add_array(root, "edges/edge/short", np.ones(7), "")
    for kind in (oc.NeighborLoader, oc.NeighborSampler):
        batches = kind(root, [3], batch_size=100, arrays=["edge_short"])
        with pytest.raises(oc.CorruptError, match=r"`edges/edge/short`: no row for edge id \d+"):
            list(batches)
        with pytest.raises(oc.CorruptError, match="it has 7 rows"):
            list(batches)


def test_a_read_that_fails_names_the_array(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph", nodes=3000, edges=40_000)
    graph.add_edge_array("attr", np.ones((40_000, 64), np.float32))
    options = {"batch_size": 32, "memory": "8MiB", "arrays": ["edge_attr"]}
    with oc.NeighborLoader(graph, [5, 3], **options) as loader:
        assert loader.plan()["arrays"]["paged"] == 1
        batches = iter(loader)
        next(batches)
        with (graph.root / "edges/edge/attr.npy").open("r+b") as file:
            file.truncate(1 << 20)
        with pytest.raises(oc.OutercoreError, match="attr"):
            list(batches)


class Notes(Observer):
    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, message: str) -> None:
        self.notes.append(message)


def test_training_says_which_edge_arrays_it_does_not_use(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph")
    graph.add_edge_array("weight", np.ones(graph.num_edge_rows))
    graph.add_edge_array("time", np.arange(graph.num_edge_rows))
    config = TrainConfig(
        model=ModelConfig(kind="gcn", hidden=8),
        sampling=SamplingConfig(fanout=(3,), batch_size=50),
        optimiser=OptimiserConfig(epochs=1),
        budget=BudgetConfig(memory="32MiB", threads=1),
    )
    observer = Notes()
    record = train(graph.root, config, out=tmp_path / "run", observer=observer)
    said = "model `gcn` does not use the data set's edge arrays: time, weight"
    assert said in observer.notes
    assert record["data_set"]["unused_edge_arrays"] == ["time", "weight"]
