"""A limit that is set while a program runs: kept, or the program is ended and nobody is told so."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

WAITS = """
import pathlib, sys, time
ready = pathlib.Path(sys.argv[1])
ready.touch()
while ready.exists():
    time.sleep(0.01)
print("went on")
"""
NEVER = "import time\nwhile True: time.sleep(1)"


class Cage:
    """A limit that can be set later, or not."""

    kind = "fake"

    def __init__(self, obeys: bool) -> None:
        self.obeys = obeys
        self.limits: list[int] = []
        self.closed = False

    def enter(self) -> None: ...

    def tighten(self, limit: int) -> bool:
        self.limits.append(limit)
        return self.obeys

    def usage(self) -> tuple[int | None, int | None]:
        return None, None

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import limits

    return limits


def run(limits: Any, cage: Cage, program: str, ready: Path, **options: Any) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "_cage", lambda limit, swap: cage)
        return limits.run_limited(
            [sys.executable, "-c", program, str(ready)], 1 << 30, ready=ready, **options
        )


def test_a_child_goes_on_once_it_is_limited(limits: Any, tmp_path: Path) -> None:
    cage = Cage(obeys=True)
    outcome = run(limits, cage, WAITS, tmp_path / "ready")
    assert (outcome.returncode, outcome.stdout) == (0, "went on\n")
    assert (outcome.enforced, cage.limits) == ("fake", [1 << 30])
    assert cage.closed


def test_a_child_that_cannot_be_limited_is_ended(limits: Any, tmp_path: Path) -> None:
    for cage in (Cage(obeys=False), limits._Unlimited()):
        outcome = run(limits, cage, WAITS, tmp_path / "ready")
        assert (outcome.returncode, outcome.stdout) == (-9, "")
        assert outcome.enforced == "none"
        assert not (tmp_path / "ready").exists()


def test_a_child_that_is_never_ready_is_ended(limits: Any, tmp_path: Path) -> None:
    outcome = run(limits, Cage(obeys=True), NEVER, tmp_path / "ready", ready_s=0.1)
    assert (outcome.returncode, outcome.enforced) == (-9, "none")


def test_a_child_that_fails_before_it_is_ready_says_why(limits: Any, tmp_path: Path) -> None:
    outcome = run(limits, Cage(obeys=True), "raise SystemExit('no graph')", tmp_path / "ready")
    assert (outcome.returncode, outcome.enforced) == (1, "none")
    assert "no graph" in outcome.stderr


def test_a_child_ends_when_nobody_waits_for_it_any_more(
    limits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = []

    def interrupted(child: Any, timeout_s: float | None) -> None:
        started.append(child)
        raise KeyboardInterrupt

    monkeypatch.setattr(limits, "_wait", interrupted)
    cage = Cage(obeys=True)
    with pytest.raises(KeyboardInterrupt):
        run(limits, cage, WAITS.replace("while ready.exists()", "while True"), tmp_path / "ready")
    assert [child.returncode for child in started] == [-9]
    assert cage.closed


def test_no_figure_on_swap_comes_from_a_run_without_a_limit(
    limits: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from benches import far_swap
    from benches.far import Bench
    from measure import Result

    settings = SimpleNamespace(
        work=tmp_path, dense="graph", threads=1, peers_python=Path(sys.executable)
    )
    bench = Bench(Result("test", ""), settings, tmp_path, 0, {}, tmp_path)
    enforced = iter(("cgroup1", "none"))

    def outcome(command: list[str], memory: int, **options: Any) -> Any:
        found = '{"first_s": 1.0}\n{"second_s": 2.0}\n'
        return limits.Outcome(
            command, 0, 3.0, next(enforced), memory, None, 0, 0, 0, None, found, ""
        )

    monkeypatch.setattr(far_swap, "run_limited", outcome)
    monkeypatch.setattr(far_swap, "swap_file", lambda path, size: contextlib.nullcontext(True))
    for case in ("bfs", "pagerank"):
        far_swap._library(bench, "scipy", case, 1 << 30)
    told = {(one.program, one.case): one.values for one in bench.result.series}
    assert told == {
        ("scipy", "bfs"): [1.0],
        ("scipy, swap", "bfs"): [2.0],
        ("scipy", "pagerank"): [1.0],
    }
