"""What the plan of an embedding says of ranking, and whether runs keep to it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

import outercore as oc
from embed_runs import IN_PARTITIONS, circle, small
from outercore.embedding.config import EmbedConfig
from outercore.embedding.forecast import plan
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.partitions import PartitionStore


@pytest.fixture
def facts(tmp_path: Path) -> Path:
    return circle(tmp_path)


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_ranking_goes_through_the_table_as_often_as_planned(
    facts: Path, tmp_path: Path, budget: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Of each part 12 triples: validation takes two groups, and both parts take four.
    monkeypatch.setattr("outercore.embedding.tables.placement._LEAST_GROUP", 8)
    monkeypatch.setattr("outercore.embedding.tables.placement._MOST_GROUP", 8)
    passes = []

    for store in (MemoryStore, PartitionStore):

        def watched(self: Any, blocks: Any = store.blocks) -> Iterator[tuple[Tensor, Tensor]]:
            passes.append(0)
            for entities, rows in blocks(self):
                passes[-1] += 4 * rows.numel()
                yield entities, rows

        monkeypatch.setattr(store, "blocks", watched)
    config = small(
        budget=budget, optimiser={"epochs": 4}, evaluation={"also": ["all", "uniform"], "count": 9}
    )
    result = oc.embed(facts, config, out=tmp_path / "run")
    rates = {"triples_per_second": 1e6, "read_bandwidth": 1e6, "write_bandwidth": 1e6}
    resolved = EmbedConfig.from_dict(result.record["config"])
    planned = plan(facts, resolved, **rates)
    validation, final = planned["ranking"]["validation"], planned["ranking"]["final"]
    assert (validation["triples"], validation["passes"]) == (12, 2)
    assert (final["triples"], final["passes"]) == (24, 4)
    # Two validations, and the figures; each pass is the whole table.
    assert passes == [4 * 16 * 60] * (2 * 2 + 4)
    away = 0.5 if budget else 0.0
    for one, groups in ((validation, 2), (final, 4)):
        rows = one["bytes_read"] - int(away * groups * 4 * 16 * 60)
        # Rows of the ends and of candidates that are drawn, or all of the table each time.
        assert 0 <= rows <= away * (2 * groups + 2) * 4 * 16 * 60
        assert (one["bytes_read"] > 0) == bool(budget)
        assert one["seconds"] >= one["bytes_read"] / 1e6


def test_a_plan_counts_true_answers_as_the_run_does(facts: Path, tmp_path: Path) -> None:
    result = oc.embed(facts, small(optimiser={"epochs": 1}), out=tmp_path / "run")
    config = EmbedConfig.from_dict(result.record["config"])
    planned = plan(facts, config, triples_per_second=1e6)
    # One answer a question on this circle, and as many questions as ends of held-out triples.
    assert planned["answers"] == {"count": 48, "memory": 4 * 48}
    assert planned["parts_memory"] == result.record["plan"]["parts"]
    raw = replace(config, evaluation=replace(config.evaluation, filtered=False))
    assert "answers" not in plan(facts, raw, triples_per_second=1e6)


def test_a_plan_counts_the_rows_of_the_run_that_is_gone_on_from(
    facts: Path, tmp_path: Path
) -> None:
    first = oc.embed(facts, small(optimiser={"epochs": 1}), out=tmp_path / "first")
    again = oc.embed(
        facts, small(optimiser={"epochs": 1}), start_from=first.run, out=tmp_path / "again"
    )
    config = EmbedConfig.from_dict(again.record["config"])
    planned = plan(facts, config, triples_per_second=1e6, start_from=first.run)
    assert planned["parts_memory"]["another run's rows"] >= 8 * 60
    assert planned["parts_memory"] == again.record["plan"]["parts"]
