"""Edges and whole graphs of a served graph that changes: answers are those of the network."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from outercore.data.many_graphs import ManyGraphs
from outercore.errors import InvalidError, NotFoundError
from outercore.serving.server import Server, ServerConfig
from outercore.training import ModelConfig
from outercore.training.config import GraphConfig, LinkConfig
from test_live import CONFIG, Model, outercore, random_model, update
from test_serve import ask, outputs
from test_serve_heads import expected_of_graphs, expected_scores, infer, learn, read_graphs


def pairs_of(model: Model, random: np.random.Generator) -> np.ndarray:
    """Pairs of nodes that are there, a node with itself among them."""
    there = [node for node in range(len(model.x)) if node not in model.removed]
    pairs = random.choice(there, size=(12, 2))
    pairs[-1] = pairs[-1, 0]
    return pairs


@pytest.mark.parametrize(
    ("score", "kind", "undirected", "has_features"),
    [
        ("dot", "sage", True, True),
        ("diagonal", "gcn", False, True),
        ("mlp", "gin", True, True),
        ("dot", "gat", False, False),
        ("mlp", "gcn", True, False),
    ],
)
def test_scores_of_edges_are_those_of_the_graph_as_updates_make_it(
    score: str, kind: str, undirected: bool, has_features: bool, tmp_path: Path
) -> None:
    model = random_model(11, undirected=undirected, has_features=has_features)
    graph = model.write(tmp_path / "graph")
    run = learn(
        graph,
        tmp_path / "run",
        "link",
        model=ModelConfig(hidden=8, kind=kind),  # type: ignore[arg-type]
        link=LinkConfig(head=score),  # type: ignore[arg-type]
    )
    random = np.random.default_rng(5)
    lsn = 0
    with Server(graph.root, run, CONFIG) as server:
        for step in range(60):
            drawn = model.draw(random)
            status, answer = update(server, drawn)
            assert (status == 200) == model.apply(drawn), (drawn, answer)
            lsn += status == 200
            if step % 12 != 11:
                continue
            pairs = pairs_of(model, random)
            answer = infer(server, "edge_ids", pairs, seed=step, min_lsn=lsn)
            assert answer["parameters"] == {"seed": step, "lsn": lsn}
            written = model.write(tmp_path / f"written-{step}")
            wanted = expected_scores(written, run, pairs, seed=step)
            found = outputs(answer)
            np.testing.assert_allclose(found["score"], wanted.numpy(), rtol=1e-5, atol=1e-5)
            np.testing.assert_allclose(
                found["probability"], torch.sigmoid(wanted).numpy(), rtol=0, atol=1e-5
            )
            if step == 35:
                assert ask(server, "/graph/compact", {}) == (200, {"lsn": lsn})
                assert infer(server, "edge_ids", pairs, seed=step) == answer
        assert model.removed
        gone = min(model.removed)
        tensor = {"name": "edge_ids", "datatype": "INT64", "shape": [1, 2], "data": [0, gone]}
        status, refused = ask(server, "/v2/models/run/infer", {"inputs": [tensor]})
        assert (status, refused["error"]) == (404, f"node {gone} was removed")
        assert ask(server, "/graph")[1]["compacted_lsn"] < lsn
    # From the log, and from the arrays into which it is folded.
    with Server(graph.root, run, CONFIG) as server:
        assert infer(server, "edge_ids", pairs, seed=step) == answer
        assert ask(server, "/graph/compact", {}) == (200, {"lsn": lsn})
    with Server(graph.root, run, CONFIG) as server:
        assert ask(server, "/graph")[1]["compacted_lsn"] == lsn
        assert infer(server, "edge_ids", pairs, seed=step) == answer


COLUMNS = {"floats": 5, "categories": 3, "none": 0}


@dataclass
class Graphs:
    """The graphs that updates define: rows and graphs of nodes, edges by id, labels of graphs."""

    undirected: bool
    features: str
    x: list[list[float]] = field(default_factory=list)
    of: list[int] = field(default_factory=list)
    edges: dict[int, tuple[int, int]] = field(default_factory=dict)
    y: list[int] = field(default_factory=list)
    removed: set[int] = field(default_factory=set)
    unregistered: set[int] = field(default_factory=set)
    next_edge: int = 0

    @property
    def there(self) -> list[int]:
        """Ids of the graphs that are not unregistered."""
        return [graph for graph in range(len(self.y)) if graph not in self.unregistered]

    def nodes(self, graph: int) -> list[int]:
        return [n for n, of in enumerate(self.of) if of == graph and n not in self.removed]

    def write(self, root: Path) -> oc.Graph:
        """Import those that are there anew: graph by graph, nodes and edges in their order."""
        home = root.parent / f"{root.name}-files"
        home.mkdir()
        nodes = [node for graph in self.there for node in self.nodes(graph)]
        place = {node: at for at, node in enumerate(nodes)}
        pairs = [[place[end] for end in self.edges[key]] for key in sorted(self.edges)]
        number = {graph: at for at, graph in enumerate(self.there)}
        np.save(home / "edges.npy", np.array(pairs, np.int64).reshape(-1, 2))
        np.save(home / "graphs.npy", np.array([number[self.of[node]] for node in nodes]))
        np.save(home / "y.npy", np.array([self.y[graph] for graph in self.there]))
        np.save(home / "train.npy", np.array([number[g] for g in self.there if g < 20]))
        kind = np.int64 if self.features == "categories" else np.float32
        np.save(home / "x.npy", np.array([self.x[node] for node in nodes], kind))
        command = ["import", home / "edges.npy", "--graph-ids", home / "graphs.npy"]
        command += ["--labels", home / "y.npy", "--split", f"train={home / 'train.npy'}"]
        command += [] if self.features == "none" else ["--features", home / "x.npy"]
        command += ["--undirected"] if self.undirected else []
        outercore(*command, "--out", root)
        return oc.open(root)

    def values(self, random: np.random.Generator) -> dict[str, Any]:
        """Of a new node."""
        if self.features == "categories":
            return {"x": random.integers(4, size=COLUMNS["categories"]).tolist()}
        if self.features == "none":
            return {}
        drawn = random.standard_normal(COLUMNS["floats"]).astype(np.float32)
        return {"x": [float(value) for value in drawn]}

    def new_graph(self, random: np.random.Generator) -> dict[str, Any]:
        count = int(random.integers(1, 7))
        ends = random.integers(count, size=(int(random.integers(2 * count)), 2)).tolist()
        return {
            "op": "register_graph",
            "values": {"y": int(random.integers(2))},
            "nodes": [self.values(random) for _ in range(count)],
            "edges": [{"source": source, "target": target} for source, target in ends],
        }

    def draw(self, random: np.random.Generator) -> dict[str, Any]:
        """A random update, sometimes one that is to be refused."""
        node, other = (int(n) for n in random.integers(len(self.x) + 1, size=2))
        graph = int(random.integers(len(self.y) + 1))
        if node < len(self.x) and random.random() < 0.9:
            other = int(random.choice(self.nodes(self.of[node]) or [other]))
        ends = {"source": node, "target": other}
        known = {"source": 0, "target": 0}
        if self.edges:
            source, target = self.edges[int(random.choice(list(self.edges)))]
            known = {"source": source, "target": target}
        ops = [
            *[{"op": "add_edge", **ends}] * 4,
            {"op": "remove_edge", **known},
            *[{"op": "add_node", "graph": graph, "values": self.values(random)}] * 2,
            {"op": "remove_node", "node": node},
            self.new_graph(random),
            {"op": "unregister_graph", "graph": graph},
        ]
        if self.features != "none":
            ops += [{"op": "update_node", "node": node, "values": self.values(random)}] * 2
        return ops[int(random.integers(len(ops)))]

    def apply(self, update: dict[str, Any]) -> bool:
        """False: it is refused."""
        if update["op"] == "register_graph":
            first = len(self.x)
            self.y.append(update["values"]["y"])
            for values in update["nodes"]:
                self._add_node(len(self.y) - 1, values)
            for edge in update["edges"]:
                self._add_edge(first + edge["source"], first + edge["target"])
            return True
        if "graph" in update and update["graph"] not in self.there:
            return False
        ends = [update[end] for end in ("source", "target", "node") if end in update]
        if any(node >= len(self.x) or node in self.removed for node in ends):
            return False
        match update["op"]:
            case "add_node":
                self._add_node(update["graph"], update["values"])
            case "update_node":
                self.x[update["node"]] = update["values"]["x"]
            case "remove_node":
                if len(self.nodes(self.of[update["node"]])) == 1:
                    return False
                self._remove_node(update["node"])
            case "unregister_graph":
                for node in self.nodes(update["graph"]):
                    self._remove_node(node)
                self.unregistered.add(update["graph"])
            case "add_edge":
                if self.of[ends[0]] != self.of[ends[1]]:
                    return False
                self._add_edge(*ends)
            case "remove_edge":
                meant = {tuple(ends), tuple(ends[::-1])} if self.undirected else {tuple(ends)}
                before = len(self.edges)
                self.edges = {k: e for k, e in self.edges.items() if e not in meant}
                return len(self.edges) < before
        return True

    def _add_node(self, graph: int, values: dict[str, Any]) -> None:
        self.x.append(values.get("x", []))
        self.of.append(graph)

    def _add_edge(self, source: int, target: int) -> None:
        self.edges[self.next_edge] = (source, target)
        self.next_edge += 1

    def _remove_node(self, node: int) -> None:
        self.removed.add(node)
        self.edges = {k: ends for k, ends in self.edges.items() if node not in ends}


def random_graphs(seed: int, *, undirected: bool, features: str) -> Graphs:
    random, graphs = np.random.default_rng(seed), Graphs(undirected, features)
    for _ in range(30):
        assert graphs.apply(graphs.new_graph(random))
    return graphs


@pytest.mark.parametrize(
    ("features", "kind", "readout", "undirected"),
    [
        ("floats", "gcn", "mean", True),
        ("categories", "gin", "sum", False),
        ("none", "sage", "max", True),
    ],
)
def test_predictions_of_graphs_are_those_of_the_graphs_as_updates_make_them(
    features: str, kind: str, readout: str, undirected: bool, tmp_path: Path
) -> None:
    graphs = random_graphs(3, undirected=undirected, features=features)
    graph = graphs.write(tmp_path / "graph")
    run = learn(
        graph,
        tmp_path / "run",
        "graph",
        model=ModelConfig(hidden=8, kind=kind),  # type: ignore[arg-type]
        graph=GraphConfig(layers=3, readout=readout),  # type: ignore[arg-type]
    )
    random = np.random.default_rng(4)
    lsn = 0
    with Server(graph.root, run, CONFIG) as server:
        for step in range(96):
            drawn = graphs.draw(random)
            status, answer = update(server, drawn)
            assert (status == 200) == graphs.apply(drawn), (drawn, answer)
            lsn += status == 200
            assert status in (200, 400, 404), answer
            if step % 24 != 23:
                continue
            answer = infer(server, "graph_ids", graphs.there, min_lsn=lsn)
            assert answer["parameters"]["lsn"] == lsn
            written = graphs.write(tmp_path / f"written-{step}")
            logits = expected_of_graphs(written, run, list(range(len(graphs.there))))
            np.testing.assert_allclose(
                outputs(answer)["probability"], torch.softmax(logits, 1), rtol=0, atol=1e-5
            )
            if step == 47:
                assert ask(server, "/graph/compact", {}) == (200, {"lsn": lsn})
                assert infer(server, "graph_ids", graphs.there) == answer
        _, described = ask(server, "/graph")
        assert described["graphs"] == len(graphs.y)
        assert described["unregistered_graphs"] == len(graphs.unregistered)
        assert described["compacted_lsn"] < lsn
        gone = min(graphs.unregistered)
        tensor = {"name": "graph_ids", "datatype": "INT64", "shape": [1], "data": [gone]}
        status, refused = ask(server, "/v2/models/run/infer", {"inputs": [tensor]})
        assert (status, refused["error"]) == (404, f"graph {gone} was unregistered")
    # From the log, from the arrays into which it is folded, and without updates.
    with Server(graph.root, run, CONFIG) as server:
        assert infer(server, "graph_ids", graphs.there) == answer
        assert ask(server, "/graph/compact", {}) == (200, {"lsn": lsn})
    for updates in (CONFIG, ServerConfig(port=0, memory="64MiB", deadline_ms=60_000)):
        with Server(graph.root, run, updates) as server:
            assert infer(server, "graph_ids", graphs.there) == answer
            assert ask(server, "/graph")[1]["unregistered_graphs"] == len(graphs.unregistered)
    assert_folded(graphs, graph.root, written, run)
    # What is folded can be learnt from.
    learn(oc.open(graph.root), tmp_path / "again", "graph", graph=GraphConfig(layers=2))


def assert_folded(graphs: Graphs, root: Path, written: oc.Graph, run: Path) -> None:
    """The folded arrays hold what `written` does, under the ids that clients know."""
    report = json.loads(outercore("check", root, "--json"))
    assert report["sound"], report
    opened = oc.open(root)
    assert opened.manifest["version"] == 3
    many, anew = ManyGraphs(opened), ManyGraphs(written)
    assert many.num_nodes == len(graphs.y)
    assert many.num_unregistered == len(graphs.unregistered)
    train = [graphs.there[at] for at in anew.split("train")]
    assert many.split("train").tolist() == train
    np.testing.assert_array_equal(many.array("y"), graphs.y)
    batch = read_graphs(opened, run, graphs.there)
    expected = read_graphs(written, run, list(range(len(graphs.there))))
    for name in ("x", "edge_index", "graph", "y"):
        torch.testing.assert_close(getattr(batch, name), getattr(expected, name), rtol=0, atol=0)
    assert f"{len(graphs.unregistered):,} of them unregistered" in outercore("info", root)


def test_graphs_are_registered_and_changed_by_a_client(tmp_path: Path) -> None:
    graphs = random_graphs(5, undirected=True, features="floats")
    graph = graphs.write(tmp_path / "graph")
    run = learn(graph, tmp_path / "run", "graph", graph=GraphConfig(layers=2))
    count, nodes = len(graphs.y), len(graphs.x)
    x = np.random.default_rng(1).standard_normal((3, 5)).astype(np.float32)
    with Server(graph.root, run, CONFIG) as server, oc.Client(server.url, "run") as client:
        written = client.register_graph([{"x": row} for row in x], [(0, 1), (1, 2)], {"y": 1})
        assert written.results == [{"graph": count, "first_node": nodes}]
        before = client.predict([count, 0], min_lsn=written.lsn)
        # A node with its edge, in one update.
        joined = client.update(
            [
                {"op": "add_node", "graph": count, "values": {"x": x[0]}},
                {"op": "add_edge", "source": {"new": 0}, "target": nodes},
            ]
        )
        assert joined.results[0] == {"node": nodes + 3}
        after = client.predict([count, 0], min_lsn=joined.lsn)
        assert (after.probability[0] != before.probability[0]).any()
        np.testing.assert_array_equal(after.probability[1], before.probability[1])
        assert client.unregister_graph(count).results == [{"removed": 3}]
        with pytest.raises(NotFoundError, match=f"graph {count} was unregistered"):
            client.predict([count])
        with pytest.raises(NotFoundError, match=f"graph {count} was unregistered"):
            client.add_node({"x": x[0]}, graph=count)
        with pytest.raises(InvalidError, match="a new node needs `graph`"):
            client.add_node({"x": x[0]})
        with pytest.raises(InvalidError, match="no edge connects two graphs"):
            client.add_edge(0, nodes - 1)
        with pytest.raises(InvalidError, match="a graph without nodes"):
            client.register_graph([], [])
        with pytest.raises(InvalidError, match="values: no array `z`; there is y"):
            client.register_graph([{"x": x[0]}], [], {"z": 1})
        with pytest.raises(InvalidError, match="edge 0: node 1, expected a place below 1"):
            client.register_graph([{"x": x[0]}], [(0, 1)])
