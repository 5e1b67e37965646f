"""Algorithms over the whole graph, asked of a server while the graph changes."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import numpy as np
import pytest

import outercore as oc
from outercore.analytics import ALGORITHMS
from outercore.analytics.running import checked_options
from outercore.errors import DeviceError, InvalidError, UnsupportedError
from outercore.serving.server import Server
from test_live import CONFIG, random_model, trained
from test_serve import ask

ANALYSES = replace(CONFIG, analyses="64MiB")
NEEDED: dict[str, dict[str, Any]] = {"bfs": {"source": 1}, "sssp": {"source": [1, 2]}}
"""Options without a default."""
SLOW = {"algorithm": "betweenness"}
"""Takes seconds on the graph of `slow`."""


@pytest.mark.parametrize("undirected", [True, False])
def test_values_are_those_of_the_graph_as_updates_made_it(undirected: bool, tmp_path: Path) -> None:
    model = random_model(5, undirected=undirected)
    run = trained(model.write(tmp_path / "graph"), "sage", tmp_path / "sage")
    random = np.random.default_rng(9)
    with (
        Server(tmp_path / "graph", run, ANALYSES) as server,
        oc.Client(server.url, "sage") as client,
    ):
        lsn = 0
        for round_ in range(2):
            for _ in range(20):
                drawn = model.draw(random)
                if model.apply(drawn):
                    lsn = client.update([drawn]).lsn
            written = model.write(tmp_path / f"written-{round_}")
            for name, function in ALGORITHMS.items():
                needed = NEEDED.get(name, {})
                if undirected != (name in ("triangles", "local_clustering", "louvain", "kcore")):
                    # Each kind of graph has half of them; some need one without direction.
                    continue
                found = client.analyse(name, **needed)
                wanted = function(written, memory="64MiB", **needed)
                assert found.lsn == lsn
                assert found.values.dtype == wanted.dtype
                np.testing.assert_allclose(found.values, wanted, rtol=1e-12, atol=1e-12)
        assert client.analyse("pagerank", damping=0.5).facts["iterations"] > 0
        assert ask(server, "/graph/analyses") == (200, {"analyses": []})
    assert not list((tmp_path / "graph").glob(".linked*"))


def test_a_graph_that_stays_is_analysed_where_it_is(tmp_path: Path) -> None:
    graph = random_model(5, undirected=True).write(tmp_path / "graph")
    run = trained(graph, "sage", tmp_path / "sage")
    with (
        Server(graph.root, run, replace(ANALYSES, updates=False)) as server,
        oc.Client(server.url, "sage") as client,
    ):
        found = client.analyse("wcc")
    assert found.lsn == 0
    assert (found.values == oc.analytics.wcc(graph)).all()


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Serves a graph on which `SLOW` is slow."""
    home = tmp_path_factory.mktemp("slow")
    model = random_model(1, undirected=False, nodes=4000, edges=60_000)
    run = trained(model.write(home / "graph"), "sage", home / "sage")
    left = home / "graph" / ".linked-left"
    left.mkdir()
    # Nobody holds it.
    (left / "in-use").touch()
    with Server(home / "graph", run, replace(ANALYSES, threads=1)) as running:
        assert not left.exists()
        yield running


def delete(server: Server, number: int) -> int:
    path = f"{server.url}/graph/analyses/{number}"
    with urlopen(Request(path, method="DELETE"), timeout=60) as answer:
        return int(answer.status)


def until(server: Server, number: int, states: tuple[str, ...]) -> dict[str, Any]:
    end = time.monotonic() + 60
    while True:
        status, found = ask(server, f"/graph/analyses/{number}")
        assert status == 200
        if found["state"] in states:
            return dict(found)
        assert found["state"] != "failed" or "failed" in states, found["error"]
        assert time.monotonic() < end, found
        time.sleep(0.01)


def until_computing(server: Server, number: int) -> None:
    """Waits until the analysis has its snapshot: updates before that are part of it."""
    while True:
        progress = until(server, number, ("running",))["progress"]
        if progress is not None and progress["phase"] != "snapshot":
            return
        time.sleep(0.01)


def test_one_runs_while_others_wait_and_more_are_refused(slow: Server) -> None:
    taken = []
    while (answer := ask(slow, "/graph/analyses", SLOW))[0] == 202:
        taken.append(answer[1]["id"])
        assert answer[1]["state"] == "waiting"
    assert (answer[0], "too many analyses" in answer[1]["error"]) == (429, True)
    assert 8 <= len(taken) <= 10
    running = until(slow, taken[0], ("running",))
    assert running["request"]["normalized"] is True
    status, values = ask(slow, f"/graph/analyses/{taken[0]}/values")
    assert (status, "has not ended" in values["error"]) == (409, True)
    # An update and a prediction come through meanwhile.
    with oc.Client(slow.url, "sage") as client:
        written = client.add_edge(1, 2)
        assert client.predict([1], min_lsn=written.lsn).lsn == written.lsn
        assert client.compact() == written.lsn
    for number in taken:
        assert delete(slow, number) == 204
    assert ask(slow, f"/graph/analyses/{taken[0]}")[0] == 404
    # The next one begins as soon as the one that ran has stopped.
    status, quick = ask(slow, "/graph/analyses", {"algorithm": "degrees"})
    assert status == 202
    assert until(slow, quick["id"], ("done", "failed"))["state"] == "done"


