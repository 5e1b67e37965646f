"""Results, options and messages speak the ids of the files, also where those start at 1."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore.analytics.running import ALGORITHMS

Run = Callable[..., tuple[int, str, str]]
EDGES = np.array([[0, 1], [1, 2], [2, 0], [2, 3], [3, 4], [5, 6], [6, 5], [4, 1]])
NODES = 7
FORMS = (".csv", ".npy", ".npz", ".parquet", ".mtx", ".gr")
OF_NODES = {
    "bfs": ("--source", [2]),
    "sssp": ("--source", [2]),
    "betweenness": ("--sources", [3, 4]),
    "closeness": ("--nodes", [0, 2]),
    "pagerank": ("--personalization", [2, 5]),
}
"""Options that name nodes."""


def write_edges(path: Path, first: int) -> list[str]:
    """Writes the edges with ids from `first` on; the options that they need."""
    ids = EDGES + first
    rows = ids.tolist()
    header = []
    match path.suffix:
        case ".npy":
            np.save(path, ids)
        case ".npz":
            np.savez(path, edges=ids)
        case ".parquet":
            pq.write_table(pa.table({"u": ids[:, 0], "v": ids[:, 1]}), path)
        case ".csv":
            lines = [f"{u},{v},{w}" for w, (u, v) in enumerate(rows, 1)]
            path.write_text("\n".join(["u,v,weight", *lines, ""]))
        case ".mtx":
            header = ["%%MatrixMarket matrix coordinate pattern general", f"7 7 {len(rows)}"]
            path.write_text("\n".join([*header, *(f"{u} {v}" for u, v in rows), ""]))
        case _:
            header = [f"p sp {NODES} {len(rows)}"]
            path.write_text("\n".join([*header, *(f"a {u} {v} 1" for u, v in rows), ""]))
    return ["--one-based"] if first and not header else []


@pytest.fixture
def both(tmp_path: Path, outcome: Run) -> list[Path]:
    """One graph, imported from files with ids from 0, and with ids from 1."""
    found = []
    for first in (0, 1):
        file, out = tmp_path / f"edges{first}.csv", tmp_path / f"graph{first}"
        options = [*write_edges(file, first), "--weight", "weight"]
        code, _, err = outcome("import", file, *options, "--out", out)
        assert code == 0, err
        found.append(out)
    return found


@pytest.mark.parametrize("algorithm", sorted(ALGORITHMS))
def test_every_result_has_the_ids_of_the_files(
    algorithm: str, both: list[Path], tmp_path: Path, outcome: Run
) -> None:
    option, nodes = OF_NODES.get(algorithm, ("", []))
    tables, tops = [], []
    for first, graph in enumerate(both):
        table = tmp_path / f"{algorithm}{first}.csv"
        named = [option, ",".join(str(node + first) for node in nodes)] if option else []
        name = algorithm.replace("_", "-")
        code, out, err = outcome("run", name, graph, *named, "--out", table, "--json")
        assert code == 0, err
        tables.append(pd.read_csv(table))
        tops.append(json.loads(out)["top"])
    assert tables[1]["id"].tolist() == list(range(1, NODES + 1))
    if algorithm in ("wcc", "scc", "label_propagation", "louvain"):
        tables[0]["value"] += 1
    assert tables[1]["value"].tolist() == pytest.approx(tables[0]["value"].tolist(), nan_ok=True)
    assert tops[1] == [[node + 1, value] for node, value in tops[0]]


def test_predecessors_are_ids_of_the_files_and_none_stays_none(
    both: list[Path], tmp_path: Path, outcome: Run
) -> None:
    table = tmp_path / "before.parquet"
    options = ["--source", 1, "--result", "predecessors", "--out", table]
    assert outcome("run", "bfs", both[1], *options)[0] == 0
    before = pd.read_parquet(table).set_index("id")["value"].to_dict()
    assert before == {1: -1, 2: 1, 3: 2, 4: 3, 5: 4, 6: -1, 7: -1}


@pytest.mark.parametrize("form", FORMS)
def test_every_format_tells_what_it_calls_the_first_node(
    form: str, tmp_path: Path, outcome: Run
) -> None:
    file, out = tmp_path / f"edges{form}", tmp_path / "graph"
    assert outcome("import", file, *write_edges(file, 1), "--out", out)[0] == 0
    graph = oc.open(out)
    assert (graph.first_id, graph.num_nodes) == (1, NODES)
    frame = graph.to_pandas(level=oc.bfs(graph, "3"))
    assert frame["id"].tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert frame.set_index("id")["level"].loc[3] == 0
    # A number is a position, as in arrays and tensors.
    assert oc.bfs(graph, 2).tolist() == oc.bfs(graph, "3").tolist()
    assert "from 1" in outcome("info", out)[1]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["bfs", "--source", "0"], "--source: node `0`: the graph has 7 nodes (1 to 7)"),
        (["bfs", "--source", "8"], "--source: node `8`: the graph has 7 nodes (1 to 7)"),
        (["closeness", "--nodes", "1,8"], "--nodes: node `8`: the graph has 7 nodes (1 to 7)"),
        (
            ["pagerank", "--personalization", "8"],
            "--personalization: node `8`: the graph has 7 nodes (1 to 7)",
        ),
    ],
)
def test_a_node_that_is_not_there_is_refused_in_the_ids_of_the_files(
    options: list[str], said: str, both: list[Path], outcome: Run
) -> None:
    code, _, err = outcome("run", options[0], both[1], *options[1:])
    assert code == 1
    assert said in err


def test_texts_in_python_are_ids_of_the_files(both: list[Path]) -> None:
    zero, one = (oc.open(path) for path in both)
    for given in ({"1": 1.0, "3": 2.0}, {0: 1.0, 2: 2.0}):
        expected = oc.pagerank(zero, personalization={0: 1.0, 2: 2.0})
        assert np.array_equal(oc.pagerank(one, personalization=given), expected)
    found, expected = oc.closeness(one, nodes=["1", "4"]), oc.closeness(zero, nodes=[0, 3])
    assert np.array_equal(found, expected, equal_nan=True)
    with pytest.raises(oc.errors.InvalidError, match="node `0`: the graph has 7 nodes"):
        oc.bfs(one, "0")


def table_of(path: Path, first: int, columns: dict[str, list[Any]]) -> Path:
    """A table of nodes in another order than theirs, with ids from `first` on."""
    frame = pd.DataFrame({"id": np.arange(NODES) + first, **columns})
    frame.sample(frac=1, random_state=7).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("form", FORMS)
def test_tables_beside_edges_and_those_added_later_have_the_ids_of_the_edges(
    form: str, tmp_path: Path, outcome: Run
) -> None:
    file = tmp_path / f"edges{form}"
    edges = [file, *write_edges(file, 1)]
    labels = table_of(tmp_path / "labels.csv", 1, {"label": [0, 1, 0, 1, 0, 1, 2]})
    text = table_of(tmp_path / "titles.csv", 1, {"title": list("abcdefg")})
    train = tmp_path / "train.txt"
    train.write_text("7\n1\n")
    more = ["--labels", labels, "--split", f"train={train}", "--text", f"title={text}:title"]
    at_once, later = tmp_path / "at-once", tmp_path / "later"
    assert outcome("import", *edges, *more, "--out", at_once)[0] == 0
    assert outcome("import", *edges, "--out", later)[0] == 0
    code, _, err = outcome("add", later, *more)
    assert code == 0, err
    for path in (at_once, later):
        graph = oc.open(path)
        assert graph.array("y").tolist() == [0, 1, 0, 1, 0, 1, 2]
        assert graph.split("train").tolist() == [6, 0]
        assert graph.array("title").tolist() == list("abcdefg")


@pytest.mark.parametrize("command", ["import", "add"])
@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ("id,label\n0,1\n", "row 0: node id 0 in column `id`, expected 1 or more: ids start at 1"),
        ("id,label\n8,1\n", "names node 8, the graph has nodes 1 to 7"),
        ("id,label\n3,1\n3,0\n", "has several rows for 1 nodes: 3\n"),
    ],
)
def test_refusals_of_tables_name_nodes_as_the_files_do(
    command: str, rows: str, said: str, tmp_path: Path, outcome: Run
) -> None:
    file, labels, out = tmp_path / "e.mtx", tmp_path / "labels.csv", tmp_path / "graph"
    write_edges(file, 1)
    labels.write_text(rows)
    if command == "import":
        code, _, err = outcome("import", file, "--labels", labels, "--out", out)
    else:
        assert outcome("import", file, "--out", out)[0] == 0
        code, _, err = outcome("add", out, "--labels", labels)
    assert code == 1
    assert said in err


def test_refusals_of_tables_name_nodes_by_their_names(tmp_path: Path, outcome: Run) -> None:
    edges, labels = tmp_path / "e.csv", tmp_path / "labels.csv"
    edges.write_text("source,target\nann,bob\nbob,cid\n")
    labels.write_text("id,label\nann,1\nbob,0\nbob,1\ncid,0\n")
    options = ["--ids", "dictionary", "--labels", labels, "--out", tmp_path / "graph"]
    code, _, err = outcome("import", edges, *options)
    assert code == 1
    assert "has several rows for 1 nodes: bob" in err


def test_files_that_count_from_0_and_from_1_are_told_apart(tmp_path: Path, outcome: Run) -> None:
    zero, one = tmp_path / "a.csv", tmp_path / "b.mtx"
    write_edges(zero, 0)
    write_edges(one, 1)
    code, _, err = outcome("import", zero, one, "--out", tmp_path / "graph")
    assert code == 0, err
    assert "ids start at 1 in" in err
    assert "results have them from 0" in err
    assert oc.open(tmp_path / "graph").first_id == 0
