"""Evaluating a trained model: the score of its training, and the files with what it predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

torch = pytest.importorskip("torch")

from fakes import FakeGraph, FakeLoader, planted  # noqa: E402
from outercore.errors import InvalidError, NotFoundError  # noqa: E402
from outercore.training.trained_model import evaluate  # noqa: E402
from outercore.training.work import NodeWork  # noqa: E402
from test_train import config, fit  # noqa: E402

torch.set_num_threads(1)


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("data") / "planted")


@pytest.mark.parametrize("kind", ["gat", "mlp"])
def test_evaluate_repeats_the_final_score_and_writes_predictions(
    kind: str, data_set: Path, tmp_path: Path
) -> None:
    record = fit(data_set, tmp_path / "run", config(kind))
    scored = evaluate(
        tmp_path / "run",
        predictions=tmp_path / "classes.npy",
        logits=tmp_path / "logits.npy",
        open_graph=FakeGraph,
        open_loader=FakeLoader,
    )
    assert scored["score"] == record["result"]["scores"]["test"]
    graph = FakeGraph(data_set)
    predicted = np.load(tmp_path / "classes.npy")
    actual = graph.array("y")[graph.split("test")]
    assert (predicted == actual).mean() == scored["score"]
    assert (np.load(tmp_path / "logits.npy").argmax(axis=1) == predicted).all()
    assert not (tmp_path / "run/model/scratch").exists()


@pytest.mark.parametrize("task", ["classes", "labels"])
def test_evaluate_writes_tables_with_the_nodes_of_its_predictions(
    task: str, tmp_path: Path
) -> None:
    data_set = planted(tmp_path / "data", task=task)
    fit(data_set, tmp_path / "run", config(epochs=1))
    for ending in ("npy", "parquet", "csv"):
        evaluate(
            tmp_path / "run",
            predictions=tmp_path / f"p.{ending}",
            logits=tmp_path / f"l.{ending}",
            open_graph=FakeGraph,
            open_loader=FakeLoader,
        )
    test = FakeGraph(data_set).split("test")
    for name in ("p", "l"):
        values = np.load(tmp_path / f"{name}.npy")
        tables = (
            pyarrow.parquet.read_table(tmp_path / f"{name}.parquet"),
            pyarrow.csv.read_csv(tmp_path / f"{name}.csv"),
        )
        for table in tables:
            assert table["id"].to_pylist() == test.tolist()
            columns = np.stack([table[column] for column in table.column_names[1:]], axis=1)
            assert np.array_equal(columns.reshape(values.shape).astype(values.dtype), values)
    with pytest.raises(InvalidError, match="expected a name that ends in one of"):
        evaluate(tmp_path / "nowhere", predictions=tmp_path / "p.txt", open_graph=FakeGraph)


@pytest.mark.parametrize("what", ["predictions", "logits"])
def test_evaluate_replaces_a_file_only_on_request(
    what: str, data_set: Path, tmp_path: Path
) -> None:
    fit(data_set, tmp_path / "run", config(epochs=1))
    out = tmp_path / "out.npy"
    out.write_text("years of work")
    options: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader, what: out}
    with pytest.raises(InvalidError, match=r"out.npy` exists already\nhint: .* `overwrite=True`"):
        evaluate(tmp_path / "run", **options)
    assert out.read_text() == "years of work"
    evaluate(tmp_path / "run", overwrite=True, **options)
    assert len(np.load(out)) == len(FakeGraph(data_set).split("test"))
    with pytest.raises(NotFoundError, match=r"directory `.*missing` does not exist\nhint: make"):
        evaluate(tmp_path / "run", **{**options, what: tmp_path / "missing" / "out.npy"})


def test_evaluate_of_all_nodes_is_in_node_order(data_set: Path, tmp_path: Path) -> None:
    fit(data_set, tmp_path / "run", config(epochs=1))
    for place, split in (("run/model", "all"), ("run", "test")):
        evaluate(
            tmp_path / place,
            split=split,
            logits=tmp_path / f"{split}.npy",
            open_graph=FakeGraph,
            open_loader=FakeLoader,
        )
    test = FakeGraph(data_set).split("test")
    everything = np.load(tmp_path / "all.npy")[test]
    np.testing.assert_allclose(everything, np.load(tmp_path / "test.npy"), atol=1e-5)


def test_a_wrong_split_is_refused_before_the_data_are_read(
    data_set: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit(data_set, tmp_path / "run", config(epochs=1))

    def read(*_: Any) -> None:
        raise AssertionError("the work began")

    monkeypatch.setattr(NodeWork, "prepare", read)
    with pytest.raises(NotFoundError, match="split `tset`"):
        evaluate(tmp_path / "run", split="tset", open_graph=FakeGraph, open_loader=FakeLoader)
