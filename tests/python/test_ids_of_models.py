"""Predictions and embeddings speak the ids of files that count from 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import outercore as oc
from outercore.files.checked_json import checked_json_bytes

Run = Callable[..., tuple[int, str, str]]
NODES = 40


@pytest.fixture
def graph(tmp_path: Path, outcome: Run) -> Path:
    """A ring of nodes 1 to 40 with features, labels and a split, from files that count from 1."""
    ids = np.arange(1, NODES + 1)
    lines = [f"{node},{node % NODES + 1}" for node in ids]
    (tmp_path / "e.csv").write_text("\n".join(["u,v", *lines, ""]))
    frame = pd.DataFrame({"id": ids, "label": ids % 2}).sample(frac=1, random_state=1)
    frame.to_csv(tmp_path / "y.csv", index=False)
    np.save(tmp_path / "x.npy", np.eye(NODES, 4, dtype=np.float32))
    np.savetxt(tmp_path / "train.txt", ids[::2], fmt="%d")
    options = ["--features", "x.npy", "--labels", "y.csv", "--split", "train=train.txt"]
    code, _, err = outcome("import", "e.csv", "--one-based", *options, "--out", "graph")
    assert code == 0, err
    return tmp_path / "graph"


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_predictions_of_nodes_have_the_ids_of_the_files(
    ending: str, graph: Path, tmp_path: Path, outcome: Run
) -> None:
    pytest.importorskip("torch")
    oc.train(graph, out=tmp_path / "run", fanout=(3,), hidden=4, epochs=1)
    out = tmp_path / f"classes.{ending}"
    code, _, err = outcome("predict", graph, "--model", tmp_path / "run", "--out", out)
    assert code == 0, err
    found = pd.read_csv(out) if ending == "csv" else pd.read_parquet(out)
    assert found["id"].tolist() == list(range(1, NODES + 1))
    scored = tmp_path / f"split.{ending}"
    options = ["--split", "train", "--predictions", scored]
    code, _, err = outcome("evaluate", tmp_path / "run", *options)
    assert code == 0, err
    found = pd.read_csv(scored) if ending == "csv" else pd.read_parquet(scored)
    assert found["id"].tolist() == list(range(1, NODES + 1, 2))


@pytest.mark.parametrize("form", ["csv", "npy"])
def test_pairs_to_score_have_the_ids_of_the_files(
    form: str, graph: Path, tmp_path: Path, outcome: Run
) -> None:
    pytest.importorskip("torch")
    oc.train(graph, out=tmp_path / "run", task="link", fanout=(3,), hidden=4, epochs=1)
    pairs = np.array([[1, NODES], [NODES, 2], [3, 4]])
    file, out = tmp_path / f"pairs.{form}", tmp_path / "scores.csv"
    if form == "npy":
        np.save(file, pairs)
    else:
        np.savetxt(file, pairs, fmt="%d", delimiter=",")
    command = ["predict", graph, "--model", tmp_path / "run", "--edges", file, "--out", out]
    code, _, err = outcome(*command)
    assert code == 0, err
    assert pd.read_csv(out)[["source", "target"]].to_numpy().tolist() == pairs.tolist()
    wrong = np.array([[1, 2], [0, 3], [1, 3]])
    if form == "npy":
        np.save(file, wrong)
    else:
        np.savetxt(file, wrong, fmt="%d", delimiter=",")
    code, _, err = outcome(*command, "--overwrite")
    assert code == 1
    assert f"row 1: node 0, expected 1 to {NODES}" in err


@pytest.fixture
def embedding(graph: Path, tmp_path: Path) -> Path:
    """Rows of the nodes in which the nearest of a node is the next one."""
    path = tmp_path / "embedding"
    path.mkdir()
    angles = np.arange(NODES) ** 1.5 / 300
    rows = np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
    np.save(path / "entities.npy", rows)
    np.save(path / "relations.npy", np.empty((1, 0), np.float32))
    described = {
        "version": 2,
        "model": {"kind": "dot", "dim": 2},
        "entities": NODES,
        "relations": 1,
        "width": 2,
        "data_set": str(graph),
        "metrics": [],
    }
    (path / "embedding.json").write_bytes(checked_json_bytes(described))
    return path


@pytest.mark.parametrize("ending", ["csv", "parquet", "tsv"])
def test_exported_rows_have_the_ids_of_the_files(
    ending: str, embedding: Path, tmp_path: Path, outcome: Run
) -> None:
    out = tmp_path / f"rows.{ending}"
    for options, first in (([], 1), (["--ids"], 0)):
        code, _, err = outcome("embedding", "export", embedding, "--out", out, *options)
        assert code == 0, err
        if ending == "parquet":
            ids = pd.read_parquet(out)["id"]
        else:
            header = 0 if ending == "csv" else None
            frame = pd.read_csv(out, sep="\t" if ending == "tsv" else ",", header=header)
            ids = frame[frame.columns[0]]
        assert ids.tolist() == list(range(first, NODES + first))
        out.unlink()


def test_questions_and_answers_about_rows_have_the_ids_of_the_files(
    embedding: Path, tmp_path: Path, outcome: Run
) -> None:
    pytest.importorskip("torch")
    nearest = {1: 2, 3: 2}
    for node, neighbour in nearest.items():
        command = ["embedding", "neighbours", embedding, "-k", 1, "--json"]
        code, out, err = outcome(*command, node)
        assert code == 0, err
        (answer,) = json.loads(out)
        assert (answer["entity"], answer["neighbour"]) == (node, neighbour)
        (by_row,) = json.loads(outcome(*command, node - 1, "--ids")[1])
        assert (by_row["entity"], by_row["neighbour"]) == (node - 1, neighbour - 1)
    code, _, err = outcome("embedding", "neighbours", embedding, 0)
    assert code == 1
    assert f"entity 0: expected 1 to {NODES}" in err
    (tmp_path / "only.txt").write_text("9\n7\n")
    np.save(tmp_path / "only.npy", np.array([9, 7]))
    for file in ("only.txt", "only.npy"):
        options = ["--candidates", tmp_path / file, "-k", 2, "--json"]
        code, out, err = outcome("embedding", "neighbours", embedding, 8, *options)
        assert code == 0, err
        assert {answer["neighbour"] for answer in json.loads(out)} == {7, 9}


def test_embeddings_in_python_take_positions_as_numbers_and_ids_as_texts(embedding: Path) -> None:
    opened = oc.Embedding.open(embedding)
    assert opened.entity_ids(["1", "3"]).tolist() == [0, 2]
    assert opened.entity_ids([1, 3]).tolist() == [1, 3]
    assert opened.entity_names([0, 2]) == ["1", "3"]


def test_loaders_take_ids_of_files_as_texts_and_give_positions(graph: Path) -> None:
    pytest.importorskip("torch")
    opened = oc.open(graph)
    options = {"num_neighbors": [1], "batch_size": 2}
    by_text = next(iter(oc.NeighborLoader(opened, input_nodes=["1", "40"], **options)))
    by_position = next(iter(oc.NeighborLoader(opened, input_nodes=np.array([0, 39]), **options)))
    assert by_text.n_id[:2].tolist() == by_position.n_id[:2].tolist() == [0, 39]
