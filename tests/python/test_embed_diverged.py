"""Embedding runs that end by a number that is not finite, and what is left of them."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from embed_runs import assert_same_bits, circle, interrupt, small, tables
from outercore import embedding as embeddings
from outercore.embedding.diverged import DivergedError
from outercore.embedding.gradients.trainer import Trainer
from outercore.embedding.ranking.scoring import Scoring
from outercore.embedding.session import Session
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
        f"\nhint: less; `outercore embed --resume {run} --learning-rate LOWER` goes on from the "
        f"checkpoint after epoch 2, `outercore embed {facts} --from {run} --learning-rate LOWER` "
        "with the run's other options begins with these tables"
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


def overflow(place: tuple[int, int, int], then: Callable[[], float]) -> Any:
    """A `Trainer._step` that at this batch (epoch, pool, batch) leaves a row that is not finite."""
    step = Trainer._step

    def overflows(self: Trainer, context: Any, places: Any, at: Any) -> float:
        if at != place:
            return step(self, context, places, at)
        context.pool.entities[context.pool.ranges[0][0], 2] = float("inf")
        return then()

    return overflows


@pytest.mark.parametrize("seconds", [0.0, 1e6], ids=["checkpoints", "no checkpoint"])
@pytest.mark.parametrize(
    ("budget", "place"),
    [
        ({}, (3, 0, 5)),
        ({}, (0, 0, 1)),
        (IN_PARTITIONS, (3, 4, 1)),
        (IN_PARTITIONS, (3, 5, 0)),
        (IN_PARTITIONS, (3, 14, 1)),
        (IN_PARTITIONS, (0, 0, 1)),
    ],
    ids=["memory", "at once", "within a state", "its second pool", "the last one", "partitions"],
)
def test_a_loss_that_is_not_finite_before_a_validation_keeps_the_last_tables(
    facts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: dict[str, Any],
    place: tuple[int, int, int],
    seconds: float,
) -> None:
    # Pools of one batch or more, and two of them in most states.
    budget = {**budget, "sweeps": 1} if budget else budget
    run = tmp_path / "run"
    config = small(
        budget=budget,
        optimiser={"batch_size": 8, "validate_every": 5},
        run={"checkpoint_seconds": seconds},
    )
    with monkeypatch.context() as patched:
        # As if it had been stopped there: its only validation is that of these tables.
        patched.setattr(Trainer, "_step", until(place, lambda: 0.0))
        expected = oc.embed(facts, config, out=tmp_path / "stopped")
    with monkeypatch.context() as patched:
        patched.setattr(Trainer, "_step", until(place, diverge))
        with pytest.raises(DivergedError, match="no epoch was validated before") as caught:
            oc.embed(facts, config, out=run)
    assert f"the last tables are in `{run}`\nhint: less; " in str(caught.value)
    assert f"`outercore embed {facts} --from {run} --learning-rate LOWER`" in str(caught.value)
    assert_same_bits(run, tmp_path / "stopped")
    assert all(np.isfinite(table).all() for table in tables(run))
    record = json.loads((run / "record.json").read_text())
    assert record["status"] == "failed"
    assert record["result"] == {
        "metrics": expected.record["result"]["metrics"],
        "best_epoch": place[0] - 1 if place[0] else None,
        "error": "expected a finite loss, found inf",
    }
    kept = oc.Embedding.open(run)
    assert embeddings.assess(kept) == [one for one in expected.metrics if one["part"] == "test"]
    assert len(embeddings.neighbours(kept, "e0", k=3).ids[0]) == 3
    on = small(budget=budget, optimiser={"epochs": 1, "learning_rate": 1e-9})
    further = oc.embed(facts, on, out=tmp_path / "further", start_from=run)
    np.testing.assert_allclose(further.entities, kept.entities, atol=1e-6)


def test_a_failed_run_that_is_stopped_while_it_is_ranked_keeps_its_tables(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stopped(self: Scoring) -> list[dict[str, Any]]:
        raise InterruptError("stopped")

    monkeypatch.setattr(Trainer, "_step", until((1, 0, 0), diverge))
    monkeypatch.setattr(Scoring, "final", stopped)
    with pytest.raises(DivergedError, match="the last tables are in"):
        oc.embed(facts, small(), out=tmp_path / "run")
    assert oc.Embedding.open(tmp_path / "run").metrics == []


def test_first_values_that_overflow_stop_the_run_and_leave_nothing(
    facts: Path, tmp_path: Path
) -> None:
    with pytest.raises(DivergedError, match="no finite rows were trained before"):
        oc.embed(facts, small(model={"init_scale": 1e30}), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_rows_that_are_not_finite_are_not_kept_but_the_run_is(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Trainer, "_step", overflow((1, 0, 3), diverge))
    with pytest.raises(DivergedError, match="no finite rows were trained before\nhint: less"):
        oc.embed(facts, small(), out=tmp_path / "run")
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert (record["status"], len(record["epochs"])) == ("failed", 1)
    assert not (tmp_path / "run/embedding.json").exists()


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_where_rows_are_not_finite_those_of_the_last_checkpoint_are_kept(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any]
) -> None:
    run = tmp_path / "run"
    budget = {**budget, "sweeps": 1} if budget else budget
    options = {"validate_every": 5}
    config = small(budget=budget, optimiser=options, run={"checkpoint_seconds": 0.0})
    expected = oc.embed(
        facts, small(budget=budget, optimiser={**options, "epochs": 2}), out=tmp_path / "good"
    )
    notes: list[str] = []
    watch = Observer()
    monkeypatch.setattr(watch, "note", notes.append)
    lost: list[weakref.ref[Any]] = []
    still_there: list[bool] = []
    begin = Session.__init__

    def noted(self: Session, *arguments: Any) -> None:
        still_there.extend(table() is not None for table in lost)
        begin(self, *arguments)
        lost.append(weakref.ref(vars(self._store)["_entities" if budget else "entities"]))

    with monkeypatch.context() as patched:
        patched.setattr(Session, "__init__", noted)
        patched.setattr(Trainer, "_step", overflow((2, 0, 0), diverge))
        with pytest.raises(DivergedError) as caught:
            oc.embed(facts, config, out=run, observer=watch)
    assert str(caught.value).startswith(
        "expected a finite loss, found inf; rows are not finite any more: those of the checkpoint "
        f"after epoch 2 are in `{run}`\nhint: less; "
    )
    assert "goes on from the checkpoint after epoch 2" in str(caught.value)
    # Of two tables in memory there is no word in the plan.
    assert still_there == [False]
    told = [note for note in notes if not note.startswith("warning: triples are compared")]
    assert told == ["rows are not finite any more: going back to the checkpoint after epoch 2"]
    assert_same_bits(run, tmp_path / "good")
    record = json.loads((run / "record.json").read_text())
    assert record["status"] == "failed"
    assert len(record["epochs"]) == 2
    assert record["result"] == {
        "metrics": expected.record["result"]["metrics"],
        "best_epoch": 1,
        "error": "expected a finite loss, found inf",
    }
    assert oc.Embedding.open(run).metrics == expected.metrics
    on = oc.resume(run, learning_rate=0.1)
    assert (on.record["status"], len(on.record["epochs"])) == ("finished", 4)


def test_the_best_tables_of_the_last_checkpoint_are_kept_before_its_last_ones(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    config = small(optimiser={"validate_every": 1, "epochs": 4}, run={"checkpoint_seconds": 0.0})
    oc.embed(facts, small(optimiser={"epochs": 1}), out=tmp_path / "good")
    scores = iter((0.3, 0.2))
    monkeypatch.setattr(Scoring, "validate", lambda _: next(scores))
    finite, asked = Session._finite, []

    def finds_what_was_kept_lost(self: Session) -> bool:
        # As where a later validation had kept tables with a row that it did not look at.
        asked.append(True)
        return len(asked) > 1 and finite(self)

    monkeypatch.setattr(Session, "_finite", finds_what_was_kept_lost)
    monkeypatch.setattr(Trainer, "_step", overflow((2, 0, 0), diverge))
    with pytest.raises(DivergedError, match="the best tables, of epoch 1, of the checkpoint"):
        oc.embed(facts, config, out=run)
    assert_same_bits(run, tmp_path / "good")


@pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
def test_a_checkpoint_with_rows_that_are_not_finite_is_not_kept(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, Any]
) -> None:
    budget = {**budget, "sweeps": 1} if budget else budget
    config = small(budget=budget, optimiser={"validate_every": 5}, run={"checkpoint_seconds": 0.0})

    step = overflow((1, 0, 0), lambda: 0.0)

    def diverges_late(self: Trainer, context: Any, places: Any, at: Any) -> float:
        if at >= (2, 0, 0):
            return diverge()
        return step(self, context, places, at) if at <= (1, 0, 0) else 0.0

    monkeypatch.setattr(Trainer, "_step", diverges_late)
    with pytest.raises(DivergedError, match="no finite rows were trained before\nhint: less"):
        oc.embed(facts, config, out=tmp_path / "run")
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert (record["status"], len(record["epochs"])) == ("failed", 2)
    assert not (tmp_path / "run/embedding.json").exists()


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
    with pytest.raises(DivergedError, match="the checkpoint after epoch 2"):
        oc.embed(facts, config, out=run)
    before = (run / "record.json").read_bytes(), (run / "config.json").read_bytes()
    for same in ({}, {"epochs": 9, "patience": 2, "checkpoint_seconds": 1.0}):
        with pytest.raises(InvalidError) as caught:
            oc.resume(run, **same)
        assert str(caught.value) == (
            f"run `{run}` failed: expected a finite loss, found inf; it would do so again\n"
            f"hint: `outercore embed --resume {run} --learning-rate LOWER` goes on from its last "
            f"checkpoint, or anew where there is none, `outercore embed {facts} --from {run} "
            "--learning-rate LOWER` with its other options begins with its tables"
        )
    assert before == ((run / "record.json").read_bytes(), (run / "config.json").read_bytes())
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
        # Not refused as a run that would diverge again.
        with pytest.raises(InterruptError, match="run the same command again"):
            oc.resume(run, learning_rate=0.1, observer=Stop())
    with pytest.raises(InvalidError, match="it would do so again"):
        oc.resume(run)
    result = oc.resume(run, learning_rate=0.1)
    assert result.record["changes"] == [
        {"epoch": 0, "triples": 0, "values": {"optimiser.learning_rate": [0.2, 0.1]}}
    ]
    oc.embed(facts, small(optimiser={"learning_rate": 0.1}), out=tmp_path / "whole")
    assert_same_bits(run, tmp_path / "whole")


def test_a_run_stopped_on_its_way_back_to_the_checkpoint_comes_there_again(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    config = small(optimiser={"validate_every": 5}, run={"checkpoint_seconds": 0.0})

    def stopped(self: Session, lost: Exception) -> Exception:
        raise InterruptError("stopped")

    monkeypatch.setattr(Trainer, "_step", overflow((2, 0, 0), diverge))
    with monkeypatch.context() as patched:
        patched.setattr(Session, "keep_checkpoint", stopped)
        with pytest.raises(InterruptError):
            oc.embed(facts, config, out=run)
    assert not (run / "embedding.json").exists()
    with pytest.raises(DivergedError, match="those of the checkpoint after epoch 2 are in"):
        oc.resume(run)
    assert oc.Embedding.open(run).metrics


def test_a_run_whose_last_figures_diverge_is_told_to_give_it_more_epochs(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def infinite(self: Scoring) -> list[dict[str, Any]]:
        raise InvalidError("its score is not finite")

    monkeypatch.setattr(Scoring, "final", infinite)
    with pytest.raises(DivergedError, match=r"--learning-rate LOWER --epochs MORE` goes on"):
        oc.embed(facts, small(), out=tmp_path / "run")
