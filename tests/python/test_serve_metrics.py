"""`GET /metrics`: Prometheus reads it, and its numbers follow what happens."""

from __future__ import annotations

from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from outercore.serving.server import Server, ServerConfig
from test_live import CONFIG, X, random_model, trained, update
from test_serve import ask, infer, question


def scrape(server: Server) -> dict[str, float]:
    """Each sample by its name and labels."""
    with urlopen(server.url + "/metrics", timeout=30) as answer:
        assert answer.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
        text = answer.read().decode()
    samples = {}
    for family in text_string_to_metric_families(text):
        assert family.name.startswith("outercore_"), family.name
        assert family.documentation, family.name
        for sample in family.samples:
            labels = ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))
            key = f"{sample.name}{{{labels}}}".removesuffix("{}")
            assert key not in samples, key
            samples[key] = sample.value
    return samples


def requests(path: str, status: str) -> str:
    return f"outercore_requests_total{{path={path},protocol=http,status={status}}}"


INFER = "/v2/models/{model}/infer"


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("metrics")
    trained(random_model(1, undirected=True).write(root / "graph"), "sage", root / "sage")
    return root


def test_numbers_of_requests_and_of_updates_move(home: Path) -> None:
    with Server(home / "graph", home / "sage", CONFIG) as server:
        version = ask(server, "/v2/models/sage")[1]["versions"][0]
        before = scrape(server)
        assert (
            before[f"outercore_model_info{{model=sage,precision=float32,version={version}}}"] == 1
        )
        assert before["outercore_graph_nodes"] == 40
        assert requests(INFER, "200") not in before
        for seed in range(3):
            infer(server, [1, 2], seed=seed)
        ask(server, "/v2/models/sage/infer", question([40]))
        ask(server, "/nowhere")
        changes = [{"op": "add_node", "values": {"x": X}}, {"op": "remove_node", "node": 3}]
        assert update(server, *changes)[0] == 200
        assert update(server, {"op": "remove_node", "node": 100})[0] == 400
        grown = scrape(server)
        assert ask(server, "/graph/compact", {})[0] == 200
        after = scrape(server)
    assert grown[requests(INFER, "200")] == 3
    assert grown[requests(INFER, "400")] == 1
    assert grown[requests("other", "404")] == 1
    assert grown[requests("/graph/updates", "200")] == 1
    assert grown[requests("/graph/updates", "400")] == 1
    for stage in ("wait", "read", "compute", "total"):
        assert grown[f"outercore_infer_stage_seconds_count{{stage={stage}}}"] == 3, stage
        assert 0 < grown[f"outercore_infer_stage_seconds_sum{{stage={stage}}}"] < 60, stage
    assert grown["outercore_window_requests_count"] == 3
    assert grown["outercore_queue_requests"] == 0
    assert grown["outercore_rows_total"] >= grown["outercore_rows_in_memory_total"] > 0
    assert grown["outercore_graph_nodes"] == 41
    assert grown["outercore_graph_removed_nodes"] == 1
    assert grown["outercore_graph_lsn"] == before["outercore_graph_lsn"] + 1
    assert grown["outercore_graph_changes_bytes"] > before["outercore_graph_changes_bytes"]
    assert grown["outercore_graph_writes_fail"] == 0
    assert grown["outercore_updates_total"] == 2
    assert grown["outercore_update_seconds_count"] == 1
    assert grown["outercore_commit_seconds_count"] == 1
    assert grown["outercore_commit_seconds_sum"] <= grown["outercore_update_seconds_sum"]
    assert grown["outercore_commit_records_sum"] == 1
    logged = grown["outercore_graph_log_bytes"] - before["outercore_graph_log_bytes"]
    assert grown["outercore_commit_bytes_total"] == logged > 0
    assert grown["outercore_compaction_seconds_count"] == 0
    assert after["outercore_compaction_seconds_count"] == 1
    assert after["outercore_compaction_failures_total"] == 0
    assert after["outercore_graph_compacted_lsn"] == after["outercore_graph_lsn"]


def test_a_graph_that_stays_as_it_is_has_reads_and_no_numbers_of_updates(home: Path) -> None:
    config = ServerConfig(port=0, memory="24MiB", deadline_ms=60_000)
    with Server(home / "graph", home / "sage", config) as server:
        infer(server, [1, 2])
        found = scrape(server)
    assert found[requests(INFER, "200")] == 1
    assert found["outercore_rows_total"] > 0
    assert not [key for key in found if "commit" in key or "update" in key]
