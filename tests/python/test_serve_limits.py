"""A server under clients that open many connections, send slowly or go away."""

from __future__ import annotations

import json
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from outercore.serving.server import Server
from test_live import CONFIG, random_model, trained
from test_serve import ask, infer, question
from test_serve_metrics import INFER, requests, scrape


@pytest.fixture(scope="module")
def many_files() -> Iterator[None]:
    """Both ends of the connections are in this process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 8192)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def server(many_files: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home: Path = tmp_path_factory.mktemp("limits")
    run = trained(random_model(1, undirected=True).write(home / "graph"), "sage", home / "sage")
    with Server(home / "graph", run, CONFIG) as running:
        yield running


def connect(server: Server) -> socket.socket:
    host, port = server.url.removeprefix("http://").rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout=30)


def until(holds: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < end, "it never came to be"
        time.sleep(0.01)


def test_1000_idle_connections_do_not_keep_others_from_answers(server: Server) -> None:
    with ExitStack() as stack:
        for _ in range(1000):
            stack.enter_context(connect(server)).sendall(b"GET /v2 HTTP/1.1\r\nHost:")
        assert ask(server, "/v2/health/ready") == (200, {"writes_fail": False})
        infer(server, [1, 2])
        assert scrape(server)["outercore_connections"] > 1
    until(lambda: scrape(server)["outercore_connections"] == 1)


def test_requests_whose_clients_have_gone_are_not_computed(server: Server) -> None:
    before = scrape(server)
    body = json.dumps(question(list(range(40)) * 6)).encode()
    head = f"POST /v2/models/sage/infer HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
    asked = 200
    with ExitStack() as stack:
        clients = [stack.enter_context(connect(server)) for _ in range(asked)]
        for client in clients:
            client.sendall(f"{head}\r\n\r\n".encode() + body[:-1])
        until(lambda: scrape(server)["outercore_connections"] == asked + 1)
        for client in clients:
            client.sendall(body[-1:])
    until(lambda: scrape(server)["outercore_connections"] == 1)
    until(lambda: scrape(server)["outercore_queue_requests"] == 0)
    after = scrape(server)

    def more(name: str) -> float:
        return after.get(name, 0) - before.get(name, 0)

    assert more(requests(INFER, "gone")) > 0
    assert more(requests(INFER, "gone")) + more(requests(INFER, "200")) == asked
    assert more("outercore_infer_stage_seconds_count{stage=compute}") < asked
    # Nothing of them is left.
    infer(server, [1])
