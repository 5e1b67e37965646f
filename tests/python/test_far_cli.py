"""The commands around far memory: what they print, how they end."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from far_server import FarServer
from outercore.analytics import recorded_run
from outercore.data import far
from outercore.errors import InvalidError

VERBS = [["memory-server"], *(["far", verb] for verb in ("put", "list", "drop", "probe"))]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FarServer]:
    with FarServer(tmp_path_factory.mktemp("far")) as server:
        yield server


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(4)
    source, target = random.integers(0, 5000, (2, 60_000))
    root = tmp_path_factory.mktemp("data") / "graph"
    naive.write(root, 5000, source, target)
    oc.grid(root)
    return root


@pytest.mark.parametrize("verb", VERBS, ids=" ".join)
def test_every_verb_explains_itself_with_an_example(verb: list[str], outcome: Any) -> None:
    code, out, _ = outcome(*verb, "--help")
    assert code == 0
    assert f"outercore {' '.join(verb)} " in out.split("Example")[1]


def test_a_token_is_written_and_never_replaced(tmp_path: Path, outcome: Any) -> None:
    token = tmp_path / "token"
    code, out, err = outcome("memory-server", "--new-token", token)
    assert (code, err) == (0, "")
    assert out.strip() == f"token in {token}"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    before = token.read_text()
    code, out, err = outcome("memory-server", "--new-token", token)
    assert (code, out) == (1, "")
    assert "there is such a file already" in err
    assert token.read_text() == before


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_server_says_where_it_listens_and_ends_on_a_signal(
    number: signal.Signals, tmp_path: Path
) -> None:
    with FarServer(tmp_path, size="1MiB") as server:
        assert server.started["size"] == 1 << 20
        assert server.started["process"] == server.process.pid
        assert server.socket.is_socket()
        with far.build_connection(server.options()):
            assert server.stop(number) == (0, "", "")
        assert not server.socket.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--token-file", "TOKEN"], "Missing option '--size'"),
        (["--size", "1MiB"], "Missing option '--token-file'"),
        (["--size", "1MiB", "--token-file", "nowhere"], "nowhere"),
        (["--size", "some", "--token-file", "TOKEN"], "expected a size such as `8GiB`"),
        (["--size", "1MiB", "--token-file", "TOKEN", "--listen", "a:b"], "HOST:PORT"),
        (["--size", "1MiB", "--token-file", "TOKEN", "--listen", "TAKEN"], "in use"),
        (["--size", "1MiB", "--token-file", "TOKEN", "--max-clients", "0"], "sessions is 0"),
    ],
)
def test_a_mistake_ends_a_server_with_1(
    arguments: list[str], message: str, server: FarServer, outcome: Any
) -> None:
    words = {"TOKEN": str(server.token), "TAKEN": server.addresses["tcp"]}
    code, out, err = outcome("memory-server", *[words.get(word, word) for word in arguments])
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err


def test_put_list_and_drop(data_set: Path, server: FarServer, outcome: Any) -> None:
    there = server.settings("unix", "far")
    code, out, err = outcome("far", "put", data_set, *there, "--what", "grid")
    assert (code, err) == (0, "")
    assert "grid/edge/blocks" in out
    assert "kept" in out
    code, out, _ = outcome("far", "put", data_set, *there, "--what", "grid, topology", "--json")
    states = {array["key"]: array["state"] for array in json.loads(out)}
    assert states["grid/edge/blocks"] == "there"
    assert states["edges/edge/sources"] == "kept"
    code, out, _ = outcome("far", "list", *there, "--data-set", data_set)
    assert code == 0
    assert "grid/edge/blocks" in out
    assert "64.0 MiB" in out
    code, out, _ = outcome("far", "list", *there, "--json")
    names = [region["name"] for region in json.loads(out)["regions"]]
    code, out, _ = outcome("far", "drop", *there, "--name", names[0])
    assert (code, out.split()[0]) == (0, "1")
    code, out, err = outcome("far", "drop", *there, "--name", names[0])
    assert (code, out) == (1, "")
    assert "no region" in err
    code, out, _ = outcome("far", "drop", data_set, *there, "--json")
    assert len(json.loads(out)) == len(names) - 1
    code, out, _ = outcome("far", "drop", "--all", *there)
    assert (code, out.split()[0]) == (0, "0")


def test_drop_all_takes_what_is_kept_and_goes_on_after_a_failure(
    data_set: Path, tmp_path: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with FarServer(tmp_path) as server, far.build_connection(server.options()) as other:
        far.put(data_set, server.options(), what=["grid"])
        names = [array["names"][0] for array in far.arrays(data_set) if array["what"] == "grid"]
        at_work = other.allocate(4096, "at work")
        other.seal(at_work)
        free = far.Connection.free

        def fail_once(connection: far.Connection, region: far.Region) -> None:
            monkeypatch.setattr(far.Connection, "free", free)
            raise InvalidError("not yet")

        monkeypatch.setattr(far.Connection, "free", fail_once)
        code, out, err = outcome("far", "drop", "--all", *server.settings(path="far"))
        assert (code, out.split()[0]) == (1, str(len(names) - 1))
        assert "not yet" in err
        code, out, err = outcome("far", "drop", "--all", *server.settings(path="far"))
        assert (code, out.split()[0], err) == (0, "1", "")
        assert other.find("at work") is not None


def test_put_refuses_bytes_that_are_not_those_of_the_manifest(
    data_set: Path, tmp_path: Path, outcome: Any
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(data_set, copy)
    altered = copy / "edges/edge/sources.npy"
    with altered.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\xff")
    with FarServer(tmp_path / "server") as server:
        there = server.settings(path="far")
        code, out, err = outcome("far", "put", copy, *there, "--what", "topology")
        assert (code, out) == (1, "")
        assert f"{altered}" in err
        assert "bytes were altered" in err
        with far.build_connection(server.options()) as connection:
            names = {region["name"] for region in connection.status()["regions"]}
        [wrong] = [a for a in far.arrays(copy) if a["key"] == "edges/edge/sources"]
        assert not names & set(wrong["names"])


def test_drop_wants_to_know_what(data_set: Path, server: FarServer, outcome: Any) -> None:
    for what in ([], [data_set, "--all"]):
        code, out, err = outcome("far", "drop", *what, *server.settings(path="far"))
        assert (code, out) == (1, "")
        assert "expected one of a data set, `--name` and `--all`" in err


def test_put_ends_with_1_where_the_server_is_full(
    data_set: Path, tmp_path: Path, outcome: Any
) -> None:
    with FarServer(tmp_path, size="64KiB") as server:
        code, out, err = outcome("far", "put", data_set, *server.settings(path="far"))
    assert code == 1
    assert "full" in out
    assert "no room for" in err
    assert "outercore far drop" in err


def test_a_probe_is_stored_and_used(data_set: Path, server: FarServer, outcome: Any) -> None:
    quick = ["--seconds", "0.001", "--size", "256KiB"]
    code, out, err = outcome("far", "probe", data_set, *server.settings(path="far"), *quick)
    assert (code, err) == (0, "")
    assert "best chunk" in out
    assert "peak" in out
    best = json.loads((data_set / "far.json").read_text())["servers"][server.addresses["tcp"]]
    assert (far.options_of(server.options(), data_set) or {})["chunk"] == best["best_chunk"]
    code, _, err = outcome("far", "probe", "nowhere", *server.settings(path="far"), *quick)
    assert code == 1
    assert "`nowhere` does not exist" in err


@pytest.mark.parametrize("transport", ["tcp", "unix"])
def test_run_prints_what_came_from_far_memory(
    transport: str, data_set: Path, server: FarServer, outcome: Any, tmp_path: Path
) -> None:
    there = [*server.settings(transport, "far"), "--set", "far_ratio=1", "--record", "none"]
    more = ["--set", "far.chunk=64KiB", "--set", "far.queues=2", "--set", "far.queue_length=4"]
    out_file = tmp_path / "levels.npy"
    command = ["run", "bfs", data_set, "--source", "3", "--out", out_file]
    code, out, err = outcome(*command, *there, *more, "--set", "far.timeout_s=3")
    assert (code, err) == (0, "")
    assert "from far memory" in out
    np.testing.assert_array_equal(np.load(out_file), oc.bfs(data_set, 3))
    code, out, _ = outcome("run", "bfs", data_set, "--source", "3", *there, "--plan", "--json")
    assert (code, json.loads(out)["far_ratio"]) == (0, 1.0)


def test_run_warns_when_its_server_was_lost(
    data_set: Path, tmp_path: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = ["run", "bfs", data_set, "--source", "3", "--set", "far_ratio=1", "--record", "none"]
    run = recorded_run.run_without_directory
    with FarServer(tmp_path) as server:

        def killing(*arguments: Any) -> Any:
            def progress(phase: str, *_: object) -> None:
                if phase == "level" and server.process.poll() is None:
                    server.kill()

            return run(*arguments[:-1], progress)

        monkeypatch.setattr("outercore.analytics.recorded_run.run_without_directory", killing)
        code, out, err = outcome(*command, *server.settings(path="far"))
    assert code == 0
    assert "levels" in out
    assert err.startswith(f"warning: memory server {server.addresses['tcp']}")
    assert "went to the disk" in err
    with FarServer(tmp_path / "other") as server:
        code, out, err = outcome(
            *command, *server.settings(path="far"), "--set", "far.fallback=false"
        )
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert server.addresses["tcp"] in err
    assert "fallback" in err or "memory-server" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--set", "far_ratio=0.5"], "without far memory"),
        (["--set", "far.token_file=x"], "far.address: expected a value, found none"),
        (["--set", "far.queue_length=3"], "far.address: expected a value, found none"),
        (["--set", "far.timeout_s=3"], "far.address: expected a value, found none"),
        (["--set", "far.fallback=false"], "far.address: expected a value, found none"),
        (["--far", "a:b"], "HOST:PORT"),
        (["FAR", "--set", "far_ratio=2"], "far_ratio: expected 0 to 1, found 2.0"),
        (["FAR", "--set", "far.chunk=5000"], "chunk"),
        (["FAR", "--set", "far.queues=0"], "queues"),
        (["FAR", "--set", "far.timeout_s=0"], "timeout"),
        (["FAR", "--set", "far.token_file=WRONG"], "token"),
        (
            ["--far", "unix:/nowhere/far.sock", "--set", "far.token_file=WRONG"],
            "/nowhere/far.sock",
        ),
    ],
)
def test_a_users_mistake_ends_with_1_and_one_line(
    arguments: list[str],
    message: str,
    data_set: Path,
    server: FarServer,
    tmp_path: Path,
    outcome: Any,
) -> None:
    wrong = str(far.new_token(tmp_path / "wrong"))
    given: list[str] = []
    for word in arguments:
        far_server = server.settings(path="far")
        given += far_server if word == "FAR" else [word.replace("WRONG", wrong)]
    code, out, err = outcome("run", "bfs", data_set, "--source", "3", *given)
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize("setting", ["fallback=false", "chunk=64KiB"])
def test_train_wants_a_server_for_its_options(setting: str, data_set: Path, outcome: Any) -> None:
    code, out, err = outcome("train", data_set, "--set", f"budget.far.{setting}")
    assert (code, out) == (1, "")
    assert "budget.far.address: expected a value, found none" in err
