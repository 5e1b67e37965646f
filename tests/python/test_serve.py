"""`outercore serve`: what it answers is what the trained network says of the same neighbourhood."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
import torch

import outercore as oc
from outercore import _core
from outercore.errors import BudgetError, DeviceError, InvalidError, NotFoundError
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import Inputs
from outercore.importing.options import ImportOptions
from outercore.importing.plain_graph import open_inputs
from outercore.loading.loader import NeighborLoader
from outercore.serving.server import Server, ServerConfig
from outercore.training import (
    ModelConfig,
    OptimiserConfig,
    SamplingConfig,
    TrainConfig,
    export_model,
    train,
)
from outercore.training.exported import model_of
from outercore.training.model_files import load_model
from outercore.training.work import in_degrees

CONFIG = ServerConfig(port=0, memory="64MiB", deadline_ms=60_000)
KINDS = ["sage", "gcn", "gin", "gat", "mlp"]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("serve") / "graph"
    described = {"nodes": 500, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return oc.open(root)


@pytest.fixture(scope="module")
def runs(graph: oc.Graph, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A trained run of each kind of network."""
    home = tmp_path_factory.mktemp("runs")
    for kind in KINDS:
        config = TrainConfig(
            model=ModelConfig(kind=kind, hidden=8),
            sampling=SamplingConfig(fanout=(4, 3)),
            optimiser=OptimiserConfig(epochs=1),
        )
        train(graph.root, config, out=home / kind)
    return {kind: home / kind for kind in KINDS}


@pytest.fixture(scope="module")
def server(graph: oc.Graph, runs: dict[str, Path]) -> Iterator[Server]:
    with Server(graph.root, runs["sage"], CONFIG) as running:
        yield running


