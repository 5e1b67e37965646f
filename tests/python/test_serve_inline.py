"""Inline requests: answers equal those after the same updates."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import tritonclient.grpc
import tritonclient.http

import outercore as oc
from outercore.errors import InvalidError, NotFoundError
from outercore.serving.server import Server
from outercore.training import ModelConfig
from outercore.training.config import GraphConfig, LinkConfig
from test_live import COLUMNS, CONFIG, Model, random_model, trained
from test_live_levels import random_graphs
from test_serve import ask
from test_serve_heads import learn


def same(found: oc.Prediction, wanted: oc.Prediction) -> None:
    """To the bit."""
    assert found.outputs.keys() == wanted.outputs.keys()
    for name, values in found.outputs.items():
        np.testing.assert_array_equal(values, wanted.outputs[name])


def drawn(model: Model, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Features of new nodes, and edges between them and others, repeated ones among them."""
    count = int(random.integers(1, 5))
    x = random.standard_normal((count, COLUMNS)).astype(np.float32)
    there = [node for node in range(len(model.x)) if node not in model.removed]
    new = ~random.integers(count, size=12)
    other = np.where(
        random.random(12) < 0.3, ~random.integers(count, size=12), random.choice(there, 12)
    )
    ends = np.stack([new, other])
    ends[:, ::3] = ends[::-1, ::3]
    return x, ends[:, random.integers(12, size=14)]


def rows(undirected: bool) -> dict[str, Any]:
    """Says that each inline edge is one of the data set, though some come in both directions."""
    return {"edge_directions": "one"} if undirected else {}


def written(client: oc.Client, x: np.ndarray, edge_index: np.ndarray) -> oc.Acknowledged:
    """Adds inline nodes and edges by updates."""

    def place(end: int) -> Any:
        return int(end) if end >= 0 else {"new": int(~end)}

    nodes = [{"op": "add_node", "values": {"x": row}} for row in x]
    edges = [
        {"op": "add_edge", "source": place(source), "target": place(target)}
        for source, target in edge_index.T
    ]
    return client.update([*nodes, *edges])


@pytest.mark.parametrize(
    ("kind", "undirected"),
    [("sage", True), ("gcn", False), ("gcn", True), ("gin", True), ("gat", False)],
)
def test_predictions_of_nodes_are_those_after_the_same_updates(
    kind: str, undirected: bool, tmp_path: Path
) -> None:
    model = random_model(3, undirected=undirected)
    run = trained(model.write(tmp_path / "graph"), kind, tmp_path / kind)
    random = np.random.default_rng(8)
    x, edge_index = drawn(model, random)
    with (
        Server(tmp_path / "graph", run, replace(CONFIG, updates=False)) as server,
        oc.Client(server.url, kind) as client,
    ):
        fixed = client.predict(x=x, edge_index=edge_index, seed=1, **rows(undirected))
        assert fixed.lsn == 0
    with Server(tmp_path / "graph", run, CONFIG) as server, oc.Client(server.url, kind) as client:
        same(client.predict(x=x, edge_index=edge_index, seed=1, **rows(undirected)), fixed)
        for step in range(6):
            for _ in range(10):
                change = model.draw(random)
                if model.apply(change):
                    client.update([change])
            if step == 3:
                client.compact()
            x, edge_index = drawn(model, random)
            there = [node for node in range(len(model.x)) if node not in model.removed]
            ids = np.concatenate([~np.arange(len(x)), random.choice(there, 5)])
            # What is kept of requests before and after must not show.
            before = client.predict(there[:20], seed=step)
            tensors = {"x": x, "edge_index": edge_index, **rows(undirected)}
            inline = client.predict(ids, **tensors, seed=step)
            only_new = client.predict(**tensors, seed=step)
            again = client.predict(there[:20], seed=step)
            same(again, before)
            assert inline.lsn == again.lsn
            lsn = written(client, x, edge_index).lsn
            assert lsn == inline.lsn + 1
            first = len(model.x)
            wanted = client.predict(np.where(ids < 0, first + ~ids, ids), seed=step)
            same(inline, wanted)
            same(only_new, client.predict(first + np.arange(len(x)), seed=step))
            for row in x:
                model.apply({"op": "add_node", "values": {"x": row.tolist()}})
            for source, target in np.where(edge_index < 0, first + ~edge_index, edge_index).T:
                model.apply({"op": "add_edge", "source": int(source), "target": int(target)})


