"""What is wrong with tables of several types is named by file, column, row and type, and nothing is
lost; what can be decided is decided."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore import _core
from outercore.importing import keys
from outercore.importing.build import graph as build_graph
from outercore.importing.keyed_edges import KeyedEdges
from typed_files import edges_by_type, write_table

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "Importer"), reason="the native module has no importer yet"
)

WRITES = "author,writes,paper"
NODES = ("--nodes", "paper=papers.csv", "--nodes", "author=authors.csv")


@pytest.fixture(autouse=True)
def files(tmp_path: Path) -> Path:
    papers = {
        "id": ["p1", "p2", "p3"],
        "venue": ["KDD", "", "VLDB"],
        "year": [1, 2, 3],
        "day": ["2020-01-02", "2021-03-04", "2022-05-06"],
    }
    write_table(tmp_path / "papers.csv", papers)
    write_table(tmp_path / "authors.csv", {"id": ["a1", "a2"], "age": [3.5, 4]})
    edges = {"author": ["a1", "a2", "a1"], "paper": ["p1", "p3", "p3"]}
    write_table(tmp_path / "writes.csv", edges)
    return tmp_path


def csv(path: str, **columns: list[Any]) -> None:
    write_table(Path(path), columns)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            (f"--edges=autor,writes,paper={'writes.csv'}",),
            ["no node type `autor`", "author, paper"],
        ),
        ((f"--edges={WRITES}=none.csv",), ["`none.csv` does not exist"]),
        (("--edges=writes=writes.csv",), ["expected SOURCE,RELATION,TARGET=FILE"]),
        (("--edges=author,a/b,paper=writes.csv",), ["`a/b` cannot name a type"]),
        (("--edges=author,a__b,paper=writes.csv",), ["`a__b` cannot name a type"]),
        (("--edges=author,.b,paper=writes.csv",), ["`.b` cannot name a type"]),
        (
            (f"--edges={WRITES}=writes.csv", "--label=paper.vanue"),
            ["papers.csv`", "column `vanue`"],
        ),
        ((f"--edges={WRITES}=writes.csv", "--label=peper.venue"), ["no node type `peper`"]),
        (
            (f"--edges={WRITES}=writes.csv", "--label=paper.venue", "--split=train=split.csv"),
            ["--split train", "split.csv", "column `id`", "row 1", "type `paper`", "key `p9`"],
        ),
        (
            (f"--edges={WRITES}=writes.csv", "--features=paper=x.npy"),
            ["features of `paper`", "x.npy", "2 rows", "3 nodes"],
        ),
        (
            (f"--edges={WRITES}=writes.csv", "--features=paper=authors.csv"),
            ["--features paper", "authors.csv", "column `id` holds keys"],
        ),
        ((f"--edges={WRITES}=writes.csv", "--features=peper=x.npy"), ["author, paper", "peper"]),
        ((f"--edges={WRITES}=writes.csv", "--undirected"), ["--undirected: does not go with"]),
        (
            (f"--edges={WRITES}=strange.csv",),
            ["strange.csv", "type `author` has the key `b1`"],
        ),
        (
            (f"--edges={WRITES}=unknown.csv",),
            [
                "unknown.csv",
                "column `paper`",
                "row 1",
                "type `paper`",
                "key `p9`",
                "look like `p1`",
            ],
        ),
        (
            (f"--edges={WRITES}=empty.csv",),
            ["empty.csv", "column `paper`", "row 1 is empty", "type `paper`", "--dangling"],
        ),
        (
            (f"--edges={WRITES}=null.parquet",),
            ["null.parquet", "column `author`", "row 0 is empty", "type `author`"],
        ),
        ((f"--edges={WRITES}=writes.csv", "--nodes=paper=papers.csv"), ["`paper` is given twice"]),
        ((f"--edges={WRITES}=writes.csv", "--nodes=a/b=3"), ["`a/b` cannot name a type"]),
        (
            (f"--edges={WRITES}=writes.csv", "--nodes=topic=twice.csv"),
            ["twice.csv", "column `id`", "key `t`", "rows 0 and 2", "once"],
        ),
        (
            (f"--edges={WRITES}=writes.csv", "--nodes=topic=keyless.csv"),
            ["keyless.csv", "column `id`", "row 1 is empty"],
        ),
        (
            ("--nodes=a_=2", "--nodes=a=2", "--edges=a_,r,a=n.csv", "--edges=a,_r,a=n.csv"),
            ["edge type `a___r__a` is given twice"],
        ),
        (("--nodes=n=2", "--edges=n,r,n=n.csv"), ["n__r__n", "row 1", "target 2", "type `n`"]),
    ],
)
def test_bad_input_is_named_and_nothing_is_lost(
    more: tuple[str, ...], expected: list[str], outcome: Any
) -> None:
    csv("split.csv", id=["p1", "p9"])
    np.save("x.npy", np.ones((2, 4), np.float32))
    csv("strange.csv", author=["b1", "a2"], paper=["p1", "p3"])
    csv("unknown.csv", author=["a1", "a2", "a1"], paper=["p1", "p9", "p8"])
    csv("empty.csv", author=["a1", "a2"], paper=["p1", ""])
    csv("null.parquet", author=[None, "a2"], paper=["p1", "p2"])
    csv("twice.csv", id=["t", "u", "t"], w=[1, 2, 3])
    csv("keyless.csv", id=["t", ""], w=[1, 2])
    csv("n.csv", source=[0, 1], target=[1, 2])
    assert outcome("import", *NODES, "--edges", f"{WRITES}=writes.csv", "--out", "mag")[0] == 0
    before = Path("mag/graph.json").read_bytes()
    code, _, told = outcome("import", *NODES, *more, "--out", "mag", "--overwrite")
    assert code == 1, told
    for part in expected:
        assert part in told, told
    assert Path("mag/graph.json").read_bytes() == before
    assert outcome("check", "mag")[0] == 0
    assert not Path(".mag.keys").exists()


def test_dropped_edges_are_counted_by_reason(outcome: Any) -> None:
    csv("e.csv", author=["a1", "", "a2", "x"], paper=["p1", "p1", "p9", ""], w=[1, 2, 3, 4])
    how = ("--edges", f"{WRITES}=e.csv", "--dangling", "drop", "--out", "mag")
    code, shown, told = outcome("import", *NODES, *how)
    assert code == 0, told
    graph = oc.open("mag")
    assert edges_by_type(graph) == {"author__writes__paper": [(0, 0, 0)]}
    assert np.asarray(graph.array("edges/author__writes__paper/w")).tolist() == [1]
    assert "1" in next(line for line in shown.splitlines() if "dangling" in line)
    assert "2" in next(line for line in shown.splitlines() if "empty" in line)


def test_keys_tell_whether_the_first_line_names_the_columns(outcome: Any) -> None:
    Path("plain.csv").write_text("a1,p1\na2,p3\n")
    for file, expected in (("writes.csv", 3), ("plain.csv", 2)):
        code, _, told = outcome("import", *NODES, "--edges", f"{WRITES}={file}", "--out", file[:3])
        assert code == 0, told
        assert len(edges_by_type(oc.open(file[:3]))["author__writes__paper"]) == expected


def test_types_are_shown_after_an_import_and_by_info(outcome: Any) -> None:
    how = ("--edges", f"{WRITES}=writes.csv", "--label", "paper.venue", "--out", "mag")
    shown = [outcome("import", *NODES, *how)[1], outcome("info", "mag")[1]]
    for text in shown:
        rows = [line.split() for line in text.splitlines()]
        assert ["author", "2", "1", "float32", "-"] in rows, text
        assert ["paper", "3", "1", "float32", "yes"] in rows, text
        assert ["author", "writes", "paper", "3"] in rows, text
    assert "nodes/paper/x" not in shown[0]


def test_words_are_left_out_with_a_note_and_dates_are_an_array(outcome: Any) -> None:
    code, _, told = outcome("import", *NODES, "--edges", f"{WRITES}=writes.csv", "--out", "mag")
    assert code == 0, told
    assert "columns of `paper` without numbers are left out: `venue`\n" in told
    assert "nodes/paper/day" in oc.open("mag").arrays


def test_timestamps_become_an_array_of_their_own(outcome: Any) -> None:
    days = [datetime(2020, 1, day, tzinfo=timezone.utc) for day in (1, 2)]
    csv("t.parquet", id=["t1", "t2"], at=days, w=[1, 2])
    more = ("--nodes", "topic=t.parquet", "--edges", f"{WRITES}=writes.csv", "--out", "mag")
    code, _, told = outcome("import", *NODES, *more)
    assert code == 0, told
    graph = oc.open("mag")
    expected = [int(day.timestamp() * 1_000_000) for day in days]
    assert np.asarray(graph.array("nodes/topic/at")).tolist() == expected
    assert np.asarray(graph.array("nodes/topic/x")).tolist() == [[1], [2]]


@pytest.mark.parametrize("phase", ["keys", "edges", "arrays"])
def test_a_stopped_import_is_resumed_to_the_same_data_set(
    phase: str, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    how = ("--edges", f"{WRITES}=writes.csv", "--label", "paper.venue", "--memory", "16MiB")
    assert outcome("import", *NODES, *how, "--out", "whole")[0] == 0

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    place = {
        "keys": (keys.Keys, "_number"),
        "edges": (KeyedEdges, "feed"),
        "arrays": (build_graph, "feed_array"),
    }[phase]
    with monkeypatch.context() as patch:
        patch.setattr(*place, stopped)
        assert outcome("import", *NODES, *how, "--out", "mag")[0] == 130
    assert not Path("mag/graph.json").exists()
    code, _, told = outcome("import", *NODES, *how, "--out", "mag")
    assert code == 0, told
    whole, resumed = oc.open("whole"), oc.open("mag")
    assert whole.manifest["arrays"] == resumed.manifest["arrays"]
    assert not Path(".mag.keys").exists()
    assert outcome("check", "mag")[0] == 0
