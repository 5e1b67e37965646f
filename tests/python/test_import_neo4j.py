"""A folder of CSV files for Neo4j's import: every value arrives, what does not fit is named."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from suggested import commands_in, without_result
from typed_files import edges_by_type

Run = Any

# The example of Neo4j's manual, with further properties; one space of keys for all nodes.
MOVIES = {
    "movies.csv": (
        "movieId:ID,title,year:int,stars:float[],:LABEL,code:IGNORE\n"
        'tt0133093,"The Matrix",1999,0.5;1.25,Movie,7\n'
        'tt0234215,"The Matrix Reloaded",2003,-3;4e2,Movie;Sequel,8\n'
        'tt0242653,"The #3",2003,0;1,Movie;Sequel,9\n'
    ),
    "people.csv": (
        "personId:ID,name,born:date,height:double,:LABEL\n"
        "keanu,Keanu,1964-09-02,1.86,Actor\n"
        "lana,Lana,1965-06-21,1.8,Director\n"
        "#carrie,Carrie-Anne,1967-08-21,1.75,Actor\n"
    ),
    "roles.csv": (
        ":START_ID,role,:END_ID,:TYPE,minutes:int,since:datetime\n"
        "keanu,Neo,tt0133093,ACTED_IN,90,1999-03-31T00:00:00Z\n"
        "lana,,tt0133093,DIRECTED,0,1999-03-31T01:00:00Z\n"
        "#carrie,Trinity,tt0242653,ACTED_IN,40,2003-11-05T00:00:00+01:00\n"
        "keanu,,lana,KNOWS,1,1998-01-01T00:00:00Z\n"
        "tt0234215,,tt0133093,ACTED_IN,2,2003-05-15T00:00:00Z\n"
    ),
    "notes.md": "not a table",
}
DAY = 86_400 * 10**6


def write(folder: Path, files: dict[str, str]) -> Path:
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        data = text.encode()
        (folder / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return folder


def values(graph: oc.Graph, key: str) -> list[Any]:
    return np.asarray(graph.array(key)).tolist()


def test_the_example_of_the_manual_arrives(tmp_path: Path, outcome: Run) -> None:
    write(tmp_path / "movies", MOVIES)
    how = ("--label", "Movie.title", "--out", "graph")
    code, _, told = outcome("import", "movies", *how)
    assert code == 0, told
    assert "not read: `notes.md`" in told
    graph = oc.open("graph")
    assert graph.node_types == {"Actor": 2, "Director": 1, "Movie": 3}
    assert edges_by_type(graph) == {
        "Actor__ACTED_IN__Movie": [(0, 0, 0), (1, 1, 2)],
        "Actor__KNOWS__Director": [(0, 0, 0)],
        "Director__DIRECTED__Movie": [(0, 0, 0)],
        "Movie__ACTED_IN__Movie": [(0, 1, 0)],
    }
    assert values(graph, "nodes/Movie/x") == [[0.5, 1.25], [-3, 400], [0, 1]]
    assert values(graph, "nodes/Movie/year") == [1999, 2003, 2003]
    assert values(graph, "nodes/Movie/y") == [1, 2, 0]
    height = np.float32([[1.86], [1.75]]).tolist()
    assert values(graph, "nodes/Actor/x") == height
    born = np.array(["1964-09-02", "1967-08-21"], "datetime64[us]").astype(np.int64)
    assert values(graph, "nodes/Actor/born") == born.tolist()
    assert values(graph, "edges/Actor__ACTED_IN__Movie/minutes") == [90, 40]
    since = np.array(["1999-03-31", "2003-11-04T23:00"], "datetime64[us]").astype(np.int64)
    assert values(graph, "edges/Actor__ACTED_IN__Movie/since") == since.tolist()
    assert values(graph, "edges/Movie__ACTED_IN__Movie/minutes") == [2]
    assert outcome("check", "graph")[0] == 0


def test_spaces_headers_in_files_of_their_own_and_names_of_files(
    tmp_path: Path, outcome: Run
) -> None:
    files = {
        "Movie-header.csv": "id:ID(Movie),year:long,good:boolean\n",
        "Movie-part2.csv": "2,2003,false\n",
        "Movie-part10.csv.gz": "3,2004,true\n",
        "Movie-part1.csv": "1,1999,true\n",
        "Person.csv": "id:ID(Person)|name:string|zip\n2|Keanu|1\n1|Lana|2\n",
        "RATED_header.csv": ":START_ID(Person),:END_ID(Movie),stars:byte\n",
        "RATED.csv": "1,1,5\n2,3,4\n1,2,3\n",
    }
    write(tmp_path / "export", files)
    code, _, told = outcome("import", "export", "--add-reverse", "--out", "graph")
    assert code == 0, told
    graph = oc.open("graph")
    assert graph.node_types == {"Movie": 3, "Person": 2}
    expected = [(0, 1, 0), (1, 0, 2), (2, 1, 1)]
    assert edges_by_type(graph) == {
        "Movie__rev_RATED__Person": [(row, to, come) for row, come, to in expected],
        "Person__RATED__Movie": expected,
    }
    assert values(graph, "nodes/Movie/x") == [[1999, 1], [2003, 0], [2004, 1]]
    assert values(graph, "edges/Person__RATED__Movie/stars") == [5, 4, 3]
    assert graph.features_of("Person") is None


def test_dangling_relationships_are_counted_once(tmp_path: Path, outcome: Run) -> None:
    roles = MOVIES["roles.csv"] + "nobody,,tt0133093,ACTED_IN,3,1999-03-31T00:00:00Z\n"
    write(tmp_path / "movies", MOVIES | {"roles.csv": roles})
    code, _, told = outcome("import", "movies", "--out", "graph")
    assert code == 1
    assert "has the key `nobody`" in told
    code, shown, told = outcome("import", "movies", "--dangling", "drop", "--out", "graph")
    assert code == 0, told
    lines = [line.split() for line in shown.splitlines() if "dangling" in line]
    assert lines == [["dangling", "dropped:", "Actor,ACTED_IN,Movie", "1"]]
    assert values(oc.open("graph"), "edges/Actor__ACTED_IN__Movie/minutes") == [90, 40]


def test_splits_name_keys(tmp_path: Path, outcome: Run) -> None:
    write(tmp_path / "movies", MOVIES)
    Path("train.csv").write_text("id\ntt0242653\ntt0133093\n")
    Path("wrong.csv").write_text("id\nkeanu\n")
    how = ("import", "movies", "--label", "Movie.year", "--out", "graph")
    code, _, told = outcome(*how, "--split", "train=wrong.csv")
    assert code == 1
    assert "no node of type `Movie` has the key `keanu`" in told
    code, _, told = outcome(*how, "--split", "train=train.csv")
    assert code == 0, told
    assert oc.open("graph").split("train").tolist() == [2, 0]


@pytest.mark.parametrize(
    ("file", "old", "new", "expected"),
    [
        ("movies.csv", "year:int", "year:integer", ["movies.csv", "`year:integer`", "known are"]),
        ("movies.csv", "1999", "MCM", ["movies.csv", "line 2", "`year:int`", "MCM"]),
        ("movies.csv", "0.5;1.25", "0.5", ["column `stars`: row 1: expected 1 values, found 2"]),
        ("movies.csv", "-3;4e2", "-3;x", ["`stars`", "x"]),
        ("people.csv", "lana,", "keanu,", ["people.csv", "key `keanu`", "another type"]),
        ("people.csv", "#carrie,", "keanu,", ["people.csv", "key `keanu`", "rows 0 and 1"]),
        ("people.csv", "1964-09-02", "soon", ["`born`", "`soon` is no time"]),
        ("people.csv", "personId:ID", ":ID(Person)", ["`:START_ID`", "key `keanu`"]),
        ("people.csv", "Director", "a/b", ["people.csv", "`a/b` cannot name a type"]),
        ("people.csv", ":LABEL", ":TYPE", ["people.csv", "of nodes and of relationships"]),
        ("roles.csv", ":START_ID", ":START_ID(Who)", ["roles.csv", "`:START_ID`", "this space"]),
        ("roles.csv", "minutes:int", "since", ["roles.csv", "two properties", "`since`"]),
        ("roles.csv", "keanu,Neo", ",Neo", ["roles.csv", "row 0 is empty"]),
    ],
)
def test_what_does_not_fit_is_named(
    tmp_path: Path, outcome: Run, file: str, old: str, new: str, expected: list[str]
) -> None:
    assert old in MOVIES[file]
    changed = MOVIES[file].replace(old, new, 1)
    write(tmp_path / "movies", MOVIES | {file: changed})
    code, _, told = outcome("import", "movies", "--out", "graph")
    assert code == 1, told
    for part in expected:
        assert part in told, told
    assert not Path("graph/graph.json").exists()


def test_a_key_that_is_called_like_its_column_may_be_either(tmp_path: Path, outcome: Run) -> None:
    files = {"user-header.csv": "id:ID\n", "user.csv": "id\nann\n"}
    folder = write(tmp_path / "export", {**files, "likes.csv": ":START_ID,:END_ID\nann,ann\n"})
    code, _, told = outcome("import", folder, "--out", "graph")
    assert code == 1
    assert "user.csv`: the first line, `id`, may name the column, or be a key" in told
    assert len(commands_in(told)) == 2
    assert not without_result(told, outcome)
    for option, keys in (("--header", ["ann"]), ("--no-header", ["id", "ann"])):
        assert outcome("import", folder, option, "--out", "graph", "--overwrite")[0] == 0
        assert oc.open("graph").keys_of("user").names() == keys
    write(folder, {"user.csv": "id\n7\n", "likes.csv": ":START_ID,:END_ID\n7,7\n"})
    assert outcome("import", folder, "--out", "graph", "--overwrite")[0] == 0
