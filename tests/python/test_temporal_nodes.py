"""Labels of nodes with times: what is predicted sees the past alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from observers import StopAfter, terminate  # noqa: E402
from outercore.cli import run  # noqa: E402
from outercore.errors import InterruptError, NotFoundError, UnsupportedError  # noqa: E402
from outercore.importing.build.graph import import_graph  # noqa: E402
from outercore.importing.inputs import TypedInputs  # noqa: E402
from outercore.importing.options import ImportOptions  # noqa: E402
from outercore.importing.splits import SplitChoice  # noqa: E402
from outercore.importing.typed_graph import open_typed  # noqa: E402
from outercore.training.config import (  # noqa: E402
    BudgetConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.run import resume, train  # noqa: E402
from outercore.training.trained_model import evaluate  # noqa: E402

torch.set_num_threads(1)
USERS, VISITS = 40, 1200


def imported(place: Path, *, of: str) -> Path:
    """Visits of users one after the other, each with a coin and a time.

    The label of a visit is the coin of the user's visit `before` it, or of the `next` one.
    """
    random = np.random.default_rng(3)
    users, coins = random.integers(USERS, size=VISITS), random.integers(2, size=VISITS)
    labels = np.zeros(VISITS, np.int64)
    for user in range(USERS):
        own = np.flatnonzero(users == user)
        earlier, later = own[:-1], own[1:]
        if of == "before":
            labels[later] = coins[earlier]
        else:
            labels[earlier] = coins[later]
    times = pa.array([10**6 * (number + 1) for number in range(VISITS)], pa.timestamp("us"))
    visits = {"coin": pa.array(coins.astype(np.float32)), "time": times}
    pq.write_table(pa.table(visits), place / "visits.parquet")
    makes = {"user": pa.array(users), "visit": pa.array(np.arange(VISITS)), "time": times}
    pq.write_table(pa.table(makes), place / "makes.parquet")
    np.save(place / "label.npy", labels)
    parts = np.split(np.arange(VISITS), [int(0.7 * VISITS), int(0.85 * VISITS)])
    splits = []
    for name, rows in zip(("train", "valid", "test"), parts, strict=True):
        np.save(place / f"{name}.npy", rows)
        splits.append(f"{name}={place / name}.npy")
    inputs = TypedInputs(
        (f"user={USERS}", f"visit={place / 'visits.parquet'}"),
        (f"user,makes,visit={place / 'makes.parquet'}",),
        label=f"visit={place / 'label.npy'}",
        splits=SplitChoice(tuple(splits)),
        add_reverse=True,
    )
    import_graph(open_typed(inputs), place / "graph", ImportOptions(memory="16MiB"))
    return place / "graph"


def config(kind: str = "gat", epochs: int = 8, time: str | None = "time") -> TrainConfig:
    return TrainConfig(
        model=ModelConfig(kind=kind, hidden=32, heads=2, dropout=0.0),
        sampling=SamplingConfig(fanout=(1, 2), batch_size=64, time=time),
        optimiser=OptimiserConfig(learning_rate=0.01, epochs=epochs, patience=0),
        budget=BudgetConfig(memory="32MiB", threads=2),
        run=RunConfig(metric="accuracy", validation="sampled"),
    )


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return imported(tmp_path_factory.mktemp("before"), of="before")


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_the_past_is_learnt_and_scores_are_those_of_the_run(
    kind: str, before: Path, tmp_path: Path
) -> None:
    record = train(before, config(kind), out=tmp_path / "run")
    assert record["description"]["validation"] == "sampled"
    assert record["result"]["scores"]["test"] > 0.9
    again = evaluate(tmp_path / "run", split="test", memory="64MiB")
    assert again["score"] == record["result"]["scores"]["test"]
    assert again["neighbours"] == "sampled"
    found = oc.predict(before, tmp_path / "run", tmp_path / "all.parquet")
    assert (found["nodes"], found["neighbours"]) == (VISITS, "sampled")
    evaluate(tmp_path / "run", split="all", predictions=tmp_path / "all.npy")
    columns = pq.read_table(tmp_path / "all.parquet")
    assert columns["prediction"].to_pylist() == np.load(tmp_path / "all.npy").tolist()


def test_a_network_is_at_chance_where_the_future_has_the_label(tmp_path: Path) -> None:
    """The next visit is an edge of the same user, and its coin a feature: both are in reach."""
    data_set = imported(tmp_path, of="next")
    blind = train(data_set, config(), out=tmp_path / "blind")
    assert 0.35 < blind["result"]["scores"]["test"] < 0.65


def test_a_resumed_run_has_the_bits_of_an_uninterrupted_one(before: Path, tmp_path: Path) -> None:
    train(before, config(epochs=2), out=tmp_path / "whole")
    with pytest.raises(InterruptError, match="--resume"):
        train(before, config(epochs=2), out=tmp_path / "cut", observer=StopAfter(15, terminate))
    resume(tmp_path / "cut")
    one, other = (
        load_model(tmp_path / name / "model").model.state_dict() for name in ("whole", "cut")
    )
    assert all(torch.equal(one[name], other[name]) for name in one)


def plain(place: Path, **arrays: Any) -> Path:
    random = np.random.default_rng(4)
    np.save(place / "edges.npy", random.integers(50, size=(400, 2)))
    np.save(place / "x.npy", random.normal(size=(50, 4)).astype(np.float32))
    np.save(place / "y.npy", random.integers(2, size=50))
    np.save(place / "train.npy", np.arange(50))
    files = {"--features": "x.npy", "--labels": "y.npy"}
    arguments = ["import", place / "edges.npy", "--split", f"train={place / 'train.npy'}"]
    arguments += [part for flag, file in files.items() for part in (flag, place / file)]
    assert run([str(one) for one in [*arguments, "--out", place / "graph"]]) == 0
    graph = oc.open(place / "graph")
    for name, values in arrays.items():
        graph.add_node_array(name, values)
    return place / "graph"


def test_graphs_of_one_type_have_times_too(tmp_path: Path) -> None:
    data_set = plain(tmp_path, time=np.arange(50))
    record = train(data_set, config("sage", epochs=1), out=tmp_path / "run")
    assert record["status"] == "finished"


@pytest.mark.parametrize(
    ("kind", "time", "error", "message"),
    [
        ("sage", "when", NotFoundError, "no array `when`"),
        ("gcn", "time", UnsupportedError, "tell of later edges"),
        ("gin", "time", UnsupportedError, "tell of later edges"),
    ],
)
def test_what_does_not_fit_is_named(
    kind: str, time: str, error: type[Exception], message: str, tmp_path: Path
) -> None:
    data_set = plain(tmp_path, time=np.arange(50))
    with pytest.raises(error, match=message):
        train(data_set, config(kind, time=time), out=tmp_path / "run")
