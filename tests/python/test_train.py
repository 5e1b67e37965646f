"""The training loop: what it learns, that it is a function of its seed, how it stops."""

from __future__ import annotations

import errno
import functools
import io
import json
import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tensorboardX.proto.event_pb2 import Event, SessionLog  # noqa: E402

from fakes import FakeGraph, FakeLoader, planted, write_npy  # noqa: E402
from observers import StopAfter  # noqa: E402
from outercore.errors import (  # noqa: E402
    BudgetError,
    CorruptError,
    InterruptError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
)
from outercore.files.atomic import device_errors  # noqa: E402
from outercore.runs.places import new_run  # noqa: E402
from outercore.runs.progress import Observer  # noqa: E402
from outercore.runs.scalars import Scalars  # noqa: E402
from outercore.runs.stop import StopRequest, stop_on_signals  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.loop import Trainer  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.run import resume, train  # noqa: E402
from outercore.training.run_directory import TrainDirectory  # noqa: E402
from outercore.training.tasks import Task, detect_task  # noqa: E402
from outercore.training.trained_model import evaluate  # noqa: E402

torch.set_num_threads(1)  # Tiny tensors: more threads only wait for each other.
KINDS = ("sage", "gcn", "gat", "gin", "mlp")


def config(kind: str = "sage", epochs: int = 3, **run: Any) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(kind=kind, hidden=16, heads=2, dropout=0.3),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=32),
        optimiser=OptimiserConfig(learning_rate=0.01, epochs=epochs, patience=0),
        budget=BudgetConfig(memory="64MiB"),
        run=RunConfig(**run),
    )


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("data") / "planted")


def fit(data_set: Path, out: Path, settings: TrainConfig, **options: Any) -> dict[str, Any]:
    return train(
        data_set, settings, out=out, open_graph=FakeGraph, open_loader=FakeLoader, **options
    )


class Losses(Observer):
    def __init__(self) -> None:
        self.losses: list[float] = []
        self.notes: list[str] = []

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        self.losses.append(loss)

    def note(self, message: str) -> None:
        self.notes.append(message)


def weights(run: Path) -> dict[str, Any]:
    return load_model(run / "model").model.state_dict()


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def stop_after(data_set: Path, out: Path, settings: TrainConfig, batches: int) -> None:
    graph = FakeGraph(data_set)
    run = TrainDirectory.create(out, graph, settings)
    stop = StopRequest()
    observer = StopAfter(batches, stop.request)
    trainer = Trainer(graph, settings, run, observer=observer, stop=stop, open_loader=FakeLoader)
    with pytest.raises(InterruptError, match="--resume"):
        trainer.fit()


@pytest.mark.parametrize("kind", KINDS)
def test_every_model_trains_and_leaves_a_complete_run(
    kind: str, data_set: Path, tmp_path: Path
) -> None:
    record = fit(data_set, tmp_path / "run", config(kind, epochs=2))
    assert record["status"] == "finished"
    assert set(record["result"]["scores"]) == {"valid", "test"}
    assert len(record["epochs"]) == 2
    assert record["epochs"][0]["counters"]["train"]["items"] == 4
    assert (tmp_path / "run/model/model.safetensors").exists()
    assert list((tmp_path / "run/tensorboard").iterdir())
    assert not (tmp_path / "run/scratch").exists()
    assert json.loads((tmp_path / "run/record.json").read_text()) == record


def events(directory: Path) -> list[Any]:
    """The events of the only event file there: length, its checksum, the event, its checksum."""
    (file,) = directory.iterdir()
    found, content = [], file.read_bytes()
    while content:
        size = int.from_bytes(content[:8], "little")
        found.append(Event.FromString(content[12 : 12 + size]))
        content = content[16 + size :]
    return found


def test_scalars_are_a_file_of_events_that_supersedes_later_epochs(tmp_path: Path) -> None:
    file = Scalars(tmp_path / "scalars", 3, "resume")
    file.add({"loss": 0.5, "score": None, "speed": 12.0}, 3)
    file.close()
    version, purge, *points = events(tmp_path / "scalars")
    assert version.file_version == "brain.Event:2"
    assert (purge.step, purge.session_log.status) == (3, SessionLog.START)
    assert [point.step for point in points] == [3, 3]
    values = [point.summary.value[0] for point in points]
    assert [(one.tag, one.simple_value) for one in values] == [("loss", 0.5), ("speed", 12.0)]


