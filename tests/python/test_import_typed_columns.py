"""No column of a typed import is dropped or changed without a word."""

from __future__ import annotations

import gzip
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from typed_files import edges_by_type, write_table

Run = Any
LARGE = 2**53 + 1
"""The first whole number that a float64 does not hold."""
DAY = 86_400 * 10**6
NODES = ":ID,ids:long[],flags:boolean[],stars:float[],:LABEL\n"
ROWS = f"a,{LARGE};-1,true;false,,P\nb,1;2,False;1, 0.5;1.25,P\n"
EDGES = ":START_ID,:END_ID,:TYPE\na,b,E\n"


def export(folder: Path, **files: str) -> Path:
    """A folder for Neo4j."""
    folder.mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / f"{name}.csv").write_text(text)
    return folder


def tables(folder: Path, description: str, **columns: dict[str, list[Any]]) -> Path:
    """A folder of Parquet files with its description."""
    folder.mkdir(exist_ok=True)
    (folder / "tables.yaml").write_text(description)
    for name, table in columns.items():
        write_table(folder / f"{name}.parquet", table)
    return folder


def imported(outcome: Run, *how: object) -> tuple[oc.Graph, str]:
    code, _, told = outcome("import", *how, "--out", "graph", "--overwrite")
    assert code == 0, told
    return oc.open("graph"), told


def refused(outcome: Run, *how: object) -> str:
    code, _, told = outcome("import", *how, "--out", "graph", "--overwrite")
    assert code == 1, told
    return told


def values(graph: oc.Graph, key: str) -> list[Any]:
    return np.asarray(graph.array(key)).tolist()


def test_lists_in_text_arrive_in_their_type(tmp_path: Path, outcome: Run) -> None:
    export(tmp_path / "lists", nodes=NODES + ROWS, edges=EDGES)
    told = refused(outcome, "lists")
    assert "rows without a value: `stars` (1)" in told
    graph, _ = imported(outcome, "lists", "--fill", "0")
    assert values(graph, "nodes/P/ids") == [[LARGE, -1], [1, 2]]
    assert values(graph, "nodes/P/flags") == [[True, False], [False, True]]
    assert values(graph, "nodes/P/stars") == [[0, 0], [0.5, 1.25]]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("1;2", "1.5;2", ["column `ids`: rows 0 to 1", "1.5"]),
        ("1;2", "1;2;3", ["column `ids`: row 1: expected 2 values, found 3"]),
        ("1;2", "1;", ["column `ids`: rows 0 to 1"]),
        ("False;1", "no;1", ["column `flags`", "no"]),
    ],
)
def test_a_list_that_does_not_fit_is_named(
    tmp_path: Path, outcome: Run, old: str, new: str, expected: list[str]
) -> None:
    export(tmp_path / "lists", nodes=NODES + ROWS.replace(old, new), edges=EDGES)
    told = refused(outcome, "lists", "--fill", "0")
    for part in expected:
        assert part in told


def test_numbers_that_a_float_does_not_hold_are_edge_arrays(tmp_path: Path, outcome: Run) -> None:
    edges = f":START_ID,:END_ID,:TYPE,stamp:long\na,b,E,{LARGE}\nb,a,F,{LARGE + 2}\n"
    export(tmp_path / "large", nodes=":ID,:LABEL\na,P\nb,P\n", edges=edges)
    graph, _ = imported(outcome, "large")
    assert values(graph, "edges/P__E__P/stamp") == [LARGE]
    assert values(graph, "edges/P__F__P/stamp") == [LARGE + 2]


def test_rows_by_label_are_found_in_every_block_of_a_file(tmp_path: Path, outcome: Run) -> None:
    count = 40_000
    labels = np.random.default_rng(1).choice(["A", "B", "C"], count)
    name = "x" * 40
    nodes = "".join(f"{row},{name},{row},{label}\n" for row, label in enumerate(labels))
    export(
        tmp_path / "many",
        nodes=":ID,name,n:int,:LABEL\n" + nodes,
        edges=EDGES.replace("a,b", "0,1"),
    )
    graph, _ = imported(outcome, "many", "--label", "A.name")
    for label in "ABC":
        own = np.flatnonzero(labels == label)
        np.testing.assert_array_equal(graph.array(f"nodes/{label}/x")[:, 0], own)
    assert graph.node_types == {one: int((labels == one).sum()) for one in "ABC"}


def test_a_property_that_one_file_lacks_is_left_out_with_a_note(
    tmp_path: Path, outcome: Run
) -> None:
    more = ":ID,age:int,born:date,:LABEL\nc,3,2001-01-01,P\n"
    export(tmp_path / "two", one=":ID,age:int,:LABEL\na,1,P\nb,2,P\n", two=more, edges=EDGES)
    graph, told = imported(outcome, "two")
    assert "properties of `P` that some of its files lack are left out: `born`" in told
    assert values(graph, "nodes/P/x") == [[1], [2], [3]]


