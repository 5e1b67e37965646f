"""Newer weights of a model that is served: no request fails, and each answer names its version."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http

import outercore as oc
from outercore import _core
from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.serving.server import Server, ServerConfig
from outercore.training import export_model

CONFIG = ServerConfig(port=0, grpc_port=0, memory="64MiB", deadline_ms=60_000)
NODES = [7, 9, 7, 499]


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("load") / "graph"
    described = {"nodes": 500, "degree": 8, "features": 12, "classes": 4, "seed": 1}
    _core.generate_planted(root, described, lambda *_: None)
    return root


@pytest.fixture(scope="module")
def models(data_set: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Exported models: two of one shape, and others."""
    home = tmp_path_factory.mktemp("models")
    more: dict[str, dict[str, Any]] = {
        "first": {},
        "second": {"seed": 1},
        "wider": {"hidden": 12},
        "farther": {"fanout": (5, 3)},
        "gcn": {"model": "gcn"},
    }
    for name, options in more.items():
        chosen = {"fanout": (4, 3), "hidden": 8, "epochs": 1, **options}
        oc.train(data_set, out=home / f"run-{name}", **chosen)
        export_model(home / f"run-{name}", out=home / name)
    return {name: home / name for name in more}


@pytest.fixture
def served(models: dict[str, Path], data_set: Path, tmp_path: Path) -> Iterator[Server]:
    """A server of a directory with the first model."""
    shutil.copytree(models["first"], tmp_path / "papers")
    with Server(data_set, tmp_path / "papers", CONFIG) as server:
        yield server


def put(model: Path, place: Path) -> None:
    for file in model.iterdir():
        shutil.copy(file, place / file.name)


def answers(data_set: Path, model: Path) -> tuple[str, np.ndarray]:
    """Version and probabilities of a server that began with a model."""
    with Server(data_set, model, CONFIG) as server, oc.Client(server.url, server.name) as client:
        found = client.predict(NODES, seed=3)
        return found.version, found.probability


def test_newer_weights_answer_as_if_the_server_had_begun_with_them(
    served: Server, models: dict[str, Path], data_set: Path, tmp_path: Path
) -> None:
    first, second = (answers(data_set, models[name]) for name in ("first", "second"))
    assert first[0] != second[0]
    with oc.Client(served.url, "papers") as client:
        before = client.predict(NODES, seed=3)
        assert (before.version, before.probability.tolist()) == (first[0], first[1].tolist())
        put(models["second"], tmp_path / "papers")
        assert client.load() == second[0]
        after = client.predict(NODES, seed=3)
        assert (after.version, after.probability.tolist()) == (second[0], second[1].tolist())
        metrics = client._content("/metrics").decode()
        assert f'version="{second[0]}"' in metrics
        assert f'version="{first[0]}"' not in metrics
        with pytest.raises(NotFoundError, match="has no version"):
            client._ask("GET", f"/v2/models/papers/versions/{first[0]}")


def test_no_request_fails_while_models_come_and_go(
    served: Server, models: dict[str, Path], data_set: Path, tmp_path: Path
) -> None:
    expected = dict(answers(data_set, models[name]) for name in ("first", "second"))
    stop, found, failed = threading.Event(), [], []

    def ask() -> None:
        with oc.Client(served.url, "papers") as client:
            while not stop.is_set():
                try:
                    found.append(client.predict(NODES, seed=3))
                except Exception as error:  # Whatever it is, no request may fail.
                    failed.append(error)
                    return

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    with oc.Client(served.url, "papers") as client:
        for number in range(20):
            name = ("second", "first")[number % 2]
            put(models[name], tmp_path / "papers")
            version = client.load()
            assert client.predict(NODES, seed=3).version == version
    stop.set()
    for thread in threads:
        thread.join()
    assert failed == []
    assert {one.version for one in found} == set(expected)
    for one in found:
        assert np.array_equal(one.probability, expected[one.version])


@pytest.mark.parametrize(
    ("name", "part"), [("wider", "network"), ("farther", "input"), ("gcn", "network")]
)
def test_a_model_of_another_shape_is_refused_and_the_older_one_goes_on(
    served: Server, models: dict[str, Path], tmp_path: Path, name: str, part: str
) -> None:
    with oc.Client(served.url, "papers") as client:
        before = client.predict(NODES)
        put(models[name], tmp_path / "papers")
        with pytest.raises(InvalidError, match=f"another {part} .*restart the server"):
            client.load()
        after = client.predict(NODES)
    assert (before.version, before.probability.tolist()) == (
        after.version,
        after.probability.tolist(),
    )


