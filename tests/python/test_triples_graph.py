"""A knowledge graph as a graph for algorithms, and what is said of data sets that are none."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import pytest

import outercore as oc
from outercore.errors import InvalidError
from test_import_cases import edges_by_id

FACTS = "ann\tlikes\tbob\t1\nbob\tlikes\tcarol\t2\ncarol\tknows\tann\t3\nann\tknows\tcarol\t4\n"


@pytest.fixture
def facts(outcome: Any) -> Path:
    Path("facts.tsv").write_text(FACTS)
    assert (
        outcome("import", "facts.tsv", "--triples", "--columns", "hrtw", "--out", "facts")[0] == 0
    )
    return Path("facts")


def way_out(told: str) -> list[str]:
    """The command that a hint names, as it is pasted."""
    command = told.partition("`outercore ")[2].partition("`")[0]
    assert command, told
    return shlex.split(command)


def named_edges(graph: oc.Graph) -> list[list[str]]:
    return [graph.entity_names(edge) for edge in edges_by_id(graph)]


def test_run_on_triples_names_the_import_that_makes_a_graph(facts: Path, outcome: Any) -> None:
    code, _, told = outcome("run", "pagerank", facts)
    assert code == 1
    assert "holds triples, expected edges" in told
    with pytest.raises(InvalidError, match="holds triples, expected edges"):
        next(iter(oc.NeighborLoader(facts, [2], [0])))
    command = way_out(told)
    assert outcome(*command)[0] == 0
    graph = oc.open(command[-1])
    pairs = [["ann", "bob"], ["bob", "carol"], ["carol", "ann"], ["ann", "carol"]]
    assert named_edges(graph) == pairs
    assert graph.array("weight").tolist() == [1, 2, 3, 4]
    kinds = graph.relation_names(graph.array("edges/edge/relation"))
    assert kinds == ["likes", "likes", "knows", "knows"]
    code, _, told = outcome("run", "pagerank", command[-1], "--out", "rank.csv")
    assert code == 0, told
    assert {line.split(",")[0] for line in Path("rank.csv").read_text().splitlines()[1:]} == {
        *("ann", "bob", "carol")
    }


def test_run_on_one_relation_names_the_import_of_that_relation(facts: Path, outcome: Any) -> None:
    code, _, told = outcome("run", "wcc", facts, "--set", "relation=likes")
    assert code == 1
    command = way_out(told)
    assert outcome(*command)[0] == 0
    graph = oc.open(command[-1])
    assert named_edges(graph) == [["ann", "bob"], ["bob", "carol"]]
    assert graph.array("weight").tolist() == [1, 2]


def test_a_relation_that_is_not_there_is_refused(facts: Path, outcome: Any) -> None:
    code, _, told = outcome("import", facts, "--relation", "like", "--out", "g")
    assert code == 1
    assert "relation `like` is not in the data set" in told
    assert not Path("g").exists()


def test_info_describes_triples(facts: Path, outcome: Any) -> None:
    code, printed, _ = outcome("info", facts)
    assert code == 0
    rows = dict(
        line.strip().split("  ", 1) for line in printed.splitlines() if "  " in line.strip()
    )
    found = {name: rows[name].strip() for name in ("entities", "relations", "triples, train")}
    assert found == {"entities": "3", "relations": "2", "triples, train": "4"}
    assert "arcs" not in rows


def test_a_file_that_is_not_imported_names_the_import(outcome: Any) -> None:
    Path("edges.csv").write_text("src,dst\n0,1\n1,2\n")
    with pytest.raises(InvalidError, match="it is a text file, expected the directory") as caught:
        oc.open("edges.csv")
    assert outcome(*way_out(str(caught.value)))[0] == 0
    assert oc.open("edges").num_edges == 2
    # The name is taken now.
    code, _, told = outcome("run", "pagerank", "edges.csv")
    assert code == 1
    assert outcome(*way_out(told))[0] == 0
    code, _, told = outcome("import", "edges", "--out", "again")
    assert code == 1
    assert "`edges` is a data set already, without triples" in told


def test_the_import_says_which_triples_it_leaves_out(outcome: Any) -> None:
    for name in ("train", "valid", "test"):
        Path(f"{name}.tsv").write_text("ann\tlikes\tbob\n")
    parts = ("train.tsv", "--triples", "--valid", "valid.tsv", "--test", "test.tsv")
    assert outcome("import", *parts, "--out", "facts")[0] == 0
    code, _, told = outcome("import", "facts", "--out", "graph")
    assert code == 0
    assert "left out: triples/test, triples/valid" in told
    graph = oc.open("graph")
    assert graph.num_edges == 1
    assert graph.relation_names([0]) == ["likes"]


def test_the_graph_of_one_relation_has_no_names_of_relations(facts: Path, outcome: Any) -> None:
    assert outcome("import", facts, "--relation", "likes", "--out", "likes")[0] == 0
    assert not [key for key in oc.open("likes").arrays if key.startswith("names/relation")]
