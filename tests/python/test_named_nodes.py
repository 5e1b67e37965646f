"""`--nodes FILE:KEY` for one node type: a column of any name has the keys by which files join."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import outercore as oc

Run = Callable[..., tuple[int, str, str]]
USERS = {"user": ["u9", "u2", "u5", "u7"], "age": [30, 41, 52, 63], "mature": ["yes", "no"] * 2}
EDGES = {"follower": ["u2", "u5", "u2"], "followed": ["u9", "u2", "u5"]}


def write(path: Path, columns: dict[str, list[object]], form: str = ".csv") -> Path:
    """A table, as text or Parquet."""
    path = path.with_suffix(form)
    frame = pd.DataFrame(columns)
    if form == ".parquet":
        frame.to_parquet(path)
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.mark.parametrize("form", [".csv", ".parquet"])
@pytest.mark.parametrize("key", ["user", "Kunde", "primary key", "x"])
def test_every_table_is_joined_by_the_column_that_names_the_nodes(
    key: str, form: str, tmp_path: Path, outcome: Run
) -> None:
    users = write(tmp_path / "users", {key: USERS["user"], "age": USERS["age"]}, form)
    labels = write(tmp_path / "labels", {"grade": [1, 0], key: ["u5", "u9"]}, form)
    train = write(tmp_path / "train", {key: ["u7", "u2"]}, form)
    valid = write(tmp_path / "valid", {key: ["u5", "u9"], "valid": [True, False]}, form)
    edges = write(tmp_path / "edges", EDGES, form)
    options = ["--nodes", f"{users}:{key}", "--features", users, "--labels", labels]
    options += ["--split", f"train={train}", "--split", f"valid={valid}"]
    options += ["--array", f"age={users}:age"]
    code, _, err = outcome("import", edges, *options, "--out", tmp_path / "graph")
    assert code == 0, err
    graph = oc.open(tmp_path / "graph")
    names = graph.entity_names()
    # A node without an edge is one, too.
    assert sorted(names) == ["u2", "u5", "u7", "u9"]
    ages = dict(zip(USERS["user"], USERS["age"], strict=True))
    assert graph.array("age").tolist() == [ages[name] for name in names]
    assert graph.array("x")[:, 0].tolist() == [ages[name] for name in names]
    grades = {"u5": 1, "u9": 0}
    assert graph.array("y").tolist() == [grades.get(name, -1) for name in names]
    assert [names[node] for node in graph.split("train")] == ["u7", "u2"]
    assert [names[node] for node in graph.split("valid")] == ["u5"]


def test_columns_that_nothing_takes_are_named(tmp_path: Path, outcome: Run) -> None:
    users, edges = write(tmp_path / "users", USERS), write(tmp_path / "edges", EDGES)
    options = ["--nodes", f"{users}:user", "--labels", f"{users}:mature"]
    code, _, err = outcome("import", edges, *options, "--out", tmp_path / "graph")
    assert code == 0, err
    assert "nodes by column `user`; not taken: `age`" in " ".join(err.split())
    graph = oc.open(tmp_path / "graph")
    assert graph.num_classes == 2


@pytest.mark.parametrize("edges", ["text", "array"])
def test_whole_numbers_may_be_keys(edges: str, tmp_path: Path, outcome: Run) -> None:
    users = write(tmp_path / "users", {"user": [9001, 7, 12], "age": [1, 2, 3]})
    pairs = np.array([[9001, 7], [7, 12]])
    file = tmp_path / "edges.npy"
    np.save(file, pairs.T[:, [0, 1, 1]])
    if edges == "text":
        file = write(tmp_path / "edges", {"a": [9001, 7], "b": [7, 12]})
    options = ["--nodes", f"{users}:user", "--array", f"age={users}:age"]
    code, _, err = outcome("import", file, *options, "--out", tmp_path / "graph")
    assert code == 0, err
    graph = oc.open(tmp_path / "graph")
    assert graph.entity_names() == ["7", "12", "9001"]
    assert graph.array("age").tolist() == [2, 3, 1]


@pytest.mark.parametrize(
    ("users", "edges", "said"),
    [
        (["u2", "u9"], EDGES, "row 1: column `follower` names node `u5`, and"),
        (["u2", "u9", "u5", "u2"], EDGES, "key `u2` stands in rows 0 and 3, expected once"),
        (["u2", "u9", None, "u5"], EDGES, "is empty, expected a name"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(
    users: list[object], edges: dict[str, list[object]], said: str, tmp_path: Path, outcome: Run
) -> None:
    table, file = write(tmp_path / "users", {"user": users, "n": [0] * len(users)}), tmp_path / "e"
    file = write(file, edges)
    code, _, err = outcome("import", file, "--nodes", f"{table}:user", "--out", tmp_path / "graph")
    assert code == 1
    assert said in " ".join(err.split())
    assert not (tmp_path / "graph").exists()


def test_a_table_without_a_column_called_like_ids_asks_for_it(tmp_path: Path, outcome: Run) -> None:
    users, edges = write(tmp_path / "users", USERS), write(tmp_path / "edges", EDGES)
    code, _, err = outcome("import", edges, "--nodes", users, "--out", tmp_path / "graph")
    assert code == 1
    said = " ".join(err.split())
    command = said.rpartition("`outercore ")[2].partition("`")[0]
    assert f"--nodes {users}:user" in command
    code, _, err = outcome(*command.split())
    assert code == 0, err


TYPED = ["--edges", "user,follows,user=edges.csv", "--nodes", "user=users.csv:user"]


def test_a_split_of_several_types_takes_a_mask_beside_the_keys(
    tmp_path: Path, outcome: Run
) -> None:
    write(tmp_path / "users", USERS)
    write(tmp_path / "edges", EDGES)
    write(tmp_path / "train", {"user": ["u5", "u9", "u7"], "train": [True, False, True]})
    options = ["--label", "user.mature", "--split", "train=train.csv", "--out", "graph"]
    code, _, err = outcome("import", *TYPED, *options)
    assert code == 0, err
    assert oc.open(tmp_path / "graph").split("train").tolist() == [2, 3]


@pytest.mark.parametrize("option", ["--label", "--features"])
@pytest.mark.parametrize("key", ["user", "id"])
def test_a_keyed_table_of_several_types_is_joined_by_the_command_of_the_refusal(
    option: str, key: str, tmp_path: Path, outcome: Run
) -> None:
    write(tmp_path / "users", USERS)
    write(tmp_path / "edges", EDGES)
    write(tmp_path / "more", {key: ["u7", "u5", "u2", "u9"], "value": [1, 0, 2, 1]})
    code, _, err = outcome("import", *TYPED, option, "user=more.csv", "--out", "graph")
    assert code == 1
    said = " ".join(err.split())
    assert f"column `{key}` holds keys, expected rows in the order of the nodes" in said
    assert ("call column `user` `id`, import without" in said) == (key == "user")
    command = said.rpartition("`outercore ")[2].partition("`")[0].replace("DATASET", "graph")
    write(tmp_path / "more", {"id": ["u7", "u5", "u2", "u9"], "value": [1, 0, 2, 1]})
    assert outcome("import", *TYPED, "--out", "graph")[0] == 0
    code, _, err = outcome(*command.split())
    if option == "--features":
        # The table of users has features.
        assert "--overwrite" in err
        code, _, err = outcome(*command.split(), "--overwrite")
    assert code == 0, err
    name = "user/x" if option == "--features" else "user/y"
    array = oc.open(tmp_path / "graph").array(name)
    assert array.ravel().tolist() == [1, 2, 0, 1]
