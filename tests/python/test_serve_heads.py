"""Served models of edges and of whole graphs: answers are those of the trained network."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from outercore import _core
from outercore.data.many_graphs import ManyGraphs
from outercore.errors import InvalidError
from outercore.loading.loader import NeighborLoader
from outercore.serving.server import Server
from outercore.training import ModelConfig, OptimiserConfig, SamplingConfig, TrainConfig, train
from outercore.training.config import GraphConfig, LinkConfig, RunConfig
from outercore.training.graph_batches import GraphBatch, GraphReader, node_inputs
from outercore.training.model_files import load_model
from outercore.training.work import in_degrees
from test_live import outercore
from test_serve import CONFIG, ask, outputs

NODES = 300


def learn(data: oc.Graph, out: Path, task: str, **parts: Any) -> Path:
    config = TrainConfig(
        model=parts.pop("model", ModelConfig(hidden=8)),
        sampling=SamplingConfig(fanout=(4, 3), **parts.pop("sampling", {})),
        optimiser=OptimiserConfig(epochs=1),
        run=RunConfig(task=task),  # type: ignore[arg-type]
        **parts,
    )
    train(data.root, config, out=out)
    return out


def infer(server: Server, name: str, ids: Any, **parameters: int) -> dict[str, Any]:
    """An answer without the age of the graph, which differs from request to request."""
    shape = list(np.shape(ids))
    tensor = {"name": name, "datatype": "INT64", "shape": shape, "data": np.array(ids).tolist()}
    body = {"inputs": [tensor], "parameters": parameters}
    status, answer = ask(server, f"/v2/models/{server.name}/infer", body)
    assert status == 200, answer
    found: dict[str, Any] = answer
    found["parameters"].pop("age_ms", None)
    return found


def expected_scores(graph: oc.Graph, run: Path, pairs: np.ndarray, *, seed: int) -> torch.Tensor:
    """What the trained network says of pairs of nodes, with the neighbours that the seed draws."""
    saved = load_model(run / "model")
    nodes, places = np.unique(pairs, return_index=True)
    nodes = nodes[np.argsort(places)]
    (batch,) = NeighborLoader(
        graph, (4, 3), input_nodes=torch.from_numpy(nodes), batch_size=len(nodes), seed=seed
    )
    degrees = None
    if saved.model.needs_degrees:
        table = in_degrees(graph, count_loops=saved.model.encoder.counts_loops)
        degrees = torch.from_numpy(table)[batch.n_id]
    place = {int(node): at for at, node in enumerate(nodes)}
    with torch.no_grad():
        states = saved.model(batch, degrees)
        first, second = ([place[int(node)] for node in column] for column in pairs.T)
        scores: torch.Tensor = saved.model.head(states[first], states[second])
    return scores


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("links") / "graph"
    described = {"nodes": NODES, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return oc.open(root)


@pytest.mark.parametrize(("head", "kind"), [("dot", "sage"), ("diagonal", "gcn"), ("mlp", "gin")])
def test_scores_of_edges_are_those_of_the_trained_network(
    head: str, kind: str, graph: oc.Graph, tmp_path: Path
) -> None:
    model = ModelConfig(hidden=8, kind=kind)  # type: ignore[arg-type]
    run = learn(graph, tmp_path / "run", "link", model=model, link=LinkConfig(head=head))  # type: ignore[arg-type]
    pairs = np.array([[3, 7], [7, 3], [3, 3], [299, 7], [12, 250]])
    with Server(graph.root, run, CONFIG) as server:
        _, described = ask(server, "/v2/models/run")
        assert described["inputs"] == [{"name": "edge_ids", "datatype": "INT64", "shape": [-1, 2]}]
        found = outputs(infer(server, "edge_ids", pairs, seed=2))
        body = {"inputs": [{"name": "node_ids", "datatype": "INT64", "shape": [1], "data": [1]}]}
        status, answer = ask(server, "/v2/models/run/infer", body)
        assert (status, answer["error"]) == (400, "input `node_ids`: expected `edge_ids`")
    scores = expected_scores(graph, run, pairs, seed=2)
    np.testing.assert_allclose(found["score"], scores.numpy(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["probability"], torch.sigmoid(scores).numpy(), atol=1e-5)
    assert found["score"][0] == found["score"][1]


def test_nodes_without_features_have_learnt_rows_and_later_ones_none(tmp_path: Path) -> None:
    edges = np.random.default_rng(1).integers(60, size=(400, 2))
    np.save(tmp_path / "edges.npy", edges)
    outercore("import", tmp_path / "edges.npy", "--undirected", "--out", tmp_path / "graph")
    graph = oc.open(tmp_path / "graph")
    run = learn(graph, tmp_path / "run", "link")
    with Server(graph.root, run, replace(CONFIG, updates=True)) as server:
        before = outputs(infer(server, "edge_ids", [[1, 2], [5, 9]]))
        assert np.isfinite(before["score"]).all()
        status, answer = ask(server, "/graph/updates", {"updates": [{"op": "add_node"}]})
        assert (status, answer["results"]) == (200, [{"node": graph.num_nodes}])
        tensor = {"name": "edge_ids", "datatype": "INT64", "shape": [1, 2]}
        body = {"inputs": [{**tensor, "data": [1, graph.num_nodes]}]}
        status, answer = ask(server, "/v2/models/run/infer", body)
        assert status == 400
        assert "the model has no embedding for it" in answer["error"]
        # An edge between two other nodes changes what they say of each other.
        edge = {"op": "add_edge", "source": 1, "target": 2}
        assert ask(server, "/graph/updates", {"updates": [edge] * 5})[0] == 200
        after = outputs(infer(server, "edge_ids", [[1, 2], [5, 9]]))
        assert after["score"][0] != before["score"][0]


def molecules(root: Path, features: str) -> oc.Graph:
    """Small rings with categories, with floats, or with nothing but their edges."""
    random = np.random.default_rng(2)
    sizes = random.integers(3, 9, size=40)
    first = np.concatenate([[0], np.cumsum(sizes)])
    edges = np.concatenate(
        [
            [(at + i, at + (i + 1) % size) for i in range(size)]
            for at, size in zip(first[:-1], sizes, strict=True)
        ]
    )
    home = root.parent / f"{root.name}-files"
    home.mkdir(parents=True)
    np.save(home / "edges.npy", edges)
    np.save(home / "graphs.npy", np.repeat(np.arange(40), sizes))
    np.save(home / "y.npy", (sizes > 5).astype(np.int64))
    np.save(home / "train.npy", np.arange(30))
    if features == "categories":
        np.save(home / "x.npy", random.integers(4, size=(first[-1], 3)))
    elif features == "floats":
        np.save(home / "x.npy", random.standard_normal((first[-1], 5)).astype(np.float32))
    command = ["import", home / "edges.npy", "--undirected", "--graph-ids", home / "graphs.npy"]
    command += ["--labels", home / "y.npy", "--split", f"train={home / 'train.npy'}"]
    command += [] if features == "none" else ["--features", home / "x.npy"]
    outercore(*command, "--out", root)
    return oc.open(root)


def read_graphs(graph: oc.Graph, run: Path, graphs: list[int]) -> GraphBatch:
    """Whole graphs, with the inputs of a trained run."""
    saved, many = load_model(run / "model"), ManyGraphs(graph)
    inputs = node_inputs(graph, saved.config.sampling.features, saved.model.categories)
    reader = GraphReader(many, inputs, "y", memory=1 << 26, batch_size=4)
    return reader.batch(np.array(graphs))


def expected_of_graphs(graph: oc.Graph, run: Path, graphs: list[int]) -> torch.Tensor:
    """What the trained network says of whole graphs."""
    with torch.no_grad():
        logits: torch.Tensor = load_model(run / "model").model(read_graphs(graph, run, graphs))
    return logits


@pytest.mark.parametrize(
    ("features", "kind", "readout"),
    [("categories", "gin", "sum"), ("floats", "gcn", "mean"), ("none", "sage", "max")],
)
def test_predictions_of_graphs_are_those_of_the_trained_network(
    features: str, kind: str, readout: str, tmp_path: Path
) -> None:
    graph = molecules(tmp_path / "graph", features)
    run = learn(
        graph,
        tmp_path / "run",
        "graph",
        model=ModelConfig(hidden=8, kind=kind),  # type: ignore[arg-type]
        graph=GraphConfig(layers=3, readout=readout),  # type: ignore[arg-type]
    )
    asked = [3, 39, 3, 17]
    with Server(graph.root, run, replace(CONFIG, most_nodes=64)) as server:
        _, described = ask(server, "/v2/models/run")
        assert described["inputs"][0]["name"] == "graph_ids"
        found = outputs(infer(server, "graph_ids", asked))
        again = outputs(infer(server, "graph_ids", [17]))
    logits = expected_of_graphs(graph, run, asked)
    expected = torch.softmax(logits, 1).numpy()
    np.testing.assert_allclose(found["probability"], expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(found["prediction"], logits.argmax(1).numpy())
    np.testing.assert_array_equal(again["probability"][0], found["probability"][3])


def test_a_model_of_graphs_is_not_served_on_one_graph(graph: oc.Graph, tmp_path: Path) -> None:
    run = learn(molecules(tmp_path / "graph", "none"), tmp_path / "run", "graph")
    with pytest.raises(InvalidError, match="the data set is one graph"):
        Server(graph.root, run, CONFIG)
