"""Features and labels come in batches with the shape and type that their owner gave them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import torch
from torch_geometric.data import Data, HeteroData

import outercore as oc
from outercore.data.layouts import build_layout
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import Inputs
from outercore.importing.options import ImportOptions
from outercore.importing.plain_graph import open_inputs

NODES = 12
RING = torch.stack([torch.arange(NODES), (torch.arange(NODES) + 1) % NODES])
RATES, CITES = ("user", "rates", "item"), ("item", "cites", "item")

LABELS = {
    "classes": torch.arange(NODES) % 3,
    "classes in a column": (torch.arange(NODES) % 3)[:, None],
    "numbers in a column": torch.linspace(0, 1, NODES)[:, None],
    "numbers in two columns": torch.arange(2.0 * NODES).reshape(NODES, 2) % 2,
    "numbers of 64 bits": torch.linspace(0, 1, NODES, dtype=torch.float64),
    "zeros and ones as floats in a column": (torch.arange(NODES) % 2)[:, None].float(),
    "classes with gaps as floats": torch.tensor([0.0, float("nan"), 2.0] * (NODES // 3))[:, None],
}
FEATURES = {
    "float32": torch.rand(NODES, 3),
    "one dimension": torch.rand(NODES),
    "whole numbers": torch.arange(3 * NODES).reshape(NODES, 3),
    "ids of one dimension": torch.arange(NODES, dtype=torch.int32) + 7,
    "bytes in a column": torch.arange(NODES, dtype=torch.uint8)[:, None],
    "bits": torch.arange(2 * NODES).reshape(NODES, 2) % 2 == 0,
}


def from_pyg(x: torch.Tensor, y: torch.Tensor, out: Path) -> oc.Graph:
    return oc.from_pyg(Data(x=x, y=y, edge_index=RING), out)


def from_hetero(x: torch.Tensor, y: torch.Tensor, out: Path) -> oc.Graph:
    data = HeteroData()
    data["item"].x, data["item"].y = x, y
    data["user"].num_nodes = NODES
    data[RATES].edge_index = data[CITES].edge_index = RING
    return oc.from_pyg(data, out)


def from_dgl(x: torch.Tensor, y: torch.Tensor, out: Path) -> oc.Graph:
    graph = SimpleNamespace(
        is_homogeneous=True,
        edges=lambda order: tuple(RING),
        num_nodes=lambda: NODES,
        ndata={"feat": x, "label": y},
        edata={},
    )
    return oc.from_dgl(graph, out)


def from_scipy(x: torch.Tensor, y: torch.Tensor, out: Path) -> oc.Graph:
    ring = scipy.sparse.coo_array((np.ones(NODES), RING.numpy()), (NODES, NODES))
    return oc.from_scipy(ring, out, features=x.numpy(), labels=y.numpy())


def from_npy(x: torch.Tensor, y: torch.Tensor, out: Path) -> oc.Graph:
    parts = {name: out.with_name(f"{name}.npy") for name in ("edges", "x", "y")}
    for name, values in (("edges", RING), ("x", x), ("y", y)):
        np.save(parts[name], values.numpy())
    inputs = Inputs(edges=(str(parts["edges"]),), features=str(parts["x"]), labels=str(parts["y"]))
    import_graph(open_inputs(inputs), out, ImportOptions())
    return oc.open(out)


def from_npz(x: torch.Tensor, y: torch.Tensor, out: Path) -> oc.Graph:
    edges, archive = out.with_name("edges.npy"), out.with_name("arrays.npz")
    np.save(edges, RING.numpy())
    np.savez(archive, x=x.numpy(), y=y.numpy())
    inputs = Inputs(edges=(str(edges),), features=f"{archive}:x", labels=f"{archive}:y")
    import_graph(open_inputs(inputs), out, ImportOptions())
    return oc.open(out)


SOURCES = [from_pyg, from_hetero, from_dgl, from_scipy, from_npy, from_npz]
Source = Callable[[torch.Tensor, torch.Tensor, Path], oc.Graph]


def batches(graph: oc.Graph) -> dict[str, Any]:
    """A batch of each loader, or what it has of the nodes with features and labels."""
    seeds = ("item", np.array([3, 5])) if graph.is_typed else np.array([3, 5])
    links: Any = RING[:, [1, 4]]
    options: dict[str, Any] = {"batch_size": 2, "memory": "16MiB"}
    hops: Any = [2]
    found = {
        "NeighborLoader": oc.NeighborLoader(graph, [2], seeds, **options),
        "HGTLoader": oc.HGTLoader(graph, hops, seeds, **options),
        "LinkNeighborLoader": oc.LinkNeighborLoader(
            graph, [2], (CITES, links) if graph.is_typed else links, **options
        ),
    }
    if not graph.is_typed:
        sampler = oc.NeighborSampler(graph, [2], seeds, features="x", labels="y", **options)
        found["NeighborSampler"] = sampler
    first = {name: next(iter(loader)) for name, loader in found.items()}
    return {
        name: one["item"] if graph.is_typed and name != "NeighborSampler" else one
        for name, one in first.items()
    }


def assert_equal(found: Any, expected: torch.Tensor, name: str) -> None:
    values = torch.as_tensor(found)
    assert values.shape == expected.shape, name
    assert values.dtype == expected.dtype, name
    torch.testing.assert_close(values, expected, rtol=0, atol=0, equal_nan=True, msg=name)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", LABELS)
def test_labels_come_as_they_were_given(tmp_path: Path, source: Source, kind: str) -> None:
    graph = source(FEATURES["float32"], LABELS[kind], tmp_path / "graph")
    for name, batch in batches(graph).items():
        assert_equal(batch.y, LABELS[kind][torch.as_tensor(batch.n_id)], name)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("kind", FEATURES)
def test_features_come_as_they_were_given(tmp_path: Path, source: Source, kind: str) -> None:
    graph = source(FEATURES[kind], LABELS["classes"], tmp_path / "graph")
    for name, batch in batches(graph).items():
        assert_equal(batch.x, FEATURES[kind][torch.as_tensor(batch.n_id)], name)


def test_labels_that_replace_others_have_their_own_form(tmp_path: Path) -> None:
    graph = from_pyg(FEATURES["float32"], LABELS["classes in a column"], tmp_path / "graph")
    batch = next(iter(oc.NeighborLoader(graph, [1], batch_size=4)))
    assert batch.y.shape == (batch.num_nodes, 1)
    again = oc.from_pyg(
        Data(x=FEATURES["float32"], y=LABELS["classes"], edge_index=RING),
        tmp_path / "graph",
        options=oc.ImportOptions(overwrite=True),
    )
    batch = next(iter(oc.NeighborLoader(again, [1], batch_size=4)))
    assert batch.y.shape == (batch.num_nodes,)


def test_training_takes_labels_in_a_column(tmp_path: Path) -> None:
    from outercore.training.loaders import neighbor_loader

    graph = from_pyg(
        FEATURES["ids of one dimension"], LABELS["classes in a column"], tmp_path / "g"
    )
    batch = next(iter(neighbor_loader(graph, [1], None, batch_size=4)))
    assert (batch.y.shape, batch.y.dtype) == ((batch.num_nodes,), torch.int64)
    assert (batch.x.shape, batch.x.dtype) == ((batch.num_nodes, 1), torch.float32)


def test_a_data_set_of_an_older_version_comes_as_it_did(tmp_path: Path) -> None:
    from_pyg(FEATURES["whole numbers"], LABELS["classes in a column"], tmp_path / "graph")
    manifest = json.loads((tmp_path / "graph" / "graph.json").read_text())
    del manifest["roles"]["given"], manifest["checksum"]
    (tmp_path / "graph" / "graph.json").write_text(json.dumps(manifest))
    batch = next(iter(oc.NeighborLoader(tmp_path / "graph", [1], batch_size=4)))
    assert (batch.y.shape, batch.y.dtype) == ((batch.num_nodes,), torch.int64)
    assert (batch.x.shape, batch.x.dtype) == ((batch.num_nodes, 3), torch.float32)


@pytest.mark.parametrize("typed", [False, True])
def test_weights_and_times_of_edges_come_in_their_column(tmp_path: Path, typed: bool) -> None:
    data: Any = HeteroData() if typed else Data(x=FEATURES["float32"])
    if typed:
        data["item"].num_nodes = NODES
    edges = data[CITES] if typed else data
    edges.edge_index = RING
    edges.edge_weight, times = torch.rand(NODES, 1), torch.arange(NODES)[:, None]
    # In a graph of as many edges as nodes the name says whose attribute it is, as in PyG.
    edges["time" if typed else "edge_time"] = times
    graph = oc.from_pyg(data, tmp_path / "graph")
    # Algorithms and sampling take one value an edge.
    name = "item__cites__item" if typed else "edge"
    assert graph.array(f"edges/{name}/weight").shape == (NODES,)
    links = (CITES, RING) if typed else RING
    for loader in (
        oc.NeighborLoader(graph, [-1], "item" if typed else None, weight_attr="weight"),
        oc.LinkNeighborLoader(graph, [2], links, None, torch.arange(NODES), time_attr="time"),
    ):
        for batch in loader:
            store = batch[CITES] if typed else batch
            assert torch.equal(store.edge_weight, edges.edge_weight[store.e_id])
            assert torch.equal(store.edge_time, times[store.e_id])


def test_a_column_of_a_table_has_no_form(tmp_path: Path) -> None:
    (tmp_path / "nodes.csv").write_text(
        "id,age,kind\n" + "".join(f"{n},{n},{n % 2}\n" for n in range(4))
    )
    (tmp_path / "edges.csv").write_text("source,target\n0,1\n1,2\n2,3\n")
    table = str(tmp_path / "nodes.csv")
    inputs = Inputs(
        edges=(str(tmp_path / "edges.csv"),), features=f"{table}:age", labels=f"{table}:kind"
    )
    import_graph(open_inputs(inputs), tmp_path / "graph", ImportOptions())
    batch = next(iter(oc.NeighborLoader(tmp_path / "graph", [1], batch_size=4)))
    assert (batch.x.shape, batch.x.dtype) == ((4, 1), torch.float32)
    assert (batch.y.shape, batch.y.dtype) == ((4,), torch.int64)


def test_whole_numbers_that_are_read_as_steps_are_floats(tmp_path: Path) -> None:
    x = (torch.arange(NODES) ** 3 * 7)[:, None]
    graph = from_pyg(x, LABELS["classes"], tmp_path / "graph")
    build_layout(graph, order="none", precision="int8")
    batch = next(iter(oc.NeighborLoader(graph, [1], batch_size=NODES, precision="int8")))
    assert batch.x.dtype == torch.float32
    step = float(x.max()) / 255
    assert ((batch.x - x[batch.n_id]).abs() <= step).all()