@pytest.mark.parametrize("damage", ["missing", "cut", "others"])
def test_a_damaged_model_is_refused_and_the_older_one_goes_on(
    served: Server, models: dict[str, Path], tmp_path: Path, damage: str
) -> None:
    weights = tmp_path / "papers" / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    elif damage == "cut":
        weights.write_bytes(weights.read_bytes()[:-8])
    else:
        shutil.copy(models["second"] / weights.name, weights)
    with oc.Client(served.url, "papers") as client:
        with pytest.raises(InvalidError, match="no whole model"):
            client.load()
        assert client.predict(NODES).probability.shape == (4, 4)
    assert served.take_failures() != []


def test_int8_is_loaded_at_the_start_alone(
    models: dict[str, Path], data_set: Path, tmp_path: Path
) -> None:
    copied = tmp_path / "graph"
    shutil.copytree(data_set, copied)
    oc.open(copied)
    from outercore.cli import run

    assert run(["layout", str(copied), "--precision", "int8", "--order", "none"]) == 0
    config = ServerConfig(port=0, memory="64MiB", precision="int8", most_loss=100)
    with (
        Server(copied, models["first"], config) as server,
        oc.Client(server.url, "first") as client,
        pytest.raises(InvalidError, match=r"int8 is compared .* restart the server"),
    ):
        client.load()


def test_a_load_takes_no_parameters_and_only_its_own_model(served: Server) -> None:
    with oc.Client(served.url, "papers") as client:
        path = "/v2/repository/models/papers/load"
        for parameters in ({"config": "{}"}, {"file:1/model": "bytes"}):
            with pytest.raises(InvalidError, match="a load takes none"):
                client._ask("POST", path, {"parameters": parameters})
        with pytest.raises(NotFoundError, match="no model `other`"):
            client._ask("POST", "/v2/repository/models/other/load", {})
        with pytest.raises(InvalidError, match="no load request"):
            client._ask("POST", path, [1])


@pytest.mark.parametrize("protocol", ["http", "grpc"])
def test_clients_nobody_here_wrote_load_a_model(
    served: Server, models: dict[str, Path], tmp_path: Path, protocol: str
) -> None:
    put(models["second"], tmp_path / "papers")
    client: Any
    if protocol == "http":
        client = tritonclient.http.InferenceServerClient(served.url.removeprefix("http://"))
    else:
        client = tritonclient.grpc.InferenceServerClient(served.grpc_address)
    with client:
        before = index(client, protocol)
        assert (before["name"], before["state"]) == ("papers", "READY")
        client.load_model("papers")
        after = index(client, protocol)
        assert after["version"] != before["version"]
        with pytest.raises(tritonclient.utils.InferenceServerException, match="takes none"):
            client.load_model("papers", config="{}")


def index(client: Any, protocol: str) -> dict[str, Any]:
    found = client.get_model_repository_index(**({"as_json": True} if protocol == "grpc" else {}))
    (model,) = found["models"] if protocol == "grpc" else found
    return dict(model)


def test_a_load_needs_the_scope_of_updates(
    models: dict[str, Path], data_set: Path, tmp_path: Path
) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"read {'r' * 32}\nupdate {'u' * 32}\n")
    tokens.chmod(0o600)
    config = ServerConfig(port=0, memory="64MiB", tokens=tokens)
    with Server(data_set, models["first"], config) as server:
        with (
            oc.Client(server.url, "first", token="r" * 32) as reader,
            pytest.raises(UnsupportedError, match="403"),
        ):
            reader.load()
        with oc.Client(server.url, "first", token="u" * 32) as updater:
            assert json.dumps(updater.load())


def test_a_load_whose_client_goes_is_whole_all_the_same(
    served: Server, models: dict[str, Path], data_set: Path, tmp_path: Path
) -> None:
    second, _ = answers(data_set, models["second"])
    put(models["second"], tmp_path / "papers")
    host, port = served.url.removeprefix("http://").split(":")
    with oc.Client(served.url, "papers") as client:
        for _ in range(20):
            with socket.create_connection((host, int(port))) as gone:
                gone.sendall(
                    b"POST /v2/repository/models/papers/load HTTP/1.1\r\n"
                    b"Host: localhost\r\nContent-Length: 0\r\n\r\n"
                )
        assert client.load() == client.predict(NODES).version == second
        said = client._ask("GET", "/v2/models/papers")["versions"]
        assert said == [second]
