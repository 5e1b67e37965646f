"""Predictions of trained models in files: the model applied in memory, whatever the budget."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest

torch = pytest.importorskip("torch")

import outercore as oc  # noqa: E402
from fakes import FakeGraph, FakeLoader, planted  # noqa: E402
from observers import terminate  # noqa: E402
from outercore.data.node_names import names_of_items  # noqa: E402
from outercore.errors import InterruptError, InvalidError, NotFoundError  # noqa: E402
from outercore.runs.progress import Observer  # noqa: E402
from outercore.training.model_files import load_model  # noqa: E402
from outercore.training.models import Hop  # noqa: E402
from outercore.training.work import in_degrees  # noqa: E402
from test_train_graphs import config, imported, rings_and_stars, text_of  # noqa: E402
from typed_fakes import TypedGraph, TypedLoader, planted_types  # noqa: E402

torch.set_num_threads(1)
OPTIONS: dict[str, Any] = {"fanout": (4, 3), "hidden": 8, "epochs": 1, "memory": "64MiB"}
NAMES = ["ann", "bob", "cyd", "dee", "eve", "fay", "gus", "hal"]


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("data") / "planted")


def table(path: Path) -> dict[str, np.ndarray]:
    """The columns of a Parquet file."""
    read = pyarrow.parquet.read_table(path)
    return {name: np.array(read[name].to_pylist()) for name in read.column_names}


def stacked(columns: dict[str, np.ndarray], prefix: str) -> np.ndarray:
    return np.stack([columns[name] for name in columns if name.startswith(prefix)], axis=1)


def applied(model: Any, graph: Any, x: np.ndarray) -> torch.Tensor:
    """A network applied to the whole graph at once."""
    offsets = graph.array("edges/edge/offsets").astype(np.int64)
    sources = torch.from_numpy(graph.array("edges/edge/sources").astype(np.int64))
    targets = torch.from_numpy(np.repeat(np.arange(graph.num_nodes), np.diff(offsets)))
    degrees = None
    if model.needs_degrees:
        degrees = torch.from_numpy(in_degrees(graph, count_loops=model.counts_loops))
    nodes = torch.arange(graph.num_nodes)
    hop = Hop(torch.stack([sources, targets]), graph.num_nodes, nodes, degrees)
    state, states = torch.from_numpy(x), []
    with torch.no_grad():
        for index in range(model.layers):
            state = model.layer(index, state, hop)
            states.append(state)
        return model.head(states)


@pytest.mark.parametrize("kind", ["sage", "gat"])
def test_all_nodes_get_what_the_model_says_in_memory_whatever_the_budget(
    kind: str, data_set: Path, tmp_path: Path
) -> None:
    oc.train(data_set, out=tmp_path / "run", model=kind, **OPTIONS)
    for memory in ("8MiB", "1GiB"):
        found = oc.predict(
            data_set, tmp_path / "run", tmp_path / f"{memory}.parquet", memory=memory
        )
        assert (found["nodes"], found["task"]) == (240, "classification")
    graph = oc.open(data_set)
    model = load_model(tmp_path / "run/model").model
    expected = applied(model, graph, graph.array("x")).softmax(dim=1).numpy()
    columns = table(tmp_path / "1GiB.parquet")
    assert columns["id"].tolist() == list(range(240))
    np.testing.assert_allclose(stacked(columns, "probability_"), expected, atol=1e-5)
    assert (columns["prediction"] == stacked(columns, "probability_").argmax(axis=1)).all()
    for name, values in table(tmp_path / "8MiB.parquet").items():
        assert (values == columns[name]).all(), name
    oc.predict(data_set, tmp_path / "run", tmp_path / "classes.csv", memory="1GiB")
    written = np.genfromtxt(tmp_path / "classes.csv", np.float32, delimiter=",", names=True)
    assert list(written.dtype.names or ()) == list(columns)
    assert all((written[name] == columns[name]).all() for name in columns)


@pytest.mark.parametrize("task", ["labels", "values"])
def test_labels_and_numbers_have_the_columns_of_their_task(task: str, tmp_path: Path) -> None:
    naive: dict[str, Any] = {"open_graph": FakeGraph, "open_loader": FakeLoader}
    data_set = planted(tmp_path / "data", task=task)
    oc.train(data_set, out=tmp_path / "run", **OPTIONS, **naive)
    oc.predict(data_set, tmp_path / "run", tmp_path / "out.parquet", **naive)
    oc.evaluate(tmp_path / "run", split="all", logits=tmp_path / "logits.npy", **naive)
    logits = np.load(tmp_path / "logits.npy")
    columns = table(tmp_path / "out.parquet")
    if task == "values":
        assert list(columns) == ["id", "prediction"]
        np.testing.assert_allclose(columns["prediction"], logits[:, 0], rtol=1e-6)
        return
    expected = 1 / (1 + np.exp(-logits))
    np.testing.assert_allclose(stacked(columns, "probability_"), expected, atol=1e-6)
    assert (stacked(columns, "prediction_") == (logits > 0)).all()


def test_the_labelled_nodes_of_a_typed_graph_are_predicted(tmp_path: Path) -> None:
    naive: dict[str, Any] = {"open_graph": TypedGraph, "open_loader": TypedLoader}
    data_set = planted_types(tmp_path / "data")
    oc.train(data_set, out=tmp_path / "run", model="rgcn", **OPTIONS, **naive)
    found = oc.predict(data_set, tmp_path / "run", tmp_path / "out.parquet", **naive)
    oc.evaluate(tmp_path / "run", split="all", logits=tmp_path / "logits.npy", **naive)
    assert found["nodes"] == 90
    columns = table(tmp_path / "out.parquet")
    expected = torch.from_numpy(np.load(tmp_path / "logits.npy")).softmax(dim=1).numpy()
    np.testing.assert_allclose(stacked(columns, "probability_"), expected, atol=1e-6)


def test_all_graphs_of_a_data_set_of_many_are_predicted(tmp_path: Path) -> None:
    splits = {"train": range(40), "valid": range(40, 50), "test": range(50, 60)}
    many = imported(tmp_path, "shapes", text_of(rings_and_stars(60)), splits)
    oc.train(many, config(epochs=1), out=tmp_path / "run")
    found = oc.predict(many, tmp_path / "run", tmp_path / "out.parquet")
    assert (found["graphs"], found["task"]) == (60, "classification")
    oc.evaluate(tmp_path / "run", split="all", logits=tmp_path / "logits.npy")
    expected = torch.from_numpy(np.load(tmp_path / "logits.npy")).softmax(dim=1).numpy()
    np.testing.assert_array_equal(
        stacked(table(tmp_path / "out.parquet"), "probability_"), expected
    )


@pytest.fixture(scope="module")
def friends(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """People with names, their friendships, and a model of these."""
    from outercore.cli import run

    root = tmp_path_factory.mktemp("friends")
    random = np.random.default_rng(5)
    lines = [f"{NAMES[a]}\t{NAMES[b]}" for a, b in random.integers(8, size=(60, 2)) if a != b]
    (root / "edges.tsv").write_text("\n".join(lines) + "\n")
    files = [str(root / "edges.tsv"), "--ids", "dictionary", "--out", str(root / "data")]
    assert run(["import", *files]) == 0
    oc.train(root / "data", out=root / "run", task="link", **OPTIONS)
    return root


def test_listed_edges_are_scored_in_their_order(friends: Path, tmp_path: Path) -> None:
    pairs = [("hal", "ann"), ("bob", "cyd"), ("bob", "cyd"), ("dee", "dee"), ("ann", "hal")]
    (tmp_path / "pairs.csv").write_text("from,to\n" + "".join(f"{a},{b}\n" for a, b in pairs))
    found = oc.predict(
        friends / "data",
        friends / "run",
        tmp_path / "scores.parquet",
        edges=tmp_path / "pairs.csv",
    )
    assert found["edges"] == 5
    columns = table(tmp_path / "scores.parquet")
    assert list(zip(columns["source"], columns["target"], strict=True)) == pairs
    model: Any = load_model(friends / "run/model").model
    graph = oc.open(friends / "run/links/graph")
    embeddings = applied(model.encoder, graph, model.table.weight.detach().numpy())
    names = names_of_items(oc.open(friends / "data"))
    assert names is not None
    ends = torch.tensor([[names.id(a), names.id(b)] for a, b in pairs])
    with torch.no_grad():
        expected = model.head(embeddings[ends[:, 0]], embeddings[ends[:, 1]]).numpy()
    np.testing.assert_allclose(columns["score"], expected, rtol=1e-5, atol=1e-6)


def test_edges_of_nodes_without_names_are_listed_by_ids(tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data")
    oc.train(data_set, out=tmp_path / "run", task="link", **OPTIONS)
    pairs = np.random.default_rng(0).integers(240, size=(500, 2))
    np.save(tmp_path / "pairs.npy", pairs)
    np.save(tmp_path / "columns.npy", np.ascontiguousarray(pairs.T))
    pyarrow.parquet.write_table(
        pyarrow.table({"weight": np.ones(500), "u": pairs[:, 0], "v": pairs[:, 1]}),
        tmp_path / "pairs.parquet",
    )
    np.savetxt(tmp_path / "pairs.txt", pairs, "%d")
    scores = []
    for listed in ("pairs.npy", "columns.npy", "pairs.parquet:u,v", "pairs.txt"):
        out = tmp_path / "out.parquet"
        oc.predict(data_set, tmp_path / "run", out, edges=f"{tmp_path / listed}", overwrite=True)
        columns = table(out)
        assert (stacked(columns, "source") == pairs[:, :1]).all()
        assert (stacked(columns, "target") == pairs[:, 1:]).all()
        scores.append(columns["score"])
    assert len(set(scores[0].tolist())) > 300
    for other in scores[1:]:
        assert (other == scores[0]).all()


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("ann\tbob\nann\tzoe\n", NotFoundError, r"pairs.tsv`: row 1: node `zoe` is not in the"),
        ("ann\n", InvalidError, "expected at least two"),
    ],
)
def test_a_wrong_list_is_told_with_its_row_and_leaves_no_file(
    text: str, error: Any, message: str, friends: Path, tmp_path: Path
) -> None:
    (tmp_path / "pairs.tsv").write_text(text)
    with pytest.raises(error, match=message):
        oc.predict(
            friends / "data",
            friends / "run",
            tmp_path / "out.parquet",
            edges=tmp_path / "pairs.tsv",
        )
    assert [path.name for path in tmp_path.iterdir()] == ["pairs.tsv"]


def test_ids_out_of_range_and_names_without_a_dictionary_are_told(tmp_path: Path) -> None:
    data_set = planted(tmp_path / "data")
    oc.train(data_set, out=tmp_path / "run", task="link", **OPTIONS)
    for text, message in (
        ("0 1\n3 240\n", r"row 1: node 240, expected 0 to 239"),
        ("ann,bob\nbob,cyd\n", "holds text, and the nodes of the data set have ids"),
    ):
        (tmp_path / "pairs.txt").write_text(text)
        with pytest.raises(InvalidError, match=message):
            oc.predict(
                data_set, tmp_path / "run", tmp_path / "o.parquet", edges=tmp_path / "pairs.txt"
            )
    np.save(tmp_path / "two.npy", np.zeros((2, 2), np.int64))
    with pytest.raises(InvalidError, match=r"shape \(2, 2\) may be"):
        oc.predict(data_set, tmp_path / "run", tmp_path / "o.parquet", edges=tmp_path / "two.npy")


class Terminated(Observer):
    """Is asked to end while the last layer is computed."""

    def evaluation_started(self, what: str, total: int, done: int) -> None:
        if what == "layer 2 of 2":
            terminate()


def test_an_interrupted_prediction_leaves_no_file(data_set: Path, tmp_path: Path) -> None:
    oc.train(data_set, out=tmp_path / "run", **OPTIONS)
    (tmp_path / "out").mkdir()
    with pytest.raises(InterruptError):
        oc.predict(
            data_set,
            tmp_path / "run",
            tmp_path / "out" / "scores.parquet",
            observer=Terminated(),
        )
    assert not list((tmp_path / "out").iterdir())
    assert not (tmp_path / "run/model/scratch").exists()


def test_the_command_line_predicts_and_says_what_is_wrong(
    outcome: Any, data_set: Path, tmp_path: Path
) -> None:
    oc.train(data_set, out=tmp_path / "run", **OPTIONS)
    out = tmp_path / "scores.parquet"
    command = ["predict", data_set, "--model", tmp_path / "run", "--out", out]
    code, stdout, _ = outcome(*command, "--json")
    assert code == 0
    assert json.loads(stdout)["nodes"] == 240
    assert pyarrow.parquet.ParquetFile(out).metadata.num_row_groups == 1
    other = planted(tmp_path / "other", width=5)
    for wrong, message in (
        (command, "exists already"),
        ([*command[:-1], tmp_path / "scores.doc"], "one of .parquet, .csv, .tsv"),
        ([*command, "--overwrite", "--edges", "pairs.csv"], "predicts no edges"),
        ([*command[:1], other, *command[2:], "--overwrite"], "expected 8 features a node"),
        ([*command[:3], data_set, *command[4:], "--overwrite"], "this is a data set"),
        ([*command, "--overwrite", "--memory", "1KiB"], "of memory, needs"),
    ):
        code, _, stderr = outcome(*wrong)
        assert (code, message in stderr) == (1, True), stderr
    assert outcome(*command, "--overwrite")[0] == 0
