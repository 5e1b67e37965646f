"""Far memory from Python: options, the low-level interface, what lies on a server."""

from __future__ import annotations

import json
import stat
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
from far_server import FarServer
from outercore.data import far
from outercore.errors import (
    CorruptError,
    DeviceError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    OutercoreError,
)

TRANSPORTS = ["tcp", "unix"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarServer]:
    with FarServer(tmp_path_factory.mktemp("far")) as server:
        yield server


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(3)
    source, target = random.integers(0, 3000, (2, 30_000))
    root = tmp_path_factory.mktemp("data") / "graph"
    naive.write(root, 3000, source, target)
    return root


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("10.0.0.7", "tcp://10.0.0.7:7411"),
        ("unix:/run/far.sock", "unix:/run/far.sock"),
        ("fabric://node:1", "fabric://node:1"),
    ],
)
def test_options_know_addresses(text: str, address: str) -> None:
    assert far.FarOptions(text).address == address


@pytest.mark.parametrize("text", ["", "http://a", "a:b"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(InvalidError, match="HOST:PORT"):
        far.FarOptions(text)


def test_the_chunk_is_the_one_that_was_probed_for_the_address(tmp_path: Path) -> None:
    assert far.probed_chunk(tmp_path, "a:1") is None
    far.store_profile(tmp_path, "a:1", {"best_chunk": 1 << 16, "points": []})
    far.store_profile(tmp_path, "unix:/b", {"best_chunk": 1 << 20, "points": []})
    assert far.probed_chunk(tmp_path, "tcp://a:1") == 1 << 16
    assert far.options_of("unix:/b", tmp_path) == far.options_of(
        far.FarOptions("unix:/b", chunk=1 << 20)
    )
    assert "chunk" not in (far.options_of("c:1", tmp_path) or {})
    said = far.FarOptions("a:1", chunk=4096)
    assert (far.options_of(said, tmp_path) or {})["chunk"] == 4096


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"version": 1}',
        '{"version": 9, "servers": {}}',
        '{"version": 1, "servers": {"tcp://a:1": {"best_chunk": "x"}}}',
        '{"version": 1, "servers": {"tcp://a:1": 3}}',
    ],
)
def test_a_damaged_profile_is_named(text: str, tmp_path: Path) -> None:
    (tmp_path / "far.json").write_text(text)
    with pytest.raises(CorruptError, match=r"far\.json"):
        far.probed_chunk(tmp_path, "a:1")


def test_a_new_token_is_its_owners_and_replaces_none(tmp_path: Path) -> None:
    first = far.new_token(tmp_path / "a").read_text()
    assert len(first.strip()) >= 16
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o600
    assert far.new_token(tmp_path / "b").read_text() != first
    with pytest.raises(InvalidError, match="there is such a file"):
        far.new_token(tmp_path / "a")
    with pytest.raises(OutercoreError, match="nowhere"):
        far.new_token(tmp_path / "nowhere" / "a")


def test_a_server_wants_a_token_that_only_its_owner_reads(tmp_path: Path) -> None:
    token = far.new_token(tmp_path / "token")
    token.chmod(0o644)
    with pytest.raises(InvalidError, match="chmod 600"):
        far.MemoryServer("1MiB", token, listen=["127.0.0.1:0"])
    with pytest.raises(NotFoundError, match="no-such"):
        far.MemoryServer("1MiB", tmp_path / "no-such", listen=["127.0.0.1:0"])


def test_a_server_within_a_program_ends_when_its_block_ends(tmp_path: Path) -> None:
    token = far.new_token(tmp_path / "token")
    with far.MemoryServer("1MiB", token, listen=["127.0.0.1:0"]) as server:
        status = server.status()
        assert (status["used"], status["size"], status["clients"]) == (0, 1 << 20, 0)
        options = far.FarOptions(server.addresses[0], token_file=str(token))
        with far.build_connection(options) as connection:
            connection.allocate(4096)
            assert server.status()["used"] == 4096
    server.stop()
    with pytest.raises(InvalidError, match="stopped"):
        server.status()
    with pytest.raises(DeviceError, match=r"127\.0\.0\.1"):
        far.build_connection(options)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("receive", ["shared", "per_thread"])