def ask(server: Server, path: str, body: Any = None) -> tuple[int, Any]:
    """Status and content of an answer; a body that is not bytes is sent as JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    try:
        headers = {"Content-Type": "application/json"}
        with urlopen(Request(server.url + path, data, headers), timeout=90) as answer:
            content = answer.read()
            return answer.status, json.loads(content) if content else None
    except HTTPError as error:
        return error.code, json.loads(error.read())


def question(nodes: list[int], **parameters: int) -> dict[str, Any]:
    ids = {"name": "node_ids", "datatype": "INT64", "shape": [len(nodes)], "data": nodes}
    return {"inputs": [ids], "parameters": parameters}


def infer(server: Server, nodes: list[int], **parameters: int) -> dict[str, Any]:
    """An answer without the age of the graph, which differs from request to request."""
    status, answer = ask(server, f"/v2/models/{server.name}/infer", question(nodes, **parameters))
    assert status == 200, answer
    found: dict[str, Any] = answer
    found["parameters"].pop("age_ms", None)
    return found


def outputs(answer: dict[str, Any]) -> dict[str, np.ndarray]:
    return {
        output["name"]: np.array(output["data"]).reshape(output["shape"])
        for output in answer["outputs"]
    }


@pytest.mark.parametrize("kind", KINDS)
def test_answers_are_those_of_the_trained_network(
    kind: str, graph: oc.Graph, runs: dict[str, Path]
) -> None:
    saved = load_model(runs[kind] / "model")
    nodes = [7, 9, 7, 499]
    with Server(graph.root, runs[kind], CONFIG) as running:
        for seed in (0, 5):
            found = outputs(infer(running, nodes, seed=seed))
            loader = NeighborLoader(
                graph,
                saved.config.sampling.fanout if kind != "mlp" else [],
                input_nodes=torch.tensor(nodes),
                batch_size=len(nodes),
                seed=seed,
            )
            (batch,) = loader
            degrees = None
            if saved.model.needs_degrees:
                loops = saved.model.counts_loops
                degrees = torch.from_numpy(in_degrees(graph, count_loops=loops))[batch.n_id]
            with torch.no_grad():
                logits = saved.model(batch, degrees)
            expected = torch.softmax(logits, 1).numpy()
            np.testing.assert_allclose(found["probability"], expected, rtol=0, atol=1e-5)
            np.testing.assert_array_equal(found["prediction"], logits.argmax(1).numpy())


def test_an_answer_is_the_same_to_the_bit_alone_and_beside_others(server: Server) -> None:
    alone = {
        (node, seed): infer(server, [node], seed=seed)
        for node in range(0, 500, 25)
        for seed in (0, 1)
    }
    with ThreadPoolExecutor(16) as pool:
        asked = list(alone) * 3
        found = list(pool.map(lambda key: infer(server, [key[0]], seed=key[1]), asked))
    for key, answer in zip(asked, found, strict=True):
        assert answer == alone[key]


def test_the_model_and_the_server_describe_themselves(server: Server) -> None:
    assert ask(server, "/v2/health/live") == (200, None)
    assert ask(server, "/v2/health/ready") == (200, {"writes_fail": False})
    assert ask(server, "/v2/models/sage/ready") == (200, {"writes_fail": False})
    assert ask(server, "/v2")[1]["name"] == "outercore"
    _, described = ask(server, "/v2/models/sage")
    assert described["inputs"] == [{"name": "node_ids", "datatype": "INT64", "shape": [-1]}]
    assert [output["name"] for output in described["outputs"]] == ["prediction", "probability"]
    (version,) = described["versions"]
    answer = infer(server, [3], seed=2)
    assert (answer["model_name"], answer["model_version"]) == ("sage", version)
    assert answer["parameters"] == {"seed": 2, "lsn": 0}
    body = {**question([3]), "id": "mine", "outputs": [{"name": "prediction"}]}
    _, answer = ask(server, f"/v2/models/sage/versions/{version}/infer", body)
    assert answer["id"] == "mine"
    assert list(outputs(answer)) == ["prediction"]


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/v2/models/other/infer", question([1]), 404, "no model `other`; there is `sage`"),
        ("/v2/models/sage/versions/1/infer", question([1]), 404, "has no version `1`"),
        ("/v3", None, 404, "no such path"),
        ("/v2/models/sage/infer", b"{", 400, "no inference request"),
        ("/v2/models/sage/infer", question([]), 400, "0 nodes, expected 1 to 256"),
        ("/v2/models/sage/infer", question([500]), 400, "expected a node below 500"),
        ("/v2/models/sage/infer", question([0] * 257), 400, "257 nodes"),
        ("/v2/models/sage/infer", question([0], fanout=3), 400, "parameter `fanout`"),
        ("/v2/models/sage/infer", question([0], deadline_ms=0), 504, "the deadline passed"),
        ("/v2/models/sage/infer", b" " * 671745, 413, "longer than 671744 bytes"),
    ],
)
def test_a_wrong_request_is_told_why(
    path: str, body: Any, status: int, text: str, server: Server
) -> None:
    found, answer = ask(server, path, body)
    assert found == status
    assert text in answer["error"]


def test_more_requests_than_may_wait_are_refused_at_once(
    graph: oc.Graph, runs: dict[str, Path]
) -> None:
    config = ServerConfig(port=0, memory="64MiB", queue=1, deadline_ms=60_000)
    with Server(graph.root, runs["sage"], config) as running:
        body = question(list(range(256)))
        with ThreadPoolExecutor(32) as pool:
            found = list(pool.map(lambda _: ask(running, "/v2/models/sage/infer", body), range(96)))
    statuses = {status for status, _ in found}
    assert statuses <= {200, 429}
    assert 200 in statuses
    for status, answer in found:
        if status == 429:
            assert "too many requests are waiting" in answer["error"]


def test_what_cannot_be_served_is_refused_before_it_listens(
    graph: oc.Graph, runs: dict[str, Path], tmp_path: Path
) -> None:
    with pytest.raises(InvalidError, match="other machines reach"):
        Server(graph.root, runs["sage"], ServerConfig(host="0.0.0.0", port=0))
    with pytest.raises(BudgetError):
        Server(graph.root, runs["sage"], ServerConfig(port=0, memory="64KiB"))
    with pytest.raises(NotFoundError, match="give a finished run"):
        Server(graph.root, tmp_path, ServerConfig(port=0))
    described = {"nodes": 50, "degree": 4, "features": 5, "classes": 4, "seed": 1}
    _core.generate_planted(tmp_path / "other", described, lambda *_: None)
    with pytest.raises(InvalidError, match="5 columns, the model was trained on 12"):
        Server(tmp_path / "other", runs["sage"], ServerConfig(port=0))
    with Server(graph.root, runs["sage"], ServerConfig(port=0)) as running:
        port = int(running.url.rsplit(":", 1)[1])
        with pytest.raises(DeviceError, match="cannot listen on"):
            Server(graph.root, runs["sage"], ServerConfig(port=port))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_command_serves_without_torch_until_a_signal(
    number: signal.Signals, graph: oc.Graph, runs: dict[str, Path]
) -> None:
    export_model(runs["sage"], overwrite=True)
    blocked = "import sys; sys.modules['torch'] = None; from outercore.cli import main; main()"
    command = ["serve", graph.root, "--model", runs["sage"], "--port", "0", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-c", blocked, *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        assert ready["model"] == "sage"
        body = json.dumps(question([3])).encode()
        path = ready["url"] + "/v2/models/sage/infer"
        request = Request(path, body, {"Content-Type": "application/json"})
        with urlopen(request, timeout=30) as answer:
            assert json.load(answer)["model_name"] == "sage"
        process.send_signal(number)
        rest, told = process.communicate(timeout=30)
        assert (process.returncode, told) == (0, "")
        assert [json.loads(line)["event"] for line in rest.splitlines()] == ["stopped"]
        assert datetime.fromisoformat(ready["time"]).tzinfo is not None
    finally:
        process.kill()


def test_an_answer_that_fails_tells_the_client_less_than_the_operator(
    runs: dict[str, Path], graph: oc.Graph, tmp_path: Path
) -> None:
    features = np.zeros((500, 12), np.float32)
    features[3, 0] = np.nan
    edges = np.stack([np.arange(499), np.arange(1, 500)])
    np.save(tmp_path / "edges.npy", edges)
    np.save(tmp_path / "x.npy", features)
    inputs = Inputs(edges=(str(tmp_path / "edges.npy"),), features=str(tmp_path / "x.npy"))
    options = ImportOptions(allow_nan=True)
    import_graph(open_inputs(inputs), tmp_path / "graph", options)
    with Server(tmp_path / "graph", runs["sage"], CONFIG) as running:
        status, answer = ask(running, "/v2/models/sage/infer", question([3]))
        assert status == 500
        assert "the server failed to answer" in answer["error"]
        (told,) = running.take_failures()
        assert "not finite" in told
        # Others are answered as before.
        assert ask(running, "/v2/models/sage/infer", question([100]))[0] == 200


def test_a_page_under_another_name_is_refused(server: Server) -> None:
    request = Request(server.url + "/v2", headers={"Host": "evil.example"})
    with pytest.raises(HTTPError) as refused:
        urlopen(request, timeout=30)
    assert refused.value.code == 403


def test_a_model_is_exported_again_where_it_was_trained_again(
    runs: dict[str, Path], tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(runs["mlp"], run)
    _, model = model_of(run)
    before = (model / "model.safetensors").read_bytes()
    assert model_of(run) == ("run", model)
    shutil.rmtree(run / "model")
    other = runs["sage"] / "model"
    shutil.copytree(other, run / "model")
    assert model_of(run) == ("run", model)
    assert (model / "model.safetensors").read_bytes() != before
