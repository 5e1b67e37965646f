"""Training, scores, checkpoints and records of networks on typed graphs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from fakes import FakeGraph, FakeLoader, planted  # noqa: E402
from outercore.errors import (  # noqa: E402
    BudgetError,
    InterruptError,
    InvalidError,
    NotFoundError,
    UnsupportedError,
)
from outercore.runs.progress import Observer  # noqa: E402
from outercore.runs.stop import StopRequest  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.export import export_model  # noqa: E402
from outercore.training.loop import Trainer  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.run import plan, resume, train  # noqa: E402
from outercore.training.run_directory import TrainDirectory  # noqa: E402
from outercore.training.trained_model import evaluate  # noqa: E402
from typed_fakes import TypedGraph, TypedLoader, planted_types  # noqa: E402

torch.set_num_threads(1)
KINDS = ("rgcn", "sage", "gat", "hgt")
NAIVE: dict[str, Any] = {"open_graph": TypedGraph, "open_loader": TypedLoader}


def config(kind: str = "rgcn", epochs: int = 3, **run: Any) -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(kind=kind, hidden=16, heads=2, dropout=0.3),
        sampling=SamplingConfig(fanout=(4, 3), batch_size=16),
        optimiser=OptimiserConfig(learning_rate=0.01, epochs=epochs, patience=0),
        budget=BudgetConfig(memory="64MiB"),
        run=RunConfig(**run),
    )


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted_types(tmp_path_factory.mktemp("data") / "typed")


@pytest.fixture(scope="module")
def trained(data_set: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    run = tmp_path_factory.mktemp("trained") / "run"
    train(data_set, config(), out=run, **NAIVE)
    return run


class Heard(Observer):
    """What a run says; may ask to stop after a number of batches."""

    def __init__(self, stop: StopRequest | None = None, batches: int = 0) -> None:
        self.stop, self.left = stop, batches
        self.losses: list[float] = []
        self.notes: list[str] = []
        self.passes: list[str] = []

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        self.losses.append(loss)
        self.left -= 1
        if self.left == 0 and self.stop is not None:
            self.stop.request()

    def note(self, message: str) -> None:
        self.notes.append(message)

    def evaluation_started(self, what: str, batches: int, done: int = 0) -> None:
        self.passes.append(what)


@pytest.mark.parametrize("kind", KINDS)
def test_every_typed_model_learns_and_leaves_a_complete_run(
    kind: str, data_set: Path, tmp_path: Path
) -> None:
    heard = Heard()
    record = train(data_set, config(kind, 12), out=tmp_path / "run", observer=heard, **NAIVE)
    assert record["status"] == "finished"
    assert np.mean(heard.losses[-4:]) < 0.8 * np.mean(heard.losses[:4])
    assert record["result"]["scores"]["test"] > 0.6
    described = record["data_set"]
    assert described["node_types"]["author"] == 60
    assert described["edge_types"][0] == ["author", "writes", "paper"]
    assert described["inputs"]["author"] == {"features": 0, "rows": 60}
    assert described["labelled_type"] == "paper"
    assert not (tmp_path / "run/scratch").exists()
    assert json.loads((tmp_path / "run/record.json").read_text()) == record


def test_epochs_of_typed_graphs_may_be_scored_with_sampled_neighbours(
    data_set: Path, tmp_path: Path
) -> None:
    heard = Heard()
    settings = config(epochs=1, validation="sampled")
    train(data_set, settings, out=tmp_path / "run", observer=heard, **NAIVE)
    assert heard.passes == ["validation", "features", "layer 1 of 2", "layer 2 of 2"]


@pytest.mark.parametrize("kind", ["rgcn", "hgt"])
def test_a_stopped_typed_run_goes_on_to_the_same_bits(
    kind: str, data_set: Path, tmp_path: Path
) -> None:
    settings = config(kind)
    train(data_set, settings, out=tmp_path / "whole", **NAIVE)
    graph, stop = TypedGraph(data_set), StopRequest()
    run = TrainDirectory.create(tmp_path / "stopped", graph, settings)
    trainer = Trainer(
        graph, settings, run, observer=Heard(stop, 6), stop=stop, open_loader=TypedLoader
    )
    with pytest.raises(InterruptError, match="--resume"):
        trainer.fit()
    resume(tmp_path / "stopped", **NAIVE)
    whole, stopped = (
        load_model(tmp_path / name / "model").model.state_dict() for name in ("whole", "stopped")
    )
    assert whole.keys() == stopped.keys()
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_evaluate_scores_a_typed_model_and_writes_its_predictions(
    data_set: Path, trained: Path, tmp_path: Path
) -> None:
    result = evaluate(trained, predictions=tmp_path / "all.npy", split="all", **NAIVE)
    assert result["nodes"] == 90
    assert np.load(tmp_path / "all.npy").shape == (90,)
    expected = json.loads((trained / "record.json").read_text())["result"]["scores"]["test"]
    assert evaluate(trained, **NAIVE)["score"] == expected
    sampled = evaluate(trained, validation="sampled", **NAIVE)
    assert sampled["neighbours"] == "sampled"


def test_plan_says_what_the_embeddings_take(data_set: Path) -> None:
    planned = plan(data_set, config(), **NAIVE)
    # 69 authors and institutions, 16 values of 4 bytes, 13 times.
    assert planned["embeddings_memory"] == 69 * 16 * 4 * 13
    assert planned["training"]["slots"] == 3000


def test_nodes_whose_embeddings_do_not_fit_share_a_vector_and_a_note_says_so(
    data_set: Path,
) -> None:
    heard = Heard()
    settings = config()
    small = TrainConfig.from_dict({**settings.to_dict(), "budget": {"memory": "64KiB"}})
    planned = plan(data_set, small, observer=heard, **NAIVE)
    assert planned["embeddings_memory"] == 9 * 16 * 4 * 13
    (note,) = [note for note in heard.notes if "author" in note]
    assert note == (
        "node type `author` has no features, and embeddings of its 60 nodes would take 48.8 KiB, "
        "of 16.0 KiB for all tables: its nodes share one learnt vector"
    )


def test_embeddings_that_exceed_the_budget_of_an_evaluation_are_refused(trained: Path) -> None:
    with pytest.raises(BudgetError, match=r"embeddings of 4\.3 KiB leave nothing for batches"):
        evaluate(trained, memory="4KiB", **NAIVE)


@pytest.mark.parametrize("kind", ["gcn", "gin", "mlp"])
def test_models_of_one_type_are_refused_by_name(kind: str, data_set: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=f"model `{kind}`.*\nhint: .*`rgcn`.* or `hgt`"):
        train(data_set, config(kind), out=tmp_path / "run", **NAIVE)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("kind", ["rgcn", "hgt"])
def test_models_of_several_types_refuse_a_graph_of_one(kind: str, tmp_path: Path) -> None:
    root = planted(tmp_path / "planted")
    with pytest.raises(UnsupportedError, match=f"model `{kind}`.*\nhint: .*`model='sage'`"):
        train(
            root,
            config(kind),
            out=tmp_path / "run",
            open_graph=FakeGraph,
            open_loader=FakeLoader,
        )


@pytest.mark.parametrize("task", ["graph", "link"])
def test_other_tasks_on_typed_graphs_are_refused_by_name(
    task: str, data_set: Path, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedError, match=f"task `{task}`"):
        train(data_set, config(task=task), out=tmp_path / "run", **NAIVE)


def test_a_typed_graph_without_labels_is_refused(tmp_path: Path) -> None:
    root = planted_types(tmp_path / "bare", labelled=False)
    with pytest.raises(NotFoundError, match="no node type has labels"):
        train(root, config(), out=tmp_path / "run", **NAIVE)


def test_features_of_another_width_than_the_model_knows_are_refused(
    trained: Path, tmp_path: Path
) -> None:
    other = planted_types(tmp_path / "other", paper_width=7)
    with pytest.raises(InvalidError, match=r"expected 8 features .* of type `paper`.* found 7"):
        evaluate(trained, other, **NAIVE)


@pytest.mark.parametrize("kind", ["rgcn", "sage"])
def test_a_model_of_several_types_does_not_score_a_graph_of_one(
    kind: str, data_set: Path, tmp_path: Path
) -> None:
    train(data_set, config(kind, 1), out=tmp_path / "run", **NAIVE)
    other = planted(tmp_path / "planted")
    with pytest.raises((UnsupportedError, InvalidError), match=r"several .* one"):
        evaluate(tmp_path / "run", other, open_graph=FakeGraph, open_loader=FakeLoader)


def test_a_model_of_one_type_does_not_score_a_typed_graph(data_set: Path, tmp_path: Path) -> None:
    one: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
    train(planted(tmp_path / "planted"), config("sage", 1), out=tmp_path / "run", **one)
    with pytest.raises(InvalidError, match=r"expected one of each .* found several"):
        evaluate(tmp_path / "run", data_set, **NAIVE)


def test_changed_features_of_any_type_stop_a_resumed_run(tmp_path: Path) -> None:
    root = planted_types(tmp_path / "typed")
    train(root, config(epochs=1), out=tmp_path / "run", **NAIVE)
    manifest = json.loads((root / "graph.json").read_text())
    manifest["arrays"]["nodes/topic/x"]["checksum"] = "xxh3:0000000000000001"
    (root / "graph.json").write_text(json.dumps(manifest))
    with pytest.raises(InvalidError, match="array `nodes/topic/x` was changed"):
        resume(tmp_path / "run", **NAIVE)


def test_a_model_of_several_types_is_not_exported(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match="`rgcn` of a graph with several types"):
        export_model(trained, tmp_path / "serving")
