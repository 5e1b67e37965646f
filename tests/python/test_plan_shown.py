"""`outercore plan train` as people read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from fakes import planted
from outercore import training
from outercore.cli import app
from outercore.cli.plan import verdict

GIB = 1 << 30


def planned(**later: Any) -> dict[str, Any]:
    """A quarter of the budget is for validation."""
    epoch = {"bytes": 3 * GIB, "seconds": 71.0, "rows_read": 5, "bottleneck": "device", **later}
    return {
        "memory": 2 * GIB,
        "validation_memory": GIB // 2,
        "all_rows_memory": 6 * GIB - 5,
        "forecast": {"later_epochs": epoch},
    }


def test_the_verdict_names_what_limits_and_what_would_hold_all_rows() -> None:
    said = "A later epoch reads 3.0 GiB and takes about 71 s; the disk limits it."
    assert verdict(planned()) == (
        f"{said} With `--memory 6144MiB` all feature rows stay in memory."
    )
    assert verdict(planned(bytes=0, rows_read=0, bottleneck="model")) == (
        "A later epoch reads nothing and takes about 71 s; the network limits it. "
        "All feature rows stay in memory."
    )
    assert verdict({**planned(), "forecast": {}}) == "The budget is enough."
    assert verdict({**planned(), "all_rows_memory": None}) == said
    assert verdict({**planned(), "all_rows_memory": 2 * GIB}) == said
    emptied = {**planned(rows_read=0), "validation_memory": 0}
    assert verdict(emptied) == (
        f"{said} Each validation empties the cache. "
        "With `--memory 6144MiB` all feature rows stay in memory."
    )
    emptied["all_rows_memory"] = GIB
    assert verdict(emptied) == f"{said} Each validation empties the cache."


@pytest.mark.parametrize(
    "options", [{}, {"topology": "paged"}, {"model": "gcn"}, {"validation_share": 0.0}]
)
def test_all_rows_fit_into_the_memory_that_the_plan_names(
    options: dict[str, Any], tmp_path: Path
) -> None:
    data = planted(tmp_path / "data", nodes=6000, degree=6, width=256)
    chosen = {"fanout": (2, 2), "hidden": 8, "batch_size": 128, **options}
    small, larger = (training.plan(data, memory=size, **chosen) for size in ("8MiB", "9MiB"))
    assert small["forecast"]["later_epochs"]["rows_read"] > 0
    enough = small["all_rows_memory"]
    assert larger["all_rows_memory"] == enough
    again = training.plan(data, memory=enough, **chosen)
    assert again["training"]["split"]["constant_slots"] == again["training"]["num_rows"]
    assert again["forecast"]["later_epochs"]["rows_read"] == 0
    assert again["all_rows_memory"] == enough


@pytest.mark.parametrize("options", [[], ["--model", "gcn"], ["--memory", "12MiB"]])
def test_the_plan_is_a_table_without_raw_keys(options: list[str], tmp_path: Path) -> None:
    data = planted(tmp_path / "data", nodes=3000, degree=6, width=256)
    words = ["plan", "train", str(data), "--fanout", "3,2", "--hidden", "8", "--memory", "64MiB"]
    words += ["--set", "sampling.batch_size=64", *options]
    shown = CliRunner().invoke(app, words)
    assert shown.exit_code == 0, shown.output
    for name in ("topology", "feature rows", "batches", "rows found in memory", "limits it."):
        assert name in shown.stdout
    assert "_" not in shown.stdout
    assert ("in-degrees" in shown.stdout) == ("gcn" in options)
    told = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert told["forecast"]["later_epochs"]["seconds"] > 0
