"""Keys of the nodes of several types: kept by the import, written in results, taken by options."""

from __future__ import annotations

import csv
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import outercore as oc
from outercore import _core
from outercore.data.batch_arrays import batch_arrays
from outercore.data.graph import Graph
from outercore.data.names import KEY, Names
from outercore.data.node_names import FileIds, NodeNumbers, names_of_items
from outercore.errors import CorruptError, InvalidError, NotFoundError
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import TypedInputs
from outercore.importing.options import ImportOptions
from outercore.importing.splits import random_splits
from outercore.importing.table.rows import NodeArray, RowSource
from outercore.importing.table.text import offsets_and_bytes
from outercore.importing.typed_graph import open_typed
from outercore.runs.custom_code import from_place
from test_import_neo4j import MOVIES, write
from typed_files import edges_by_type, write_table

AUTHORS = ["lee, ann", "bo:b", "é", "7", "zoe"]
PAPERS = ["p3", "p1", "p20", "p4"]
IMPORT = (
    *("--nodes", "paper=papers.csv:id", "--nodes", "author=authors.csv:id", "--nodes", "topic=3"),
    *("--edges", "author,writes,paper=writes.csv:a,p", "--edges", "paper,has,topic=has.csv:p,t"),
    *("--label", "paper.venue", "--text", "author.town", "--text", "paper.title"),
)


@pytest.fixture
def mag(outcome: Any) -> Graph:
    """Authors and papers with keys, topics by number."""
    titles = ['"Quoted", and', "", "0123", "Naïve"]
    papers = {"id": PAPERS, "title": titles, "year": [1, 2, 3, 4], "venue": ["b", "a", "b", "a"]}
    write_table(Path("papers.csv"), papers)
    write_table(Path("authors.csv"), {"id": AUTHORS, "town": ["Bonn", "Köln", "", "Rom", "Ulm"]})
    pairs = [(AUTHORS[at % 5], PAPERS[at * at % 4]) for at in range(9)]
    write_table(Path("writes.csv"), {"a": [a for a, _ in pairs], "p": [p for _, p in pairs]})
    write_table(Path("has.csv"), {"p": PAPERS, "t": ["0", "1", "2", "0"]})
    code, _, told = outcome("import", *IMPORT, "--add-reverse", "--out", "mag")
    assert code == 0, told
    assert "left out: `title`" not in told
    return oc.open("mag")


def rows_of(file: str) -> list[list[str]]:
    with Path(file).open(newline="") as opened:
        return list(csv.reader(opened))[1:]


def test_keys_and_texts_come_back_in_the_order_of_the_nodes(mag: Graph) -> None:
    assert mag.array("author/key").tolist() == AUTHORS
    assert mag.rows("paper/key", np.array([2, 0])).tolist() == ["p20", "p3"]
    assert mag.array("author/town").tolist() == ["Bonn", "Köln", "", "Rom", "Ulm"]
    assert mag.array("paper/title").tolist() == ['"Quoted", and', "", "0123", "Naïve"]
    keys = mag.keys_of("author")
    assert keys is not None
    assert keys.ids(reversed(AUTHORS)).tolist() == [4, 3, 2, 1, 0]
    # Topics are numbers, and nothing is kept of them.
    assert mag.keys_of("topic") is None
    assert not [key for key in mag.arrays if key.startswith("names/topic")]
    assert _core.check(mag.root, lambda *_: None)["problems"] == []


def test_results_have_the_keys(mag: Graph, outcome: Any) -> None:
    done = oc.run("degrees", mag)
    frame = done.to_pandas()
    assert frame["id"].tolist() == [*AUTHORS, *PAPERS, "0", "1", "2"]
    assert frame["type"].tolist() == ["author"] * 5 + ["paper"] * 4 + ["topic"] * 3
    code, printed, told = outcome("run", "wcc", mag.root, "--out", "wcc.csv")
    assert code == 0, told
    assert [row[:2] for row in rows_of("wcc.csv")][:2] == [
        ["author", AUTHORS[0]],
        ["author", "bo:b"],
    ]
    assert rows_of("wcc.csv")[5] == ["paper", "p3", "author:lee, ann"]
    assert "author:lee, ann" in printed


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("author:lee, ann", [0]),
        ("author:bo:b", [1]),
        ("author:7", [3]),
        ("paper:p20,author:é", [7, 2]),
        ("topic:2", [11]),
    ],
)
def test_options_name_nodes_by_their_keys(
    source: str, expected: list[int], mag: Graph, outcome: Any
) -> None:
    code, _, told = outcome("run", "bfs", mag.root, "--source", source, "--out", "found.npy")
    assert code == 0, told
    values = np.load("found.npy")
    assert np.flatnonzero(values == 0).tolist() == sorted(expected)
    np.testing.assert_array_equal(values, oc.bfs(mag, expected))


