"""A folder laid out as `ogbn-mag`: every value arrives, and what does not fit is named."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc

FILES = {
    "raw/num-node-dict.csv.gz": "author,paper\n3,4\n",
    "raw/triplet-type-list.csv.gz": "author,writes,paper\npaper,cites,paper\n",
    "raw/relations/author___writes___paper/edge.csv.gz": "0,1\n2,3\n1,1\n",
    "raw/relations/author___writes___paper/num-edge-list.csv.gz": "3\n",
    "raw/relations/author___writes___paper/edge_reltype.csv.gz": "0\n0\n0\n",
    "raw/relations/author___writes___paper/edge-feat.csv.gz": "0.1,1\n0.2,2\n0.3,3\n",
    "raw/relations/paper___cites___paper/edge.csv.gz": "3,0\n0,3\n",
    "raw/relations/paper___cites___paper/num-edge-list.csv.gz": "2\n",
    "raw/nodetype-has-feat.csv.gz": "author,paper\nFalse,True\n",
    "raw/nodetype-has-label.csv.gz": "author,paper\nFalse,True\n",
    "raw/node-feat/paper/node-feat.csv.gz": "0.5,-1.25\n1e-3,2\n3,4\n5,6.7\n",
    "raw/node-feat/paper/node_year.csv.gz": "2015\n2018\n2019\n2010\n",
    "raw/node-label/paper/node-label.csv.gz": "2\n0\n1\n2\n",
    "split/time/nodetype-has-split.csv.gz": "author,paper\nFalse,True\n",
    "split/time/paper/train.csv.gz": "0\n3\n",
    "split/time/paper/valid.csv.gz": "1\n",
    "split/time/paper/test.csv.gz": "2\n",
}
WRITES = "edges/author__writes__paper/attr"

Run = Callable[..., tuple[int, str, str]]


def write(root: Path, **changed: str) -> Path:
    for name, text in (FILES | changed).items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()))
    return root


def edges(graph: Any) -> set[tuple[int, int]]:
    """All edges by global ids: authors are 0 to 2, papers 3 to 6."""
    graph = oc.NeighborLoader(
        graph, [-1], batch_size=16, input_nodes=("paper", np.arange(4)), memory="16MiB"
    )
    batch, first = next(iter(graph)), {"author": 0, "paper": 3}
    return {
        (
            first[source] + int(batch[source].n_id[start]),
            first[target] + int(batch[target].n_id[end]),
        )
        for source, relation, target in batch.edge_types
        for start, end in batch[source, relation, target].edge_index.T.tolist()
    }


def test_every_value_arrives(tmp_path: Path, outcome: Run) -> None:
    root = write(tmp_path / "mag")
    code, _, told = outcome("import", root, "--out", tmp_path / "graph", "--json")
    assert code == 0, told
    graph = oc.open(tmp_path / "graph")
    assert graph.node_types == {"author": 3, "paper": 4}
    expected = np.array([[0.5, -1.25], [1e-3, 2], [3, 4], [5, 6.7]], np.float32)
    assert np.array_equal(graph.array("nodes/paper/x"), expected)
    assert graph.array("nodes/paper/year").tolist() == [2015, 2018, 2019, 2010]
    assert graph.array("nodes/paper/y").tolist() == [2, 0, 1, 2]
    np.testing.assert_allclose(graph.array(WRITES), [[0.1, 1], [0.2, 2], [0.3, 3]])
    assert {name: graph.split(name).tolist() for name in ("train", "valid", "test")} == {
        "train": [0, 3],
        "valid": [1],
        "test": [2],
    }
    assert edges(graph) == {(0, 4), (2, 6), (1, 4), (6, 3), (3, 6)}


def test_reverse_edges_come_with_it(tmp_path: Path, outcome: Run) -> None:
    root = write(tmp_path / "mag")
    code, _, told = outcome("import", root, "--add-reverse", "--out", tmp_path / "graph")
    assert code == 0, told
    graph = oc.open(tmp_path / "graph")
    assert [relation for _, relation, _ in graph.edge_types] == [
        "writes",
        "cites",
        "rev_cites",
        "rev_writes",
    ]
    assert graph.num_edges == 10
    reverse = "edges/paper__rev_writes__author/attr"
    assert graph.array(reverse).tolist() == graph.array(WRITES).tolist()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("raw/num-node-dict.csv.gz", "author,paper\n3,4\n3,4\n", "sets of many graphs are not"),
        ("raw/num-node-dict.csv.gz", "author,author\n3,4\n", "a node type is there twice"),
        ("raw/num-node-dict.csv.gz", "author,venue\n3,4\n", "there is no node type `paper`"),
        ("raw/triplet-type-list.csv.gz", "paper,paper\n", "expected lines of source, relation"),
        ("raw/triplet-type-list.csv.gz", "paper,is,paper\n", "paper___is___paper/edge.csv.gz` is"),
        (
            "raw/relations/paper___cites___paper/edge.csv.gz",
            "0,1\n0,4\n",
            "target 4 is no node of type `paper`",
        ),
        ("raw/relations/paper___cites___paper/edge.csv.gz", "0\n1\n", "1 columns, expected"),
        ("raw/node-feat/paper/node-feat.csv.gz", "1,2\n", "1 row"),
        ("raw/node-feat/paper/node_year.csv.gz", "1\n2\n3\n4\n5\n", "5 rows"),
        (
            "raw/node-label/author/node-label.csv.gz",
            "1\n2\n3\n",
            "labels and splits of author, paper",
        ),
        ("raw/relations/author___writes___paper/edge-feat.csv.gz", "1\n", "1 row"),
        ("split/time/paper/train.csv.gz", "0\n4\n", "node 4, the graph has nodes 0 to 3"),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, outcome: Run, name: str, text: str, expected: str
) -> None:
    root = write(tmp_path / "mag", **{name: text})
    code, _, told = outcome("import", root, "--out", tmp_path / "graph")
    assert code == 1
    assert expected in told


def test_labels_and_splits_that_are_given_replace_its_own(tmp_path: Path, outcome: Run) -> None:
    year = {"raw/node-feat/paper/node_year.csv.gz": "2015\nNA\n2019\n2010\n"}
    root = write(tmp_path / "mag", **year)
    np.save(tmp_path / "y.npy", [0, 1, 2, 3])
    np.save(tmp_path / "train.npy", [3, 1])
    how = ("--label", f"paper={tmp_path}/y.npy", "--split", f"train={tmp_path}/train.npy")
    out = ("--fill", "7", "--out", tmp_path / "graph")
    code, _, told = outcome("import", root, *how, *out)
    assert code == 0, told
    graph = oc.open(tmp_path / "graph")
    assert graph.array("nodes/paper/y").tolist() == [0, 1, 2, 3]
    assert graph.array("nodes/paper/year").tolist() == [2015, 7, 2019, 2010]
    assert graph.splits == ["train"]
    assert graph.split("train").tolist() == [3, 1]


def test_options_of_other_formats_are_refused(tmp_path: Path, outcome: Run) -> None:
    root = write(tmp_path / "mag")
    for option in (["--undirected"], ["--features", "x.npy"], ["--format", "text"]):
        code, _, told = outcome("import", root, *option, "--out", tmp_path / "graph")
        assert code == 1
        assert option[0] in told
    code, _, told = outcome("import", root, "--ogb-split", "random", "--out", tmp_path / "graph")
    assert code == 1
    assert "no `random`; there is time" in told
