"""Embedding runs that go on with more epochs, more patience or other rates than they began with."""

from __future__ import annotations

import json
import shutil
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

import outercore as oc
from embed_runs import IN_PARTITIONS, After, assert_same_bits, circle, interrupt, losses, small
from outercore.embedding.gradients.trainer import Trainer
from outercore.embedding.ranking.scoring import Scoring
from outercore.embedding.run import Session
from outercore.embedding.run_directory import EmbedDirectory
from outercore.errors import DeviceError, InterruptError, InvalidError
from outercore.files.atomic import Storage
from outercore.files.checked_json import parse_checked_json
from outercore.importing.build.triples import TripleOptions, import_triples

BUDGETS = pytest.mark.parametrize("budget", [{}, IN_PARTITIONS], ids=["memory", "partitions"])
TIMES = ("seconds", "validation_seconds", "counters")


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return circle(tmp_path_factory.mktemp("facts"))


@pytest.fixture(scope="module")
def unvalidated(facts: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("unvalidated") / "set"
    import_triples(facts.parent / "train.tsv", root, options=TripleOptions(memory="16MiB"))
    return root


def scored(patch: pytest.MonkeyPatch, scores: Iterable[float]) -> None:
    """Has validations find these, one after the other."""
    found = iter(scores)
    patch.setattr(Scoring, "validate", lambda _: next(found))


def described(run: Path) -> dict[str, Any]:
    return parse_checked_json((run / "config.json").read_bytes(), "config")


def recorded(run: Path) -> dict[str, Any]:
    return json.loads((run / "record.json").read_text())


def reports(run: Path) -> list[dict[str, Any]]:
    """What the record has of the epochs, but for times."""
    epochs = recorded(run)["epochs"]
    return [{name: one[name] for name in one if name not in TIMES} for one in epochs]


def assert_same_run(run: Path, other: Path) -> None:
    assert_same_bits(run, other)
    assert reports(run) == reports(other)
    assert recorded(run)["result"] == recorded(other)["result"]
    found, expected = [json.loads((one / "embedding.json").read_text()) for one in (run, other)]
    assert found == expected
    assert described(run)["config"] == described(other)["config"]
    assert recorded(run)["config"] == recorded(other)["config"]


@BUDGETS
@pytest.mark.parametrize(
    "scores",
    [(0.1, 0.4, 0.2, 0.3, 0.5, 0.2, 0.1, 0.1), (0.1, 0.4, 0.2, 0.3, 0.2, 0.2, 0.1, 0.1)],
    ids=["better later", "best before"],
)
def test_more_epochs_end_as_a_run_that_had_them_from_the_start(
    facts: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    budget: dict[str, int],
    scores: tuple[float, ...],
) -> None:
    # The tables of the second epoch are the best of the first four: not the last ones.
    config = small(budget=budget, optimiser={"epochs": 4, "validate_every": 1})
    scored(monkeypatch, scores)
    oc.embed(
        facts,
        small(**{**config, "optimiser": {"epochs": 8, "validate_every": 1}}),
        out=tmp_path / "whole",
    )
    scored(monkeypatch, scores)
    first = oc.embed(facts, config, out=tmp_path / "run")
    assert first.record["result"]["best_epoch"] == 1
    watch = After()
    result = oc.resume(tmp_path / "run", epochs=8, observer=watch)
    assert watch.resumed_at == (4, 0)
    assert [report.epoch for report in watch.reports] == [4, 5, 6, 7]
    assert result.record["status"] == "finished"
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@BUDGETS
def test_more_epochs_of_a_run_that_nothing_validates_end_the_same(
    unvalidated: Path, tmp_path: Path, budget: dict[str, int]
) -> None:
    oc.embed(unvalidated, small(budget=budget, optimiser={"epochs": 5}), out=tmp_path / "whole")
    for epochs in (2, 3, 5):
        if epochs == 2:
            config = small(budget=budget, optimiser={"epochs": 2})
            oc.embed(unvalidated, config, out=tmp_path / "run")
        else:
            oc.resume(tmp_path / "run", epochs=epochs)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


@BUDGETS
def test_a_run_that_stopped_early_goes_on_with_more_patience(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, int]
) -> None:
    def config(patience: int) -> dict[str, Any]:
        options = {"epochs": 8, "validate_every": 1, "patience": patience}
        return small(budget=budget, optimiser=options)

    scores = (0.3, 0.2, 0.1, 0.1, 0.4, 0.3, 0.3, 0.3)
    scored(monkeypatch, scores)
    oc.embed(facts, config(4), out=tmp_path / "whole")
    scored(monkeypatch, scores)
    first = oc.embed(facts, config(2), out=tmp_path / "run")
    assert len(first.record["epochs"]) == 3
    expected = r"optimiser.patience: .* 2 validations without a better one, .* found 2\nhint: "
    with pytest.raises(InvalidError, match=expected):
        oc.resume(tmp_path / "run", epochs=20)
    assert described(tmp_path / "run")["config"]["optimiser"]["epochs"] == 8
    oc.resume(tmp_path / "run", patience=4)
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_the_validation_of_a_last_epoch_that_would_have_had_none_stays(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scored(monkeypatch, (0.1, 0.2, 0.5, 0.5))
    oc.embed(facts, small(optimiser={"epochs": 8}), out=tmp_path / "whole")
    scored(monkeypatch, (0.1, 0.2, 0.1, 0.5, 0.5))
    oc.embed(facts, small(optimiser={"epochs": 5}), out=tmp_path / "run")
    oc.resume(tmp_path / "run", epochs=8)
    assert_same_bits(tmp_path / "run", tmp_path / "whole")
    assert losses(tmp_path / "run") == losses(tmp_path / "whole")
    scores = [one["score"] for one in reports(tmp_path / "run")]
    assert scores == [None, 0.1, None, 0.2, 0.1, 0.5, None, 0.5]


def test_a_falling_rate_falls_from_where_the_new_number_of_epochs_says(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    factors: dict[int, set[float]] = defaultdict(set)
    step = Trainer._step

    def noted(self: Trainer, context: Any, places: Any, at: Any) -> float:
        factors[at[0]].add(self.config.optimiser.factor(at[0]))
        return step(self, context, places, at)

    monkeypatch.setattr(Trainer, "_step", noted)
    options = {"epochs": 2, "schedule": "linear"}
    oc.embed(facts, small(optimiser=options), out=tmp_path / "run")
    oc.resume(tmp_path / "run", epochs=4)
    assert factors == {0: {1.0}, 1: {0.5}, 2: {0.5}, 3: {0.25}}


def test_what_a_run_goes_on_with_is_on_record(facts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with pytest.raises(InterruptError):
        oc.embed(facts, small(), out=run, observer=After(17, interrupt))
    before = described(run)
    assert "changes" not in before
    oc.resume(run, memory="200MiB", epochs=5, learning_rate=0.1, checkpoint_seconds=5)
    oc.resume(run, epochs=6, learning_rate=0.1)
    expected = [
        {
            "epoch": 1,
            "triples": 48,
            "values": {
                "optimiser.learning_rate": [0.2, 0.1],
                "optimiser.epochs": [4, 5],
                "run.checkpoint_seconds": [60.0, 5.0],
            },
        },
        {"epoch": 5, "triples": 0, "values": {"optimiser.epochs": [5, 6]}},
    ]
    assert recorded(run)["changes"] == described(run)["changes"] == expected
    after = described(run)
    assert after["config"]["optimiser"]["learning_rate"] == 0.1
    assert after["config"]["budget"] == before["config"]["budget"]
    assert {name: after[name] for name in before if name != "config"} == {
        name: before[name] for name in before if name != "config"
    }
    assert len(recorded(run)["epochs"]) == 6


@pytest.mark.parametrize("epochs", [1, 3])
def test_no_more_epochs_than_are_done_is_refused(facts: Path, tmp_path: Path, epochs: int) -> None:
    run = tmp_path / "run"
    oc.embed(facts, small(), out=run)
    before = (run / "config.json").read_bytes(), (run / "record.json").read_bytes()
    expected = f"optimiser.epochs: 4 are done, expected more, found {epochs}"
    with pytest.raises(InvalidError, match=expected):
        oc.resume(run, epochs=epochs)
    with pytest.raises(InvalidError, match=r"optimiser.epochs: 4 are done, expected more"):
        oc.resume(run, learning_rate=0.1)
    assert before == ((run / "config.json").read_bytes(), (run / "record.json").read_bytes())
    # What a run has already changes nothing.
    assert oc.resume(run, epochs=4, learning_rate=0.2).record["changes"] == []


def test_what_a_run_cannot_go_on_with_is_named(facts: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    oc.embed(facts, small(), out=run)
    with pytest.raises(InvalidError, match=r"dim: a run is resumed with .*\nhint: .*`epochs`"):
        oc.resume(run, dim=8)
    with pytest.raises(InvalidError, match=r"optimiser.learning_rate: expected a positive number"):
        oc.resume(run, epochs=5, learning_rate=0.0)
    with pytest.raises(InvalidError, match=r"regulariser.weight: .* no regulariser"):
        oc.resume(run, epochs=5, regulariser_weight=0.1)
    shutil.rmtree(run / "table")
    with pytest.raises(InvalidError, match=r"`table` is not there any more.*\nhint: .*--from"):
        oc.resume(run, epochs=5)


@BUDGETS
def test_a_run_that_is_stopped_on_its_further_way_keeps_its_tables_until_there_are_others(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, budget: dict[str, int]
) -> None:
    run = tmp_path / "run"
    oc.embed(facts, small(budget=budget, optimiser={"epochs": 6}), out=tmp_path / "whole")
    first = oc.embed(facts, small(budget=budget), out=run)
    shutil.copytree(run, tmp_path / "first")

    def killed(self: Session) -> dict[str, Any]:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        # After the new number is on disk, before the first batch.
        patched.setattr(Session, "fit", killed)
        with pytest.raises(KeyboardInterrupt):
            oc.resume(run, epochs=6)
    assert EmbedDirectory.open(run).config().optimiser.epochs == 6
    with pytest.raises(InterruptError):
        oc.resume(run, observer=After(20, interrupt))
    assert_same_bits(run, tmp_path / "first")
    assert oc.Embedding.open(run).metrics == first.metrics
    oc.resume(run)
    assert_same_run(run, tmp_path / "whole")


def test_tables_that_are_written_again_have_no_description_meanwhile(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    oc.embed(facts, small(optimiser={"epochs": 6}), out=tmp_path / "whole")
    oc.embed(facts, small(), out=run)

    def killed(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        # Entities are written, relations are not.
        patched.setattr("outercore.embedding.tables.memory.MemoryStore.write_relations", killed)
        with pytest.raises(KeyboardInterrupt):
            oc.resume(run, epochs=6)
    assert not (run / "embedding.json").exists()
    oc.resume(run)
    assert_same_run(run, tmp_path / "whole")


def test_a_configuration_that_cannot_be_written_leaves_the_one_that_was(
    facts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = tmp_path / "run"
    oc.embed(facts, small(), out=run)
    before = described(run)

    def fails(self: Storage, old: Path, new: Path) -> None:
        raise OSError(5, "no")

    with monkeypatch.context() as patched:
        patched.setattr(Storage, "rename", fails)
        with pytest.raises(DeviceError, match=r"config\.json"):
            oc.resume(run, epochs=6)
    assert described(run) == before
    assert len(oc.resume(run).record["epochs"]) == 4