def test_a_fold_does_not_disturb_one_that_runs(slow: Server) -> None:
    asked = {"algorithm": "betweenness", "samples": 1000}
    with oc.Client(slow.url, "sage") as client:
        before = client.analyse(**asked)
        _, answer = ask(slow, "/graph/analyses", asked)
        until_computing(slow, answer["id"])
        written = client.update([{"op": "remove_node", "node": node} for node in range(50)])
        assert client.compact() == written.lsn
        assert until(slow, answer["id"], ("running", "done"))["state"] == "running"
        assert until(slow, answer["id"], ("done",))["lsn"] == before.lsn
        with urlopen(f"{slow.url}/graph/analyses/{answer['id']}/values", timeout=60) as values:
            assert (np.load(BytesIO(values.read())) == before.values).all()
        after = client.analyse(**asked)
    assert after.lsn == written.lsn
    assert (after.values[:50] == 0).all()


@pytest.mark.parametrize("name", ALGORITHMS)
def test_default_options_are_those_of_python(name: str, slow: Server) -> None:
    needed = NEEDED.get(name, {})
    status, answer = ask(slow, "/graph/analyses", {"algorithm": name, **needed})
    assert (status, answer["request"]) == (
        202,
        {"algorithm": name, **checked_options(ALGORITHMS[name], needed)},
    )
    assert delete(slow, answer["id"]) == 204


def test_ctrl_c_in_the_client_ends_the_analysis(slow: Server) -> None:
    def give_up(*_: object) -> None:
        raise KeyboardInterrupt

    with oc.Client(slow.url, "sage") as client, pytest.raises(KeyboardInterrupt):
        client.analyse("betweenness", progress=give_up)
    _, found = ask(slow, "/graph/analyses")
    assert {one["state"] for one in found["analyses"]} <= {"done", "failed"}


def test_ended_ones_are_remembered_up_to_a_number(slow: Server) -> None:
    numbers = []
    for _ in range(18):
        status, answer = ask(slow, "/graph/analyses", {"algorithm": "degrees"})
        assert status == 202
        numbers.append(answer["id"])
        until(slow, answer["id"], ("done",))
    _, found = ask(slow, "/graph/analyses")
    assert [analysis["id"] for analysis in found["analyses"]] == numbers[2:]


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (b"[", "no analysis"),
        ({"algorithm": "page rank"}, "unknown variant `page rank`"),
        ({"damping": 0.5}, "missing field `algorithm`"),
        ({"algorithm": "bfs"}, "missing field `source`"),
        ({"algorithm": "wcc", "damping": 0.5}, "unknown field `damping`"),
        ({"algorithm": "bfs", "source": 4000}, "source 4000, the graph has 4000 nodes"),
        ({"algorithm": "pagerank", "damping": 2}, "damping"),
    ],
)
def test_what_is_wrong_is_said(body: Any, text: str, slow: Server) -> None:
    status, answer = ask(slow, "/graph/analyses", body)
    assert (status, text in answer["error"]) == (400, True), answer


def test_what_fails_later_says_why(slow: Server) -> None:
    with (
        oc.Client(slow.url, "sage") as client,
        pytest.raises(InvalidError, match="edge array `weight` is not in the data set"),
    ):
        client.analyse("sssp", source=1, weights="weight")


@pytest.mark.parametrize("path", ["999", "999/values", "x", "-1", "99999999999999999999"])
def test_an_unknown_one_is_refused(path: str, slow: Server) -> None:
    status, answer = ask(slow, f"/graph/analyses/{path}")
    assert (status, "no analysis" in answer["error"]) == (404, True), answer


def test_a_budget_that_is_too_small_is_told_both_sides(tmp_path: Path) -> None:
    run = trained(
        random_model(1, undirected=True).write(tmp_path / "graph"), "sage", tmp_path / "s"
    )
    with Server(tmp_path / "graph", run, replace(CONFIG, analyses="16KiB")) as server:
        with (
            oc.Client(server.url, "s") as client,
            pytest.raises(InvalidError, match="`analyses` is too small"),
        ):
            client.analyse("pagerank")
        assert "least" in "".join(server.take_failures())


def test_without_a_budget_none_are_taken(tmp_path: Path) -> None:
    run = trained(
        random_model(1, undirected=True).write(tmp_path / "graph"), "sage", tmp_path / "s"
    )
    with (
        Server(tmp_path / "graph", run, CONFIG) as server,
        oc.Client(server.url, "s") as client,
        pytest.raises(UnsupportedError, match="start it with `analyses`"),
    ):
        client.analyse("pagerank")


def test_a_server_that_cannot_start_lets_go_of_the_data_set(tmp_path: Path) -> None:
    run = trained(
        random_model(1, undirected=True).write(tmp_path / "graph"), "sage", tmp_path / "s"
    )
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(DeviceError, match="cannot listen"):
            Server(tmp_path / "graph", run, replace(ANALYSES, port=port))
    with Server(tmp_path / "graph", run, ANALYSES):
        pass


def test_a_server_that_stops_ends_them_and_leaves_nothing(tmp_path: Path) -> None:
    model = random_model(1, undirected=False, nodes=4000, edges=60_000)
    run = trained(model.write(tmp_path / "graph"), "sage", tmp_path / "sage")
    with Server(tmp_path / "graph", run, replace(ANALYSES, threads=1)) as server:
        _, answer = ask(server, "/graph/analyses", SLOW)
        until(server, answer["id"], ("running",))
        began = time.monotonic()
    assert time.monotonic() - began < 10
    assert not list((tmp_path / "graph").glob(".linked*"))
