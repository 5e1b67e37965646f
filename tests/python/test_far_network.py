"""Far memory behind a network that is slow, is cut, or loses its server.

The server runs in a network namespace of its own; making one needs privileges, without which these
tests are skipped. `test_far*.py` beside it do the same on the loopback.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

import outercore as oc

_ENDS_S = 90
"""Nothing may hang: every run has ended by then, right or wrong."""
_TIMEOUT = "1"
"""Seconds after which a silent server counts as gone."""


@dataclass
class Network:
    """A server behind a pair of virtual links."""

    namespace: str
    link: str
    far_link: str
    address: str
    token: Path
    server: subprocess.Popen[str]

    def slow(self, rate: str) -> None:
        """Limits what the server's side sends."""
        _ip("netns", "exec", self.namespace, "tc", "qdisc", "add", "dev", self.far_link, "root",
            "tbf", "rate", rate, "burst", "32kb", "latency", "200ms")  # fmt: skip

    def wait_for_clients(self, connections: int) -> None:
        """Returns once so many connections have been accepted."""
        ends = time.monotonic() + _ENDS_S
        while time.monotonic() < ends:
            listed = _ip("netns", "exec", self.namespace, "ss", "-Htn", "state", "established")
            if len(listed.splitlines()) >= connections:
                return
            time.sleep(0.05)
        raise AssertionError("no client connected")

    def cut(self) -> None:
        """From now on nothing arrives, and nobody is told."""
        _ip("-n", self.namespace, "link", "set", self.far_link, "down")


def _ip(*arguments: str) -> str:
    return subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True).stdout


@pytest.fixture
def network(tmp_path: Path) -> Iterator[Network]:
    """A namespace with a memory server in it; all is gone afterwards."""
    if shutil.which("ip") is None or shutil.which("tc") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need privileges, `ip` and `tc`")
    name = f"oct{os.getpid()}"
    link, far_link = f"{name}a"[-15:], f"{name}b"[-15:]
    server = None
    try:
        try:
            _ip("netns", "add", name)
            _ip("link", "add", link, "type", "veth", "peer", "name", far_link, "netns", name)
            _ip("addr", "add", "10.213.9.1/30", "dev", link)
            _ip("link", "set", link, "up")
            _ip("-n", name, "addr", "add", "10.213.9.2/30", "dev", far_link)
            _ip("-n", name, "link", "set", far_link, "up")
        except subprocess.CalledProcessError as failure:
            pytest.skip(f"no network namespace here: {failure.stderr!r}")
        token = tmp_path / "far.token"
        _outercore("memory-server", "--new-token", token).check_returncode()
        server = subprocess.Popen(
            ["ip", "netns", "exec", name, *_command("memory-server", "--size", "64MiB",
             "--token-file", token, "--listen", "10.213.9.2:0", "--json")],
            stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert server.stdout is not None
        ready, _, _ = select.select([server.stdout], [], [], 60)
        assert ready, "the memory server did not start"
        address = json.loads(server.stdout.readline())["addresses"][0]
        yield Network(name, link, far_link, address, token, server)
    finally:
        if server is not None:
            server.kill()
            server.wait()
        # The link goes with the namespace, but later than `ip` returns.
        subprocess.run(["ip", "link", "del", link], capture_output=True)
        subprocess.run(["ip", "netns", "del", name], capture_output=True)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Large enough that a slow link takes seconds, with its grid."""
    out = tmp_path_factory.mktemp("far") / "graph"
    _outercore("generate", "rmat", "--scale", "16", "--out", out).check_returncode()
    oc.grid(out)
    return out


@pytest.fixture(scope="module")
def expected(graph: Path) -> np.ndarray:
    return oc.pagerank(graph, max_iterations=12, tolerance=0.0)


def _command(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "outercore", *map(str, arguments)]


def _outercore(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        _command(*arguments), capture_output=True, text=True, timeout=_ENDS_S, check=False
    )


def _start(network: Network, graph: Path, out: Path, *more: str) -> subprocess.Popen[str]:
    """PageRank whose every pass reads all edges from far memory."""
    call = _command(
        "run", "pagerank", graph, "--max-iterations", 12, "--tolerance", 0, "--memory", "64MiB",
        "--far", network.address, "--set", f"far.token_file={network.token}",
        "--set", "far_ratio=1", "--set", f"far.timeout_s={_TIMEOUT}", "--out", out, *more,
    )  # fmt: skip
    return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def _trouble(network: Network, kind: str) -> None:
    if kind == "cut":
        network.cut()
    elif kind == "killed":
        network.server.kill()
    else:
        _each_of(network.server.pid, signal.SIGSTOP)


def _each_of(process: int, number: signal.Signals) -> None:
    os.kill(process, number)


def test_a_slow_link_changes_no_bit(
    network: Network, graph: Path, expected: np.ndarray, tmp_path: Path
) -> None:
    network.slow("200mbit")
    run = _start(network, graph, tmp_path / "ranks.npy", "--set", "far.fallback=false")
    _, errors = run.communicate(timeout=_ENDS_S)
    assert run.returncode == 0, errors
    np.testing.assert_array_equal(np.load(tmp_path / "ranks.npy"), expected)


@pytest.mark.parametrize("kind", ["cut", "killed", "frozen"])
@pytest.mark.parametrize("after_s", [None, 0.3, 2.0])
def test_trouble_on_the_way_ends_in_the_right_answer_or_a_clear_error(
    network: Network,
    graph: Path,
    expected: np.ndarray,
    tmp_path: Path,
    kind: str,
    after_s: float | None,
) -> None:
    # So slow that placing the edges and every pass takes a while: trouble comes in any phase.
    network.slow("60mbit")
    runs = {
        fallback: _start(
            network, graph, tmp_path / f"{fallback}.npy", "--set", f"far.fallback={fallback}"
        )
        for fallback in ("true", "false")
    }
    if after_s is not None:
        # Each run has a connection for control messages and one for data.
        network.wait_for_clients(4)
        time.sleep(after_s)
    _trouble(network, kind)
    for fallback, run in runs.items():
        _, errors = run.communicate(timeout=_ENDS_S)
        if run.returncode == 0:
            np.testing.assert_array_equal(np.load(tmp_path / f"{fallback}.npy"), expected)
        else:
            # Nobody to connect to may be a mistyped address, and is an error in any case.
            assert fallback == "false" or after_s is None, errors
            assert network.address in errors, errors
            assert "Traceback" not in errors
            assert not (tmp_path / f"{fallback}.npy").exists()