def full_file(_: str) -> io.BufferedWriter:
    """As an opened file on a full device: written to, it has no space when it is flushed."""
    return io.BufferedWriter(io.FileIO("/dev/full", "w"))


def test_scalars_on_a_full_device_say_so_once_and_leave_a_checkpoint(
    data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("tensorboardX.record_writer.open_file", full_file)
        with pytest.raises(
            NoSpaceError, match=r"then resume with `outercore train --resume .*/run`"
        ):
            fit(data_set, tmp_path / "run", config(epochs=2))
    record = resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)
    assert (record["status"], len(record["epochs"])) == ("finished", 2)


def test_a_graph_network_beats_the_features_alone(data_set: Path, tmp_path: Path) -> None:
    scores = {
        kind: fit(data_set, tmp_path / kind, config(kind, epochs=15))["result"]["scores"]["test"]
        for kind in ("sage", "mlp")
    }
    assert scores["sage"] > scores["mlp"] + 0.05, scores


def test_two_runs_with_one_seed_are_equal_to_the_last_bit(data_set: Path, tmp_path: Path) -> None:
    first, second, other = Losses(), Losses(), Losses()
    fit(data_set, tmp_path / "a", config(), observer=first)
    fit(data_set, tmp_path / "b", config(), observer=second)
    fit(data_set, tmp_path / "c", config(seed=1), observer=other)
    assert first.losses == second.losses
    assert first.losses != other.losses
    assert same(weights(tmp_path / "a"), weights(tmp_path / "b"))


@pytest.mark.parametrize("batches", [1, 2, 4, 5, 7, 8])
def test_a_resumed_run_is_equal_to_an_uninterrupted_one(
    batches: int, data_set: Path, tmp_path: Path
) -> None:
    settings = config("gcn")
    whole = fit(data_set, tmp_path / "whole", settings)
    stop_after(data_set, tmp_path / "run", settings, batches)
    resumed = resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)
    assert [epoch["loss"] for epoch in resumed["epochs"]] == [
        epoch["loss"] for epoch in whole["epochs"]
    ]
    assert resumed["result"] == whole["result"]
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))
    counted = [epoch["counters"]["train"]["items"] for epoch in resumed["epochs"]]
    assert counted == [4, 4, 4]


@pytest.mark.parametrize("ignored", [False, True])
def test_a_training_in_the_background_goes_on_ignoring_ctrl_c(ignored: bool) -> None:
    handler = signal.SIG_IGN if ignored else signal.default_int_handler
    before = signal.signal(signal.SIGINT, handler)
    stop = StopRequest()
    try:
        with stop_on_signals(stop):
            os.kill(os.getpid(), signal.SIGINT)
            assert stop.requested is not ignored
            if ignored:
                os.kill(os.getpid(), signal.SIGTERM)
            assert stop.requested
        assert signal.getsignal(signal.SIGINT) is handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_request_to_stop_during_validation_loses_nothing(data_set: Path, tmp_path: Path) -> None:
    class StopInValidation(Observer):
        def __init__(self, stop: StopRequest) -> None:
            self.stop = stop

        def evaluation_started(self, what: str, total: int, done: int) -> None:
            self.stop.request()

    graph, stop = FakeGraph(data_set), StopRequest()
    run = TrainDirectory.create(tmp_path / "run", graph, config())
    with pytest.raises(InterruptError):
        Trainer(
            graph,
            config(),
            run,
            observer=StopInValidation(stop),
            stop=stop,
            open_loader=FakeLoader,
        ).fit()
    resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)
    fit(data_set, tmp_path / "whole", config())
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_a_failed_start_takes_away_only_what_it_made(data_set: Path, tmp_path: Path) -> None:
    def fails(*_: Any, **__: Any) -> Any:
        raise InvalidError("no")

    names = ("checkpoints", "tensorboard")
    for name in names:
        (tmp_path / "mine" / name).mkdir(parents=True)
        (tmp_path / "mine" / name / "notes").write_text("mine")
    for out in ("mine", "new"):
        with pytest.raises(InvalidError, match="no"):
            train(data_set, config(), out=tmp_path / out, open_graph=FakeGraph, open_loader=fails)
    assert not (tmp_path / "new").exists()
    assert not (tmp_path / "mine/config.json").exists()
    assert [(tmp_path / "mine" / name / "notes").exists() for name in names] == [True] * 2


