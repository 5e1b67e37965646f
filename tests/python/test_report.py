"""Reports are one file that needs nothing else, from one run or several."""

from __future__ import annotations

import errno
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("plotly")

from outercore.errors import CorruptError, NotFoundError
from outercore.runs import record as records
from outercore.runs.report import training as charts
from outercore.runs.report import write_report
from outercore.runs.report.runs import Run, load_runs


def record(score: float = 0.8, *, metric: str = "accuracy") -> dict[str, Any]:
    stage = {"items": 10, "busy_s": 3.0, "starved_s": 1.0, "blocked_s": 0.5}
    epochs = [
        {
            "epoch": number,
            "loss": 1.0 / (number + 1),
            "score": score - 0.1 / (number + 1),
            "metric": metric,
            "best": True,
            "seconds": 2.0,
            "seeds": 1000,
            "validation_seconds": 0.5,
            "counters": {
                "groups": 5,
                "sample": stage,
                "fetch": stage,
                "assemble": stage,
                "train": stage,
                "feature_reads": {"requests": 100, "bytes": 1 << 20, "useful_bytes": 1 << 19},
                "topology_reads": {"requests": 10, "bytes": 1 << 18, "useful_bytes": 1 << 17},
                "cache": {
                    "accesses": 1000,
                    "distinct": 600,
                    "constant_hits": 300,
                    "dynamic_hits": 100,
                    "misses": 200,
                },
            },
        }
        for number in range(3)
    ]
    return {
        "version": 1,
        "status": "finished",
        "command": "outercore train papers --note '<script>alert(1)</script>'",
        "description": {"run": "runs/a", "model": "sage", "metric": metric},
        "config": {"model": {"kind": "sage"}, "budget": {"memory": "2GiB"}},
        "data_set": {
            "path": "/data/papers",
            "nodes": 1000,
            "edges": 5000,
            "features": 16,
            "classes": 4,
        },
        "machine": {"cores": 2, "memory_bytes": 8 << 30},
        "device_profile": {
            "points": [
                {"read_bytes": 4096, "depth": 1, "iops": 9e3, "bytes_per_s": 4e7},
                {"read_bytes": 65536, "depth": 1, "iops": 5e3, "bytes_per_s": 3e8},
            ]
        },
        "plan": {
            "budget": 1 << 30,
            "reserved": 1 << 20,
            "topology": {"resident": True, "memory": 1 << 28},
            "staging": 1 << 20,
            "sampled": 1 << 20,
            "delivered": 1 << 20,
            "slots": 1 << 29,
            "split": {"constant_slots": 300, "dynamic_slots": 100},
        },
        "peak_memory_bytes": 3 << 30,
        "epochs": epochs,
        "timeline": [{"name": "train", "start_s": 0.0, "end_s": 2.0, "epoch": 0}],
        "pipeline": [{"stage": "fetch", "item": 0, "start_s": 4.0, "end_s": 4.5}],
        "result": {"metric": metric, "scores": {"valid": score, "test": score}},
    }


def write(path: Path, content: dict[str, Any]) -> Path:
    path.mkdir(parents=True)
    (path / "record.json").write_text(json.dumps(content))
    return path


def test_one_page_compares_runs_and_refers_to_nothing_outside(tmp_path: Path) -> None:
    runs = [write(tmp_path / "a", record(0.8)), write(tmp_path / "b", record(0.7))]
    write_report(runs, tmp_path / "out" / "report.html")
    page = (tmp_path / "out" / "report.html").read_text()
    body = page[page.index("<body>") :]
    assert "0.8000" in body
    assert "0.7000" in body
    assert not re.search(r"<(script|link|img)[^>]+(src|href)=", page)
    # Four shared figures, and five for each run.
    assert body.count("plotly-graph-div") == 4 + 2 * 5


