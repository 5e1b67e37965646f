"""Servers to measure, and the load generator."""

from __future__ import annotations

import contextlib
import http.client
import json
import select
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from limits import Service, started_limited
from measure import Settings

START_S = 300.0
MOST_S = 600.0
"""Most seconds for a number of requests."""
PATIENCE_S = 60.0
"""Most seconds to wait for the last answers after the end of a load."""


@dataclass(frozen=True)
class Running:
    """A running server."""

    service: Service
    address: str
    """HOST:PORT."""
    model: str

    def connection(self) -> http.client.HTTPConnection:
        """A new connection, kept open between requests."""
        return http.client.HTTPConnection(self.address, timeout=60)

    def ask(self, path: str, body: object = None) -> Any:
        """The content of an answer. Errors: `RuntimeError` for a status other than 200."""
        connection = self.connection()
        try:
            text = None if body is None else json.dumps(body)
            kind = {"Content-Type": "application/json"}
            connection.request("GET" if text is None else "POST", path, text, kind)
            answer = connection.getresponse()
            content = answer.read()
        finally:
            connection.close()
        if answer.status != 200:
            raise RuntimeError(f"{path}: status {answer.status}: {content[:300]!r}")
        return json.loads(content)

    def predict(self, node: int) -> list[float]:
        """Probabilities of a node."""
        ids = {"name": "node_ids", "datatype": "INT64", "shape": [1], "data": [node]}
        answer = self.ask(f"/v2/models/{self.model}/infer", {"inputs": [ids]})
        outputs = {output["name"]: output["data"] for output in answer["outputs"]}
        return outputs["probability"]


@contextlib.contextmanager
def started(
    command: Sequence[str], memory: int | None = None, **environment: str
) -> Iterator[Running]:
    """The server while the block runs.

    Its first line on standard output is JSON with `url` and `model`.
    """
    with started_limited(command, memory, env=environment) as service:
        output = service.process.stdout
        ready, _, _ = select.select([output], [], [], START_S)
        line = output.readline() if ready else ""
        if not line.startswith("{"):
            raise RuntimeError(f"`{' '.join(map(str, command))}`: {service.message()}")
        described = json.loads(line)
        yield Running(service, urlsplit(described["url"]).netloc, described["model"])


@dataclass(frozen=True)
class Load:
    """Results of a run of the load generator."""

    per_second: float
    """Requests answered with status 200."""
    p50_ms: float
    p99_ms: float
    statuses: dict[str, int]

    @property
    def refused(self) -> float:
        """Share of the requests with a status other than 200."""
        total = sum(self.statuses.values())
        return 1 - self.statuses.get("200", 0) / total if total else 0.0


def load_command(
    settings: Settings,
    address: str,
    what: str,
    clients: int,
    seconds: float | str,
    nodes: int,
    rate: float | None = None,
) -> list[str]:
    """The load generator's command line; `seconds` may be a number of requests such as `10000x`.

    Errors: `RuntimeError` if it is not built.
    """
    if not settings.load.exists():
        raise RuntimeError(
            f"no load generator at {settings.load}; "
            "build it: cargo build --release -p outercore-server --example load"
        )
    numbers = [clients, seconds, nodes, *([] if rate is None else [rate])]
    return [str(settings.load), address, what, *map(str, numbers)]


def read_load(text: str) -> Load:
    """The results in the output of the load generator."""
    printed = json.loads(text.splitlines()[-1])
    nothing = printed["answered"] == 0
    return Load(
        per_second=printed["per_second"],
        p50_ms=float("nan") if nothing else printed["p50_ms"],
        p99_ms=float("nan") if nothing else printed["p99_ms"],
        statuses=printed["statuses"],
    )


def load(settings: Settings, running: Running, what: str, *numbers: float | str) -> Load:
    """Load a server; `numbers` as in `load_command`: clients, seconds, nodes and rate.

    Errors: `RuntimeError` if the load generator is missing or ends with an error.
    """
    clients, seconds, nodes, *rate = numbers
    call = load_command(settings, running.address, what, int(clients), seconds, int(nodes), *rate)
    patience = MOST_S if isinstance(seconds, str) else 2 * seconds + PATIENCE_S
    try:
        done = subprocess.run(call, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        raise RuntimeError(
            f"`{' '.join(call)}`: clients still waited after {patience:.0f} s"
        ) from None
    if done.returncode:
        raise RuntimeError(f"`{' '.join(call)}` failed: {done.stderr[-300:]}")
    return read_load(done.stdout)


def fastapi_path(settings: Settings) -> str:
    """`PYTHONPATH` for FastAPI. Errors: `RuntimeError` if it is not installed."""
    if not (settings.fastapi / "fastapi").exists():
        raise RuntimeError(f"no FastAPI at {settings.fastapi}; see benchmarks/peers/serving.txt")
    return str(Path(settings.fastapi).resolve())