@pytest.mark.parametrize(
    ("head", "kind", "undirected"), [("mlp", "gcn", True), ("dot", "gat", False)]
)
def test_scores_of_edges_are_those_after_the_same_updates(
    head: str, kind: str, undirected: bool, tmp_path: Path
) -> None:
    model = random_model(4, undirected=undirected)
    graph = model.write(tmp_path / "graph")
    config = {"model": ModelConfig(hidden=8, kind=kind), "link": LinkConfig(head=head)}  # type: ignore[arg-type]
    run = learn(graph, tmp_path / "run", "link", **config)
    random = np.random.default_rng(2)
    x, edge_index = drawn(model, random)
    pairs = np.array([[~0, 7], [9, ~0], [7, 9], [~0, ~(len(x) - 1)]])
    with Server(graph.root, run, CONFIG) as server, oc.Client(server.url, "run") as client:
        inline = client.predict(pairs, x=x, edge_index=edge_index, seed=3, **rows(undirected))
        written(client, x, edge_index)
        same(inline, client.predict(np.where(pairs < 0, len(model.x) + ~pairs, pairs), seed=3))
        with pytest.raises(InvalidError, match="expected one, `edge_ids`"):
            client.predict(x=x, edge_index=edge_index)


@pytest.mark.parametrize(
    ("features", "kind", "undirected"),
    [("floats", "gcn", True), ("categories", "gin", False), ("none", "sage", True)],
)
def test_predictions_of_graphs_are_those_after_they_are_registered(
    features: str, kind: str, undirected: bool, tmp_path: Path
) -> None:
    graphs = random_graphs(6, undirected=undirected, features=features)
    graph = graphs.write(tmp_path / "graph")
    config = {"model": ModelConfig(hidden=8, kind=kind), "graph": GraphConfig(layers=2)}  # type: ignore[arg-type]
    run = learn(graph, tmp_path / "run", "graph", **config)
    random = np.random.default_rng(7)
    new = [graphs.new_graph(random) for _ in range(3)]
    sizes = [len(one["nodes"]) for one in new]
    first = np.cumsum([0, *sizes])
    ends = [
        [first[at] + edge["source"], first[at] + edge["target"]]
        for at, one in enumerate(new)
        for edge in one["edges"]
    ]
    inputs: dict[str, Any] = {
        "edge_index": torch.tensor(np.array(ends).reshape(-1, 2).T),
        "batch": np.repeat(np.arange(3), sizes),
        **rows(undirected),
    }
    if features != "none":
        inputs["x"] = np.array([values["x"] for one in new for values in one["nodes"]])
    with Server(graph.root, run, CONFIG) as server, oc.Client(server.url, "run") as client:
        inline = client.predict(**inputs, seed=2)
        count = len(graphs.y)
        client.update(new)
        same(inline, client.predict([count, count + 1, count + 2], seed=2))
        one = {name: values for name, values in inputs.items() if name != "batch"}
        assert features == "none" or len(client.predict(**one).prediction) == 1
        with pytest.raises(InvalidError, match="expected either graph_ids or inline graphs"):
            client.predict([0], **inputs)
        split = {**inputs, "edge_index": np.array([[0], [sum(sizes) - 1]])}
        with pytest.raises(InvalidError, match="of another graph"):
            client.predict(**split)
        for batch, text in [
            ([0, 2], "graphs ascending from 0"),
            ([-1], "graphs ascending from 0"),
            ([-(2**63)], "graphs ascending from 0"),
            ([1], "graphs ascending"),
            ([0], "expected one number"),
        ]:
            if features != "none":
                with pytest.raises(InvalidError, match=text):
                    client.predict(**{**inputs, "batch": batch})


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("inline")
    model = random_model(3, undirected=True)
    run = trained(model.write(home / "graph"), "sage", home / "sage")
    with Server(home / "graph", run, replace(CONFIG, grpc_port=0, most_nodes=8)) as server:
        yield server


ROW = [[0.5] * COLUMNS]


@pytest.mark.parametrize(
    ("tensors", "text"),
    [
        ({"x": ROW, "edge_index": [[2**63 - 1], [-1]]}, "edge_index: 9223372036854775807"),
        ({"x": ROW, "edge_index": [[-(2**63)], [-1]]}, "edge_index: -9223372036854775808"),
        ({"x": ROW, "ids": [-(2**63)]}, "node_ids: -9223372036854775808"),
        ({"x": [[0.5]]}, "x: shape .* expected .n, "),
        ({"edge_index": [[~0], [1]]}, "x: expected a row for each inline node"),
        ({"x": ROW, "edge_index": [[1], [2]]}, "expected an inline node at one end"),
        ({"x": ROW, "edge_index": [[~1], [2]]}, "edge_index: -2, expected a node below 40"),
        ({"x": ROW, "edge_index": [[~0], [40]]}, "edge_index: 40, expected a node below 40"),
        ({"x": ROW, "edge_index": [[~0, 1]]}, "expected .2, n"),
        ({"x": ROW, "batch": [0]}, "batch: the model does not predict graphs"),
        ({"x": ROW, "ids": [~1]}, "node_ids: -2, expected one of 1 inline nodes"),
        ({"x": ROW, "ids": [40]}, "node_ids: 40, expected a node below 40"),
        ({"ids": [-1]}, "node_ids: -1, expected a node below 40"),
        ({"x": ROW * 9}, "inline nodes: 9, expected 8 at most"),
        ({"x": np.zeros((0, COLUMNS))}, "node_ids: 0 nodes, expected 1 to 8"),
        ({"x": [[1e39] * COLUMNS]}, "x: inline node 0"),
        ({"x": ROW, "edge_index": np.full((2, 600), -1)}, "600 edges, expected 512 at most"),
    ],
)
def test_wrong_inline_tensors_are_refused(
    tensors: dict[str, Any], text: str, served: Server
) -> None:
    with oc.Client(served.url, "sage") as client, pytest.raises(InvalidError, match=text):
        client.predict(**tensors)