def test_python_takes_keys_and_ids(mag: Graph) -> None:
    np.testing.assert_array_equal(oc.bfs(mag, ("paper", "p1")), oc.bfs(mag, ("paper", 1)))
    both = oc.bfs(mag, ("paper", ["p1", "p4"]))
    np.testing.assert_array_equal(both, oc.bfs(mag, ("paper", [1, 3])))
    for node in ("paper:p1", ["paper:p1"], np.array(["paper:p1"])):
        np.testing.assert_array_equal(oc.bfs(mag, node), oc.bfs(mag, ("paper", 1)))
    by_key = oc.pagerank(mag, personalization={"author:zoe": 1.0})
    np.testing.assert_array_equal(by_key, oc.pagerank(mag, personalization={("author", 4): 1.0}))
    batch = next(iter(oc.NeighborLoader(mag, [2], ("author", ["zoe", "é"]), batch_size=2)))
    assert batch["author"].n_id[:2].tolist() == [4, 2]
    for wrong in (("author", "zoo"), "author:zoo"):
        with pytest.raises(
            NotFoundError, match=r"author `zoo` is not in .*\nhint: did you mean `zoe`"
        ):
            oc.bfs(mag, wrong)
    with pytest.raises(InvalidError, match="expected the type and the id of a node, such as"):
        oc.bfs(mag, "zoe")
    with pytest.raises(InvalidError, match="name `x`, but nodes of type `topic` have no names"):
        oc.NeighborLoader(mag, [2], ("topic", ["x"]))
    with pytest.raises(NotFoundError, match="there is no node type `autor`"):
        oc.bfs(mag, ("autor", "zoe"))
    with pytest.raises(InvalidError, match="`topic:x`: the type has no keys, expected an id"):
        oc.bfs(mag, ("topic", "x"))
    numbers = NodeNumbers.of_graph(mag, None)
    assert numbers.names(np.array([1, 5, 11])) == ["author:bo:b", "paper:p3", "topic:2"]
    with pytest.raises(
        InvalidError, match="expected the type and the id of a node, such as `author:lee, ann`"
    ):
        numbers.id("3")


def test_predictions_have_keys_and_names_of_classes(mag: Graph, outcome: Any) -> None:
    pytest.importorskip("torch")
    split = ("--split", "train=train.npy", "--split", "valid=valid.npy")
    np.save("train.npy", [0, 1])
    np.save("valid.npy", [2, 3])
    assert outcome("add", mag.root, *split, "--overwrite")[0] == 0
    small = ("--epochs", 1, "--hidden", 8, "--fanout", "2,2")
    code, _, told = outcome("train", mag.root, *small, "--out", "run")
    assert code == 0, told
    code, _, told = outcome("predict", mag.root, "--model", "run", "--out", "scores.csv")
    assert code == 0, told
    rows = rows_of("scores.csv")
    assert sorted(row[0] for row in rows) == sorted(PAPERS)
    assert {row[1] for row in rows} <= {"a", "b"}


def test_added_tables_are_joined_by_key(mag: Graph, outcome: Any) -> None:
    Path("more.csv").write_text('id,age,note\nzoe,5,z\n"lee, ann",1,\nbo:b,2,b\n7,4,s\né,3,e\n')
    code, _, told = outcome(
        "add", mag.root, "--features", "author=more.csv:age",
        "--array", "author/age=more.csv:age", "--text", "author/note=more.csv:note",
    )  # fmt: skip
    assert code == 0, told
    assert oc.open(mag).array("nodes/author/age").tolist() == [1, 2, 3, 4, 5]
    assert oc.open(mag).array("author/note").tolist() == ["", "b", "e", "s", "z"]
    Path("wrong.csv").write_text("id,size\np1,5\np9,1\n")
    code, _, told = outcome("add", mag.root, "--array", "paper/size=wrong.csv:size", "--fill", 0)
    assert code == 1
    assert "row 1: column `id` names node `p9`, which is not in the data set" in told
    code, _, told = outcome("add", mag.root, "--text", "author/key=more.csv:note", "--overwrite")
    assert code == 1
    assert "`key` has the keys of nodes of several types" in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("title=papers.csv", "expected TYPE.COLUMN, found `title=papers.csv`"),
        ("papers.title", "there is no node type `papers`"),
        ("paper.titel", "column `titel`"),
        ("topic.title", "type `topic` has no table of nodes"),
        ("author.town", "`author.town` is given 2 times"),
        ("paper", "--text: expected TYPE.COLUMN, found `paper`"),
    ],
)
def test_a_text_that_is_none_is_refused(text: str, message: str, mag: Graph, outcome: Any) -> None:
    code, _, told = outcome("import", *IMPORT, "--text", text, "--out", "other")
    assert code == 1
    assert message in told
    assert not Path("other").exists()


