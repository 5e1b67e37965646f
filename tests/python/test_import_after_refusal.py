"""After a refusal a mended input is imported by the same command, and no message says otherwise."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore.errors import InvalidError, NotFoundError

Run = Any

EDGES = "src,dst\n0,1\n1,2\n"
NAMES = "src,dst\nann,bob\nbob,cy\n"
USERS = "id,age\na,1\nb,2\nc,3\n"
NODES = ":ID,pay:int\na,1\nb,2\n"
TABLES = "tables:\n  n:\n    primary_key: k\n    foreign_keys: {boss: n}\n"
TYPED = "--nodes u=u.csv:id --edges u,k,u=e.csv"
# What is given, the files with a fault, those that mend it, and what the data set then has.
CASES: dict[str, tuple[str, dict[str, str], dict[str, str], int]] = {
    "an edge that is none": ("e.csv", {"e.csv": EDGES + "1,x\n"}, {"e.csv": EDGES}, 2),
    "an edge of a second file": (
        "a.csv e.csv",
        {"a.csv": EDGES, "e.csv": EDGES + "-1,2\n"},
        {"e.csv": EDGES},
        4,
    ),
    "features of too few nodes": (
        "e.csv --features x.csv",
        {"e.csv": EDGES, "x.csv": "x\n1\n2\n"},
        {"x.csv": "x\n1\n2\n3\n"},
        2,
    ),
    "labels that are no classes": (
        "e.csv --labels y.csv",
        {"e.csv": EDGES, "y.csv": "id,y\n0,1\n1,-7\n2,1\n"},
        {"y.csv": "id,y\n0,1\n1,0\n2,1\n"},
        2,
    ),
    "an array beyond the nodes of other edges": (
        "e.csv --split train=s.csv --nodes 3",
        {"e.csv": EDGES, "s.csv": "id\n0\n7\n"},
        {"s.csv": "id\n0\n2\n"},
        2,
    ),
    "other edges as well": (
        "e.csv --features x.csv",
        {"e.csv": EDGES, "x.csv": "x\n1\n2\nnan\n"},
        {"e.csv": EDGES + "2,0\n", "x.csv": "x\n1\n2\n3\n"},
        3,
    ),
    "a node with a name and without features": (
        "e.csv --ids dictionary --features x.csv",
        {"e.csv": NAMES, "x.csv": "id,x\nann,1\nbob,2\n"},
        {"x.csv": "id,x\nann,1\nbob,2\ncy,3\n"},
        2,
    ),
    "edges by names and features": (
        "e.csv --ids dictionary --features x.csv",
        {"e.csv": NAMES, "x.csv": "id,x\nann,1\nbob,2\n"},
        {"e.csv": NAMES + "cy,dan\n", "x.csv": "id,x\nann,1\nbob,2\ncy,3\ndan,4\n"},
        3,
    ),
    "an unknown name in validation": (
        "t.tsv --triples --valid v.tsv",
        {"t.tsv": "a\tr\tb\nb\tr\tc\n", "v.tsv": "a\tr\tzoe\n"},
        {"v.tsv": "a\tr\tb\n"},
        0,
    ),
    "a training file beside validation": (
        "t.tsv --triples --valid v.tsv",
        {"t.tsv": "a\tr\tb\n", "v.tsv": "a\tr\tc\n"},
        {"t.tsv": "a\tr\tb\nb\tr\tc\n"},
        0,
    ),
    "a key that no node has": (
        TYPED,
        {"u.csv": USERS, "e.csv": "src,dst\na,b\na,q\n"},
        {"e.csv": "src,dst\na,b\na,c\n"},
        2,
    ),
    "a second type of edges": (
        "--nodes u=u.csv:id --edges u,j,u=j.csv --edges u,k,u=e.csv",
        {"u.csv": USERS, "j.csv": "src,dst\nb,a\n", "e.csv": "src,dst\na,b\na,q\n"},
        {"e.csv": "src,dst\na,b\na,c\n", "j.csv": "src,dst\nb,a\nc,a\n"},
        4,
    ),
    "a split of typed nodes": (
        TYPED + " --label u.age --split train=s.csv",
        {"u.csv": USERS, "e.csv": "src,dst\na,b\n", "s.csv": "id\nzoe\n"},
        {"s.csv": "id\na\n"},
        1,
    ),
    "an export of Neo4j": (
        "folder",
        {"folder/n.csv": NODES, "folder/k.csv": ":START_ID,:END_ID\na,b\na,q\n"},
        {"folder/k.csv": ":START_ID,:END_ID\na,b\n"},
        1,
    ),
    "a folder of tables": (
        "folder",
        {"folder/tables.yaml": TABLES, "folder/n.csv": "k,boss,pay\na,b,1\nb,q,2\n"},
        {"folder/n.csv": "k,boss,pay\na,b,1\nb,a,2\n"},
        2,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_the_same_command_imports_the_mended_input(case: str, tmp_path: Path, outcome: Run) -> None:
    given, files, mended, edges = CASES[case]
    (tmp_path / "folder").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    command = ("import", *given.split(), "--out", "graph")
    for _ in range(2):
        code, _, told = outcome(*command)
        assert code == 1, told
        assert "unfinished" not in told
        assert "resume" not in told
    if (tmp_path / "graph").exists():
        told = outcome("info", "graph")[2]
        assert "refused" in told
        assert "resume" not in told
    for name, text in mended.items():
        (tmp_path / name).write_text(text)
    code, _, told = outcome(*command)
    assert code == 0, told
    assert oc.open("graph").num_edges == edges
    assert outcome("check", "graph")[0] == 0
    assert not list(tmp_path.glob(".graph*"))


def test_a_stopped_import_is_not_dropped_for_another_one(tmp_path: Path) -> None:
    from outercore.importing.build.graph import import_graph
    from outercore.importing.inputs import Inputs
    from outercore.importing.options import ImportOptions
    from outercore.importing.plain_graph import open_inputs

    (tmp_path / "a.csv").write_text(EDGES)
    (tmp_path / "b.csv").write_text(EDGES + "2,0\n")
    (tmp_path / "x.csv").write_text("x\n1\n2\n3\n")

    def stop(phase: str, *_: object) -> None:
        if phase.startswith("array"):
            raise KeyboardInterrupt

    def run(name: str, progress: Callable[..., None] = lambda *_: None) -> dict[str, Any]:
        inputs = Inputs(edges=(str(tmp_path / name),), features=str(tmp_path / "x.csv"))
        options = ImportOptions(command=f"outercore import {name}")
        return import_graph(open_inputs(inputs), tmp_path / "graph", options, progress)

    with pytest.raises(KeyboardInterrupt):
        run("a.csv", stop)
    for _ in range(2):
        with pytest.raises(InvalidError, match=r"finish it by `outercore import a.csv`"):
            run("b.csv")
    # The same command cannot be resumed where its input is another one.
    (tmp_path / "a.csv").write_text(EDGES + "2,1\n")
    assert run("a.csv")["edges"] == 3


@pytest.mark.parametrize("wrong", ["--features x.csv", "--array a=x.csv", "--split train=x.csv"])
def test_a_refused_addition_leaves_the_data_set_as_it_was(
    wrong: str, tmp_path: Path, outcome: Run
) -> None:
    (tmp_path / "e.csv").write_text(EDGES)
    outcome("import", "e.csv", "--out", "graph")
    before = (tmp_path / "graph/graph.json").read_bytes()
    (tmp_path / "x.csv").write_text("id\n9\n8\n7\n" if "split" in wrong else "x\n1\n2\n")
    code, _, told = outcome("add", "graph", *wrong.split())
    assert code == 1
    assert "resume" not in told
    assert (tmp_path / "graph/graph.json").read_bytes() == before
    (tmp_path / "x.csv").write_text("id\n2\n" if "split" in wrong else "x\n1\n2\n3\n")
    code, _, told = outcome("add", "graph", *wrong.split())
    assert code == 0, told


def test_a_refused_conversion_can_be_done_after_all(tmp_path: Path, outcome: Run) -> None:
    (tmp_path / "e.csv").write_text(EDGES)
    np.save(tmp_path / "x.npy", np.float32([[1e9], [2], [3]]))
    outcome("import", "e.csv", "--features", "x.npy", "--out", "graph")
    code, _, told = outcome("convert", "graph", "--to", "float16")
    assert code == 1
    assert "resume" not in told
    np.save(tmp_path / "x.npy", np.float32([[1], [2], [3]]))
    outcome("add", "graph", "--features", "x.npy", "--overwrite")
    code, _, told = outcome("convert", "graph", "--to", "float16")
    assert code == 0, told


def test_an_embedding_after_a_refused_import_names_what_is_missing(
    tmp_path: Path, outcome: Run
) -> None:
    (tmp_path / "t.tsv").write_text("a\tr\tb\nb\tr\tc\n")
    (tmp_path / "v.tsv").write_text("a\tr\tzoe\n")
    command = ("import", "t.tsv", "--triples", "--valid", "v.tsv", "--out", "facts")
    assert outcome(*command)[0] == 1
    with pytest.raises(NotFoundError, match="the import was refused"):
        oc.open("facts")
    code, _, told = outcome("embed", "facts", "--epochs", "1")
    assert code == 1
    assert "mend what the import has named" in told
    assert "resume" not in told
