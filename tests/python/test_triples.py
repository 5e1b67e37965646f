"""Import of knowledge graphs, and looking up names."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from numpy.typing import NDArray

import outercore as oc
from outercore.base.native import Importer
from outercore.data.names import Names
from outercore.errors import InvalidError, NotFoundError
from outercore.importing.build.triples import TripleOptions, import_triples

Rows = list[tuple[str, str, str]]

RELATIONS = ("liegt in", "r1", "fließt durch")


def random_rows(count: int, entities: int, seed: int) -> Rows:
    draws = np.random.default_rng(seed)
    heads, tails = draws.integers(0, entities, (2, count))
    relations = draws.integers(0, len(RELATIONS), count)
    return [
        (f"Größe {h}", RELATIONS[r], f"Größe {t}")
        for h, r, t in zip(heads, relations, tails, strict=True)
    ]


def write(path: Path, rows: Rows) -> Path:
    path.write_text("".join("\t".join(row) + "\n" for row in rows))
    return path


def named(graph: oc.Graph, part: str) -> Rows:
    ids: NDArray[np.int64] = graph.array(f"triples/{part}")
    heads, tails = graph.entity_names(ids[:, 0]), graph.entity_names(ids[:, 2])
    return list(zip(heads, graph.relation_names(ids[:, 1]), tails, strict=True))


@pytest.fixture
def parts(tmp_path: Path) -> dict[str, Rows]:
    train = random_rows(400, 60, 1)
    known = [name for row in train for name in (row[0], row[2])]
    held = [row for row in random_rows(60, 60, 2) if row[0] in known and row[2] in known]
    parts = {"train": train, "valid": held[:20], "test": held[20:]}
    for part, rows in parts.items():
        write(tmp_path / f"{part}.tsv", rows)
    return parts


def test_triples_come_back_by_name_in_their_order(tmp_path: Path, parts: dict[str, Rows]) -> None:
    summary = import_triples(
        tmp_path / "train.tsv",
        tmp_path / "facts",
        valid=tmp_path / "valid.tsv",
        test=tmp_path / "test.tsv",
    )
    graph = oc.open(tmp_path / "facts")
    names = sorted({name for h, _, t in parts["train"] for name in (h, t)}, key=shortlex)
    assert graph.entity_names() == names
    assert graph.relation_names() == sorted(RELATIONS, key=shortlex)
    assert (summary["entities"], summary["relations"]) == (len(names), 3)
    assert graph.num_nodes == len(names)
    for part, rows in parts.items():
        assert named(graph, part) == rows
        assert graph.array(f"triples/{part}").dtype == np.int64
        assert summary["parts"][part]["triples"] == len(rows)


def shortlex(name: str) -> tuple[int, bytes]:
    return len(name.encode()), name.encode()


def test_every_name_finds_its_id_and_others_do_not(tmp_path: Path, parts: dict[str, Rows]) -> None:
    import_triples(tmp_path / "train.tsv", tmp_path / "facts")
    graph = oc.open(tmp_path / "facts")
    names = graph.entity_names()
    assert [graph.entity_id(name) for name in names] == list(range(len(names)))
    assert graph.entities.ids(reversed(names)).tolist() == list(range(len(names)))[::-1]
    assert graph.relation_id("r1") == 0
    for name in ("", "Größe", "Größe 1000", "zzz", "Größe 1 "):
        assert graph.entities.find(name) is None
        with pytest.raises(NotFoundError, match="entity"):
            graph.entity_id(name)
    for ids in ([0, len(names)], [-1]):
        with pytest.raises(InvalidError, match="expected 0 to"):
            graph.entity_names(ids)
    with pytest.raises(InvalidError, match="expected integers"):
        graph.entity_names([0.5])
    assert graph.entity_names([]) == []


def test_names_in_another_order_are_found_through_it(tmp_path: Path) -> None:
    names, order = [b"zoo", b"a", b"bb"], [1, 2, 0]
    offsets = np.cumsum([0, *map(len, names)]).astype(np.uint64)
    arrays = {}
    for key, values in (
        ("offsets", offsets),
        ("bytes", np.frombuffer(b"".join(names), np.uint8)),
        ("order", np.array(order, np.uint64)),
    ):
        (tmp_path / key).write_bytes(bytes(16) + values.tobytes())
        arrays[f"names/entity.{key}"] = {
            "file": key,
            "dtype": str(values.dtype),
            "shape": [len(values)],
            "data_offset": 16,
        }
    found = Names(tmp_path, arrays, "entity")
    assert [found.find(name.decode()) for name in names] == [0, 1, 2]
    assert found.find("b") is None
    assert found.names([2, 0]) == ["bb", "zoo"]


def test_a_graph_without_names_says_so(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", [("a", "r", "b")])
    import_triples(tmp_path / "train.tsv", tmp_path / "facts")
    with pytest.raises(NotFoundError, match=r"names/author\.offsets"):
        Names(tmp_path / "facts", oc.open(tmp_path / "facts").arrays, "author")


def test_every_kind_of_file_gives_the_same_arrays(tmp_path: Path, parts: dict[str, Rows]) -> None:
    rows = parts["train"]
    heads, relations, tails = (list(column) for column in zip(*rows, strict=True))
    table = pa.table({"h": heads, "x": [0] * len(rows), "t": tails, "r": relations})
    pyarrow.parquet.write_table(table, tmp_path / "all.parquet", row_group_size=37)
    coded = table.set_column(3, "r", table["r"].dictionary_encode())
    pyarrow.parquet.write_table(coded, tmp_path / "coded.parquet")
    lines = "".join(f'"{h}",7,{t},"{r}"\n' for h, r, t in rows)
    (tmp_path / "plain.csv").write_text(lines)
    (tmp_path / "named.csv").write_text("from,x,to,how\n" + lines)
    (tmp_path / "train.tsv.gz").write_bytes(gzip.compress((tmp_path / "train.tsv").read_bytes()))
    inputs = {
        "train.tsv": "hrt",
        "train.tsv.gz": "hrt",
        "plain.csv": "h_tr",
        "named.csv:from,how,to": "hrt",
        "named.csv:to,from,how": "thr",
        "all.parquet": "h_tr",
        "all.parquet:h,r,t": "hrt",
        "coded.parquet:t,r,h": "trh",
    }
    checksums = set()
    for number, (name, columns) in enumerate(inputs.items()):
        out = tmp_path / f"facts-{number}"
        import_triples(str(tmp_path / name), out, options=TripleOptions(columns=columns))
        arrays = oc.open(out).arrays
        checksums.add(json.dumps({key: arrays[key]["checksum"] for key in sorted(arrays)}))
    assert len(checksums) == 1


def test_integers_are_names_and_their_own_ids(tmp_path: Path) -> None:
    ids = np.array([[0, 0, 11], [3, 1, 2], [11, 2, 0]])
    ids = np.concatenate([ids, [[node, 3, node] for node in range(12)]])
    columns = {"head": ids[:, 0], "relation": ids[:, 1], "tail": ids[:, 2], "w": ids[:, 0] / 2}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "train.parquet")
    options = TripleOptions(columns="hrtw")
    import_triples(tmp_path / "train.parquet", tmp_path / "facts", options=options)
    graph = oc.open(tmp_path / "facts")
    assert np.array_equal(graph.array("triples/train"), ids)
    assert graph.array("triples/train.weight").tolist() == (ids[:, 0] / 2).tolist()
    assert graph.entity_id(11) == 11


def test_unknown_names_are_listed_and_the_import_goes_on_by_another_rule(tmp_path: Path) -> None:
    write(tmp_path / "train.tsv", [("a", "r", "b")])
    write(tmp_path / "test.tsv", [("a", "r", "b"), ("c", "r", "a"), ("a", "s", "b")])

    def by(unknown: Any) -> dict[str, Any]:
        return import_triples(
            tmp_path / "train.tsv",
            tmp_path / "facts",
            test=tmp_path / "test.tsv",
            options=TripleOptions(unknown=unknown),
        )

    with pytest.raises(InvalidError, match=r"`test` has 1 entities and 1 relations.*`c`, `s`"):
        by("error")
    assert not (tmp_path / "facts/graph.json").exists()
    found = by("keep")["parts"]["test"]
    assert (found["triples"], found["unknown_triples"], found["unknown"]) == (3, 2, ["c", "s"])
    assert found["in_train"] == 1
    assert oc.open(tmp_path / "facts").entity_names() == ["a", "b", "c"]
    with pytest.raises(InvalidError, match="holds a data set already"):
        by("drop")


def test_one_import_writes_to_a_directory_and_lets_go_of_it_in_the_end(
    tmp_path: Path, parts: dict[str, Rows]
) -> None:
    out, train = tmp_path / "graph", tmp_path / "train.tsv"
    overwrite = TripleOptions(overwrite=True)
    with Importer(out, {"memory": 1 << 26}, lambda *_: None) as edges:
        edges.push_edges(np.array([0, 1]), np.array([1, 2]))
        with pytest.raises(InvalidError, match="somebody else writes to it"):
            import_triples(train, out, options=overwrite)
    # As long as the error is kept, so is all that its frames hold.
    other = write(tmp_path / "other.tsv", [("a", "b", "c")])
    with pytest.raises(InvalidError, match="unknown") as kept:
        import_triples(train, out, valid=other, options=overwrite)
    import_triples(train, out, options=overwrite)
    assert kept.tb is not None
    assert sorted(named(oc.open(out), "train")) == sorted(parts["train"])


def test_the_command_line_imports_triples(
    outcome: Any, tmp_path: Path, parts: dict[str, Rows]
) -> None:
    code, out, _ = outcome(
        "import", tmp_path / "train.tsv", "--triples", "--valid", tmp_path / "valid.tsv",
        "--test", tmp_path / "test.tsv", "--memory", "16MiB", "--out", tmp_path / "facts", "--json",
    )  # fmt: skip
    assert code == 0
    assert json.loads(out)["parts"]["valid"]["triples"] == len(parts["valid"])
    assert named(oc.open(tmp_path / "facts"), "test") == parts["test"]
    for verb in ("check", "info"):
        code, out, error = outcome(verb, tmp_path / "facts")
        assert code == 0, error
    code, out, _ = outcome(
        "import", tmp_path / "train.tsv", "--triples", "--out", tmp_path / "facts", "--overwrite"
    )
    assert code == 0
    assert "entities" in out
    assert "parts: train: triples" in out


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--valid", "valid.tsv"), "--valid: expected `--triples` with it"),
        (("--columns", "htr"), "--columns: expected `--triples` with it"),
        (("--triples", "--undirected"), "--undirected: does not go with `--triples`"),
        (("--triples", "--columns", "hr"), "`t` comes 0 times"),
        (("--triples", "--unknown", "guess"), "unknown: expected one of error, drop, keep"),
        (("--triples", "--memory", "1MiB"), "at least 16.0 MiB of memory"),
        (("--triples", "--columns", "htw_r"), "found 3 columns separated by tabs, expected 5"),
    ],
)
def test_options_that_cannot_be_are_refused(
    outcome: Any,
    tmp_path: Path,
    parts: dict[str, Rows],
    arguments: tuple[str, ...],
    expected: str,
) -> None:
    code, _, error = outcome("import", tmp_path / "train.tsv", *arguments, "--out", tmp_path / "x")
    assert code == 1
    assert expected in " ".join(error.split())
