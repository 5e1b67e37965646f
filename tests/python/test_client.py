"""`oc.Client`: NumPy in and out, errors by kind, and connections that are dropped."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
import pytest

import outercore as oc
from outercore import errors
from outercore.serving.server import Server, ServerConfig
from test_live import COLUMNS, CONFIG, random_model, trained
from test_serve import infer, outputs
from test_serve_heads import infer as ask_edges
from test_serve_heads import learn


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("client")
    run = trained(random_model(1, undirected=True).write(home / "graph"), "sage", home / "sage")
    with Server(home / "graph", run, CONFIG) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[oc.Client]:
    with oc.Client(server.url, "sage") as found:
        yield found


def test_predictions_are_those_of_the_server(server: Server, client: oc.Client) -> None:
    expected = infer(server, [7, 9], seed=3)
    found = client.predict(np.array([7, 9]), seed=3)
    assert (found.seed, found.lsn) == (3, expected["parameters"]["lsn"])
    assert found.version == expected["model_version"]
    assert found.prediction.dtype == np.int64
    assert found.probability.dtype == np.float32
    for name, values in outputs(expected).items():
        np.testing.assert_array_equal(found.outputs[name], values.astype(found.outputs[name].dtype))


def test_every_change_is_seen_by_the_next_prediction(client: oc.Client) -> None:
    before = client.graph()
    row = np.linspace(0, 1, COLUMNS, dtype=np.float32)
    added = client.add_node({"x": row, "y": np.int64(2)})
    (node,) = (result["node"] for result in added.results)
    assert node == before["nodes"]
    edge = client.add_edge(node, np.int64(3))
    assert list(edge.results[0]) == ["edge"]
    assert client.update_node(node, {"x": row[::-1]}).results == [{"updated": True}]
    alone = client.predict([node], min_lsn=edge.lsn)
    assert alone.lsn == edge.lsn + 1 == before["lsn"] + 3
    assert client.remove_edge(node, 3).results == [{"removed": 1}]
    assert client.remove_node(node).lsn == client.compact() == client.graph()["compacted_lsn"]
    both = client.update(
        [
            {"op": "add_node", "values": {"x": row}},
            {"op": "add_edge", "source": {"new": 0}, "target": 3},
        ]
    )
    assert [list(result) for result in both.results] == [["node"], ["edge"]]
    assert client.is_ready()


def test_refusals_are_errors_by_kind(server: Server, client: oc.Client) -> None:
    lsn = client.graph()["lsn"]
    with pytest.raises(errors.InvalidError, match=r"status 400.*expected a node below"):
        client.predict([1000])
    with pytest.raises(errors.InvalidError, match=r"status 412.*the graph is at update"):
        client.predict([1], min_lsn=lsn + 1)
    with pytest.raises(errors.DeviceError, match=r"status 504.*the deadline passed"):
        client.predict([1], deadline_ms=0)
    with pytest.raises(errors.NotFoundError, match="no model `other`; there is `sage`"):
        oc.Client(server.url, "other").predict([1])
    with pytest.raises(errors.InvalidError, match="there is no edge from 0 to 0"):
        client.remove_edge(0, 0)
    with pytest.raises(errors.InvalidError, match="expected whole numbers, found float64"):
        client.predict([0.5])
    with pytest.raises(errors.InvalidError, match="expected `http://HOST:PORT`"):
        oc.Client("localhost:8100", "sage")
    # The connection is as good as before.
    assert client.graph()["lsn"] == lsn


def test_a_server_without_updates_and_one_that_is_gone_are_told(
    tmp_path: Path,
) -> None:
    run = trained(random_model(1, undirected=True).write(tmp_path / "g"), "sage", tmp_path / "sage")
    with Server(tmp_path / "g", run, ServerConfig(port=0, memory="64MiB")) as still:
        client = oc.Client(still.url, "sage")
        with pytest.raises(errors.UnsupportedError, match="takes no updates"):
            client.add_edge(1, 2)
        client.predict([1])
    with pytest.raises(errors.DeviceError, match="refused"):
        client.predict([1])


def test_edges_are_pairs_of_nodes(tmp_path: Path) -> None:
    graph = random_model(1, undirected=True).write(tmp_path / "g")
    run = learn(graph, tmp_path / "links", "link")
    pairs = np.array([[3, 7], [7, 3], [1, 2]], np.int32)
    with Server(graph.root, run, CONFIG) as server:
        expected = outputs(ask_edges(server, "edge_ids", pairs, seed=2))
        with oc.Client(server.url, "links") as client:
            found = client.predict(pairs, seed=2)
            np.testing.assert_array_equal(found.score, expected["score"].astype(np.float32))
            assert found.score[0] == found.score[1]
            with pytest.raises(errors.InvalidError, match="status 400"):
                client.predict([1, 2, 3])


class Dropping:
    """Answers each connection once, and closes it when the next request has come."""

    def __init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as sent:
                self.requests.append(self.read(sent))
                body = b'{"lsn": 1, "results": []}'
                head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode()
                connection.sendall(head + body)
                self.requests.append(self.read(sent))

    def read(self, sent: BinaryIO) -> bytes:
        """The first line of a request that was read to its end; nothing without one."""
        first = sent.readline()
        length = 0
        while (line := sent.readline()) not in (b"\r\n", b""):
            if line.lower().startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        sent.read(length)
        return first.rstrip()


def test_reads_are_sent_again_over_a_new_connection_and_writes_are_not() -> None:
    server = Dropping()
    graph, update = b"GET /graph HTTP/1.1", b"POST /graph/updates HTTP/1.1"
    with oc.Client(server.url, "sage") as client:
        client.graph()
        client.graph()
        assert server.requests == [graph] * 3
        with pytest.raises(errors.DeviceError, match="closed connection"):
            client.add_edge(1, 2)
        assert server.requests == [graph] * 3 + [update]
        client.add_edge(1, 2)
    server.listener.close()
    server.thread.join(timeout=30)
    assert server.requests == [graph] * 3 + [update, update, b""]
