"""Opening a data set while another process replaces its grid."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

import outercore as oc
from fakes import planted
from outercore import _native, analytics
from outercore.errors import NotFoundError
from outercore.steady import steady


@pytest.fixture
def data_set(tmp_path: Path) -> Path:
    root = planted(tmp_path / "data")
    oc.grid(root)
    return root


def test_a_plan_beside_a_new_grid_is_made_of_the_new_one(
    data_set: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, calls = _native.plan_algorithm, []

    def replaced_meanwhile(*arguments: Any) -> dict[str, Any]:
        calls.append(arguments)
        if len(calls) == 1:
            # The old grid's files are gone when they are opened.
            oc.grid(data_set, overwrite=True)
            raise NotFoundError("array `grid/edge/blocks`: no such file")
        return plan(*arguments)

    monkeypatch.setattr(_native, "plan_algorithm", replaced_meanwhile)
    code, out, err = outcome("run", "pagerank", data_set, "--plan", "--json")
    assert (code, err, len(calls)) == (0, "", 2)
    assert json.loads(out)["budget"] == 1 << 30


def test_a_file_that_is_missing_for_good_is_told_at_once(data_set: Path) -> None:
    calls = []

    def missing() -> None:
        calls.append(1)
        raise NotFoundError("array `grid/edge/blocks`: no such file")

    with pytest.raises(NotFoundError):
        steady(data_set, missing)
    assert len(calls) == 1
    with pytest.raises(NotFoundError):
        oc.open(data_set / "nowhere")


@pytest.mark.slow
def test_plans_are_made_while_grids_come_and_go(data_set: Path) -> None:
    done = threading.Event()

    def build() -> None:
        while not done.is_set():
            oc.grid(data_set, overwrite=True, memory="64MiB")

    builder = threading.Thread(target=build)
    builder.start()
    try:
        for _ in range(5000):
            assert analytics.plan("wcc", data_set)["budget"] == 1 << 30
    finally:
        done.set()
        builder.join()
