"""Texts of nodes, such as titles: kept by import and add, and given back as they were."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore import _core
from outercore.importing.table.rows import Reading
from outercore.importing.texts import open_texts

TITLES = ["Naïve nets", "", '"Quoted", and\nbroken', "0123", "x" * 400]


@pytest.fixture
def edges(outcome: Any) -> Path:
    Path("edges.csv").write_text("src,dst\n0,1\n1,2\n2,3\n3,4\n")
    return Path("edges.csv")


def test_texts_come_back_as_they_were(edges: Path, outcome: Any) -> None:
    pq.write_table(pa.table({"title": TITLES}), "papers.parquet")
    code, _, told = outcome("import", edges, "--text", "title=papers.parquet", "--out", "g")
    assert code == 0, told
    assert "column `title` is kept as text" in told
    graph = oc.open("g")
    assert graph.array("title").tolist() == TITLES
    assert graph.rows("title", np.array([3, 0, 3])).tolist() == ["0123", TITLES[0], "0123"]
    assert _core.check(Path("g"), lambda *_: None)["problems"] == []
    batch = next(iter(oc.NeighborLoader(graph, [2], np.array([4]), batch_size=1)))
    assert graph.rows("title", batch.n_id.numpy()).tolist()[0] == TITLES[4]


def test_texts_are_joined_by_ids_and_may_be_missing(edges: Path, outcome: Any) -> None:
    Path("papers.csv").write_text("id,title\n4,last\n0,first\n2,\n")
    assert outcome("import", edges, "--nodes", 6, "--out", "g")[0] == 0
    code, _, told = outcome("add", "g", "--text", "title=papers.csv:title")
    assert code == 0, told
    assert oc.open("g").array("title").tolist() == ["first", "", "", "", "last", ""]
    code, _, told = outcome("add", "g", "--text", "title=papers.csv:title")
    assert code == 1
    assert "in the data set already" in told


def test_nodes_with_names_have_texts(outcome: Any) -> None:
    Path("follows.csv").write_text("src,dst\nann,bob\nbob,carol\n")
    Path("users.csv").write_text("id,city\ncarol,Bonn\nann,Köln\nbob,Rom\n")
    text = ("--text", "city=users.csv:city")
    assert outcome("import", "follows.csv", "--ids", "dictionary", *text, "--out", "g")[0] == 0
    graph = oc.open("g")
    cities = graph.rows("city", graph.entities.ids(["bob", "carol", "ann"]))
    assert cities.tolist() == ["Rom", "Bonn", "Köln"]


def test_texts_larger_than_the_memory_are_joined_in_parts(tmp_path: Path) -> None:
    order = np.random.default_rng(1).permutation(3000)
    titles = [f"title {node} " + "y" * (node % 50) for node in order]
    pq.write_table(pa.table({"id": order, "title": titles}), tmp_path / "n.parquet")
    arrays, count = open_texts("t", None, f"{tmp_path / 'n.parquet'}:title", Reading(memory=5000))
    assert count == 3000
    found = b"".join(chunk.tobytes() for chunk in arrays[1].rows.chunks()).decode()
    assert found == "".join(f"title {node} " + "y" * (node % 50) for node in range(3000))


def test_refusals_of_texts_name_the_way_out(edges: Path, outcome: Any) -> None:
    Path("n.csv").write_text("title,year\na,1\nb,2\n")
    for option, said in (
        (("--text", "title=n.csv"), "choose one: `--text title=n.csv:title`"),
        (("--text", "n.csv"), "--text: expected NAME=FILE"),
        (("--array", "title=n.csv:title"), "`--text NAME=FILE`"),
        (("--text", "t=n.csv:title", "--nodes", 5), "2 rows, but the graph has 5 nodes"),
    ):
        code, _, told = outcome("import", edges, *option, "--out", "g")
        assert code == 1
        assert said in told, told


def test_a_text_and_an_array_of_one_name_do_not_hide_each_other(edges: Path, outcome: Any) -> None:
    Path("papers.csv").write_text("title,year\na,1\nb,2\nc,3\nd,4\ne,5\n")
    both = ("--text", "title=papers.csv:title", "--array", "title=papers.csv:year")
    code, _, told = outcome("import", edges, *both, "--out", "g")
    assert code == 1
    assert "array `title`: the nodes have a text of this name" in told
    assert (
        outcome("import", edges, *both[:2], "--array", "year=papers.csv:year", "--out", "g")[0] == 0
    )
    for command in (
        ("run", "pagerank", "g", "--save", "title"),
        ("add", "g", "--array", "title=papers.csv:year"),
        ("add", "g", "--text", "year=papers.csv:title"),
    ):
        code, _, told = outcome(*command)
        assert code == 1
        assert "of this name\nhint: choose another name" in told
    assert oc.open("g").array("title").tolist() == ["a", "b", "c", "d", "e"]