def test_resuming_a_finished_run_says_so_and_gives_its_result_again(
    data_set: Path, tmp_path: Path
) -> None:
    finished = fit(data_set, tmp_path / "run", config(epochs=2))
    watch, notes = Observer(), []
    watch.note = notes.append  # type: ignore[method-assign]
    again = resume(tmp_path / "run", observer=watch, open_graph=FakeGraph, open_loader=FakeLoader)
    assert again == finished
    assert notes == [f"run {tmp_path / 'run'} is finished: there is nothing to resume"]


@pytest.mark.parametrize("name", ["model.safetensors", "model.json"])
def test_a_damaged_model_is_refused_and_resuming_its_run_writes_it_again(
    name: str, data_set: Path, tmp_path: Path
) -> None:
    finished = fit(data_set, tmp_path / "run", config(epochs=2))
    file = tmp_path / "run/model" / name
    whole = file.read_bytes()
    file.write_bytes(whole[:-9] + bytes([whole[-9] ^ 1]) + whole[-8:])
    fakes: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
    with pytest.raises(CorruptError, match=r"checksum.*\nhint: `outercore train --resume .*/run`"):
        evaluate(tmp_path / "run", **fakes)
    watch = Losses()
    again = resume(tmp_path / "run", observer=watch, **fakes)
    assert again["result"] == finished["result"]
    assert "it is written again from the last checkpoint" in watch.notes[0]
    # Safetensors writes the members of its header in any order.
    assert len(file.read_bytes()) == len(whole)
    assert sorted(file.read_bytes()) == sorted(whole)


def test_training_stops_early_and_keeps_the_best_model(data_set: Path, tmp_path: Path) -> None:
    settings = TrainConfig(
        model=ModelConfig(hidden=8),
        sampling=SamplingConfig(fanout=(3,), batch_size=64),
        optimiser=OptimiserConfig(learning_rate=0.05, epochs=60, patience=2),
        budget=BudgetConfig(memory="64MiB"),
    )
    record = fit(data_set, tmp_path / "run", settings)
    best = record["result"]["best_epoch"]
    assert len(record["epochs"]) == best + 3
    scores = [epoch["score"] for epoch in record["epochs"]]
    assert scores[best] == max(scores)
    assert record["result"]["scores"]["valid"] == scores[best]