def test_a_column_called_key_is_kept_as_the_keys_alone(outcome: Any, tmp_path: Path) -> None:
    write_table(Path("a.csv"), {"key": ["x", "y"], "size": [1, 2]})
    write_table(Path("links.csv"), {"s": ["x"], "t": ["y"]})
    files = ("--nodes", "a=a.csv:key", "--edges", "a,to,a=links.csv:s,t")
    code, _, told = outcome("import", *files, "--text", "a.key", "--out", "g")
    assert code == 1
    assert "`key` has the keys of nodes of several types" in told
    assert outcome("import", *files, "--out", "g")[0] == 0
    assert oc.open("g").array("a/key").tolist() == ["x", "y"]


def test_nodes_of_one_space_of_keys_have_those_of_their_type(tmp_path: Path, outcome: Any) -> None:
    write(tmp_path / "movies", MOVIES)
    assert outcome("import", "movies", "--text", "Movie.title", "--out", "graph")[0] == 0
    graph = oc.open("graph")
    found = {name: graph.keys_of(name) for name in graph.node_types}
    names = {name: [] if keys is None else keys.names() for name, keys in found.items()}
    assert sorted(key for keys in names.values() for key in keys) == sorted(
        ["tt0133093", "tt0234215", "tt0242653", "keanu", "lana", "#carrie"]
    )
    for name, keys in found.items():
        assert keys is not None
        assert keys.ids(names[name]).tolist() == list(range(len(keys)))
    assert graph.array("Movie/title").tolist()[0] == "The Matrix"


def test_names_of_types_and_texts_with_dots_do_not_meet(tmp_path: Path, outcome: Any) -> None:
    write_table(Path("a.csv"), {"id": ["x", "y"], "b.key": ["1st", "2nd"], "c/d": ["u", "v"]})
    write_table(Path("b.csv"), {"id": ["p", "q"], "size": [1, 2]})
    write_table(Path("links.csv"), {"s": ["x"], "t": ["q"]})
    files = (
        *("--nodes", "a=a.csv:id", "--nodes", "a.b=b.csv:id"),
        *("--edges", "a,to,a.b=links.csv:s,t"),
    )
    for text in ("a.b.key", "a.c/d"):
        code, _, told = outcome("import", *files, "--text", text, "--out", "g")
        assert code == 1
        assert "cannot name a text" in told
    assert outcome("import", *files, "--out", "g")[0] == 0
    code, _, told = outcome("add", "g", "--text", "a/b.key=a.csv:b.key", "--overwrite")
    assert code == 1
    assert "cannot name a text" in told
    graph = oc.open("g")
    assert graph.array("a.b/key").tolist() == ["p", "q"]
    assert graph.array("a/key").tolist() == ["x", "y"]


def test_a_text_of_another_name_is_no_key(mag: Graph, outcome: Any) -> None:
    manifest = json.loads((mag.root / "graph.json").read_text())
    # As a data set has it whose text is called so, without an order of keys.
    del manifest["arrays"]["names/paper.key.order"], manifest["checksum"]
    (mag.root / "graph.json").write_text(json.dumps(manifest))
    graph = oc.open(mag.root)
    assert graph.keys_of("paper") is None
    assert isinstance(names_of_items(graph), FileIds)
    assert oc.run("degrees", graph).to_pandas()["id"].tolist()[5:9] == ["0", "1", "2", "3"]


def test_new_labels_do_not_keep_the_names_of_old_classes(mag: Graph, outcome: Any) -> None:
    np.save("y.npy", [0, 1, 2, 0])
    assert outcome("add", mag.root, "--labels", "paper=y.npy", "--overwrite")[0] == 0
    graph = oc.open(mag.root)
    assert graph.num_classes == 3
    assert not [key for key in graph.arrays if key.startswith("names/class")]
    assert outcome("check", mag.root)[0] == 0


def test_a_table_by_key_for_a_type_without_keys_is_refused(mag: Graph, outcome: Any) -> None:
    Path("sizes.csv").write_text("id,size\n0,1\n1,2\n2,3\n")
    code, _, told = outcome("add", mag.root, "--array", "topic/size=sizes.csv:size")
    assert code == 1
    assert "column `id` holds keys, and the nodes of this type have none" in told
    assert "leave the column `id` out" in told
    Path("plain.csv").write_text("size\n1\n2\n3\n")
    assert outcome("add", mag.root, "--array", "topic/size=plain.csv:size")[0] == 0


