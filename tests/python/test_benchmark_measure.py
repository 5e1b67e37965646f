"""Programs that are measured beside each other: by turns, and left out once they fail."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def measure(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import measure

    return measure


def test_programs_take_turns_and_one_that_fails_is_left_out(
    measure: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import limits

    ran = []

    def run_limited(command: list[str], memory: int | None, **options: Any) -> Any:
        ran.append((command[0], memory, options["env"]))
        failed = command[0] == "fails" and len(ran) > 3
        printed = json.dumps({"edges": 10 * len(ran)})
        return limits.Outcome(
            command, int(failed), 1.0, "cgroup2", memory, 3, 2, 1, 0, 0, printed, "no memory"
        )

    monkeypatch.setattr(measure, "run_limited", run_limited)
    trials = [
        measure.Trial(measure.Series(name, "", "edges"), [name], lambda one: one["edges"], limit)
        for name, limit in (("works", None), ("fails", 1 << 20))
    ]
    trials[0].env["OMP_WAIT_POLICY"] = "PASSIVE"
    measure.by_turns(SimpleNamespace(repeats=3, threads=2), trials)

    assert [name for name, _, _ in ran] == ["works", "fails", "works", "fails", "works"]
    assert ran[0][1:] == (None, {"OMP_NUM_THREADS": "2", "OMP_WAIT_POLICY": "PASSIVE"})
    assert ran[1][1:] == (1 << 20, {"OMP_NUM_THREADS": "2"})
    works, fails = (trial.series for trial in trials)
    assert (works.values, works.note) == ([10, 30, 50], "")
    assert fails.values == [20]
    assert "no memory" in fails.note
    assert [run["used"]["limit"] for run in trials[1].runs] == [1 << 20]
