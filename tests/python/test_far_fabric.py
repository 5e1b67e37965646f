"""Far memory over libfabric, by its `tcp` provider on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import naive
import outercore as oc
from outercore import far
from outercore.errors import UnsupportedError

Fabric = tuple[far.MemoryServer, far.FarOptions]


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    token = far.new_token(tmp_path / "token")
    listen = ["fabric://127.0.0.1:0"]
    try:
        server = far.MemoryServer("64MiB", token, listen=listen, fabric_provider="tcp")
    except UnsupportedError as error:
        pytest.skip(str(error))
    with server:
        yield server, far.FarOptions(server.addresses[0], token_file=str(token))


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(5)
    source, target = random.integers(0, 3000, (2, 60_000))
    root = tmp_path_factory.mktemp("data") / "graph"
    naive.write(root, 3000, source, target)
    oc.grid(root)
    return root


def test_bytes_come_back_as_they_were_written(fabric: Fabric) -> None:
    _, options = fabric
    data = np.random.default_rng(1).integers(0, 256, 1_000_003, dtype=np.uint8)
    with far.build_connection(options, threads=2) as connection:
        region = connection.allocate(len(data))
        connection.far_write_start(region, data, thread=1)
        connection.far_write_complete(thread=1)
        connection.seal(region)
        ticket = connection.far_read_start(region, 12_345, 500_000)
        found = connection.far_read_complete(ticket)
        np.testing.assert_array_equal(found, data[12_345:512_345])


def test_a_run_over_the_fabric_equals_one_without(fabric: Fabric, data_set: Path) -> None:
    server, options = fabric
    expected = oc.run("bfs", data_set, source=3)
    done = oc.run("bfs", data_set, source=3, far=options, far_ratio=1.0)
    np.testing.assert_array_equal(done.values, expected.values)
    assert done.counters["far"]["far_requests"] > 0
    assert done.counters["far"]["lost"] is None
    server.stop()
    with pytest.raises(oc.errors.DeviceError, match=r"fabric://127\.0\.0\.1"):
        oc.run("bfs", data_set, source=3, far=options, far_ratio=1.0)