def test_long_keys_are_looked_up_in_parts(tmp_path: Path) -> None:
    keys = [f"{at * 7919 % 5000:05}" + "k" * 3000 for at in range(5000)]
    pq.write_table(pa.table({"id": keys, "size": range(5000)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"s": keys[:2], "t": keys[1:3]}), tmp_path / "e.parquet")
    inputs = TypedInputs((f"a={tmp_path}/a.parquet:id",), (f"a,to,a={tmp_path}/e.parquet:s,t",))
    import_graph(open_typed(inputs), tmp_path / "g")
    names = oc.open(tmp_path / "g").keys_of("a")
    assert names is not None
    wanted = offsets_and_bytes(pa.array(keys[::-1], pa.large_string()))
    tracemalloc.start()
    found = names.lookup(*wanted)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.tolist() == [*range(4999, -1, -1)]
    # 15 MB of keys; some parts of 4 MiB at a time.
    assert peak < 24 << 20


def test_keys_of_several_columns_are_not_kept(tmp_path: Path, outcome: Any) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "tables.yaml").write_text(
        "tables:\n  lot:\n    primary_key: part, place\n"
        "  sale:\n    primary_key: id\n    foreign_keys: {'part, place': lot}\n"
    )
    write_table(folder / "lot.csv", {"part": ["a", "a"], "place": ["x", "y"], "size": [1, 2]})
    sales = {"id": ["s2", "s1"], "part": ["a", "a"], "place": ["y", "x"], "note": ["n", "m"]}
    write_table(folder / "sale.csv", sales)
    code, _, told = outcome("import", folder, "--text", "sale.note", "--out", "g")
    assert code == 0, told
    graph = oc.open("g")
    assert graph.keys_of("lot") is None
    assert graph.array("sale/key").tolist() == ["s2", "s1"]
    assert graph.array("sale/note").tolist() == ["n", "m"]


def stopped(where: str) -> Callable[..., None]:
    """Progress that is interrupted when it comes to `where`."""

    def progress(phase: str, *_: Any) -> None:
        if where in phase:
            raise KeyboardInterrupt

    return progress