def test_labels_of_several_columns_train_with_roc_auc(tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data", task="labels")
    record = fit(data_set, tmp_path / "run", config(epochs=6))
    assert record["result"]["metric"] == "roc_auc"
    assert record["result"]["scores"]["test"] > 0.7


def labelled(root: Path, labels: np.ndarray) -> Path:
    """Planted communities with other labels."""
    data_set = planted(root, nodes=len(labels))
    write_npy(data_set / "nodes/node/y.npy", labels)
    manifest = json.loads((data_set / "graph.json").read_text())
    manifest["arrays"]["nodes/node/y"] |= {
        "dtype": str(labels.dtype),
        "shape": list(labels.shape),
    }
    manifest["roles"]["classes"] = None
    (data_set / "graph.json").write_text(json.dumps(manifest))
    return data_set


@pytest.mark.parametrize("metric", ["auto", "r2", "mse", "mae"])
def test_numbers_are_learnt_and_scored_by_their_errors(metric: str, tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data", task="values")
    settings = TrainConfig(
        model=ModelConfig(hidden=32),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=32),
        optimiser=OptimiserConfig(learning_rate=0.01, epochs=20, patience=0),
        budget=BudgetConfig(memory="64MiB"),
        run=RunConfig(metric=metric),
    )
    record = fit(data_set, tmp_path / "run", settings)
    assert record["description"]["task"] == "regression"
    assert record["result"]["metric"] == ("r2" if metric == "auto" else metric)
    losses = [epoch["loss"] for epoch in record["epochs"]]
    assert losses[-1] < 0.7 * losses[0]
    errors = record["result"]["errors"]["test"]
    assert errors["r2"] > 0.15
    scores = [epoch["score"] for epoch in record["epochs"]]
    best = min(scores) if metric in ("mse", "mae") else max(scores)
    assert record["result"]["best_epoch"] == scores.index(best)
    fakes: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
    scored = evaluate(tmp_path / "run", predictions=tmp_path / "p.npy", **fakes)
    # Summed in another order.
    assert {name: scored[name] for name in errors} == pytest.approx(errors)
    graph = FakeGraph(data_set)
    actual = graph.array("y")[graph.split("test")]
    predicted = np.load(tmp_path / "p.npy").astype(np.float64)
    known = ~np.isnan(actual)
    error = (predicted - actual)[known]
    spread = ((actual[known] - actual[known].mean()) ** 2).sum()
    assert np.isclose(errors["mse"], (error**2).mean())
    assert np.isclose(errors["mae"], np.abs(error).mean())
    assert np.isclose(errors["r2"], 1 - (error**2).sum() / spread)
    tags = {
        one.tag for event in events(tmp_path / "run/tensorboard") for one in event.summary.value
    }
    assert {f"valid/{record['result']['metric']}", "final/test_mse", "final/valid_r2"} <= tags


def test_a_missing_number_is_in_no_loss_and_no_metric() -> None:
    task = Task("values", 2, "mse")
    labels = torch.tensor([[1.0, float("nan")], [3.0, 5.0]], dtype=torch.float64)
    logits = torch.tensor([[2.0, 99.0], [3.0, 2.0]], requires_grad=True)
    loss = task.loss(logits, labels)
    loss.backward()
    assert float(loss.detach()) == pytest.approx((1 + 0 + 9) / 3)
    assert logits.grad is not None
    assert logits.grad[0, 1] == 0
    metric = task.metric()
    task.update(metric, logits.detach().numpy(), labels.numpy())
    assert metric.value() == (0.5 + 9) / 2


def test_two_columns_of_other_numbers_are_no_labels_but_may_be_learnt_as_numbers(
    tmp_path: Path,
) -> None:
    random = np.random.default_rng(0)
    labels = random.integers(0, 2, size=(120, 2)).astype(np.float32)
    labels[7] = [-1, np.nan]
    labels[9, 1] = 63
    data_set = labelled(tmp_path / "data", labels)
    said = (
        r"a multi-label target has 0, 1, or none \(NaN, -1\); found 63 in row 9, column 1\n"
        "hint: `task='regression'`"
    )
    with pytest.raises(InvalidError, match=said):
        fit(data_set, tmp_path / "run", config(epochs=1))
    assert not (tmp_path / "run").exists()
    record = fit(data_set, tmp_path / "run", config(epochs=1, task="regression"))
    assert record["description"]["task"] == "regression"
    assert record["epochs"][0]["loss"] >= 0


def test_no_label_of_several_is_in_no_loss_and_no_metric() -> None:
    task = Task("labels", 2, "f1_micro")
    logits = torch.tensor([[3.0, 3.0], [-3.0, 3.0]])
    none = torch.tensor([[1.0, -1.0], [0.0, float("nan")]])
    kept = task.loss(logits[:, :1], none[:, :1])
    assert torch.equal(task.loss(logits, none), kept)
    metric = task.metric()
    task.update(metric, logits.numpy(), none.numpy())
    assert metric.value() == 1.0


@pytest.mark.parametrize(
    ("labels", "task", "said"),
    [
        (
            np.full(60, 10**12),
            "auto",
            r"largest class is 1,000,000,000,000, expected at most 65,535",
        ),
        (np.arange(60) / 2, "classification", r"whole numbers from 0 on, .*; found 0.5 in row 1"),
        (np.arange(60), "multi-label", "a multi-label target has .*; found one column"),
        (np.zeros((60, 3), np.float32), "classification", "found 3 columns"),
        (np.full(60, np.inf), "regression", "expected finite numbers, found one in row 0"),
        (np.zeros(60, np.int64), "auto", "expected two or more classes, found 1"),
    ],
)
def test_labels_that_are_not_what_is_asked_for_are_refused(
    labels: np.ndarray, task: str, said: str, tmp_path: Path
) -> None:
    data_set = labelled(tmp_path / "data", labels)
    with pytest.raises(InvalidError, match=said):
        fit(data_set, tmp_path / "run", config(epochs=1, task=task))


@pytest.mark.parametrize(
    ("values", "kind", "outputs"),
    [
        (np.array([0.0, 2.0, -1.0, np.nan]), "classes", 3),
        (np.array([0.0, 2.5, -1.0, np.nan]), "values", 1),
        (np.array([0.0, -2.0, 1.0, 1.0]), "values", 1),
        (np.array([0, 4, -1, 3]), "classes", 5),
        (np.array([[0, 1], [1, -1], [0, 0], [1, 1]]), "labels", 2),
    ],
)
def test_a_task_is_guessed_from_the_values_of_another_array(
    values: np.ndarray, kind: str, outputs: int, tmp_path: Path
) -> None:
    data_set = planted(tmp_path / "data", nodes=60)
    rows = np.resize(values, (60, *values.shape[1:]))
    write_npy(data_set / "nodes/node/z.npy", rows)
    manifest = json.loads((data_set / "graph.json").read_text())
    entry = {"file": "nodes/node/z.npy", "dtype": str(rows.dtype), "shape": list(rows.shape)}
    manifest["arrays"]["nodes/node/z"] = {**manifest["arrays"]["nodes/node/y"], **entry}
    (data_set / "graph.json").write_text(json.dumps(manifest))
    task = detect_task(FakeGraph(data_set), "z")
    assert (task.kind, task.outputs) == (kind, outputs)


def test_a_damaged_label_is_an_error_and_no_traceback(data_set: Path, tmp_path: Path) -> None:
    def broken(*arguments: Any, **options: Any) -> FakeLoader:
        def damage(batch: Any) -> Any:
            batch.y[0] = 77
            return batch

        return FakeLoader(*arguments, **options, transform=damage)

    with pytest.raises(
        CorruptError, match=r"labels `y`: label 77: expected classes 0 to 2\nhint: run"
    ):
        train(data_set, config(), out=tmp_path / "run", open_graph=FakeGraph, open_loader=broken)


def test_a_loss_below_its_minimum_ends_training(
    data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Task, "loss", lambda _, logits, labels: logits.sum() * 0 - 225.0)
    with pytest.raises(InvalidError, match=r"batch 1: expected a loss of 0 or more, found -225"):
        fit(data_set, tmp_path / "run", config())


def test_two_classes_are_scored_by_roc_auc(tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data", classes=2)
    record = fit(data_set, tmp_path / "run", config(epochs=2))
    assert record["result"]["metric"] == "roc_auc"


@pytest.mark.parametrize(
    "options",
    [{"residual": True, "norm": "layer"}, {"jumping": "cat"}, {"jumping": "max", "norm": "batch"}],
)
def test_skips_norms_and_jumping_train_and_resume_exactly(
    options: dict[str, Any], data_set: Path, tmp_path: Path
) -> None:
    settings = TrainConfig(
        model=ModelConfig(hidden=16, **options),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=32),
        optimiser=OptimiserConfig(epochs=2),
        budget=BudgetConfig(memory="64MiB"),
    )
    fit(data_set, tmp_path / "whole", settings)
    stop_after(data_set, tmp_path / "run", settings, 6)
    resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_a_budget_too_small_to_share_is_used_in_turns(data_set: Path, tmp_path: Path) -> None:
    observer = Losses()
    open_loader = functools.partial(FakeLoader, least_memory=40 << 20)
    plain = Losses()
    fit(data_set, tmp_path / "plain", config(), observer=plain)
    train(
        data_set,
        config(validation="sampled"),
        out=tmp_path / "run",
        observer=observer,
        open_graph=FakeGraph,
        open_loader=open_loader,
    )
    assert len(observer.notes) == 1
    assert "too small" in observer.notes[0]
    assert observer.losses == plain.losses


def test_exact_scores_need_less_than_a_loader_does(data_set: Path, tmp_path: Path) -> None:
    observer = Losses()
    # 16 MiB are for validation: too little for a loader.
    open_loader = functools.partial(FakeLoader, least_memory=40 << 20)
    train(
        data_set,
        config(validation="full"),
        out=tmp_path / "run",
        observer=observer,
        open_graph=FakeGraph,
        open_loader=open_loader,
    )
    assert observer.notes == []


def test_a_batch_that_needs_more_than_planned_changes_the_cost_and_not_the_result(
    data_set: Path, tmp_path: Path
) -> None:
    plain, tight = Losses(), Losses()
    whole = fit(data_set, tmp_path / "plain", config("gcn"), observer=plain)
    # 48 MiB are for training: too little for some batch.
    open_loader = functools.partial(FakeLoader, memory_per_node=320 << 10)
    record = train(
        data_set,
        config("gcn"),
        out=tmp_path / "run",
        observer=tight,
        open_graph=FakeGraph,
        open_loader=open_loader,
    )
    assert len(tight.notes) == 1
    assert tight.losses == plain.losses
    assert record["result"] == whole["result"]


@pytest.mark.parametrize(
    ("model", "said"),
    [("sage", "at least"), ("gcn", r"at least .*\nhint: in-degrees of .* are in memory besides")],
)
def test_a_budget_below_the_minimum_is_refused(
    data_set: Path, tmp_path: Path, model: str, said: str
) -> None:
    open_loader = functools.partial(FakeLoader, least_memory=400 << 20)
    with pytest.raises(BudgetError, match=said):
        train(
            data_set,
            config(model),
            out=tmp_path / "run",
            open_graph=FakeGraph,
            open_loader=open_loader,
        )
    assert not (tmp_path / "run").exists()


def test_a_loss_that_is_not_finite_ends_training_and_names_the_batch(
    data_set: Path, tmp_path: Path
) -> None:
    def broken(*arguments: Any, **options: Any) -> FakeLoader:
        def poison(batch: Any) -> Any:
            batch.x[0, 0] = float("nan")
            return batch

        return FakeLoader(*arguments, **options, transform=poison)

    with pytest.raises(InvalidError, match=r"epoch 1, batch 1: expected a finite loss"):
        train(data_set, config(), out=tmp_path / "run", open_graph=FakeGraph, open_loader=broken)


@pytest.mark.parametrize("name", ["scratch", "model", "checkpoints", "tensorboard", "papers"])
def test_what_somebody_else_put_there_is_never_lost(
    data_set: Path, tmp_path: Path, name: str
) -> None:
    graph = FakeGraph(data_set)
    own = tmp_path / "home" / name / "thesis.txt"
    own.parent.mkdir(parents=True)
    own.write_text("years of work")
    with pytest.raises(InvalidError, match=f"`{name}` is there already, expected an empty"):
        TrainDirectory.create(tmp_path / "home", graph, config())
    assert own.read_text() == "years of work"
    own.unlink()
    TrainDirectory.create(tmp_path / "home", graph, config())


def test_a_changed_data_set_cannot_be_resumed(tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data")
    stop_after(data_set, tmp_path / "run", config(), 2)
    planted(data_set, seed=1)
    with pytest.raises(InvalidError, match="changed since the run began"):
        resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)


def test_arrays_that_a_training_does_not_read_may_come_meanwhile(tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data")
    fit(data_set, tmp_path / "whole", config())
    stop_after(data_set, tmp_path / "run", config(), 2)
    manifest = json.loads((data_set / "graph.json").read_text())
    # As building a grid does, and importing another feature.
    manifest["arrays"]["grid/edge/header"] = manifest["arrays"]["edges/edge/ids"]
    manifest["arrays"]["nodes/node/z"] = manifest["arrays"]["nodes/node/x"]
    (data_set / "graph.json").write_text(json.dumps(manifest))
    resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


@pytest.mark.parametrize(
    "key", ["edges/edge/sources", "nodes/node/x", "nodes/node/y", "splits/test"]
)
def test_a_change_of_any_array_that_a_training_reads_refuses_to_resume(
    tmp_path: Path, key: str
) -> None:
    data_set = planted(tmp_path / "data")
    stop_after(data_set, tmp_path / "run", config(), 2)
    manifest = json.loads((data_set / "graph.json").read_text())
    manifest["arrays"][key]["checksum"] = "xxh3:0000000000000001"
    (data_set / "graph.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidError, match=f"changed since the run began.*: array `{key}` was ch"):
        resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)


def test_a_run_that_is_trained_is_not_resumed_beside_itself(data_set: Path, tmp_path: Path) -> None:
    refused = []

    class Second(Observer):
        def batch_done(self, *_: Any) -> None:
            with pytest.raises(InvalidError, match=r"another `outercore train` writes it") as told:
                resume(tmp_path / "run", open_graph=FakeGraph, open_loader=FakeLoader)
            refused.append(str(told.value))

    fit(data_set, tmp_path / "run", config(epochs=1), observer=Second())
    assert len(refused) == 4
    assert "hint: wait until it has ended" in refused[0]
    assert (tmp_path / "run/config.json").exists()
    assert not list((tmp_path / "run").glob(".*"))


def test_runs_without_a_name_that_begin_together_get_directories_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    together = threading.Barrier(8)

    def begin(_: int) -> Path:
        together.wait()
        with new_run(None, "papers-sage", "outercore train") as path:
            together.wait()
            (path / "config.json").touch()
            return path

    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(begin, range(8)))
    assert sorted(path.name for path in paths) == [f"papers-sage-{n}" for n in range(1, 9)]
    with new_run(None, "papers-sage", "outercore train"):
        pass
    assert len(list((tmp_path / "runs").iterdir())) == 8


@pytest.mark.parametrize("checkpoint", [False, True])
def test_what_a_full_device_says_is_next_works(
    data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checkpoint: bool
) -> None:
    def device_full() -> None:
        with device_errors("file"):
            raise OSError(errno.ENOSPC, "No space left on device")

    where = "outercore.runs.directory.RunDirectory.write_record"
    with monkeypatch.context() as patched:
        if checkpoint:
            # After the first epoch.
            patched.setattr(where, lambda *_: device_full())
        else:
            patched.setattr(
                "outercore.training.checkpoint.Checkpoints.save", lambda *_: device_full()
            )
        with pytest.raises(NoSpaceError) as told:
            fit(data_set, tmp_path / "run", config(epochs=2))
    fakes: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
    if checkpoint:
        assert f"resume with `outercore train --resume {tmp_path}/run`" in str(told.value)
        record = resume(tmp_path / "run", **fakes)
    else:
        assert "free some space, then run the same command again" in str(told.value)
        record = fit(data_set, tmp_path / "run", config(epochs=2))
    assert record["status"] == "finished"


def test_an_existing_run_is_not_overwritten(data_set: Path, tmp_path: Path) -> None:
    fit(data_set, tmp_path / "run", config(epochs=1))
    with pytest.raises(InvalidError, match="exists already"):
        fit(data_set, tmp_path / "run", config(epochs=1))


def test_a_missing_training_split_is_named(data_set: Path, tmp_path: Path) -> None:
    settings = TrainConfig(sampling=SamplingConfig(train="learn"))
    with pytest.raises(NotFoundError, match="no split `learn`; it has `train`"):
        fit(data_set, tmp_path / "run", settings)


def renamed(data_set: Path, splits: dict[str, str]) -> Path:
    """The data set with other names of its splits; `""` leaves one out."""
    manifest = json.loads((data_set / "graph.json").read_text())
    roles = manifest["roles"]["splits"]
    manifest["roles"]["splits"] = {
        splits.get(name, name): key for name, key in roles.items() if splits.get(name, name)
    }
    (data_set / "graph.json").write_text(json.dumps(manifest))
    return data_set


@pytest.mark.parametrize("name", ["val", "dev", "validation", "Validation"])
def test_common_names_of_the_validation_split_are_understood(name: str, tmp_path: Path) -> None:
    data_set = renamed(planted(tmp_path / "data"), {"valid": name})
    watch = Losses()
    record = fit(data_set, tmp_path / "run", config(epochs=1), observer=watch)
    assert watch.notes == []
    assert record["description"]["validation"] == "full"
    assert record["epochs"][0]["score"] is not None
    assert set(record["result"]["scores"]) == {"valid", "test"}
    fakes: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
    assert evaluate(tmp_path / "run", split="valid", **fakes)["nodes"] == 60


def test_a_training_without_validation_says_so_and_names_splits_it_does_not_use(
    tmp_path: Path,
) -> None:
    data_set = renamed(planted(tmp_path / "data"), {"valid": "holdout"})
    watch = Losses()
    record = fit(data_set, tmp_path / "run", config(epochs=2), observer=watch)
    assert watch.notes[0].startswith("no split `valid`: nothing is validated")
    assert watch.notes[1] == "splits that training does not use: `holdout`"
    assert record["description"]["validation"] == "none"
    assert record["result"]["best_epoch"] == 1


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_an_empty_split_is_refused_before_anything_is_made(split: str, tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data")
    fit(data_set, tmp_path / "run", config(epochs=1))
    manifest = json.loads((data_set / "graph.json").read_text())
    manifest["arrays"][f"splits/{split}"]["shape"] = [0]
    (data_set / "graph.json").write_text(json.dumps(manifest))
    write_npy(data_set / f"splits/{split}.npy", np.empty(0, np.int64))
    said = f"split `{split}` is empty, expected at least one node"
    with pytest.raises(InvalidError, match=said):
        fit(data_set, tmp_path / "second", config(epochs=1))
    assert not (tmp_path / "second").exists()
    fakes: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
    with pytest.raises(InvalidError, match=said):
        evaluate(tmp_path / "run", split=split, **fakes)
