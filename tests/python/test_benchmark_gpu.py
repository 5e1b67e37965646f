"""The benchmark of a GPU runs without one, and its counts and texts are right."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
pytest.importorskip("triton")

GPU = Path(__file__).parents[2] / "benchmarks/gpu"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The driver, imported as `gpu_run` because other scripts are called `run`, too."""
    import importlib.util

    monkeypatch.syspath_prepend(str(GPU))
    spec = importlib.util.spec_from_file_location("gpu_run", GPU / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_run", module)
    spec.loader.exec_module(module)
    yield module
    # Another test may import other modules with these common names.
    for name in ("bench", "report", "window"):
        sys.modules.pop(name, None)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_without_a_gpu_the_small_run_is_right_in_every_part_that_it_runs(tmp_path: Path) -> None:
    parts = ["transfer", "training", "embedding", "kernels"]
    command = [sys.executable, GPU / "run.py", "--small", "--seconds", "850"]
    command += ["--out", tmp_path, "--only", *parts]
    done = subprocess.run(
        command, capture_output=True, text=True, env={**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    )
    result = json.loads((tmp_path / "gpu.json").read_text())
    wrong = [one for part in result["parts"].values() for one in part["checks"] if not one["right"]]
    assert wrong == []
    statuses = {name: part["status"] for name, part in result["parts"].items()}
    assert statuses == dict.fromkeys(parts, "done"), done.stderr[-3000:]
    assert done.returncode == 0
    checked = {name: len(part["checks"]) for name, part in result["parts"].items()}
    assert all(checked.values()), checked
    # Exactly 0 everywhere would mean that a tensor was compared with itself.
    assert 0 < result["parts"]["kernels"]["values"]["largest_relative_error"]["ieee"] < 1e-5
    assert "| transfer | done |" in (tmp_path / "gpu.md").read_text()


def options_of(**values: Any) -> argparse.Namespace:
    return argparse.Namespace(**{"small": False, **values})


def test_a_part_that_takes_too_long_is_stopped_and_keeps_what_it_found(
    script: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(script.PARTS, "transfer", script.Part("transfer", 0.01))
    (tmp_path / "part-transfer.json").write_text('{"values": {"old": 1}, "checks": []}')
    found = script._in_a_process("transfer", options_of(), tmp_path, 100.0)
    assert found["status"] == "stopped after 0 s"
    # What an earlier run has left there does not count.
    assert found["values"] == {}


def test_where_the_time_is_used_up_a_part_is_not_started(script: Any, tmp_path: Path) -> None:
    found = script._in_a_process("transfer", options_of(), tmp_path, 9.0)
    assert found["status"] == "not run"


def test_what_a_part_finds_is_on_disk_before_it_ends(script: Any, tmp_path: Path) -> None:
    from bench import Bench

    bench = Bench(tmp_path, tmp_path / "part.json", small=True)
    bench.keep("rate", 5)
    bench.check("rows", False, "3 differ")
    kept = json.loads((tmp_path / "part.json").read_text())
    assert kept["values"] == {"rate": 5}
    assert kept["checks"] == [{"what": "rows", "right": False, "found": "3 differ"}]


def event(category: str, name: str, start: float, micros: float, **arguments: Any) -> Any:
    return {
        "ph": "X", "cat": category, "name": name, "ts": start, "dur": micros, "args": arguments
    }  # fmt: skip


def test_a_trace_is_counted_by_step_and_times_that_overlap_count_once(script: Any) -> None:
    from window import per_step

    copy = "Memcpy HtoD (Pageable -> Device)"
    events = [
        event("kernel", "gemm", 0, 100),
        event("kernel", "add", 50, 100),
        event("gpu_memcpy", copy, 0, 40, bytes=1000),
        event("gpu_memcpy", copy, 500, 60, bytes=3000),
        event("cuda_runtime", "cudaStreamSynchronize", 0, 10),
        event("cuda_runtime", "cudaLaunchKernel", 0, 10),
        event("cpu_op", "aten::mm", 0, 10),
        {"ph": "i", "cat": "kernel", "name": "no span"},
    ]
    found = per_step(events, steps=2, seconds=1e-3)
    assert found["kernels"] == 1.0
    assert (found["host_waits"], found["operations"]) == (0.5, 0.5)
    assert found["copies"][copy] == {"count": 1.0, "bytes": 2000.0, "seconds": 50e-6}
    assert found["kernels_share"] == pytest.approx(0.15)
    assert found["copies_share"] == pytest.approx(0.1)


def test_the_text_names_what_is_wrong_and_leaves_out_what_was_not_measured(script: Any) -> None:
    from report import markdown

    machine = {
        "device": "cpu", "cores": 2, "processor": "one", "memory": 1 << 30, "kernel": "6",
        "python": "3", "torch": "2", "triton": None,
    }  # fmt: skip
    checks = [{"what": "rows of 64 bytes", "right": False, "found": "a|b"}]
    parts = {
        "transfer": {"status": "wrong", "seconds": 2.0, "values": {}, "checks": checks},
        "embedding": {"status": "not run", "why": "the time was used up"},
    }
    text = markdown({"machine": machine, "parts": parts})
    assert "| transfer | wrong | 2 | 0 | rows of 64 bytes (a/b) |" in text
    assert "## transfer" not in text