def test_a_full_device_is_named_and_leaves_the_page_that_was_there(
    tmp_path: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(io.FileIO):
        def write(self, data: Any) -> int:
            super().write(memoryview(data)[:100])
            raise OSError(errno.ENOSPC, "No space left on device")

    run = write(tmp_path / "run", record())
    (tmp_path / "report.html").write_text("before")
    monkeypatch.setattr("outercore.files.atomic._opened", lambda path: Full(path, "w"))
    code, _, err = outcome("report", run, "--out", "report.html")
    assert code == 1
    assert "error: `report.html`: no space left on the device\nhint: free some space" in err
    assert (tmp_path / "report.html").read_text() == "before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "run"]


def test_what_users_typed_is_shown_and_not_run(tmp_path: Path) -> None:
    write_report([write(tmp_path / "a", record())], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<script>alert(1)</script>" not in page


def test_an_interrupted_run_without_epochs_has_a_report_too(tmp_path: Path) -> None:
    bare = {
        **record(),
        "status": "interrupted",
        "epochs": [],
        "timeline": [],
        "pipeline": [],
        "plan": {},
        "result": {},
        "device_profile": None,
    }
    write_report([write(tmp_path / "a", bare)], tmp_path / "report.html")
    assert "(interrupted)" in (tmp_path / "report.html").read_text()


def test_predicted_values_stand_beside_measured_ones(tmp_path: Path) -> None:
    first = {"seconds": 2.5, "hit_ratio": 0.81, "bytes": 1310720, "bottleneck": "device"}
    later = {"seconds": 1.0, "hit_ratio": 0.75, "bytes": 655360, "bottleneck": "model"}
    content = {**record(), "forecast": {"first_epoch": first, "later_epochs": later}}
    [run] = load_runs([write(tmp_path / "run", content)])
    assert isinstance(run, Run)
    found = [(one.name, one.measured, round(one.deviation, 6)) for one in run.predictions]
    # Every epoch took 2 s and read 1.25 MiB; of 1,000 accesses 200 were reads.
    assert found == [
        ("first epoch, time", 2.0, 0.25),
        ("first epoch, bytes read", 1310720, 0.0),
        ("first epoch, hit ratio", 0.8, 0.01),
        ("later epoch, time", 2.0, -0.5),
        ("later epoch, bytes read", 1310720, -0.5),
        ("later epoch, hit ratio", 0.8, -0.05),
    ]
    write_report([tmp_path / "run"], tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    row = "<tr><th>first epoch, time</th><td>2.5 s</td><td>2 s</td><td>+25%</td></tr>"
    assert row in page
    assert "<td>75.0%</td><td>80.0%</td><td>-5.0 points</td>" in page
    assert "device, later model" in page


def test_missing_and_broken_records_are_named(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    with pytest.raises(NotFoundError, match=r"no `record.json` there"):
        write_report([tmp_path / "a"], tmp_path / "report.html")
    for damaged in (b"{", b"\xff", b"[" * 100_000):
        (tmp_path / "a" / "record.json").write_bytes(damaged)
        with pytest.raises(CorruptError, match=r"record\.json`: expected JSON"):
            write_report([tmp_path / "a"], tmp_path / "report.html")


def test_a_damaged_device_profile_is_named_with_the_command_that_writes_it(tmp_path: Path) -> None:
    assert records.device_profile(tmp_path) is None
    (tmp_path / "device.json").write_text("{")
    with pytest.raises(CorruptError, match=r"device\.json`: expected JSON(.|\n)*outercore probe"):
        records.device_profile(tmp_path)


def test_runs_of_one_name_are_told_apart_by_their_parents(tmp_path: Path) -> None:
    paths = [write(tmp_path / parent / "run", record()) for parent in ("first", "second")]
    assert [run.name for run in load_runs(paths)] == ["first/run", "second/run"]


def test_shares_of_row_accesses_add_up_to_one() -> None:
    figure = charts.cache(Run("a", record()))
    assert [sum(values) for values in zip(*[bar.y for bar in figure.data], strict=True)] == [
        pytest.approx(1.0)
    ] * 3


def test_the_memory_plan_adds_up_to_the_budget() -> None:
    figure = charts.memory(Run("a", record()))
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(1)
    assert figure.layout.xaxis.title.text == "GiB"


def test_shares_of_a_stages_time_add_up_to_one() -> None:
    figure = charts.utilisation(Run("a", record()))
    assert sum(bar.x[0] for bar in figure.data) == pytest.approx(1.0)
