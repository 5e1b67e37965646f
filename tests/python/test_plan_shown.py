"""`outercore plan train` as people read it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from typer.testing import CliRunner

from fakes import planted
from outercore.cli import app
from outercore.cli.plan_shown import verdict

GIB = 1 << 30


def planned(**later: Any) -> dict[str, Any]:
    """A quarter of the rows in 1 GiB of slots, and a quarter of the budget for validation."""
    epoch = {"bytes": 3 * GIB, "seconds": 71.0, "rows_read": 5, "bottleneck": "device", **later}
    return {
        "memory": 2 * GIB,
        "validation_memory": GIB // 2,
        "training": {
            "slots": GIB,
            "num_rows": 4_000_000,
            "split": {"constant_slots": 600_000, "dynamic_slots": 400_000},
        },
        "forecast": {"later_epochs": epoch},
    }


def test_the_verdict_names_what_limits_and_what_would_hold_all_rows() -> None:
    # Three more GiB of slots, of which validation takes a quarter on top.
    assert verdict(planned()) == (
        "A later epoch reads 3.0 GiB and takes about 71 s; the disk limits it. "
        "With 6.0 GiB all feature rows stay in memory."
    )
    assert verdict(planned(bytes=0, rows_read=0, bottleneck="model")) == (
        "A later epoch reads nothing and takes about 71 s; the network limits it. "
        "All feature rows stay in memory."
    )
    assert verdict({**planned(), "forecast": {}}) == "The budget is enough."


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
