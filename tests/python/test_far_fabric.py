"""Far memory over libfabric, where the library is; its `tcp` provider works on any machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import naive
import outercore as oc
from outercore.data import far
from outercore.errors import DeviceError, UnsupportedError


@pytest.fixture
def token(tmp_path: Path) -> Path:
    return far.new_token(tmp_path / "token")


@pytest.fixture
def server(token: Path) -> Iterator[far.MemoryServer]:
    try:
        server = far.MemoryServer(
            "64MiB", token, listen=["fabric://127.0.0.1:0"], fabric_provider="tcp"
        )
    except UnsupportedError as error:
        pytest.skip(str(error))
    with server:
        yield server


def options(server: far.MemoryServer, token: Path, **more: object) -> far.FarOptions:
    chosen = {"token_file": str(token), "timeout_s": 3.0, **more}
    return far.FarOptions(server.addresses[0], **chosen)  # type: ignore[arg-type]


def test_bytes_come_back_as_they_were_written(server: far.MemoryServer, token: Path) -> None:
    data = np.random.default_rng(1).integers(0, 256, 1_000_003, dtype=np.uint8)
    with far.build_connection(options(server, token, chunk=65536)) as connection:
        region = connection.allocate(len(data))
        for start in range(0, len(data), 100_000):
            connection.far_write_start(region, data[start : start + 100_000], start)
        connection.far_write_complete()
        connection.seal(region)
        for offset, length in [(0, 10), (65_535, 2), (999_999, 4), (12_345, 200_000)]:
            ticket = connection.far_read_start(region, offset, length)
            found = connection.far_read_complete(ticket)
            np.testing.assert_array_equal(found, data[offset : offset + length])


def test_results_are_the_same(server: far.MemoryServer, token: Path, tmp_path: Path) -> None:
    source, target = np.random.default_rng(3).integers(0, 3000, (2, 30_000))
    graph, _ = naive.write(tmp_path / "graph", 3000, source, target)
    there = options(server, token)
    for name in ("bfs", "pagerank"):
        more = {"source": 3} if name == "bfs" else {}
        done = oc.run(name, graph, far=there, far_ratio=1.0, **more)
        np.testing.assert_array_equal(done.values, oc.run(name, graph, **more).values)
        assert done.counters["far"]["far_bytes"] > 0
        assert done.counters["far"]["lost"] is None


def test_a_server_that_stops_is_an_error_or_leaves_the_work_to_the_disk(
    server: far.MemoryServer, token: Path, tmp_path: Path
) -> None:
    source, target = np.random.default_rng(3).integers(0, 3000, (2, 30_000))
    graph, _ = naive.write(tmp_path / "graph", 3000, source, target)
    expected = oc.pagerank(graph)

    def stop(phase: str, *_: object) -> None:
        if phase == "iteration":
            server.stop()

    there = options(server, token)
    done = oc.run("pagerank", graph, far=there, far_ratio=1.0, progress=stop)
    np.testing.assert_array_equal(done.values, expected)
    assert there.address in done.counters["far"]["lost"]
    with pytest.raises(DeviceError, match=r"127\.0\.0\.1"):
        oc.pagerank(graph, far=there, far_ratio=1.0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_stay_ours(number: int, server: far.MemoryServer, token: Path) -> None:
    """Libraries behind libfabric take signals for themselves where they are let."""
    flags = ["--size", "1MiB", "--token-file", str(token), "--json"]
    flags += ["--listen", "fabric://127.0.0.1:0", "--fabric-provider", "tcp"]
    process = subprocess.Popen(
        [sys.executable, "-m", "outercore", "memory-server", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert json.loads(process.stdout.readline())["addresses"][0].startswith("fabric://")
    os.kill(process.pid, number)
    assert process.communicate(timeout=20) == ("", "")
    assert process.returncode == 0
