"""Embedding runs that end by a number that is not finite, and what is left of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import outercore as oc
from embed_runs import assert_same_bits, circle, interrupt, small
from outercore.embedding.gradients.trainer import DivergedError, Trainer
from outercore.embedding.ranking.scoring import Scoring
from outercore.embedding.run import Session
from outercore.errors import (
    InterruptError,
    InvalidError,
)
from outercore.runs.progress import Observer

IN_PARTITIONS = {"partitions": 6, "slots": 3, "swap": "in-place"}


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return circle(tmp_path_factory.mktemp("facts"))


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_a_loss_that_is_not_finite_stops_and_keeps_the_best_tables(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any]
) -> None:
    # Pools of several batches.
    budget = {**budget, "sweeps": 1}
    config = small(budget=budget, run={"checkpoint_seconds": 0.0})
    oc.embed(facts, small(budget=budget, optimiser={"epochs": 2}), out=tmp_path / "good")
    step = Trainer._step

    def fails_in_the_third_epoch(self: Trainer, context: Any, places: Any, at: Any) -> float:
        if at[0] == 2 and at[2] >= 1:
            raise DivergedError("epoch 3, batch 2: expected a finite loss, found inf\nhint: less")
        return step(self, context, places, at)

    monkeypatch.setattr(Trainer, "_step", fails_in_the_third_epoch)
    with pytest.raises(DivergedError, match="the best tables, of epoch 2, are in") as caught:
        oc.embed(facts, config, out=tmp_path / "run")
    run = tmp_path / "run"
    assert str(caught.value).endswith(
        f"\nhint: less; `outercore embed --resume {run} --learning-rate LOWER` continues from its "
        "last checkpoint, or anew where there is none"
    )
    assert_same_bits(tmp_path / "run", tmp_path / "good")
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["status"] == "failed"
    assert record["result"]["best_epoch"] == 1
    assert record["result"]["error"] == "epoch 3, batch 2: expected a finite loss, found inf"


def until(place: tuple[int, int, int], then: Callable[[], float]) -> Any:
    """A `Trainer._step` that from this batch on (epoch, pool, batch) trains nothing."""
    step, over = Trainer._step, False

    def trains_until_then(self: Trainer, context: Any, places: Any, at: Any) -> float:
        nonlocal over
        over = over or at == place
        return then() if over else step(self, context, places, at)

    return trains_until_then


def diverge() -> float:
    raise DivergedError("expected a finite loss, found inf\nhint: less")


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_a_loss_that_is_not_finite_before_a_validation_leaves_the_checkpoint(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any]
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    budget = {**budget, "sweeps": 1} if budget else budget
    config = small(budget=budget, optimiser={"validate_every": 4}, run={"checkpoint_seconds": 0.0})
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", until((2, 0, 0), diverge))
        with pytest.raises(DivergedError, match="no epoch was validated before\nhint: less; "):
            oc.embed(facts, config, out=run)
    record = json.loads((run / "record.json").read_text())
    assert (record["status"], len(record["epochs"])) == ("failed", 2)
    assert record["result"] == {"error": "expected a finite loss, found inf"}
    assert not (run / "embedding.json").exists()
    oc.resume(run, learning_rate=0.05)
    oc.embed(facts, small(budget=budget, optimiser={"epochs": 2}), out=other)
    oc.resume(other, epochs=4, learning_rate=0.05)
    assert_same_bits(run, other)


def test_a_failed_run_that_is_stopped_while_it_is_ranked_keeps_its_tables(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(self: Scoring) -> list[dict[str, Any]]:
        raise InterruptError("stopped")

    monkeypatch.setattr(Trainer, "_step", until((2, 0, 0), diverge))
    monkeypatch.setattr(Scoring, "final", stopped)
    with pytest.raises(DivergedError, match="the best tables, of epoch 2, are in"):
        oc.embed(facts, small(), out=tmp_path / "run")
    assert oc.Embedding.open(tmp_path / "run").metrics == []


def test_first_values_that_overflow_stop_the_run_and_leave_nothing(
    facts: Path, tmp_path: Path
) -> None:
    with pytest.raises(DivergedError, match="no epoch was validated before"):
        oc.embed(facts, small(model={"init_scale": 1e30}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_failed_run_with_tables_stays_whole_without_a_checkpoint(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = Trainer._step

    def fails_in_the_third_epoch(self: Trainer, context: Any, places: Any, at: Any) -> float:
        if at[0] == 2:
            raise DivergedError("found inf\nhint: less")
        return step(self, context, places, at)

    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", fails_in_the_third_epoch)
        with pytest.raises(DivergedError, match="the best tables, of epoch 2, are in"):
            oc.embed(facts, small(run={"checkpoint_seconds": 1e6}), out=tmp_path / "run")
    assert not (tmp_path / "run/table/checkpoint.json").exists()
    left = {item.name for item in (tmp_path / "run").iterdir()}
    assert left >= {"config.json", "record.json", "embedding.json", "table", "tensorboard"}
    # Without one the run begins anew.
    oc.resume(tmp_path / "run", learning_rate=0.1)
    oc.embed(facts, small(optimiser={"learning_rate": 0.1}), out=tmp_path / "whole")
    assert_same_bits(tmp_path / "run", tmp_path / "whole")


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_a_run_that_diverged_goes_on_with_a_lower_rate(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any]
) -> None:
    run, other = tmp_path / "run", tmp_path / "other"
    budget = {**budget, "sweeps": 1} if budget else budget
    config = small(budget=budget, run={"checkpoint_seconds": 0.0})
    step = Trainer._step

    def fails_with_a_high_rate(self: Trainer, context: Any, places: Any, at: Any) -> float:
        if at[0] == 2 and at[2] >= 1 and self.config.optimiser.learning_rate == 0.2:
            return diverge()
        return step(self, context, places, at)

    monkeypatch.setattr(Trainer, "_step", fails_with_a_high_rate)
    with pytest.raises(DivergedError) as first:
        oc.embed(facts, config, out=run)
    with pytest.raises(DivergedError) as again:
        oc.resume(run)
    assert str(again.value) == str(first.value)
    with monkeypatch.context() as patched:
        patched.setattr(Session, "fit", lambda self: diverge())
        with pytest.raises(DivergedError):
            # Killed, as it were, when the lower rate is on disk.
            oc.resume(run, learning_rate=0.05)
    result = oc.resume(run)
    assert result.record["status"] == "finished"
    changes = [{"epoch": 2, "triples": 0, "values": {"optimiser.learning_rate": [0.2, 0.05]}}]
    assert result.record["changes"] == changes
    oc.embed(facts, small(budget=budget, optimiser={"epochs": 2}), out=other)
    oc.resume(other, epochs=4, learning_rate=0.05)
    assert_same_bits(run, other)


def test_a_falling_rate_of_a_run_that_diverged_is_lower_with_other_epochs(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = small(optimiser={"schedule": "linear"}, regulariser={"kind": "n3", "weight": 0.1})
    for name in ("epochs", "weight"):
        with monkeypatch.context() as patched:
            patched.setattr(Trainer, "_step", until((2, 0, 0), diverge))
            with pytest.raises(DivergedError):
                oc.embed(facts, config, out=tmp_path / name)
    assert len(oc.resume(tmp_path / "epochs", epochs=3).record["epochs"]) == 3
    oc.resume(tmp_path / "weight", regulariser_weight=0.2)


@pytest.mark.parametrize("what", ["entities", "relations"])
def test_a_validation_that_is_not_finite_keeps_the_best_tables(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    oc.embed(facts, small(optimiser={"epochs": 2}), out=tmp_path / "good")
    step = Trainer._step

    def overflows_in_the_fourth_epoch(self: Trainer, context: Any, places: Any, at: Any) -> float:
        loss = step(self, context, places, at)
        if at[0] == 3 and at[2] == 216 // 16:
            table = context.pool.entities if what == "entities" else self.store.relations
            table[:] = float("inf")
        return loss

    monkeypatch.setattr(Trainer, "_step", overflows_in_the_fourth_epoch)
    with pytest.raises(DivergedError) as caught:
        oc.embed(facts, small(), out=tmp_path / "run")
    assert str(caught.value).startswith("validation after epoch 4: ")
    assert "is not finite; the best tables, of epoch 2, are in" in str(caught.value)
    assert "\nhint: lower the learning rate" in str(caught.value)
    assert_same_bits(tmp_path / "run", tmp_path / "good")
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert (record["status"], record["result"]["best_epoch"]) == ("failed", 1)


def test_final_figures_that_are_not_finite_leave_the_tables(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Scoring) -> list[dict[str, Any]]:
        raise InvalidError("triple [0, 0, 1]: its score is not finite")

    oc.embed(facts, small(), out=tmp_path / "good")
    monkeypatch.setattr(Scoring, "final", fails)
    with pytest.raises(DivergedError, match=r"final figures: .*; the best tables, of epoch"):
        oc.embed(facts, small(), out=tmp_path / "run")
    assert_same_bits(tmp_path / "run", tmp_path / "good")
    assert json.loads((tmp_path / "run/embedding.json").read_text())["metrics"] == []


def test_a_lower_rate_is_not_taken_in_before_it_counts(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Stop(Observer):
        def preparing(self, what: str, done: int, total: int, unit: str) -> None:
            if what == "read triples":
                interrupt()

    run = tmp_path / "run"
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", until((1, 0, 0), diverge))
        with pytest.raises(DivergedError):
            oc.embed(facts, small(run={"checkpoint_seconds": 1e6}), out=run)
    for _ in range(2):
        with pytest.raises(InterruptError, match="run the same command again"):
            oc.resume(run, learning_rate=0.1, observer=Stop())
    result = oc.resume(run, learning_rate=0.1)
    assert result.record["changes"] == [
        {"epoch": 0, "triples": 0, "values": {"optimiser.learning_rate": [0.2, 0.1]}}
    ]
    oc.embed(facts, small(optimiser={"learning_rate": 0.1}), out=tmp_path / "whole")
    assert_same_bits(run, tmp_path / "whole")
