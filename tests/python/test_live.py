"""A served graph that changes: answers are those of the graph as it is, and every verb sees it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import outercore as oc
from outercore import _core
from outercore.errors import InvalidError
from outercore.loading.loader import NeighborLoader
from outercore.serving.server import Server, ServerConfig
from outercore.training import (
    ModelConfig,
    OptimiserConfig,
    SamplingConfig,
    TrainConfig,
    train,
)
from outercore.training.model_files import load_model
from outercore.training.work import in_degrees
from test_serve import ask, infer, outputs, question

COLUMNS = 5
CONFIG = ServerConfig(port=0, memory="64MiB", deadline_ms=60_000, updates=True)


@dataclass
class Model:
    """The graph that updates define: edges by id, features by node."""

    undirected: bool
    x: list[list[float]]
    edges: dict[int, tuple[int, int]]
    removed: set[int] = field(default_factory=set)
    next_edge: int = 0
    has_features: bool = True
    """Without features a model has a learnt row a node, and none for nodes that are added."""

    def write(self, root: Path) -> oc.Graph:
        """Import it anew; edges keep their order."""
        home = root.parent / f"{root.name}-files"
        home.mkdir()
        pairs = np.array([self.edges[key] for key in sorted(self.edges)]).reshape(-1, 2)
        np.save(home / "edges.npy", pairs.astype(np.int64))
        np.save(home / "x.npy", np.array(self.x, np.float32))
        np.save(home / "y.npy", np.arange(len(self.x)) % 3)
        np.save(home / "train.npy", np.array([n for n in range(20) if n not in self.removed]))
        command = ["import", home / "edges.npy", "--labels", home / "y.npy", "--out", root]
        command += ["--split", f"train={home / 'train.npy'}", "--nodes", len(self.x)]
        command += ["--features", home / "x.npy"] if self.has_features else []
        command += ["--undirected"] if self.undirected else []
        outercore(*command)
        return oc.open(root)

    def apply(self, update: dict[str, Any]) -> bool:
        """False: it is refused."""

        def there(node: int) -> bool:
            return node < len(self.x) and node not in self.removed

        ends = update.get("source"), update.get("target")
        match update["op"]:
            case "add_node":
                self.x.append(update["values"]["x"])
            case "update_node":
                if not there(update["node"]):
                    return False
                self.x[update["node"]] = update["values"]["x"]
            case "remove_node":
                if not there(update["node"]):
                    return False
                self.removed.add(update["node"])
                self.edges = {k: e for k, e in self.edges.items() if update["node"] not in e}
            case "add_edge":
                if not all(there(end) for end in ends):
                    return False
                self.edges[self.next_edge] = ends
                self.next_edge += 1
            case "remove_edge":
                if not all(there(end) for end in ends):
                    return False
                meant = {ends, ends[::-1]} if self.undirected else {ends}
                before = len(self.edges)
                self.edges = {k: e for k, e in self.edges.items() if e not in meant}
                return len(self.edges) < before
        return True

    def draw(self, random: np.random.Generator) -> dict[str, Any]:
        """A random update, sometimes one that is to be refused."""
        ops = ["add_edge"] * 4 + ["remove_edge", "remove_node"]
        op = random.choice([*ops, "add_node"] if self.has_features else ops)
        if self.has_features and random.random() < 0.2:
            op = "update_node"
        source, target = (int(n) for n in random.integers(len(self.x) + 1, size=2))
        row = random.standard_normal(len(self.x[0])).astype(np.float32)
        values = {"x": row.tolist()}
        if op == "remove_edge" and self.edges:
            source, target = self.edges[int(random.choice(list(self.edges)))]
        return {
            "add_edge": {"op": op, "source": source, "target": target},
            "remove_edge": {"op": op, "source": source, "target": target},
            "add_node": {"op": op, "values": values},
            "remove_node": {"op": op, "node": source},
            "update_node": {"op": op, "node": target, "values": values},
        }[op]


def outercore(*arguments: object) -> str:
    command = [sys.executable, "-m", "outercore", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def random_model(
    seed: int,
    *,
    undirected: bool,
    nodes: int = 40,
    edges: int = 150,
    columns: int = COLUMNS,
    has_features: bool = True,
) -> Model:
    random = np.random.default_rng(seed)
    x = random.standard_normal((nodes, columns)).astype(np.float32).tolist()
    pairs = random.integers(nodes, size=(edges, 2)).tolist()
    found = {key: (source, target) for key, (source, target) in enumerate(pairs)}
    return Model(undirected, x, found, next_edge=edges, has_features=has_features)


def trained(graph: oc.Graph, kind: str, out: Path) -> Path:
    config = TrainConfig(
        model=ModelConfig(kind=kind, hidden=8),
        sampling=SamplingConfig(fanout=(4, 3), valid="", test=""),
        optimiser=OptimiserConfig(epochs=1),
    )
    train(graph.root, config, out=out)
    return out


def expected(graph: oc.Graph, run: Path, nodes: list[int], seed: int) -> np.ndarray:
    """What the trained network says of the nodes in a data set that was written anew."""
    saved = load_model(run / "model")
    loader = NeighborLoader(
        graph, [4, 3], input_nodes=torch.tensor(nodes), batch_size=len(nodes), seed=seed
    )
    (batch,) = loader
    degrees = None
    if saved.model.needs_degrees:
        loops = saved.model.counts_loops
        degrees = torch.from_numpy(in_degrees(graph, count_loops=loops))[batch.n_id]
    with torch.no_grad():
        return torch.softmax(saved.model(batch, degrees), 1).numpy()


def update(server: Server, *updates: dict[str, Any]) -> tuple[int, Any]:
    return ask(server, "/graph/updates", {"updates": list(updates)})


@pytest.mark.parametrize(("kind", "undirected"), [("sage", True), ("gcn", False)])
def test_answers_are_those_of_the_graph_as_updates_make_it(
    kind: str, undirected: bool, tmp_path: Path
) -> None:
    model = random_model(7, undirected=undirected)
    run = trained(model.write(tmp_path / "graph"), kind, tmp_path / kind)
    random = np.random.default_rng(3)
    with Server(tmp_path / "graph", run, CONFIG) as server:
        lsn = 0
        for step in range(60):
            drawn = model.draw(random)
            status, answer = update(server, drawn)
            assert (status == 200) == model.apply(drawn), (drawn, answer)
            if status == 200:
                lsn += 1
                assert answer["lsn"] == lsn
            else:
                assert status in (400, 404), answer
            if step % 12 != 11:
                continue
            if step == 35:
                assert ask(server, "/graph/compact", {}) == (200, {"lsn": lsn})
            written = model.write(tmp_path / f"written-{step}")
            nodes = [n for n in range(len(model.x)) if n not in model.removed][::3]
            answer = infer(server, nodes, seed=step, min_lsn=lsn)
            assert answer["parameters"] == {"seed": step, "lsn": lsn}
            found = outputs(answer)["probability"]
            wanted = expected(written, run, nodes, step)
            np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-5)
        _, described = ask(server, "/graph")
        assert described["nodes"] == len(model.x)
        assert described["removed_nodes"] == len(model.removed)
        assert described["compacted_lsn"] < described["lsn"] == lsn
        gone = min(model.removed)
        status, answer = ask(server, f"/v2/models/{kind}/infer", question([gone]))
        assert (status, answer["error"]) == (404, f"node {gone} was removed")
        before = infer(server, nodes, seed=1)
    # The log is folded into the arrays when they are opened: nothing of the answer changes.
    report = json.loads(outercore("check", tmp_path / "graph", "--json"))
    assert report["sound"]
    assert report["updates"] == described["lsn"] - described["compacted_lsn"]
    with Server(tmp_path / "graph", run, CONFIG) as server:
        assert infer(server, nodes, seed=1) == before
    graph, written = oc.open(tmp_path / "graph"), model.write(tmp_path / "last")
    for key in ("offsets", "sources"):
        np.testing.assert_array_equal(graph.array(key), written.array(key))
    np.testing.assert_array_equal(graph.array("x"), written.array("x"))
    assert graph.manifest["live"]["lsn"] == lsn
    assert not set(graph.split("train").tolist()) & model.removed
    with Server(tmp_path / "graph", run, ServerConfig(port=0, memory="64MiB")) as server:
        assert infer(server, nodes, seed=1) == before
        assert ask(server, f"/v2/models/{kind}/infer", question([gone]))[0] == 404
        status, answer = update(server, {"op": "add_edge", "source": 0, "target": 1})
        assert (status, "`updates`" in answer["error"]) == (403, True)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Any:
    home = tmp_path_factory.mktemp("live")
    model = random_model(1, undirected=True)
    graph = model.write(home / "graph")
    run = trained(graph, "sage", home / "sage")
    with Server(graph.root, run, CONFIG) as server:
        yield server, graph.root


X = [0.0] * COLUMNS


@pytest.mark.parametrize(
    ("updates", "status", "text"),
    [
        ([], 400, "updates: 0, expected 1 to"),
        ([{"op": "grow"}], 400, "unknown variant `grow`"),
        ([{"op": "add_edge", "source": 1}], 400, "missing field `target`"),
        ([{"op": "add_edge", "source": -1, "target": 2}], 400, "the body is no list of updates"),
        ([{"op": "add_edge", "source": 1, "target": 10**6}], 400, "expected a node below 40"),
        ([{"op": "add_edge", "source": {"new": 0}, "target": 1}], 400, "0 nodes were added before"),
        ([{"op": "add_edge", "source": 1, "target": 2, "values": {"w": 1}}], 400, "there is none"),
        ([{"op": "add_node"}], 400, "`nodes/node/x`: a new row needs a value"),
        ([{"op": "add_node", "values": {"x": [1, 2]}}], 400, "2 numbers, expected 5"),
        ([{"op": "add_node", "values": {"x": [*X[:4], None]}}], 400, "null is no value of type fl"),
        ([{"op": "add_node", "values": {"x": [*X[:4], 1e39]}}], 400, "1e+39 is no value of type"),
        ([{"op": "add_node", "values": {"x": X, "y": 1.5}}], 400, "1.5 is no value of type int64"),
        ([{"op": "add_node", "values": {"x": X, "z": 1}}], 400, "no array `z`; there is x, y"),
        ([{"op": "update_node", "node": 1, "values": {}}], 400, "expected at least one array"),
        ([{"op": "remove_edge", "source": 0, "target": 0}], 400, "there is no edge from 0 to 0"),
        ([{"op": "remove_node", "node": 40}], 400, "node 40: expected a node below 40"),
    ],
)
def test_a_wrong_update_is_told_why_and_changes_nothing(
    updates: list[dict[str, Any]], status: int, text: str, served: Any
) -> None:
    server, _ = served
    before = ask(server, "/graph")
    # Beside a right one: both are refused.
    right = [{"op": "update_node", "node": 3, "values": {"y": 1}}] if updates else []
    found, answer = update(server, *right, *updates)
    assert found == status, answer
    assert text in answer["error"]
    assert ask(server, "/graph") == before


def test_a_request_that_wants_a_newer_graph_is_refused(served: Any) -> None:
    server, _ = served
    lsn = ask(server, "/graph")[1]["lsn"]
    body = question([1], min_lsn=lsn + 1)
    status, answer = ask(server, "/v2/models/sage/infer", body)
    assert (status, answer["error"]) == (
        412,
        f"min_lsn: {lsn + 1}, the graph is at update {lsn}",
    )


def test_a_node_with_its_edges_is_one_update(served: Any) -> None:
    server, root = served
    _, before = ask(server, "/graph")
    new = {"new": 0}
    status, answer = update(
        server,
        {"op": "add_node", "values": {"x": X}},
        {"op": "add_edge", "source": new, "target": 5},
        {"op": "add_edge", "source": 6, "target": new},
        {"op": "remove_edge", "source": 5, "target": new},
    )
    node = before["nodes"]
    first = answer["results"][1]["edge"]
    assert status == 200
    assert answer == {
        "lsn": before["lsn"] + 1,
        "results": [{"node": node}, {"edge": first}, {"edge": first + 1}, {"removed": 1}],
    }
    # Another process sees it although the server has the data set.
    opened = oc.open(root)
    assert opened.num_nodes == node + 1
    ends = opened.array("offsets")[node : node + 2]
    assert opened.array("sources")[int(ends[0]) : int(ends[1])].tolist() == [6]
    assert int(opened.array("y")[node]) == -1
    with pytest.raises(InvalidError, match="a server takes updates for it"):
        opened.add_node_array("z", np.zeros(node + 1))
    with pytest.raises(InvalidError, match="serves it with updates"):
        Server(root, Path(root).parent / "sage", CONFIG)


def test_every_answer_has_seen_what_it_asks_for_while_many_write(served: Any) -> None:
    server, _ = served

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(25):
            node = int(random.integers(20, 40))
            values = {"x": [float(v) for v in random.standard_normal(COLUMNS)]}
            status, written = update(server, {"op": "update_node", "node": node, "values": values})
            assert status == 200, written
            answer = infer(server, [node], min_lsn=written["lsn"])
            assert answer["parameters"]["lsn"] >= written["lsn"]

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_every_verb_sees_what_a_killed_server_has_acknowledged(tmp_path: Path) -> None:
    model = random_model(5, undirected=False)
    graph = model.write(tmp_path / "graph")
    run = trained(graph, "sage", tmp_path / "sage")
    command = ["serve", graph.root, "--model", run, "--port", 0, "--updates", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "outercore", *map(str, command)],
        stdout=subprocess.PIPE,
        text=True,
    )

    class Reached:
        url: str

    assert process.stdout is not None
    Reached.url = json.loads(process.stdout.readline())["url"]
    for change in (
        {"op": "add_node", "values": {"x": [1.0] * COLUMNS}},
        {"op": "add_edge", "source": 3, "target": 40},
        {"op": "add_edge", "source": 40, "target": 4},
        {"op": "remove_node", "node": 9},
    ):
        assert update(Reached, change)[0] == 200  # type: ignore[arg-type]
        assert model.apply(change)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=30)
    written = model.write(tmp_path / "written")
    ranks = outercore("run", "pagerank", graph.root, "--out", tmp_path / "a.npy")
    assert ranks is not None
    outercore("run", "pagerank", written.root, "--out", tmp_path / "b.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "a.npy"), np.load(tmp_path / "b.npy"))
    described = json.loads(outercore("info", graph.root, "--json"))
    assert described["node_types"]["node"]["count"] == 41
    opened = oc.open(graph.root)
    report = _core.check(opened.root, lambda *_: None)
    assert (report["sound"], report["updates"]) == (True, 0)
    np.testing.assert_array_equal(opened.array("sources"), written.array("sources"))
