"""Records of graph algorithms, and the report made of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from outercore.runs import record as records

pytest.importorskip("plotly")

from outercore.runs.report import algorithms as charts
from outercore.runs.report import write_report
from outercore.runs.report.runs import AlgorithmRun, load_runs


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(3)
    source, target = random.integers(0, 100, (2, 600))
    root = tmp_path_factory.mktemp("records") / "graph"
    naive.write(root, 120, source, target)
    return root


def record(**counters: Any) -> dict[str, Any]:
    """What a run with far memory writes."""
    one = {
        "seconds": 0.5,
        "bytes": 3 << 20,
        "pinned_bytes": 1 << 20,
        "device_seconds": 0.4,
        "compute_seconds": 0.25,
        "threads": 2,
    }
    return {
        "version": 1,
        "job": "algorithm",
        "status": "finished",
        "command": "outercore run bfs papers --note '<script>alert(1)</script>'",
        "description": {"run": "runs/a", "algorithm": "bfs"},
        "config": {"run": {"memory": "64MiB", "far": {"address": "a:1"}}, "bfs": {"source": 3}},
        "data_set": {"path": "/data/papers", "nodes": 1000, "edges": 5000},
        "machine": {"cores": 2, "memory_bytes": 8 << 30},
        "device_profile": None,
        "plan": {"budget": 64 << 20, "state": 8 << 20, "pinned": 16 << 20, "far_bytes": 4 << 20},
        "peak_memory_bytes": 100 << 20,
        "counters": {
            "passes": 4,
            "seconds": 2.5,
            "prepare_seconds": 1.0,
            "pass_seconds": 2.0,
            "pinned_bytes": 4 << 20,
            "reads": {"requests": 12, "bytes": 12 << 20, "useful_bytes": 12 << 20},
            "far": {"far_bytes": 9 << 20, "disk_bytes": 3 << 20, "failed_over": 7, "lost": "gone"},
            "device_busy": 0.8,
            "cores_busy": 0.25,
            "by_pass": [one] * 4,
            **counters,
        },
        "profile": {
            "classes": [
                {
                    "group": 3,
                    "what": "edges",
                    "bytes": 20 << 20,
                    "local": 16 << 20,
                    "segments": 40,
                    "reads": 160,
                }
            ],
            "reads_by_segment": [4] * 40,
        },
        "result": {"levels": 3, "reached": 900},
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    path.mkdir(parents=True)
    (path / "record.json").write_text(json.dumps(content))
    return path


def body(page: Path) -> str:
    text = page.read_text()
    return text[text.index("<body>") :]


def test_every_run_writes_a_record_from_which_a_page_is_made(data_set: Path, outcome: Any) -> None:
    code, out, err = outcome("run", "pagerank", data_set, "--memory", "64MiB", "--damping", "0.7")
    assert (code, err) == (0, "")
    assert "runs/graph-pagerank-1" in out
    code, out, _ = outcome("run", "bfs", data_set, "--source", "3", "--json")
    assert json.loads(out)["record"] == "runs/graph-bfs-1"
    written = json.loads(Path("runs/graph-pagerank-1/record.json").read_text())
    expected = oc.run("pagerank", data_set, memory="64MiB", damping=0.7, record=Path("runs/again"))
    assert written["plan"] == expected.plan
    assert written["result"] == expected.facts
    assert written["counters"]["passes"] == expected.counters["passes"]
    assert written["config"]["run"]["memory"] == "64MiB"
    assert written["config"]["pagerank"]["damping"] == 0.7
    assert written["data_set"] == {"path": str(data_set.resolve()), "nodes": 120, "edges": 600}
    assert written["peak_memory_bytes"] > 1 << 20
    code, out, _ = outcome("report", "runs/graph-pagerank-1", "runs/graph-bfs-1")
    assert (code, out) == (0, "runs/graph-pagerank-1/report.html\n")
    page = body(Path("runs/graph-pagerank-1/report.html"))
    assert "<h1>Pagerank, bfs on graph</h1>" in page
    assert "64.0 MiB" in page


def test_a_second_run_takes_the_next_number_and_none_is_written_on_request(
    data_set: Path, outcome: Any
) -> None:
    for _ in range(2):
        assert outcome("run", "wcc", data_set)[0] == 0
    assert outcome("run", "wcc", data_set, "--record", "none")[0] == 0
    assert sorted(path.name for path in Path("runs").iterdir()) == ["graph-wcc-1", "graph-wcc-2"]


def test_a_record_is_never_written_over(data_set: Path, outcome: Any) -> None:
    assert outcome("run", "wcc", data_set, "--record", "mine")[0] == 0
    before = Path("mine/record.json").read_bytes()
    code, out, err = outcome("run", "wcc", data_set, "--record", "mine")
    assert (code, out) == (1, "")
    assert "run `mine` exists already\nhint: " in err
    assert "choose another `--record`" in err
    assert Path("mine/record.json").read_bytes() == before


def test_a_result_is_not_lost_over_a_record_that_nobody_asked_for(
    data_set: Path, outcome: Any
) -> None:
    Path("runs").write_text("no directory")
    code, out, err = outcome("run", "wcc", data_set, "--json")
    assert code == 0
    assert json.loads(out)["record"] is None
    assert "note: no run record was kept: run `runs/graph-wcc-1`: " in err
    code, _, err = outcome("run", "wcc", data_set, "--record", "runs/mine")
    assert code == 1
    assert err.startswith("error: `runs/mine/.run.lock`: ")


def test_one_page_compares_algorithms_and_refers_to_nothing_outside(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", record()), write(tmp_path / "b", record(seconds=3.5))]
    write_report(runs, tmp_path / "report.html")
    page = body(tmp_path / "report.html")
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    # Three of cost, two by pass, and one of memory for each run.
    assert page.count("plotly-graph-div") == 5 + 2
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)</script>" not in page
    assert "time of preparing" in page
    assert "7 reads" in page


def test_training_and_algorithms_share_a_page(tmp_path: Path) -> None:
    from test_report import record as training_record

    runs = [write(tmp_path / "a", training_record()), write(tmp_path / "b", record())]
    write_report(runs, tmp_path / "report.html")
    page = body(tmp_path / "report.html")
    assert "<h1>2 runs on papers</h1>" in page
    assert "Training of sage; bfs; 1,000 nodes, 5,000 edges" in page
    assert page.count("<h1>") == 1


def test_a_directory_of_several_runs_stands_for_all_of_them(tmp_path: Path) -> None:
    for name in ("02-b", "01-a"):
        write(tmp_path / "night" / name, record())
    (tmp_path / "night" / "03-c").mkdir()
    assert [run.name for run in load_runs([tmp_path / "night"])] == ["01-a", "02-b"]


def test_counters_that_are_absent_count_as_nothing(tmp_path: Path) -> None:
    bare = {**record(), "counters": {"passes": 2, "seconds": 1.0}, "plan": {}, "profile": None}
    write_report([write(tmp_path / "a", bare)], tmp_path / "report.html")
    page = body(tmp_path / "report.html")
    # What has no data has no figure: only time and shares are drawn.
    assert page.count("plotly-graph-div") == 2
    assert "from far memory" not in page


def test_the_seconds_of_a_run_add_up() -> None:
    run = AlgorithmRun("a", record())
    figure = charts.seconds([run])
    assert sum(bar.y[0] for bar in figure.data) == pytest.approx(run.seconds + run.prepare_seconds)


def test_the_bytes_of_a_run_add_up() -> None:
    run = AlgorithmRun("a", record())
    figure = charts.read([run])
    assert sum(bar.y[0] for bar in figure.data) == pytest.approx(16)
    assert figure.layout.yaxis.title.text == "MiB"
    assert run.bytes_by_tier == {"memory": 4 << 20, "disk": 3 << 20, "far": 9 << 20}


def test_the_memory_of_a_plan_adds_up_to_the_budget() -> None:
    figure = charts.memory(AlgorithmRun("a", record()))
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(64)


def test_thousands_of_passes_become_means_of_neighbours() -> None:
    passes = [{"seconds": float(number)} for number in range(1000)]
    figure = charts.seconds_by_pass([AlgorithmRun("a", record(by_pass=passes))])
    line = figure.data[0]
    assert len(line.x) == len(line.y) == 334
    assert (line.x[0], line.y[0]) == (2, 1.0)
    assert line.y[-1] == 999.0


def test_peak_memory_is_this_processs_own_and_not_what_its_parent_had() -> None:
    script = "from outercore.runs import record; print(record.peak_memory())"
    ballast = np.ones(64 << 20, np.uint8)
    command = [sys.executable, "-c", script]
    environment = {"PYTHONPATH": ":".join(sys.path)}
    peak = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert int(peak.stdout) < records.peak_memory() - len(ballast) // 2


def test_load_tells_the_kinds_of_runs_apart(tmp_path: Path) -> None:
    assert isinstance(load_runs([write(tmp_path / "a", record())])[0], AlgorithmRun)
