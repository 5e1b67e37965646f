"""Typed graphs from tables to scores, on the real importer and loader."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from observers import StopAfter  # noqa: E402
from outercore.errors import InterruptError  # noqa: E402
from outercore.runs.stop import StopRequest  # noqa: E402
from outercore.training import evaluate, resume, train  # noqa: E402
from outercore.training.loop import Trainer  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.run_directory import TrainDirectory  # noqa: E402

torch.set_num_threads(1)
PAPERS, AUTHORS, CLASSES, WIDTH = 2_000, 800, 4, 8
OPTIONS: dict[str, Any] = {
    "fanout": (5, 5),
    "hidden": 32,
    "batch_size": 128,
    "learning_rate": 0.01,
    "epochs": 2,
    "patience": 0,
    "memory": "64MiB",
}


def words(place: Path) -> tuple[list[str], float]:
    """Tables of a bibliography, and how often features alone tell the class, at best.

    Papers have noisy features of their class, and a year; authors an `h_index` that says nothing.
    """
    random = np.random.default_rng(0)
    classes, of_authors = (
        random.integers(CLASSES, size=PAPERS),
        random.integers(CLASSES, size=AUTHORS),
    )
    centres = random.normal(size=(CLASSES, WIDTH))
    x = centres[classes] + 2 * random.normal(size=(PAPERS, WIDTH))
    distances = np.square(x[:, None] - centres).sum(axis=2)
    columns: dict[str, Any] = {
        "id": [f"p{row}" for row in range(PAPERS)],
        "venue": [f"venue {one}" for one in classes],
        "year": random.integers(2010, 2020, size=PAPERS),
        **{f"x{number}": x[:, number] for number in range(WIDTH)},
    }
    pq.write_table(pa.table(columns), place / "papers.parquet")
    h_index = random.integers(50, size=AUTHORS)
    lines = [f"a{row},{value}" for row, value in enumerate(h_index)]
    (place / "authors.csv").write_text("id,h_index\n" + "\n".join(lines) + "\n")
    papers = np.repeat(np.arange(PAPERS), 3)
    authors = random.integers(AUTHORS, size=len(papers))
    for row in np.flatnonzero(random.random(len(papers)) < 0.8):
        authors[row] = random.choice(np.flatnonzero(of_authors == classes[papers[row]]))
    rows = [f"a{author},p{paper}" for author, paper in zip(authors, papers, strict=True)]
    (place / "writes.csv").write_text("author,paper\n" + "\n".join(rows) + "\n")
    arguments = ["--nodes", f"paper={place / 'papers.parquet'}:id"]
    arguments += ["--nodes", f"author={place / 'authors.csv'}:id"]
    arguments += ["--edges", f"author,writes,paper={place / 'writes.csv'}:author,paper"]
    arguments += ["--add-reverse"]
    arguments += ["--label", "paper.venue"]
    return arguments, float((distances.argmin(axis=1) == classes).mean())


@pytest.fixture(scope="module")
def imported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    """A data set from the command line, and the best accuracy without an edge."""
    place = tmp_path_factory.mktemp("mag")
    arguments, without_edges = words(place)
    root = place / "mag"
    assert oc.cli.run(["import", *arguments, "--out", str(root)]) == 0
    return root, without_edges


@pytest.fixture
def data_set(imported: tuple[Path, float]) -> Path:
    return imported[0]


@pytest.mark.parametrize("kind", ["rgcn", "sage", "gat", "hgt"])
def test_columns_of_any_scale_do_not_keep_a_model_from_using_edges(
    kind: str, imported: tuple[Path, float], tmp_path: Path
) -> None:
    root, without_edges = imported
    record = train(root, out=tmp_path / "run", **{**OPTIONS, "model": kind, "epochs": 6})
    assert record["epochs"][0]["loss"] < 2 * np.log(CLASSES)
    assert record["result"]["scores"]["test"] > without_edges + 0.1


def test_no_budget_changes_the_weights_of_a_typed_model(data_set: Path, tmp_path: Path) -> None:
    weights = []
    for number, memory in enumerate(["10MiB", "64MiB"]):
        train(
            data_set, out=tmp_path / str(number), **{**OPTIONS, "model": "rgcn", "memory": memory}
        )
        weights.append(load_model(tmp_path / str(number) / "model").model.state_dict())
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


def test_a_stopped_run_of_tables_resumes_to_the_same_bits(data_set: Path, tmp_path: Path) -> None:
    options = {**OPTIONS, "model": "rgcn"}
    record = train(data_set, out=tmp_path / "whole", **options)
    config = TrainDirectory.open(tmp_path / "whole").config()
    stop, graph = StopRequest(), oc.open(data_set)
    run = TrainDirectory.create(tmp_path / "stopped", graph, config)
    trainer = Trainer(graph, config, run, observer=StopAfter(17, stop.request), stop=stop)
    with pytest.raises(InterruptError, match="--resume"):
        trainer.fit()
    resumed = resume(tmp_path / "stopped")
    assert resumed["result"]["scores"] == record["result"]["scores"]
    whole, stopped = (
        load_model(tmp_path / name / "model").model.state_dict() for name in ("whole", "stopped")
    )
    assert all(torch.equal(whole[name], stopped[name]) for name in whole)


def test_a_typed_run_is_planned_trained_and_evaluated_from_the_command_line(
    data_set: Path, outcome: Any, tmp_path: Path
) -> None:
    arguments = ["--model", "rgcn", "--fanout", "5,5", "--hidden", "16", "--memory", "64MiB"]
    code, out, _ = outcome("plan", "train", data_set, *arguments, "--json")
    assert code == 0
    assert json.loads(out)["embeddings_memory"] == 0
    code, _, _ = outcome("train", data_set, *arguments, "--epochs", "2", "--out", tmp_path / "run")
    assert code == 0
    code, out, _ = outcome(
        *("evaluate", tmp_path / "run", "--split", "all", "--json"),
        *("--predictions", tmp_path / "classes.npy"),
    )
    assert code == 0
    assert len(np.load(tmp_path / "classes.npy")) == PAPERS
    found = evaluate(tmp_path / "run", validation="sampled")
    assert found["neighbours"] == "sampled"
    record = json.loads((tmp_path / "run/record.json").read_text())
    assert record["data_set"]["inputs"]["author"]["features"] == 1
    assert record["data_set"]["inputs"]["paper"]["features"] == WIDTH + 1
