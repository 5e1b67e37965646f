"""A knowledge graph as a graph for algorithms, and what is said of data sets that are none."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import numpy as np
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


def test_a_loader_on_triples_names_the_import_that_makes_a_graph(facts: Path, outcome: Any) -> None:
    with pytest.raises(InvalidError, match="holds triples, expected edges") as caught:
        next(iter(oc.NeighborLoader(facts, [2], [0])))
    command = way_out(str(caught.value))
    assert outcome(*command)[0] == 0
    graph = oc.open(command[-1])
    pairs = [["ann", "bob"], ["bob", "carol"], ["carol", "ann"], ["ann", "carol"]]
    assert named_edges(graph) == pairs
    assert graph.array("weight").tolist() == [1, 2, 3, 4]
    kinds = graph.relation_names(graph.array("edges/edge/relation"))
    assert kinds == ["likes", "likes", "knows", "knows"]
    assert next(iter(oc.NeighborLoader(graph, [2], [0]))).num_nodes > 1


def random_facts(folder: Path) -> Path:
    """Triples of some hundred entities and three relations, with weights."""
    rng = np.random.default_rng(1)
    ends = rng.integers(0, 200, (900, 2)) ** 2 // 200
    kinds = np.array(["likes", "has part", "/a/b.c"])[rng.integers(0, 3, 900) // 2]
    rows = zip(ends[:, 0], kinds, ends[:, 1], rng.integers(1, 9, 900), strict=True)
    folder.with_suffix(".tsv").write_text(
        "".join("\t".join(map(str, row)) + "\n" for row in {row[:3]: row for row in rows}.values())
    )
    return folder.with_suffix(".tsv")


@pytest.mark.parametrize("relation", [None, "likes", "has part"])
def test_algorithms_on_triples_are_those_on_the_graph_of_them(
    relation: str | None, outcome: Any, tmp_path: Path
) -> None:
    source = random_facts(tmp_path / "facts")
    told = outcome("import", source, "--triples", "--columns", "hrtw", "--out", "facts")[2]
    chosen = [] if relation is None else ["--relation", relation]
    assert outcome("import", "facts", *chosen, "--out", "graph")[0] == 0, told
    own: dict[str, dict[str, Any]] = {
        "bfs": {"source": 0},
        "sssp": {"source": 0, "weights": "weight"},
        "radii": {"sources": 8},
        "betweenness": {"samples": 8},
        "closeness": {"nodes": [0, 5]},
    }
    for name in oc.analytics.ALGORITHMS:
        options = {"memory": "64MiB", **own.get(name, {})}
        found = oc.run(name, "facts", relation=relation, **options)
        expected = oc.run(name, "graph", **options)
        np.testing.assert_array_equal(found.values, expected.values, name)
        assert found.to_pandas().equals(expected.to_pandas()), name
    arcs: list[tuple[int, int, float]] = []
    stream = oc.EdgeStream("facts", relation=relation, weights="weight")
    stream.each(lambda b: arcs.extend(zip(b.source, b.target, b.weight, strict=True)))
    graph = oc.open("graph")
    lengths = graph.array("weight").tolist()
    pairs = edges_by_id(graph)
    assert sorted(arcs) == sorted((u, v, w) for (u, v), w in zip(pairs, lengths, strict=True))
    code, _, told = outcome("check", "facts")
    assert code == 0, told


def test_run_on_triples_takes_names_and_writes_them(facts: Path, outcome: Any) -> None:
    code, _, told = outcome(
        "run", "sssp", facts, "--relation", "likes", "--source", "ann",
        "--weights", "weight", "--out", "far.csv", "--save", "far",
    )  # fmt: skip
    assert code == 0, told
    rows = sorted(Path("far.csv").read_text().splitlines()[1:])
    assert rows == ["ann,0", "bob,1", "carol,3"]
    assert sorted(oc.open(facts).array("far").tolist()) == [0, 1, 3]
    code, _, told = outcome("run", "wcc", facts, "--relation", "like")
    assert code == 1
    assert "hint: did you mean `likes`?" in told
    code, _, told = outcome("run", "sssp", facts, "--source", "ann", "--weights", "size")
    assert code == 1
    assert "it has weight" in told
    # The grid of one relation is built anew for all, and a command that asks says how.
    code, _, told = outcome("grid", facts, "--relation", "knows")
    assert code == 1
    assert "has the arcs of likes, expected knows" in told
    assert outcome(*way_out(told))[0] == 0
    assert outcome("run", "pagerank", facts, "--plan", "--relation", "knows")[0] == 0


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


def test_a_run_on_other_triples_is_not_gone_on_with(facts: Path, outcome: Any) -> None:
    with pytest.raises(InvalidError, match="after 3 iterations"):
        oc.run("pagerank", facts, record="run", max_iterations=3, checkpoint_every=0)
    Path("facts.tsv").write_text(FACTS.replace("carol", "zoe"))
    again = ("import", "facts.tsv", "--triples", "--columns", "hrtw", "--overwrite", "--out", facts)
    assert outcome(*again)[0] == 0
    code, _, told = outcome("run", "--resume", "run")
    assert code == 1
    assert "changed since the run began" in told
    assert "`names/entity.bytes` was changed" in told


def test_the_grid_is_not_left_out_of_a_graph_of_triples(facts: Path, outcome: Any) -> None:
    assert outcome("run", "degrees", facts)[0] == 0
    code, _, told = outcome("import", facts, "--out", "graph")
    assert code == 0
    assert "left out" not in told


def test_training_on_triples_names_the_import_that_makes_a_graph(facts: Path, outcome: Any) -> None:
    for command in (("train", facts), ("plan", facts)):
        code, _, told = outcome(*command)
        assert code == 1
        assert "holds triples, expected edges" in told
    with pytest.raises(InvalidError, match="holds triples, expected edges"):
        oc.NeighborLoader(facts, [2], [0])
    graph = oc.open(facts)
    assert repr(graph) == "Graph(entities=3, triples=4)"
    shown = graph._repr_html_()
    assert ">triples, train</th>" in shown
    assert "grid/" not in shown


def test_a_command_in_a_hint_quotes_what_has_blanks(facts: Path, outcome: Any) -> None:
    facts.rename("my facts")
    with pytest.raises(InvalidError) as caught:
        oc.NeighborLoader("my facts", [2], [0])
    command = way_out(str(caught.value))
    assert command[-1].endswith("my facts-graph")
    assert outcome(*command)[0] == 0
    Path("my edges.csv").write_text("src,dst\n0,1\n")
    with pytest.raises(InvalidError) as caught:
        oc.open("my edges.csv")
    assert outcome(*way_out(str(caught.value)))[0] == 0
    assert oc.open("my edges").num_edges == 1
    assert outcome("run", "degrees", "my facts", "--relation", "likes")[0] == 0
    code, _, told = outcome("grid", "my facts")
    assert code == 1
    assert outcome(*way_out(told))[0] == 0
