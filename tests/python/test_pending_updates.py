"""Updates that are only in the log: counted without being folded, and folded within the budget."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore import _core
from outercore.serving.client import Client
from outercore.serving.server import Server
from test_live import CONFIG, outercore, random_model, trained, update
from test_serve import ask

MIB = 1 << 20

CONSTANT = 48 * MIB
"""What a process takes beside the budget."""

CHILD = """
import sys
import outercore as oc
from outercore.data.graph import StoredGraph

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

work = {
    "info": lambda path: StoredGraph(path).pending_updates,
    "run": lambda path: oc.degrees(path, memory="16MiB"),
}[sys.argv[1]]
work(sys.argv[2])
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
work(sys.argv[3])
print(status("VmHWM") - before)
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server of a graph, and where the graph is."""
    home = tmp_path_factory.mktemp("pending")
    graph = random_model(3, undirected=True).write(home / "graph")
    with Server(graph.root, trained(graph, "sage", home / "sage"), CONFIG) as server:
        yield server, graph.root


def state(root: Path) -> dict[str, tuple[int, int]]:
    """Size and time of each file."""
    files = [path for path in root.rglob("*") if path.is_file()]
    return {str(path): (path.stat().st_size, path.stat().st_mtime_ns) for path in files}


def test_info_counts_what_waits_and_writes_nothing(served: Any) -> None:
    server, root = served
    _, before = ask(server, "/graph")
    for source in (3, 4):
        status, _ = update(server, {"op": "add_edge", "source": source, "target": 9})
        assert status == 200
    files = state(root)
    # Beside the server, which is not asked to do anything.
    described = json.loads(outercore("info", root, "--json"))
    assert described["pending_updates"] == before["lsn"] - before["compacted_lsn"] + 2
    assert f"pending updates  {described['pending_updates']}" in outercore("info", root)
    assert state(root) == files
    assert ask(server, "/graph")[1]["compactions"] == before["compactions"]


@pytest.mark.parametrize("label", [3, -5, 2**63 - 1])
def test_a_label_that_is_no_class_is_refused(served: Any, label: int) -> None:
    server, _ = served
    status, answer = update(server, {"op": "update_node", "node": 1, "values": {"y": label}})
    assert (status, answer["error"].split(":")[0]) == (400, "array `nodes/node/y`")
    status, _ = update(server, {"op": "update_node", "node": 1, "values": {"y": -1}})
    assert status == 200


def test_a_request_with_the_same_key_gets_the_first_answer(served: Any) -> None:
    server, _ = served
    nodes = ask(server, "/graph")[1]["nodes"]
    change = [{"op": "add_node", "values": {"x": [1.0] * 5}}]
    with Client(server.url, "sage") as client:
        first, again = (client.update(change, key="one") for _ in range(2))
        other = client.update(change, key="two")
    assert (first.lsn, first.results) == (again.lsn, again.results)
    assert other.lsn > first.lsn
    assert ask(server, "/graph")[1]["nodes"] == nodes + 2


@pytest.mark.parametrize("key", ["", "x" * 65])
def test_a_key_of_another_length_is_refused(served: Any, key: str) -> None:
    server, _ = served
    body = {"updates": [{"op": "remove_node", "node": 1}], "key": key}
    status, answer = ask(server, "/graph/updates", body)
    assert status == 400
    assert f"key: a key of {len(key)} bytes, expected 1 to 64" in answer["error"]


def test_a_cut_log_is_found_by_check_and_refused_by_the_others(tmp_path: Path) -> None:
    graph = random_model(4, undirected=False).write(tmp_path / "graph")
    with Server(graph.root, trained(graph, "sage", tmp_path / "sage"), CONFIG) as server:
        for source in (1, 2, 3):
            update(server, {"op": "add_edge", "source": source, "target": 9})
    (log,) = (graph.root / "live").glob("*.log")
    whole = log.read_bytes()
    log.write_bytes(whole[:-1])
    report = _core.check(graph.root, lambda *_: None)
    assert not report["sound"]
    (problem,) = report["problems"]
    assert "ends with update 2" in problem["message"]
    assert "remove `live/end`" in problem["hint"]
    for verb in (["info"], ["run", "degrees"]):
        command = [sys.executable, "-m", "outercore", *verb, str(graph.root)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done.stderr
        assert "remove `live/end`" in " ".join(done.stderr.split())
    (graph.root / "live/end").unlink()
    assert oc.open(graph.root).num_edges == graph.num_edges + 2


def test_a_log_of_four_budgets_is_counted_and_folded_within_the_budget(tmp_path: Path) -> None:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc")
    nodes, columns = 17_000, 1024
    shape = {"nodes": nodes, "degree": 2, "features": columns, "classes": 2, "seed": 1}
    root, tiny = tmp_path / "graph", tmp_path / "tiny"
    _core.generate_planted(root, {**shape, "memory": 64 * MIB}, lambda *_: None)
    _core.generate_planted(tiny, {**shape, "nodes": 100, "memory": 64 * MIB}, lambda *_: None)
    run = trained(oc.open(tiny), "sage", tmp_path / "sage")
    row = np.arange(columns) % 10
    config = replace(CONFIG, memory="2GiB")
    with Server(root, run, config) as server, Client(server.url, "sage") as client:
        for first in range(0, nodes, 1000):
            new = range(first, min(first + 1000, nodes))
            client.update([{"op": "update_node", "node": n, "values": {"x": row}} for n in new])
        assert client.graph()["compactions"] == 0
    assert sum(log.stat().st_size for log in (root / "live").glob("*.log")) > 64 * MIB
    # The second one folds.
    for work in ("info", "run"):
        child = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", CHILD, work, str(tiny), str(root)],
            capture_output=True,
            text=True,
            check=True,
        )
        assert int(child.stdout) < 16 * MIB + CONSTANT, work
    graph = oc.open(root)
    assert (graph.array("x")[[0, nodes - 1]] == row).all()
    assert _core.check(root, lambda *_: None)["sound"]
