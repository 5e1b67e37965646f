"""What `benchmarks/` says of stores that are killed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from benches import kills

    monkeypatch.setattr(kills, "KILL_AFTER_S", (0, 0))
    return kills.kills


class Forgetful:
    """Acknowledges ten edges a round; after a kill `forgets` of all of them are missing."""

    name, setting, promise = "forgetful", "default", ""

    def __init__(self, forgets: int, *, opens: bool = True) -> None:
        self.forgets = forgets
        self.opens = opens
        self.stored: set[int] = set()

    @contextlib.contextmanager
    def written(self, root: Path, first: int) -> Iterator[SimpleNamespace]:
        added = set(range(first, first + 10))
        assert not added & self.stored
        self.stored |= added
        yield SimpleNamespace(kill=lambda: None, acknowledged=added)

    def edges(self, root: Path) -> set[int]:
        if not self.opens:
            raise RuntimeError("it does not open")
        return set(sorted(self.stored)[self.forgets :])


def test_an_edge_is_found_by_its_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from peers.stores import NODES, number, pair

    for edge in (0, 1, NODES - 1, NODES, 12_345_678, NODES * NODES - 1):
        assert number(*pair(edge)) == edge


def test_a_store_that_keeps_everything_loses_nothing(kills: Any, tmp_path: Path) -> None:
    found = kills(Forgetful(0), tmp_path / "store", 3)
    assert (found.rounds, found.acknowledged, found.lost, found.failed) == (3, 30, 0, 0)


def test_acknowledged_edges_that_are_missing_are_counted(kills: Any, tmp_path: Path) -> None:
    found = kills(Forgetful(2), tmp_path / "store", 1)
    assert (found.lost, found.failed) == (2, 0)


def test_a_store_that_does_not_open_is_told_with_its_reason(kills: Any, tmp_path: Path) -> None:
    found = kills(Forgetful(0, opens=False), tmp_path / "store", 1)
    assert (found.lost, found.failed, found.reason) == (0, 1, "it does not open")


def test_a_server_lives_as_long_as_its_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from limits import started_limited

    program = "import time; print('ready', flush=True); time.sleep(60)"
    with started_limited([sys.executable, "-c", program]) as service:
        assert service.process.stdout.readline() == "ready\n"
        assert service.process.poll() is None
        assert service.cpu_s() >= 0
    assert service.process.returncode < 0
