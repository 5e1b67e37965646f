"""Nodes with names or sparse numbers: ids by a dictionary, which results give back."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore.importing import named_inputs
from test_import_cases import edges_by_id

_BIG = "900719925474099312345"
"""A number beyond 64 bits."""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    directory = tmp_path / "in"
    directory.mkdir()
    (directory / "edges.csv").write_text(
        f"source,target,w\nann,bob,1.5\nbob,carol,2\n{_BIG},ann,3\n"
    )
    (directory / "users.csv").write_text(
        f"id,label,age\ncarol,1,30\nann,0,40\ndan,2,50\nbob,,60\n{_BIG},1,70\n"
    )
    (directory / "train.csv").write_text("name\nann\ncarol\n")
    return directory


def named_edges(graph: Any) -> list[list[str]]:
    return [graph.entities.names(edge) for edge in edges_by_id(graph)]


def test_edges_tables_and_splits_are_joined_by_names(files: Path, outcome: Any) -> None:
    code, _, told = outcome(
        *("import", files / "edges.csv", "--ids", "dictionary", "--weight", "w"),
        *("--labels", f"{files / 'users.csv'}:label", "--features", f"{files / 'users.csv'}:age"),
        *("--split", f"train={files / 'train.csv'}", "--out", "g"),
    )
    assert code == 0, told
    graph = oc.open("g")
    assert named_edges(graph) == [["ann", "bob"], ["bob", "carol"], [_BIG, "ann"]]
    assert np.asarray(graph.array("edges/edge/weight")).tolist() == [1.5, 2.0, 3.0]
    names = graph.entities.names()
    assert sorted(names) == sorted(["ann", "bob", "carol", "dan", _BIG])
    labels = dict(zip(names, np.asarray(graph.array("y")).tolist(), strict=True))
    assert labels == {"carol": 1, "ann": 0, "dan": 2, "bob": -1, _BIG: 1}
    ages = dict(zip(names, np.asarray(graph.array("x"))[:, 0].tolist(), strict=True))
    assert ages == {"carol": 30, "ann": 40, "dan": 50, "bob": 60, _BIG: 70}
    assert graph.entities.names(graph.split("train")) == ["ann", "carol"]
    assert not list(Path().glob(".*keys"))


def test_results_give_the_names_back(files: Path, outcome: Any) -> None:
    assert outcome("import", files / "edges.csv", "--ids", "dictionary", "--out", "g")[0] == 0
    code, _, told = outcome("run", "degrees", "g", "--out", "d.csv")
    assert code == 0, told
    with open("d.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["id"] for row in rows} == {"ann", "bob", "carol", _BIG}


def test_algorithms_take_and_show_nodes_by_name(files: Path, outcome: Any) -> None:
    assert outcome("import", files / "edges.csv", "--ids", "dictionary", "--out", "g")[0] == 0
    code, printed, told = outcome("run", "bfs", "g", "--source", _BIG, "--out", "bfs.csv")
    assert code == 0, told
    assert f"\n  {_BIG}  0\n" in printed
    hops = dict(csv.reader(Path("bfs.csv").read_text().splitlines()))
    assert hops == {"id": "value", _BIG: "0", "ann": "1", "bob": "2", "carol": "3"}
    # Values that are nodes have names, too.
    walk = ("--source", _BIG, "--result", "predecessors", "--out", "before.csv")
    assert outcome("run", "bfs", "g", *walk)[0] == 0
    before = dict(csv.reader(Path("before.csv").read_text().splitlines()))
    assert before == {"id": "value", _BIG: "", "ann": _BIG, "bob": "ann", "carol": "bob"}
    assert outcome("run", "wcc", "g", "--out", "wcc.parquet")[0] == 0
    assert set(pq.read_table("wcc.parquet")["value"].to_pylist()) == {"ann"}
    code, _, told = outcome("run", "sssp", "g", "--source", "an")
    assert code == 1
    assert "entity `an` is not in the data set" in told
    ranks = [
        outcome("run", "pagerank", "g", "--personalization", nodes, "--json")
        for nodes in ("ann,bob", "ann")
    ]
    assert all(code == 0 for code, _, _ in ranks)
    assert json.loads(ranks[0][1])["top"] != json.loads(ranks[1][1])["top"]


def test_embeddings_of_named_nodes_are_asked_by_name(files: Path, outcome: Any) -> None:
    assert outcome("import", files / "edges.csv", "--ids", "dictionary", "--out", "g")[0] == 0
    assert outcome("embed", "g", "--dim", "4", "--epochs", "1", "--out", "rows")[0] == 0
    code, printed, told = outcome("embedding", "neighbours", "rows", "ann")
    assert code == 0, told
    lines = [line.split() for line in printed.splitlines() if " ann " in line]
    assert {words[2] for words in lines} == {"bob", "carol", _BIG}
    # The rows of a data set with a node more begin where these ended.
    with (files / "edges.csv").open("a") as file:
        file.write("eve,ann,1\n")
    assert outcome("import", files / "edges.csv", "--ids", "dictionary", "--out", "more")[0] == 0
    again = ("--dim", "4", "--epochs", "1", "--from", "rows", "--out", "more-rows")
    code, _, told = outcome("embed", "more", *again)
    assert code == 0, told


def test_a_dictionary_of_other_edges_that_was_left_behind_is_not_taken(
    tmp_path: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "old.txt").write_text("a b\nb c\nc d\n")
    (tmp_path / "new.txt").write_text("x y\ny z\nz x\n")
    command = ["import", "--ids", "dictionary", "--no-header", "--out", "g"]

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(named_inputs._Opening, "_with_keys", stopped)
        assert outcome(*command, "old.txt")[0] == 130
    assert list(Path().glob(".*keys"))
    code, _, told = outcome(*command, "new.txt")
    assert code == 0, told
    assert named_edges(oc.open("g")) == [["x", "y"], ["y", "z"], ["z", "x"]]
    assert not list(Path().glob(".*keys"))


def test_a_folder_of_the_user_in_the_place_of_the_dictionary_is_left_alone(
    tmp_path: Path, outcome: Any
) -> None:
    (tmp_path / "edges.txt").write_text("a b\nb c\n")
    mine = tmp_path / ".g.keys" / "notes.txt"
    mine.parent.mkdir()
    mine.write_text("mine")
    code, _, told = outcome(
        "import", "edges.txt", "--ids", "dictionary", "--no-header", "--out", "g"
    )
    assert code == 1
    assert "notes.txt" in told
    assert mine.read_text() == "mine"


def test_edges_by_names_are_mapped_and_never_read_whole(
    files: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: Any, name: str) -> None:
        raise AssertionError(f"`{name}` would be read into memory, whatever the budget")

    with monkeypatch.context() as patch:
        patch.setattr(oc.Graph, "array", refuse)
        code, _, told = outcome(
            *("import", files / "edges.csv", "--ids", "dictionary"),
            *("--labels", f"{files / 'users.csv'}:label", "--out", "g"),
        )
    assert code == 0, told
    assert named_edges(oc.open("g")) == [["ann", "bob"], ["bob", "carol"], [_BIG, "ann"]]


def test_a_table_whose_columns_have_names_has_a_header_beside_edges_without_one(
    files: Path, outcome: Any
) -> None:
    Path("friends.txt").write_text("ann bob\nbob cy\n")
    Path("people.csv").write_text("user,age\nann,1\nbob,2\ncy,3\n")
    command = ("import", "friends.txt", "--no-header", "--nodes", "people.csv:user", "--out", "g")
    code, _, err = outcome(*command)
    assert code == 0, err
    assert sorted(oc.open("g").entity_names()) == ["ann", "bob", "cy"]