_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\r\n\x1e\x1f\0"), min_size=1)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(keys=st.lists(_TEXT, min_size=1, max_size=30, unique=True))
def test_any_keys_are_kept_and_found(
    keys: list[str], tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("keys")
    pq.write_table(pa.table({"id": keys, "size": range(len(keys))}), place / "a.parquet")
    pq.write_table(pa.table({"s": keys[::-1], "t": keys}), place / "e.parquet")
    inputs = TypedInputs((f"a={place}/a.parquet:id",), (f"a,to,a={place}/e.parquet:s,t",))
    import_graph(open_typed(inputs), place / "g", ImportOptions(memory="64MiB"))
    graph = oc.open(place / "g")
    names = graph.keys_of("a")
    if names is None:
        assert keys == [str(row) for row in range(len(keys))]
    else:
        assert names.names() == keys
        wanted = [*keys[::-1], "no such key", *keys[:2]]
        found = names.lookup(*offsets_and_bytes(pa.array(wanted, pa.large_string())))
        assert found.tolist() == [keys.index(one) if one in keys else -1 for one in wanted]
    assert edges_by_type(graph)["a__to__a"] == [
        (row, len(keys) - 1 - row, row) for row in range(len(keys))
    ]


@pytest.mark.parametrize(
    "where", ["names", "write", "sort", "array author.key.bytes", "array paper.key.order"]
)
def test_a_stopped_import_is_resumed_to_the_same_keys(where: str, mag: Graph) -> None:
    inputs = TypedInputs(
        ("paper=papers.csv:id", "author=authors.csv:id"), ("author,writes,paper=writes.csv:a,p",)
    )
    with pytest.raises(KeyboardInterrupt):
        import_graph(open_typed(inputs), "again", progress=stopped(where))
    assert not Path("again/graph.json").exists()
    import_graph(open_typed(inputs), "again")
    again = oc.open("again")
    for name in ("author", "paper"):
        for part in ("offsets", "bytes", "order"):
            key = f"names/{name}.{KEY}.{part}"
            assert again.array(key).tolist() == mag.array(key).tolist()


def test_an_order_that_is_none_is_told(mag: Graph) -> None:
    arrays = dict(mag.arrays)
    arrays["names/paper.key.order"] = arrays["names/author.key.order"]
    keys = Names(mag.root, arrays, "paper.key")
    with pytest.raises(CorruptError, match="order"):
        keys.lookup(*offsets_and_bytes(pa.array(["p20", "p1"], pa.large_string())))


def test_an_embedding_is_exported_with_keys(mag: Graph, outcome: Any) -> None:
    pytest.importorskip("torch")
    how = ("--model", "distmult", "--dim", 4, "--epochs", 1, "--held-out", 0)
    code, _, told = outcome("embed", mag.root, *how, "--out", "emb")
    assert code == 0, told
    assert outcome("embedding", "export", "emb", "--out", "rows.csv")[0] == 0
    named = [row[0] for row in rows_of("rows.csv")]
    assert named == [
        *(f"author:{key}" for key in AUTHORS),
        *(f"paper:{key}" for key in PAPERS),
        *("topic:0", "topic:1", "topic:2"),
    ]
    relations = ("embedding", "export", "emb", "--relations", "--out", "relations.csv")
    assert outcome(*relations)[0] == 0
    assert [row[0] for row in rows_of("relations.csv")] == [
        ",".join(edge_type) for edge_type in mag.edge_types
    ]
    # A text added later is no name of a row.
    write_table(Path("notes.csv"), {"id": AUTHORS, "note": ["n"] * 5})
    assert outcome("add", mag.root, "--text", "author/note=notes.csv:note")[0] == 0
    assert outcome("embedding", "export", "emb", "--ids", "--out", "ids.csv")[0] == 0
    assert [row[0] for row in rows_of("ids.csv")] == [str(node) for node in range(12)]
    code, printed, _ = outcome("embedding", "neighbours", "emb", "author:lee, ann")
    assert code == 0
    assert "author:bo:b" in printed


def test_arrays_of_a_type_have_short_names_and_results_are_in_no_batch(
    mag: Graph, outcome: Any
) -> None:
    np.save("age.npy", [5, 4, 3, 2, 1])
    assert outcome("add", mag.root, "--array", "author/age=age.npy")[0] == 0
    oc.run("pagerank", mag, save="rank")
    graph = oc.open(mag.root)
    assert graph.array("author/age").tolist() == [5, 4, 3, 2, 1]
    assert graph.rows("author/age", np.array([1])).tolist() == [4]
    assert graph.array("author/rank").shape == (5,)
    arrays = batch_arrays(graph, None, besides=(), taken=())
    assert "nodes/author/age" in arrays
    assert not [key for key in arrays if key.endswith("rank")]


def test_a_hint_for_another_kind_of_run_or_graph_names_what_works(mag: Graph, outcome: Any) -> None:
    with pytest.raises(NotFoundError, match=r'hint: `graph.keys_of\("author"\).names\(\)`'):
        mag.entity_names()
    Path("run/model").mkdir(parents=True)
    code, _, told = outcome("embedding", "export", "run", "--out", "rows.csv")
    assert code == 1
    assert "it is a run of `outercore train`\nhint: `outercore evaluate run` scores it" in told


def test_a_slip_in_a_name_is_answered_by_the_name(mag: Graph, outcome: Any) -> None:
    asked = (
        (("run", "degrees", mag.root, "--relation", "paper,hass,topic"), "paper,has,topic"),
        (("run", "degrees", mag.root, "--relation", "has"), "paper,has,topic"),
        (("run", "bfs", mag.root, "--source", "autor:zoe"), "author"),
        (("run", "bfs", mag.root, "--source", "author:zoo"), "zoe"),
        (("train", mag.root, "--set", "sampling.train=trian"), "train"),
    )
    for command, meant in asked:
        code, _, told = outcome(*command)
        assert code == 1
        assert f"hint: did you mean `{meant}`?" in told, told
    Path("mine.py").write_text("class Deep: ...\n")
    with pytest.raises(NotFoundError, match=r"has no `Deap`\nhint: did you mean `Deep`\?"):
        from_place("model", "mine.py:Deap", "mine.py:Deep")


@pytest.mark.parametrize(
    ("labelled", "sizes"), [(3, [1, 1, 1]), (4, [2, 1, 1]), (10, [8, 1, 1]), (100, [80, 10, 10])]
)
def test_no_split_that_is_made_is_empty(labelled: int, sizes: list[int]) -> None:
    labels = np.full(120, -1)
    labels[:labelled] = 1
    rows = RowSource("y", labels.dtype, lambda: iter([labels]), count=len(labels))
    splits = random_splits(NodeArray("labels", "y", rows, "paper"), None)
    found = [np.concatenate(list(one.rows.chunks())) for one in splits]
    assert [len(ids) for ids in found] == sizes
    assert sorted(np.concatenate(found).tolist()) == list(range(labelled))