def test_bytes_come_back_as_they_were_written(
    transport: str, receive: Any, server: FarServer
) -> None:
    options = server.options(transport, chunk=8192, queue_length=4, queues=2)
    data = np.random.default_rng(1).integers(0, 256, 1_000_003, dtype=np.uint8)
    with far.build_connection(options, threads=2, receive=receive) as connection:
        region = connection.allocate(len(data))
        for start in range(0, len(data), 100_000):
            connection.far_write_start(region, data[start : start + 100_000], start, thread=1)
        connection.far_write_complete(thread=1)
        connection.seal(region)
        reads = [(0, 10), (8191, 2), (999_999, 4), (12_345, 15_000)]
        tickets = [connection.far_read_start(region, *read) for read in reads]
        for (offset, length), ticket in reversed(list(zip(reads, tickets, strict=True))):
            found = connection.far_read_complete(ticket)
            np.testing.assert_array_equal(found, data[offset : offset + length])
        assert connection.memory_bytes > 0
        connection.free(region)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_threads_of_python_share_a_connection(transport: str, server: FarServer) -> None:
    threads, size = 4, 1 << 16
    wrong: list[int] = []
    with far.build_connection(server.options(transport), threads=threads) as connection:

        def work(thread: int) -> None:
            data = np.full(size, thread + 1, np.uint8)
            region = connection.allocate(size)
            connection.far_write_start(region, data, thread=thread)
            connection.far_write_complete(thread=thread)
            for offset in range(0, size, 8192):
                ticket = connection.far_read_start(region, offset, 8192, thread=thread)
                if not (connection.far_read_complete(ticket, thread=thread) == thread + 1).all():
                    wrong.append(thread)
            connection.free(region)

        workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    assert wrong == []


def test_a_kept_region_is_found_by_others_until_it_is_freed(server: FarServer) -> None:
    with far.build_connection(server.options()) as writer:
        region = writer.allocate(3, "shared/name")
        writer.far_write_start(region, b"abc")
        writer.far_write_complete()
        assert writer.find("shared/name") is None
        writer.seal(region, keep=True)
    with far.build_connection(server.options("unix")) as reader:
        found = reader.find("shared/name")
        assert found is not None
        ticket = reader.far_read_start(found, 0, 3)
        assert reader.far_read_complete(ticket).tobytes() == b"abc"
        listed = [region["name"] for region in reader.status()["regions"]]
        assert "shared/name" in listed
        reader.free(found)
        assert reader.find("shared/name") is None


def test_mistakes_are_named(server: FarServer) -> None:
    with far.build_connection(server.options()) as connection:
        region = connection.allocate(8192)
        with pytest.raises(InvalidError, match="uint8"):
            connection.far_write_start(region, [0.5])
        with pytest.raises(InvalidError, match="8192 bytes"):
            connection.far_write_start(region, np.zeros(8193, np.uint8))
        with pytest.raises(InvalidError, match="200 bytes at 8000"):
            connection.far_read_start(region, 8000, 200)
        with pytest.raises(InvalidError, match="thread 1"):
            connection.far_read_start(region, 0, 1, thread=1)
        ticket = connection.far_read_start(region, 0, 1)
        connection.far_read_complete(ticket)
        with pytest.raises(InvalidError, match="has been completed"):
            connection.far_read_complete(ticket)
        with pytest.raises(InvalidError):
            connection.allocate(0)
        with pytest.raises(NoSpaceError, match=r"64\.0 MiB"):
            connection.allocate(1 << 40)
        connection.free(region)
        with pytest.raises(NotFoundError):
            connection.free(region)
    with pytest.raises(InvalidError, match="closed"):
        connection.status()
    with pytest.raises(InvalidError, match="per_thread"):
        far.build_connection(server.options(), receive="mine")  # type: ignore[arg-type]