@pytest.mark.parametrize("directions", [None, "both"])
def test_edges_in_both_directions_are_asked_about_or_taken_once(
    directions: Any, served: Server
) -> None:
    both = np.array([[7, 9, ~0, ~0], [~0, ~0, 7, 9]])
    with oc.Client(served.url, "sage") as client:
        once = client.predict(x=ROW, edge_index=both[:, :2], seed=2)
        same(client.predict(x=ROW, edge_index=both[:, 2:], seed=2), once)
        if directions is None:
            with pytest.raises(InvalidError, match="between node 7 and inline node 0 in both"):
                client.predict(x=ROW, edge_index=both, seed=2)
            return
        same(client.predict(x=ROW, edge_index=both, edge_directions="both", seed=2), once)
        with pytest.raises(InvalidError, match="1 from node 9 to inline node 0 and 0 back"):
            client.predict(x=ROW, edge_index=both[:, :3], edge_directions="both")
        for wrong in ({"edge_directions": "each"}, {"edge_directions": 2}):
            with pytest.raises(InvalidError, match="expected `one` or `both`"):
                client.predict(x=ROW, edge_index=both, **wrong)
        with pytest.raises(InvalidError, match="edge_directions: expected edge_index with it"):
            client.predict([1], edge_directions="one")


def test_a_removed_neighbour_and_a_tensor_given_twice_are_refused(served: Server) -> None:
    with oc.Client(served.url, "sage") as client:
        client.remove_node(39)
        with pytest.raises(NotFoundError, match="node 39 was removed"):
            client.predict(x=ROW, edge_index=[[~0], [39]])
        with pytest.raises(NotFoundError, match="node 39 was removed"):
            client.predict([39], x=ROW)
        x = {"name": "x", "datatype": "FP32", "shape": [1, COLUMNS], "data": ROW}
        status, answer = ask(served, "/v2/models/sage/infer", {"inputs": [x, x]})
        assert (status, answer["error"]) == (400, "input `x`: found twice")
        # Nothing of all this is in the graph.
        assert client.graph()["nodes"] == 40


def test_triton_clients_send_inline_requests(served: Server) -> None:
    with oc.Client(served.url, "sage") as client:
        wanted = client.predict(x=ROW, edge_index=[[7, 9], [~0, ~0]], seed=4)
        assert client.predict(x=ROW, seed=4).outputs["probability"].shape == (1, 3)
    for kind, url in [(tritonclient.http, served.url), (tritonclient.grpc, served.grpc_address)]:
        x = kind.InferInput("x", [1, COLUMNS], "FP32")
        x.set_data_from_numpy(np.array(ROW, np.float32))
        edges = kind.InferInput("edge_index", [2, 2], "INT64")
        edges.set_data_from_numpy(np.array([[7, 9], [-1, -1]]))
        with kind.InferenceServerClient(str(url).removeprefix("http://")) as caller:
            options = {"parameters": {"seed": 4}}
            found = caller.infer("sage", [x, edges], **options)
        np.testing.assert_array_equal(found.as_numpy("probability"), wanted.probability)


def test_metadata_names_the_inline_tensors(served: Server) -> None:
    _, described = ask(served, "/v2/models/sage")
    assert described["parameters"]["inline"] == [
        {"name": "x", "datatype": "FP32", "shape": [-1, COLUMNS]},
        {"name": "edge_index", "datatype": "INT64", "shape": [2, -1]},
    ]


def test_a_model_with_a_learnt_row_a_node_knows_no_other_node(tmp_path: Path) -> None:
    model = random_model(2, undirected=True, has_features=False)
    graph = model.write(tmp_path / "graph")
    run = learn(graph, tmp_path / "run", "link", model=ModelConfig(hidden=8))
    with (
        Server(graph.root, run, CONFIG) as server,
        oc.Client(server.url, "run") as client,
        pytest.raises(InvalidError, match="40"),
    ):
        client.predict([[~0, 1]], edge_index=[[~0], [1]])
