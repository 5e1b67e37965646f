"""`outercore add`: arrays for a data set that is there, read as an import reads them."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore import _core
from suggested import without_result


@pytest.fixture
def plain(outcome: Any) -> Path:
    Path("edges.csv").write_text("src,dst\n0,1\n1,2\n2,0\n0,2\n")
    assert outcome("import", "edges.csv", "--out", "plain")[0] == 0
    return Path("plain")


@pytest.fixture
def named(outcome: Any) -> Path:
    Path("follows.csv").write_text("src,dst\nann,bob\nbob,carol\n")
    assert outcome("import", "follows.csv", "--ids", "dictionary", "--out", "named")[0] == 0
    return Path("named")


def files_of(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}


def test_what_is_added_is_what_an_import_would_have_made(plain: Path, outcome: Any) -> None:
    np.save("x.npy", np.arange(6, dtype=np.float32).reshape(3, 2))
    np.savez("splits.npz", train=[0, 2], test=[1])
    np.save("w.npy", np.arange(4) / 2)
    Path("nodes.csv").write_text("id,class,year\n2,1,1999\n0,0,2000\n1,-1,2001\n")
    arrays = (
        *("--features", "x.npy", "--labels", "nodes.csv:class", "--split", "splits.npz"),
        *("--array", "year=nodes.csv:year"),
    )
    code, _, told = outcome("add", plain, *arrays, "--edge-array", "weight=w.npy")
    assert code == 0, told
    whole = ("import", "edges.csv", *arrays, "--weight", "w.npy", "--out", "whole")
    assert outcome(*whole)[0] == 0
    added, imported = oc.open(plain), oc.open("whole")
    assert added.manifest["roles"] == imported.manifest["roles"]
    assert {key: one["checksum"] for key, one in added.arrays.items()} == {
        key: one["checksum"] for key, one in imported.arrays.items()
    }
    assert _core.check(plain, lambda *_: None)["problems"] == []
    batch = next(iter(oc.NeighborLoader(added, [2], "train", batch_size=2)))
    assert batch.year.tolist()[:2] == [2000, 1999]


def test_labels_and_features_that_are_replaced_come_as_the_new_ones_were(
    plain: Path, outcome: Any
) -> None:
    labels = (np.array([[0], [1], [2]]), np.array([2, 1, 0]), np.array([[0.5], [1], [2]], "f4"))
    features = (np.array([3, 4, 5], np.int8), np.ones((3, 2), "f4"), np.array([[7], [8], [9]]))
    for y, x in zip(labels, features, strict=True):
        np.save("y.npy", y)
        np.save("x.npy", x)
        told = outcome("add", plain, "--labels", "y.npy", "--features", "x.npy", "--overwrite")
        assert told[0] == 0, told
        batch = next(iter(oc.NeighborLoader(plain, [1], batch_size=3)))
        for found, given in ((batch.y.numpy(), y), (batch.x.numpy(), x)):
            assert found.dtype == given.dtype
            np.testing.assert_array_equal(found, given[batch.n_id.numpy()])


def test_what_is_added_is_shown_in_words(plain: Path, outcome: Any) -> None:
    np.save("other.npy", np.zeros(oc.open(plain).num_nodes, np.int64))
    code, out, err = outcome("add", plain, "--array", "my_other=other.npy", "--labels", "other.npy")
    assert code == 0, err
    assert "nodes/node/y: task guessed  yes" in out
    assert "nodes/node/my_other: rows" in out


def test_nothing_is_added_where_one_array_is_wrong(plain: Path, outcome: Any) -> None:
    before, manifest = files_of(plain), (plain / "graph.json").read_bytes()
    np.save("x.npy", np.zeros((3, 2), np.float32))
    np.save("short.npy", np.zeros(2))
    code, _, told = outcome("add", plain, "--features", "x.npy", "--array", "a=short.npy")
    assert code == 1
    assert "2 rows, but the graph has 3 nodes" in told
    assert files_of(plain) == before
    assert (plain / "graph.json").read_bytes() == manifest


def test_an_array_of_the_same_name_is_replaced_only_by_overwrite(plain: Path, outcome: Any) -> None:
    np.save("one.npy", np.ones(3))
    np.save("two.npy", np.full(3, 2.0))
    assert outcome("add", plain, "--array", "a=one.npy")[0] == 0
    code, _, told = outcome("add", plain, "--array", "a=two.npy")
    assert code == 1
    assert "`nodes/node/a` is in the data set already" in told
    assert "--overwrite" in told
    assert outcome("add", plain, "--array", "a=two.npy", "--overwrite")[0] == 0
    # The array that was replaced takes no room.
    assert len(list((plain / "nodes/node").glob("a*.npy"))) == 1
    assert oc.open(plain).array("a").tolist() == [2, 2, 2]


def test_nodes_with_names_are_joined_by_them(named: Path, outcome: Any) -> None:
    Path("users.csv").write_text("id,class,age\ncarol,1,30\nann,0,40\nbob,,60\n")
    Path("train.csv").write_text("name\ncarol\nann\n")
    code, _, told = outcome(
        *("add", named, "--labels", "users.csv:class", "--array", "age=users.csv:age"),
        *("--split", "train=train.csv"),
    )
    assert code == 0, told
    graph = oc.open(named)
    names = graph.entity_names()
    assert dict(zip(names, graph.array("y").tolist(), strict=True)) == {
        **{"ann": 0, "bob": -1, "carol": 1}
    }
    ages = graph.rows("age", graph.entities.ids(["carol", "ann"]))
    assert ages.tolist() == [30, 40]
    assert graph.entity_names(graph.split("train")) == ["carol", "ann"]


def test_rows_are_not_joined_by_damaged_names(named: Path, outcome: Any) -> None:
    graph = oc.open(named)
    Path("ages.csv").write_text("id,age\nann,1\nbob,2\ncarol,3\n")
    for part in ("offsets", "bytes"):
        key = f"names/entity.{part}"
        file = named / graph.arrays[key]["file"]
        whole = file.read_bytes()
        file.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
        code, _, told = outcome("add", named, "--array", "age=ages.csv")
        assert code == 1
        assert f"array `{key}`: checksum" in told
        assert "hint: " in told
        file.write_bytes(whole)


def test_python_takes_names_of_nodes(named: Path) -> None:
    graph = oc.open(named)
    ann, carol = graph.entity_id("ann"), graph.entity_id("carol")
    for given, ids in [("ann", ann), (["carol", "ann"], [carol, ann]), (np.array(["ann"]), ann)]:
        np.testing.assert_array_equal(oc.bfs(graph, given), oc.bfs(graph, ids))
    np.testing.assert_array_equal(
        oc.pagerank(graph, personalization={"ann": 1.0}),
        oc.pagerank(graph, personalization={ann: 1.0}),
    )
    batch = next(iter(oc.NeighborLoader(graph, [2], ["carol", "ann"], batch_size=2)))
    assert batch.n_id[:2].tolist() == [carol, ann]
    with pytest.raises(oc.NotFoundError, match=r"`anna` is not in .*\nhint: did you mean `ann`"):
        oc.bfs(graph, "anna")


def test_a_name_that_is_not_there_is_refused_with_its_row(named: Path, outcome: Any) -> None:
    Path("users.csv").write_text("id,age\nann,40\ndan,1\nbob,3\n")
    code, _, told = outcome("add", named, "--array", "age=users.csv:age")
    assert code == 1
    assert "`users.csv`: row 1: column `id` names node `dan`, which is not in the data set" in told
    Path("ages.csv").write_text("age\n1\n2\n3\n")
    code, _, told = outcome("add", named, "--array", "age=ages.csv")
    assert code == 1
    assert "no column of ids, and the nodes have names" in told


def test_arrays_of_typed_graphs_name_their_type(outcome: Any) -> None:
    Path("writes.csv").write_text("author,paper\n0,1\n1,0\n1,2\n")
    nodes = ("--nodes", "author=2", "--nodes", "paper=3")
    edges = ("--edges", "author,writes,paper=writes.csv")
    assert outcome("import", *nodes, *edges, "--out", "typed")[0] == 0
    root = Path("typed")
    np.save("y.npy", np.arange(3) % 2)
    np.save("age.npy", np.arange(2))
    np.save("train.npy", np.array([0]))
    np.save("w.npy", np.arange(3) / 4)
    code, _, told = outcome(
        *("add", root, "--labels", "paper=y.npy", "--split", "train=train.npy"),
        *("--array", "author/age=age.npy", "--edge-array", "author__writes__paper/w=w.npy"),
    )
    assert code == 0, told
    graph = oc.open(root)
    assert graph.labelled_type == "paper"
    assert graph.array("nodes/author/age").tolist() == [0, 1]
    assert graph.array("edges/author__writes__paper/w").tolist() == [0, 0.25, 0.5]
    code, _, told = outcome("add", root, "--array", "age=age.npy", "--overwrite")
    assert code == 1
    assert "expected TYPE/NAME=FILE" in told


def test_refusals_say_what_to_give(plain: Path, outcome: Any) -> None:
    np.save("a.npy", np.zeros(3))
    for arguments, said in (
        ((), "nothing to add: expected `--features`"),
        (("--array", "a.npy"), "--array: expected NAME=FILE, found `a.npy`"),
        (("--array", "n_id=a.npy"), "a batch has something else under the name `n_id`"),
        (("--edge-array", "offsets=a.npy"), "`edges/edge/offsets` is the topology"),
        (("--edge-array", "w=a.npy"), "3 rows, but the edge lists have 4 edges"),
    ):
        code, _, told = outcome("add", plain, *arguments)
        assert code == 1, arguments
        assert said in told


def test_a_mask_by_rows_says_nothing_of_nodes_with_names(named: Path, outcome: Any) -> None:
    Path("mask.csv").write_text("train\nTrue\nFalse\nTrue\n")
    code, _, told = outcome("add", named, "--split", "train=mask.csv")
    assert code == 1
    assert "hint: add a column `id` with the names" in told


def test_texts_that_are_added_are_told(named: Path, outcome: Any) -> None:
    Path("titles.csv").write_text("id,title\nann,First\n")
    code, out, told = outcome("add", named, "--text", "title=titles.csv:title")
    assert code == 0, told
    assert re.search(rf"texts/node.title: rows +{oc.open(named).num_nodes}\n", out)
    assert "ids from" not in told


def test_hints_of_add_name_only_what_add_takes(named: Path, outcome: Any) -> None:
    Path("titles.csv").write_text("id,title\nann,First\n")
    code, _, told = outcome("add", named, "--features", "titles.csv:title")
    assert code == 1
    assert "`--text NAME=FILE`" in told
    assert "--ids" not in told
    code, _, told = outcome("add", named)
    assert code == 1
    assert "`--text`" in told


@pytest.mark.parametrize("options", [("--labels",), ("--features",), ("--array", "a=")])
def test_rows_of_some_nodes_are_joined_by_a_column_of_any_name(
    options: tuple[str, ...], plain: Path, outcome: Any
) -> None:
    Path("y.csv").write_text("user,y\n2,7\n0,5\n")
    option, *name = options
    given = (option, f"{''.join(name)}y.csv:y")
    code, _, told = outcome("add", plain, *given)
    assert code == 1
    assert "2 rows, but the graph has 3 nodes; column `user` may say which" in told
    assert "--key user" in told
    assert not without_result(told, outcome)
