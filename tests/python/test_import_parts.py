"""A table in several files is one table, whatever each file says about its columns."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore.data.node_names import names_of_items
from outercore.errors import InvalidError
from outercore.importing.table.pairs import PairList
from test_import_cases import edges_by_id
from typed_files import edges_by_type

Run = Any
Rows = list[tuple[str, ...]]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)


def values(graph: oc.Graph, key: str) -> list[Any]:
    return np.asarray(graph.array(key)).tolist()


NODES = {
    "the same header": "id:ID,age:int\nb,2\n",
    "another order": "age:int,id:ID\n2,b\n",
    "no header": "b,2\n",
    "plain names": "id,age\nb,2\n",
    "the header twice": "id:ID,age:int\nid:ID,age:int\nb,2\n",
}


@pytest.mark.parametrize("way", NODES)
@pytest.mark.parametrize("names", [("u-part1", "u-part2"), ("u_1", "u_2"), ("u-001", "u-002")])
def test_parts_of_an_export_of_neo4j_are_one_type(
    way: str, names: tuple[str, str], tmp_path: Path, outcome: Run
) -> None:
    first, second = names
    likes = {"k.csv": ":START_ID,:END_ID\na,b\nb,a\n"}
    files = {f"{first}.csv": "id:ID,age:int\na,1\n", f"{second}.csv": NODES[way]}
    write(tmp_path, {f"f/{name}": text for name, text in (files | likes).items()})
    code, _, told = outcome("import", "f", "--out", "graph")
    assert code == 0, told
    assert f"read as one table `u`: `{first}.csv`, `{second}.csv`" in told
    graph = oc.open("graph")
    assert graph.node_types == {"u": 2}
    assert edges_by_type(graph) == {"u__k__u": [(0, 0, 1), (1, 1, 0)]}
    assert values(graph, "nodes/u/x") == [[1], [2]]


def test_files_that_only_look_like_parts_stay_types_of_their_own(
    tmp_path: Path, outcome: Run
) -> None:
    files = {
        "area51.csv": ":ID,size:int\na,1\n",
        "area52.csv": ":ID,size:int\nb,1\n",
        "shop-1.csv": ":ID,size:int\nc,1\n",
        "shop-2.csv": ":ID,price:int\nd,1\n",
        "k.csv": ":START_ID,:END_ID\na,b\n",
    }
    write(tmp_path, {f"f/{name}": text for name, text in files.items()})
    code, _, told = outcome("import", "f", "--out", "graph")
    assert code == 0, told
    assert set(oc.open("graph").node_types) == {"area51", "area52", "shop-1", "shop-2"}
    assert "one table" not in told


def test_a_header_beside_files_that_repeat_it_names_their_type(
    tmp_path: Path, outcome: Run
) -> None:
    files = {
        "user-header.csv": "id:ID(U),age:int\n",
        "user-a.csv": "id:ID(U),age:int\na,1\n",
        "user-b.csv": "age:int,id:ID(U)\n2,b\n",
        "likes_header.csv": ":START_ID(U),:END_ID(U),w:int\n",
        "likes_1.csv": ":START_ID(U),:END_ID(U),w:int\na,b,5\n",
        "likes_2.csv": "b,a,6\n:START_ID(U),:END_ID(U),w:int\n",
    }
    write(tmp_path, {f"f/{name}": text for name, text in files.items()})
    code, _, told = outcome("import", "f", "--out", "graph")
    assert code == 0, told
    assert "`likes_2.csv`: 1 line repeats the header and holds no row" in told
    graph = oc.open("graph")
    assert graph.node_types == {"user": 2}
    assert edges_by_type(graph) == {"user__likes__user": [(0, 0, 1), (1, 1, 0)]}
    assert values(graph, "edges/user__likes__user/w") == [5, 6]


USERS = {
    "the same header": ("id,age,code\nb,2,7\n", 0),
    "another order": ("code,id,age\n7,b,2\n", 0),
    "no header": ("b,2,7\n", 0),
    "the header again": ("id,age,code\nb,2,7\nid,age,code\n", 0),
    "fractions": ("id,age,code\nb,2.0,7\n", 0),
    "other columns": ("id,age,zip\nb,2,7\n", 1),
    "fewer columns": ("id,age\nb,2\n", 1),
}


@pytest.mark.parametrize("way", USERS)
def test_nodes_of_one_type_come_from_several_texts(way: str, tmp_path: Path, outcome: Run) -> None:
    second, expected = USERS[way]
    write(tmp_path, {"a.csv": "id,age,code\na,1,9\nc,3,8\n", "b.csv": second})
    (tmp_path / "e.csv").write_text("src,dst\na,b\nb,c\n")
    nodes = ("--nodes", "u=a.csv:id", "--nodes", "u=b.csv:id")
    code, _, told = outcome("import", *nodes, "--edges", "u,k,u=e.csv", "--out", "graph")
    assert code == expected, told
    if expected:
        assert "`u` is given twice: `b.csv:id` has other columns than `a.csv:id`" in told
        return
    graph = oc.open("graph")
    assert values(graph, "nodes/u/x") == [[1, 9], [3, 8], [2, 7]]
    assert edges_by_type(graph) == {"u__k__u": [(0, 0, 2), (1, 2, 1)]}


def test_arrays_and_other_keys_are_no_parts_of_a_table(tmp_path: Path, outcome: Run) -> None:
    np.save(tmp_path / "x.npy", np.zeros((2, 1), np.float32))
    write(tmp_path, {"a.csv": "id,no\na,1\n", "b.csv": "id,no\nb,2\n", "e.csv": "s,t\na,b\n"})
    for second, said in (
        ("x.npy", "only texts can be parts of one table"),
        ("3", "only texts can be parts of one table"),
        ("b.csv:no", "has keys in `no`, `a.csv:id` in `id`"),
    ):
        nodes = ("--nodes", "u=a.csv:id", "--nodes", f"u={second}")
        code, _, told = outcome("import", *nodes, "--edges", "u,k,u=e.csv", "--out", "graph")
        assert code == 1
        assert said in told


def _parts(rng: np.random.Generator, header: list[str], rows: Rows) -> list[str]:
    """The rows in several texts: each with the header, in some order, or only the first."""
    cuts = np.sort(rng.integers(1, len(rows) + 1, rng.integers(1, 4)))
    shared = bool(rng.integers(2))
    texts = []
    for place, part in enumerate(np.split(np.arange(len(rows)), cuts)):
        order = list(range(len(header))) if shared else rng.permutation(len(header)).tolist()
        if place == 0:
            order = list(range(len(header)))
        lines = [",".join(rows[row][column] for column in order) for row in part]
        named = ",".join(header[column] for column in order)
        if place == 0 or not shared:
            lines.insert(0, named)
        if lines and rng.integers(2) and not (shared and place == 0 and len(lines) == 1):
            lines.insert(int(rng.integers(1, len(lines) + 1)), named)
        if lines:
            texts.append("\n".join(lines) + "\n")
    return texts


@pytest.mark.parametrize("seed", range(24))
def test_any_parts_of_a_table_are_the_table(seed: int, tmp_path: Path, outcome: Run) -> None:
    rng = np.random.default_rng(seed)
    kind = ("numbers", "names", "typed", "neo4j")[seed % 4]
    keys = [str(key) for key in range(9)] if kind == "numbers" else [f"n_{k}" for k in range(9)]
    ends = rng.integers(0, 9, (12, 2))
    rows: Rows = [(keys[u], keys[v], str(rng.integers(99))) for u, v in ends]
    header = ["who", "whom", "w"]
    if kind == "neo4j":
        header = [":START_ID", ":END_ID", "w:int"]
    parts = _parts(rng, header, rows)
    nodes = "id,x\n" + "".join(f"{key},{place}\n" for place, key in enumerate(keys))
    names = [f"k-part{place}.csv" for place in range(len(parts))]
    write(tmp_path, {f"f/{name}": text for name, text in zip(names, parts, strict=True)})
    command = [f"f/{name}" for name in names]
    if kind == "names":
        command += ["--ids", "dictionary"]
    if kind in ("numbers", "names"):
        command += ["--weight", "w"]
    if kind == "typed":
        write(tmp_path, {"u.csv": nodes})
        command = ["--nodes", "u=u.csv"]
        command += [word for name in names for word in ("--edges", f"u,k,u=f/{name}")]
    if kind == "neo4j":
        write(tmp_path, {"f/u.csv": nodes.replace("id,x", "id:ID,x:int")})
        command = ["f"]
    code, _, told = outcome("import", *command, "--out", "graph")
    where = f"seed {seed}: {parts}: {told}"
    assert code == 0, where
    graph = oc.open("graph")
    if kind == "names":
        found = graph.entity_names()
        assert sorted(found) == sorted({end for row in rows for end in row[:2]}), where
        ends = np.array([[found.index(name) for name in row[:2]] for row in rows])
    weights = [int(row[2]) for row in rows]
    of_type = "weight" if kind in ("numbers", "names") else "edges/u__k__u/w"
    assert values(graph, of_type) == weights, where
    assert edges_by_id(graph) == ends.tolist(), where


LEFT_OUT = "id,age,y,size,name\na,1,0,5,x\nb,2,1,6,z\nc,3,0,7,u\n"


@pytest.mark.parametrize(
    ("chosen", "expected"),
    [("!size", [[1], [2], [3]]), ("!size,name", [[1], [2], [3]]), ("!age", [[5], [6], [7]])],
)
def test_features_of_a_type_are_its_columns_but_some(
    chosen: str, expected: list[list[int]], tmp_path: Path, outcome: Run
) -> None:
    write(tmp_path, {"u.csv": LEFT_OUT, "e.csv": "s,t\na,b\nb,c\n"})
    given = ("--nodes", "u=u.csv", "--edges", "u,k,u=e.csv", "--label", "u.y")
    code, _, told = outcome("import", *given, "--features", f"u=u.csv:{chosen}", "--out", "graph")
    assert code == 0, told
    # The label is none of the features.
    assert values(oc.open("graph"), "nodes/u/x") == expected


def test_features_of_a_type_are_given_once(tmp_path: Path, outcome: Run) -> None:
    write(tmp_path, {"u.csv": LEFT_OUT, "e.csv": "s,t\na,b\nb,c\n"})
    given = ("--nodes", "u=u.csv", "--edges", "u,k,u=e.csv", "--out", "graph")
    features = ("--features", "u=u.csv:age", "--features", "u=u.csv:size")
    code, _, told = outcome("import", *given, *features)
    assert code == 1
    assert "--features: `u` is given twice" in told


def test_columns_to_leave_out_that_are_not_there_are_named(tmp_path: Path, outcome: Run) -> None:
    files = {"u.csv": LEFT_OUT, "x.csv": "p,q\n1,2\n3,4\n5,6\n", "e.csv": "s,t\na,b\nb,c\n"}
    write(tmp_path, files | {"n.csv": "2,1\n1,0\n"})
    typed = ("import", "--nodes", "u=u.csv", "--edges", "u,k,u=e.csv", "--out", "graph")
    for name, listed in (("u.csv", "`id`, `age`, `y`, `size`, `name`"), ("x.csv", "`p`, `q`")):
        code, _, told = outcome(*typed, "--features", f"u={name}:!age2,z")
        assert code == 1
        assert f"`{name}`: no columns `age2`, `z`; it has {listed}" in told
    outcome("import", "n.csv", "--out", "plain")
    for option, given in (
        ("--features", "x.csv:!z"),
        ("--labels", "x.csv:!z"),
        ("--array", "a=x.csv:!z"),
        ("--edge-array", "a=x.csv:!z"),
    ):
        code, _, told = outcome("add", "plain", option, given)
        assert code == 1
        assert "`x.csv`: no column `z`; it has `p`, `q`" in told


def test_arrays_are_added_without_some_columns(tmp_path: Path, outcome: Run) -> None:
    files = {"x.csv": "p,q,r\n1,2,3\n4,5,6\n", "e.csv": "1,0\n0,1\n"}
    write(tmp_path, files)
    outcome("import", "e.csv", "--nodes", "2", "--out", "graph")
    more = ("--array", "a=x.csv:!p,r", "--edge-array", "w=x.csv:!q,!r")
    code, _, told = outcome("add", "graph", "--features", "x.csv:!p", *more)
    assert code == 0, told
    graph = oc.open("graph")
    assert values(graph, "nodes/node/x") == [[2, 3], [5, 6]]
    assert values(graph, "nodes/node/a") == [2, 5]
    assert values(graph, "edges/edge/w") == [1, 4]


HASHES = "#a,1\n#b,2\nc,3\n"
NAMED = {"e.csv": "#a,#b\nc,#b\n#b,c\n", "x.csv": "id,v\n#a,1\n#b,2\nc,3\n"}
# The files, and what is refused; each command of the hint has to import something.
UNCLEAR: dict[str, tuple[dict[str, str], str]] = {
    "edges by names": (NAMED, "e.csv --ids dictionary"),
    "only marked edges": ({"e.csv": "#a,#b\n#b,#a\n"}, "e.csv --ids dictionary"),
    "a comment above": ({"e.csv": "# of us\n#a,b\nb,c\n"}, "e.csv --ids dictionary"),
    "triples": ({"t.tsv": "#a\tr\tb\nb\tr\tc\n"}, "t.tsv --triples"),
    "only marked triples": ({"t.tsv": "#a\tr\t#b\n#b\tr\t#a\n"}, "t.tsv --triples"),
    "a split": (
        {"e.csv": "ann,bob\nbob,ann\n", "s.csv": "#ann\nann\n"},
        "e.csv --ids dictionary --split train=s.csv",
    ),
    "nodes of a type": (
        {"u.csv": "id,v\n#a,1\n#b,2\nc,3\nd,4\n", "e.csv": "s,t\nc,d\nd,d\n"},
        "--nodes u=u.csv --edges u,k,u=e.csv",
    ),
    "a separator": ({"e.csv": "a;b,c;d\nb;b,c;d\n"}, "e.csv --ids dictionary"),
}


@pytest.mark.parametrize("case", UNCLEAR)
def test_every_command_of_a_hint_imports(case: str, tmp_path: Path, outcome: Run) -> None:
    files, given = UNCLEAR[case]
    write(tmp_path, files)
    code, _, told = outcome("import", *given.split(), "--out", "graph")
    assert code == 1
    commands = re.findall(r"`outercore ([^`]+)`", told)
    assert commands, told
    if case == "a split":
        # The name of the first row is none of the nodes.
        commands = [command for command in commands if "'#'" in command]
    for command in commands:
        code, _, more = outcome(*shlex.split(command), "--overwrite")
        assert code == 0, (command, more)


def test_a_command_in_a_hint_quotes_columns_to_leave_out(tmp_path: Path, outcome: Run) -> None:
    write(tmp_path, {"e.csv": "a,b\nb,a\n", "x.csv": "id,v,w\na,1,2\nb,3,4\n"})
    code, _, told = outcome("import", "e.csv", "--features", "x.csv:!w", "--out", "graph")
    assert code == 1
    (command,) = re.findall(r"`outercore ([^`]+)`", told)
    assert "'x.csv:!w'" in command
    assert outcome(*shlex.split(command))[0] == 0
    assert values(oc.open("graph"), "nodes/node/x") == [[1], [3]]


def test_pairs_name_nodes_that_begin_with_a_hash(tmp_path: Path, outcome: Run) -> None:
    write(tmp_path, {"e.csv": "#a,#b\nc,#b\n", "p.csv": "#a,#b\nc,#a\n", "q.csv": "a;b,c;d\n"})
    how = ("--ids", "dictionary", "--comment", "")
    assert outcome("import", "e.csv", *how, "--out", "graph")[0] == 0
    names = names_of_items(oc.open("graph"))
    assert names is not None
    (pairs,) = PairList.parse("p.csv", names).chunks()
    found = [[names.find(name) for name in pair] for pair in (("#a", "#b"), ("c", "#a"))]
    assert pairs.tolist() == found
    # No command that takes pairs has the option that a hint of an import names.
    with pytest.raises(InvalidError, match="hint: write the pairs as Parquet") as raised:
        list(PairList.parse("q.csv", names).chunks())
    assert "--separator" not in str(raised.value)
