"""Notes on ids that may mean something else have the command that reads them so, and it works."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc

Run = Callable[..., tuple[int, str, str]]
SNAP = "# Nodes: {} Edges: {}\n# FromNodeId\tToNodeId\n"


def noted(err: str) -> tuple[str, list[str]]:
    """What was noted in one line, and the commands in it."""
    said = " ".join(err.split())
    return said, re.findall("`(outercore import [^`]+)`", said)


def write(path: Path, content: str | list[list[int]]) -> None:
    """A text, or an array of edges in the form that the suffix names."""
    if isinstance(content, str):
        path.write_text(content)
    elif path.suffix == ".npy":
        np.save(path, np.array(content))
    else:
        pairs = np.array(content)
        pq.write_table(pa.table({"u": pairs[:, 0], "v": pairs[:, 1]}), path)


CASES = {
    "zeros in an edge list": (
        "e.csv",
        "007,1\n7,2\n0,1\n2,01\n",
        "2 ids have zeros in front",
        ["007", "7"],
    ),
    "zeros among blanks": ("e.txt", "0 1\n1 002\n2 2\n", "1 id has zeros in front", ["002", "2"]),
    "zeros in quotes": ("e.csv", '"0","01"\n"1","0"\n', "1 id has zeros in front", ["01", "1"]),
    "zeros beside a header": ("e.tsv", "src\tdst\n0\t00\n1\t0\n", "1 id has zeros", ["00", "0"]),
    "gaps in a text": ("e.csv", "9001,9002\n9002,9003\n9001,0\n", "9,004 nodes", ["9001"]),
    "gaps in an array": ("e.npy", [[9001, 9002], [9002, 9003], [0, 9001]], "9,004 nodes", ["9003"]),
    "gaps in Parquet": ("e.parquet", [[9001, 2], [2, 9003], [0, 1]], "9,004 nodes", ["9003"]),
    "a SNAP header with fewer nodes": (
        "e.txt",
        SNAP.format(5, 4) + "0\t9\n9\t3\n3\t4\n4\t7\n",
        "speak of 5 nodes and 4 edges, and there are 10 nodes and 4 edges",
        ["9"],
    ),
    "a KONECT header with fewer nodes": (
        "out.e",
        "% asym unweighted\n% 3 4 4\n0 9\n9 3\n3 4\n",
        "speak of 4 nodes and 3 edges, and there are 10 nodes and 3 edges",
        ["9"],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_command_of_a_note_keeps_ids_as_they_are(
    name: str, tmp_path: Path, outcome: Run
) -> None:
    file, content, text, names = CASES[name]
    directory = tmp_path / "it's here"
    directory.mkdir()
    write(directory / file, content)
    code, _, err = outcome("import", directory / file, "--out", directory / "graph")
    assert code == 0, err
    said, commands = noted(err)
    assert text in said
    assert len(commands) == 1, said
    code, _, err = outcome(*shlex.split(commands[0])[1:])
    assert code == 0, err
    known = oc.open(directory / "graph").entity_names()
    assert set(names) <= set(known)
    assert "zeros in front" not in err


@pytest.mark.parametrize(
    ("content", "first", "nodes"),
    [
        ("1,2\n2,3\n3,1\n", 1, 3),
        (SNAP.format(3, 3) + "1\t2\n2\t3\n3\t1\n", 1, 3),
        (SNAP.format(9, 3) + "0\t2\n2\t3\n3\t1\n", 0, 9),
    ],
    ids=["from 1", "from 1 with as many nodes as SNAP says", "nodes without an edge"],
)
def test_the_command_of_a_note_leads_to_the_nodes_that_are_meant(
    content: str, first: int, nodes: int, tmp_path: Path, outcome: Run
) -> None:
    (tmp_path / "e.txt").write_text(content)
    code, _, err = outcome("import", "e.txt", "--out", "graph", "--undirected")
    assert code == 0
    said, commands = noted(err)
    assert len(commands) == 1, said
    code, _, err = outcome(*shlex.split(commands[0])[1:])
    assert code == 0, err
    graph = oc.open(tmp_path / "graph")
    assert (graph.first_id, graph.num_nodes) == (first, nodes)
    assert not noted(err)[1], err


def test_a_file_that_is_as_its_comments_say_gets_no_note(tmp_path: Path, outcome: Run) -> None:
    (tmp_path / "e.txt").write_text(SNAP.format(3, 3) + "0\t1\n1\t2\n2\t0\n")
    _, _, err = outcome("import", "e.txt", "--out", "graph")
    assert "speak of" not in err


def test_a_file_with_fewer_edges_than_its_comments_say_may_not_be_whole(
    tmp_path: Path, outcome: Run
) -> None:
    (tmp_path / "e.txt").write_text(SNAP.format(3, 30) + "0\t1\n1\t2\n2\t0\n")
    _, _, err = outcome("import", "e.txt", "--out", "graph")
    assert "30 edges, and there are 3 nodes and 3 edges: is the file whole?" in noted(err)[0]


@pytest.mark.parametrize("option", ["--labels", "--features", "--array", "--split"])
def test_zeros_in_ids_of_tables_are_noted(option: str, tmp_path: Path, outcome: Run) -> None:
    (tmp_path / "e.csv").write_text("0,1\n1,2\n2,0\n")
    table = tmp_path / "t.csv"
    table.write_text("id\n01\n2\n" if option == "--split" else "id,value\n00,0\n01,1\n2,0\n")
    named = {"--array": "a=", "--split": "train="}.get(option, "")
    code, _, err = outcome("import", "e.csv", option, f"{named}{table}", "--out", "graph")
    assert code == 0, err
    count = "1 id has zeros" if option == "--split" else "2 ids have zeros"
    assert count in noted(err)[0]


def test_labels_with_zeros_in_front_are_noted(tmp_path: Path, outcome: Run) -> None:
    (tmp_path / "e.csv").write_text("0,1\n1,2\n2,0\n")
    (tmp_path / "y.csv").write_text("label\n007\n7\n01\n")
    _, _, err = outcome("import", "e.csv", "--labels", "y.csv", "--out", "graph")
    assert "2 labels have zeros in front: as numbers, `007` and `7` are one class" in noted(err)[0]


def test_formats_that_count_their_nodes_get_no_note_on_gaps(tmp_path: Path, outcome: Run) -> None:
    head = "%%MatrixMarket matrix coordinate pattern general\n9000 9000 1\n"
    (tmp_path / "e.mtx").write_text(head + "5 7\n")
    _, _, err = outcome("import", "e.mtx", "--out", "graph")
    assert "gaps" not in err
    assert "--ids dictionary" not in err