def test_a_file_of_an_export_that_cannot_be_read_stops_the_import(
    tmp_path: Path, outcome: Run
) -> None:
    folder = export(tmp_path / "broken", nodes=":ID,:LABEL\na,P\nb,P\n", edges=EDGES + "a,b\n")
    (folder / "notes.txt").write_text("one, two\nthree\n")
    told = refused(outcome, "broken")
    assert "edges.csv" in told
    assert "line 3" in told
    (folder / "edges.csv").unlink()
    packed = gzip.compress((EDGES + "a,b,E\n" * 10_000).encode(), mtime=0)
    (folder / "edges.csv.gz").write_bytes(packed[:12])
    assert "edges.csv.gz" in refused(outcome, "broken")
    (folder / "edges.csv.gz").write_bytes(packed)
    graph, told = imported(outcome, "broken")
    assert graph.num_edges == 10_001
    assert "not read: `notes.txt`" in told


PEOPLE = """
tables:
  person: {primary_key: id, time: born}
  knows:
    foreign_keys: {who: person, whom: person}
    time: created
"""
PERSON = {"id": [1, 2], "born": [date(2001, 1, 1), date(2002, 1, 1)]}
KNOWS = {
    "who": [1, 2],
    "whom": [2, 1],
    "created": [date(2020, 1, 1), date(2020, 1, 2)],
}


def test_a_column_called_time_does_not_replace_the_chosen_time(
    tmp_path: Path, outcome: Run
) -> None:
    other = [date(1999, 1, 1), date(1999, 1, 2)]
    tables(tmp_path / "people", PEOPLE, person=PERSON | {"time": other}, knows=KNOWS)
    graph, told = imported(outcome, "people")
    born = [(day - date(1970, 1, 1)).days * DAY for day in PERSON["born"]]
    created = [(day - date(1970, 1, 1)).days * DAY for day in KNOWS["created"]]
    assert values(graph, "nodes/person/time") == born
    assert "column `time` of `person` is left out: `born` is its time" in told
    tables(tmp_path / "people", PEOPLE, person=PERSON, knows=KNOWS | {"time": other})
    graph, told = imported(outcome, "people")
    assert values(graph, "edges/person__knows__person/time") == created
    assert "columns of person,knows,person are left out: `time`" in told


def test_dates_with_gaps_are_left_out_with_a_note(tmp_path: Path, outcome: Run) -> None:
    gaps = {"seen": [date(2001, 1, 1), None]}
    tables(tmp_path / "people", PEOPLE, person=PERSON | gaps, knows=KNOWS | gaps)
    graph, told = imported(outcome, "people")
    assert "times of `person` with missing values are left out: `seen`" in told
    assert "columns of person,knows,person are left out: `seen`" in told
    assert not [key for key in graph.arrays if key.endswith("/seen")]
    missing = {"born": [date(2001, 1, 1), None]}
    tables(tmp_path / "people", PEOPLE, person=PERSON | missing)
    assert "column `born`: row 1 has no value" in refused(outcome, "people")


def test_missing_values_of_edges_are_filled(tmp_path: Path, outcome: Run) -> None:
    tables(tmp_path / "people", PEOPLE, person=PERSON, knows=KNOWS | {"stars": [None, 4]})
    assert "NaN" in refused(outcome, "people")
    graph, _ = imported(outcome, "people", "--fill", "0.5", "--add-reverse")
    assert values(graph, "edges/person__knows__person/stars") == [0.5, 4]
    assert values(graph, "edges/person__rev_knows__person/stars") == [0.5, 4]


def test_dates_beside_whole_numbers_of_one_name_are_refused(tmp_path: Path, outcome: Run) -> None:
    person = PERSON | {"at": [date(2001, 1, 1), date(2002, 1, 1)]}
    tables(tmp_path / "people", PEOPLE, person=person, knows=KNOWS | {"at": [1, 2]})
    told = refused(outcome, "people")
    assert "`at` of person__knows__person of the same name holds other numbers" in told
    export(
        tmp_path / "export",
        nodes=":ID,at:date,:LABEL\na,2001-01-01,P\nb,2001-01-01,P\n",
        edges=":START_ID,:END_ID,:TYPE,at:int\na,b,E,1\n",
    )
    told = refused(outcome, "export")
    assert "`at` of P__E__P of the same name holds other numbers" in told


@pytest.mark.parametrize("key", ["", ":id"])
def test_edges_may_be_an_array(tmp_path: Path, outcome: Run, key: str) -> None:
    write_table(tmp_path / "papers.csv", {"id": [2, 0, 1], "x": [5, 6, 7]})
    ends = np.array([[0, 1, 2, 2], [1, 1, 0, 1]])
    np.save(tmp_path / "cites.npy", ends.T)
    np.savez(tmp_path / "cites.npz", ends)
    nodes = f"paper=papers.csv{key}" if key else "paper=3"
    rows = {2: 0, 0: 1, 1: 2} if key else {one: one for one in range(3)}
    how = ("--nodes", nodes, "--edges")
    graph, _ = imported(outcome, *how, "paper,cites,paper=cites.npy")
    expected = [(row, rows[come], rows[to]) for row, (come, to) in enumerate(ends.T.tolist())]
    assert edges_by_type(graph) == {"paper__cites__paper": expected}
    told = refused(outcome, *how, "paper,cites,paper=cites.npz")
    assert "expected edges in text, Parquet or `.npy`" in told
    np.save(tmp_path / "cites.npy", ends[:, :2])
    told = refused(outcome, *how, "paper,cites,paper=cites.npy")
    assert "shape (2, 2) may be [2, edges] or [edges, 2]" in told
