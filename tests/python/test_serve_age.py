"""A server without updates beside one that changes the same graph: it says how old its state is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton

import outercore as oc
from outercore.errors import InvalidError
from outercore.serving.server import Server
from test_live import CONFIG, random_model, trained
from test_serve import ask, question


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home: Path = tmp_path_factory.mktemp("age")
    trained(random_model(1, undirected=True).write(home / "graph"), "sage", home / "sage")
    return home


@pytest.fixture(scope="module")
def writer(home: Path) -> Iterator[Server]:
    with Server(home / "graph", home / "sage", CONFIG) as running:
        with oc.Client(running.url, "sage") as client:
            client.add_edge(1, 2)
            client.compact()
        yield running


def said(server: Server) -> list[dict[str, Any]]:
    """Where a server tells how new its graph is."""
    _, answer = ask(server, "/v2/models/sage/infer", question([1, 2]))
    return [
        answer["parameters"],
        ask(server, "/graph")[1],
        ask(server, "/v2/models/sage")[1]["parameters"],
    ]


def test_a_server_without_updates_says_the_number_and_age_of_its_state(
    home: Path, writer: Server
) -> None:
    before = time.monotonic()
    with (
        Server(home / "graph", home / "sage", replace(CONFIG, updates=False, grpc_port=0)) as fixed,
        oc.Client(writer.url, "sage") as changing,
        oc.Client(fixed.url, "sage") as client,
    ):
        at_start = changing.graph()["lsn"]
        written = changing.add_edge(2, 3)
        assert changing.predict([1, 2]).lsn == written.lsn == at_start + 1
        ages = []
        for found in said(fixed):
            assert found["lsn"] == at_start
            ages.append(found["age_ms"])
        assert ages == sorted(ages)
        assert 0 <= ages[0] <= ages[-1] <= 1000 * (time.monotonic() - before)
        prediction = client.predict([1, 2])
        assert prediction.lsn == at_start
        assert prediction.age_ms is not None
        assert prediction.age_ms >= ages[-1]
        with pytest.raises(InvalidError, match=f"min_lsn: {written.lsn}, the graph is at update"):
            client.predict([1, 2], min_lsn=written.lsn)
        with triton.InferenceServerClient(fixed.grpc_address) as caller:
            ids = triton.InferInput("node_ids", [1], "INT64")
            ids.set_data_from_numpy(np.array([1]))
            parameters = caller.infer("sage", [ids]).get_response().parameters
        assert parameters["lsn"].int64_param == at_start
        assert parameters["age_ms"].int64_param >= ages[-1]


def test_a_server_with_updates_has_seen_all_of_them_and_names_no_age(writer: Server) -> None:
    with oc.Client(writer.url, "sage") as client:
        written = client.add_edge(3, 4)
        for found in said(writer):
            assert found["lsn"] == written.lsn
            assert "age_ms" not in found
        assert client.predict([1]).age_ms is None
