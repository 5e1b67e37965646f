"""Web pages of other sites: a browser sends their requests, and the server refuses them."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from outercore.serving.server import Server
from test_live import CONFIG, random_model, trained
from test_serve import ask, question

JSON = "application/json"
READ, UPDATE = "read-token-0123456789", "update-token-0123456789"
FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://localhost:3000"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "cors"},
    {"Host": "rebound.example"},
    {"Host": "rebound.example:8100", "Origin": "http://rebound.example:8100"},
]
OTHER_TYPES = ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("sites")
    trained(random_model(1, undirected=True).write(home / "graph"), "sage", home / "sage")
    (home / "tokens").write_text(f"read {READ}\nupdate {UPDATE}\n")
    return home


@pytest.fixture(scope="module")
def server(home: Path) -> Iterator[Server]:
    config = replace(CONFIG, analyses="32MiB", grpc_port=0)
    with Server(home / "graph", home / "sage", config) as running:
        yield running


def send(
    server: Server, method: str, path: str, headers: dict[str, str], body: bytes | None
) -> tuple[int, bytes]:
    address = urlsplit(server.url).netloc
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def routes(server: Server) -> list[tuple[str, str, bytes | None]]:
    """Method, path and a body that is right, of every route that the server describes."""
    _, described = ask(server, "/openapi.json")
    version = ask(server, "/v2/models/sage")[1]["versions"][0]
    bodies: dict[str, Any] = {
        "infer": question([1]),
        "updates": {"updates": [{"op": "add_edge", "source": 1, "target": 2}]},
        "analyses": {"algorithm": "pagerank"},
    }
    found = []
    for path, item in described["paths"].items():
        there = path.replace("{model}", "sage").replace("{version}", version).replace("{id}", "1")
        for method in item:
            body = json.dumps(bodies.get(path.rsplit("/", 1)[1], {})).encode()
            found.append((method.upper(), there, body if method == "post" else None))
    return found


def state(server: Server) -> tuple[Any, Any]:
    """What a request could have changed."""
    graph = ask(server, "/graph")[1]
    analyses = ask(server, "/graph/analyses")[1]["analyses"]
    return (graph["lsn"], graph["compacted_lsn"]), [one["id"] for one in analyses]


@pytest.mark.parametrize("foreign", FOREIGN, ids=str)
def test_no_route_answers_a_page_of_another_site(foreign: dict[str, str], server: Server) -> None:
    before = state(server)
    for method, path, body in routes(server):
        status, content = send(server, method, path, {"Content-Type": JSON, **foreign}, body)
        assert status == 403, (method, path, content)
        assert b"error" in content
    assert state(server) == before


@pytest.mark.parametrize("kind", OTHER_TYPES)
def test_no_route_takes_a_body_of_a_type_that_pages_may_send(kind: str, server: Server) -> None:
    before = state(server)
    posts = [(path, body) for method, path, body in routes(server) if method == "POST"]
    assert len(posts) >= 7
    for path, body in posts:
        for sent in (body, b""):
            status, content = send(server, "POST", path, {"Content-Type": kind}, sent)
            assert status == 415, (path, content)
    assert state(server) == before


def test_routes_of_the_graph_need_a_type_and_those_of_the_protocol_do_not(server: Server) -> None:
    for method, path, body in routes(server):
        if method == "POST":
            status, content = send(server, method, path, {}, body)
            assert status == (415 if path.startswith("/graph") else 200), (path, content)


def test_a_request_without_a_body_needs_no_type_and_may_not_come_from_a_page(
    server: Server,
) -> None:
    for _, path, _ in (route for route in routes(server) if route[0] == "POST"):
        status, content = send(server, "POST", path, {}, None)
        assert status in {200, 400}, (path, content)
        status, content = send(server, "POST", path, {"Origin": "http://evil.example"}, None)
        assert status == 403, (path, content)
    assert send(server, "POST", "/graph/compact", {}, None)[0] == 200


def test_a_page_may_not_ask_for_permission(server: Server) -> None:
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Method": "POST"}
    for _, path, _ in routes(server):
        status, _ = send(server, "OPTIONS", path, asked, None)
        assert status == 403
    status, _ = send(server, "OPTIONS", "/graph/updates", {}, None)
    assert status == 405


def test_programs_and_the_server_s_own_pages_are_answered(server: Server) -> None:
    address = urlsplit(server.url).netloc
    own = [
        {},
        {"Origin": f"http://{address}", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"},
    ]
    for headers in own:
        for path, body in [("/v2/models/sage/infer", question([1])), ("/graph/compact", {})]:
            sent = {"Content-Type": f"{JSON}; charset=utf-8", **headers}
            status, content = send(server, "POST", path, sent, json.dumps(body).encode())
            assert status == 200, content
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert send(server, "GET", "/metrics", link, None)[0] == 200


def test_with_tokens_the_token_decides_and_the_type_still_counts(home: Path) -> None:
    config = replace(CONFIG, tokens=home / "tokens", updates=False)
    body = json.dumps(question([1])).encode()
    path = "/v2/models/sage/infer"
    with Server(home / "graph", home / "sage", config) as running:
        for foreign in FOREIGN:
            headers = {"Content-Type": JSON, **foreign}
            assert send(running, "POST", path, headers, body)[0] == 401
            headers["Authorization"] = f"Bearer {READ}"
            assert send(running, "POST", path, headers, body)[0] == 200
        headers = {"Content-Type": "text/plain", "Authorization": f"Bearer {READ}"}
        assert send(running, "POST", path, headers, body)[0] == 415
