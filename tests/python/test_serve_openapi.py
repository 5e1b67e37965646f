"""`GET /openapi.json`: what it says is what the server does, whatever is sent."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from outercore.serving.server import Server
from test_live import CONFIG, random_model, trained
from test_serve import ask

PATHS = {
    "/v2",
    "/v2/health/live",
    "/v2/health/ready",
    "/v2/models/{model}",
    "/v2/models/{model}/ready",
    "/v2/models/{model}/infer",
    "/v2/models/{model}/versions/{version}",
    "/v2/models/{model}/versions/{version}/ready",
    "/v2/models/{model}/versions/{version}/infer",
    "/v2/repository/index",
    "/v2/repository/models/{model}/load",
    "/metrics",
    "/openapi.json",
    "/graph",
    "/graph/updates",
    "/graph/compact",
    "/graph/analyses",
    "/graph/analyses/{id}",
    "/graph/analyses/{id}/values",
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    home = tmp_path_factory.mktemp("openapi")
    run = trained(random_model(1, undirected=True).write(home / "graph"), "sage", home / "sage")
    with Server(home / "graph", run, replace(CONFIG, analyses="32MiB")) as running:
        yield running


def described(server: Server) -> dict[str, Any]:
    """The description; models and versions are those that exist or not, so that requests come
    through."""
    _, found = ask(server, "/openapi.json")
    version = ask(server, "/v2/models/sage")[1]["versions"][0]
    for item in found["paths"].values():
        for operation in item.values():
            for parameter in operation.get("parameters", []):
                there = {"model": "sage", "version": version}.get(parameter["name"])
                if there is not None:
                    parameter["schema"] = {"enum": [there, "other"], "type": "string"}
    return found


def test_whatever_is_sent_gets_an_answer_that_is_described(server: Server, tmp_path: Path) -> None:
    file = tmp_path / "openapi.json"
    file.write_text(json.dumps(described(server)))
    # A deadline of no time at all is described, and passes.
    expected = 'expected-statuses = ["2xx", "3xx", "4xx", "504"]'
    (tmp_path / "schemathesis.toml").write_text(f"[checks.not_a_server_error]\n{expected}\n")
    # A node that does not exist fits the schema and is refused all the same.
    options = ["--url", server.url, "--exclude-checks", "positive_data_acceptance"]
    options += ["--phases", "examples,coverage,fuzzing", "--seed", "1", "--max-examples", "30"]
    done = subprocess.run(
        [sys.executable, "-m", "schemathesis.cli", "run", str(file), *options],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Tested: 21" in done.stdout


def test_all_routes_are_described_with_their_errors(server: Server) -> None:
    status, found = ask(server, "/openapi.json")
    assert status == 200
    assert found["openapi"].startswith("3.1")
    assert set(found["paths"]) == PATHS
    infer = found["paths"]["/v2/models/{model}/infer"]["post"]
    assert set(infer["responses"]) >= {"200", "400", "404", "412", "429", "503", "504"}
    update = found["paths"]["/graph/updates"]["post"]
    assert set(update["responses"]) >= {"200", "400", "403", "404", "429", "503", "507"}
    ids = [
        operation["operationId"] for item in found["paths"].values() for operation in item.values()
    ]
    assert len(set(ids)) == len(ids)


@pytest.mark.parametrize(
    ("path", "body", "status", "text"),
    [
        ("/graph", {}, 405, "does not take this method"),
        ("/v2/models/sage/infer", None, 405, "does not take this method"),
        ("/v2/models/%FF/infer", {}, 404, "not UTF-8"),
        ("/nowhere", None, 404, "see `/openapi.json`"),
    ],
)
def test_other_paths_and_methods_are_refused_in_json(
    path: str, body: Any, status: int, text: str, server: Server
) -> None:
    found, answer = ask(server, path, body)
    assert (found, text in answer["error"]) == (status, True), answer