def test_a_wrong_token_and_a_missing_one_are_refused(server: FarServer, tmp_path: Path) -> None:
    wrong = far.new_token(tmp_path / "wrong")
    with pytest.raises(InvalidError, match="token"):
        far.build_connection(server.options(token_file=str(wrong)))
    with pytest.raises(InvalidError, match="OUTERCORE_FAR_TOKEN"):
        far.build_connection(server.addresses["tcp"])


def test_the_token_may_come_from_the_environment(
    server: FarServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTERCORE_FAR_TOKEN", server.token.read_text())
    with far.build_connection(server.addresses["tcp"]) as connection:
        assert connection.status()["size"] == 64 << 20


def test_a_killed_server_ends_what_waits_with_an_error_that_names_it(tmp_path: Path) -> None:
    with FarServer(tmp_path) as server:
        connection = far.build_connection(server.options())
        region = connection.allocate(1 << 20)
        connection.far_write_start(region, np.zeros(1 << 20, np.uint8))
        connection.far_write_complete()
        server.kill()
        address = server.addresses["tcp"]
        with pytest.raises(DeviceError, match=address):
            connection.far_read_complete(connection.far_read_start(region, 0, 4096))
        with pytest.raises(DeviceError, match=address):
            connection.allocate(4096)
        connection.close()


def test_flags_go_to_what_is_read_least() -> None:
    held = [
        far.FarSegment(1, 100, 9),
        far.FarSegment(3, 50, 7),
        far.FarSegment(3, 50, 2),
        far.FarSegment(4, 100, 0),
    ]
    for ratio, expected in [(0.0, [0, 0, 0, 0]), (0.75, [0, 0, 1, 1]), (1.0, [0, 1, 1, 1])]:
        flagged = far.add_transferable_flag(held, ratio)
        assert [segment.transferable for segment in flagged] == [bool(flag) for flag in expected]
    with pytest.raises(InvalidError, match=r"1\.5"):
        far.add_transferable_flag(held, 1.5)
    with pytest.raises(InvalidError, match="group 5"):
        far.add_transferable_flag([far.FarSegment(5, 1, 1)], 0.5)


def test_put_keeps_what_the_data_set_has(data_set: Path, server: FarServer) -> None:
    import outercore as oc

    with pytest.raises(NotFoundError, match="outercore grid"):
        far.put(data_set, server.options(), what=["grid"])
    with pytest.raises(NotFoundError, match="no features"):
        far.put(data_set, server.options(), what=["features"])
    with pytest.raises(InvalidError, match="expected one of grid"):
        far.put(data_set, server.options(), what=["edges"])
    oc.grid(data_set)
    phases: set[str] = set()
    put = far.put(data_set, server.options(), progress=lambda phase, *_: phases.add(phase))
    assert {array["state"] for array in put} == {"kept"}
    assert {array["what"] for array in put} == {"grid", "topology"}
    assert "put grid/edge/blocks" in phases
    assert {array["state"] for array in far.put(data_set, server.options("unix"))} == {"there"}
    with far.build_connection(server.options()) as connection:
        for array in put:
            (name,) = array["names"]
            region = connection.find(name)
            assert region is not None
            assert region.length == array["bytes"]
            ticket = connection.far_read_start(region, 0, 6)
            assert connection.far_read_complete(ticket).tobytes() == b"\x93NUMPY"
            connection.free(region)


def test_put_says_what_a_full_server_refused(data_set: Path, tmp_path: Path) -> None:
    with FarServer(tmp_path, size="64KiB") as server:
        put = far.put(data_set, server.options(), what=["topology"])
        states = {array["key"]: array["state"] for array in put}
        assert states["edges/edge/sources"] == "full"
        assert states["edges/edge/offsets"] == "kept"


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_probe_measures_chunks_and_lengths(transport: str, server: FarServer) -> None:
    profile = far.probe(server.options(transport), size="1MiB", seconds=0.002)
    chunks = {point["chunk"] for point in profile["points"]}
    assert chunks == {4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20}
    assert profile["best_chunk"] in chunks
    assert all(point["bytes_per_s"] > 0 for point in profile["points"])
    assert json.dumps(profile)
    with far.build_connection(server.options()) as connection:
        assert [found for found in connection.status()["regions"] if found["len"] == 1 << 20] == []
