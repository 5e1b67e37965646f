"""An import that is refused or wrong loses nothing of what was in its directory."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore
from outercore import _core
from outercore.importing.table.text import TextTable
from test_import_cases import edges_by_id

pytestmark = pytest.mark.skipif(
    not hasattr(_core, "Importer"), reason="the native module has no importer yet"
)


def contents(root: Path) -> dict[str, bytes]:
    """All files below `root`."""
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.read_bytes() for path in files}


@pytest.fixture
def graph(tmp_path: Path, outcome: Any) -> Path:
    """A data set of three nodes, with a file of the user among its arrays."""
    (tmp_path / "good.csv").write_text("1,2\n0,1\n")
    assert outcome("import", "good.csv", "--out", "graph")[0] == 0
    root = tmp_path / "graph"
    (root / "edges" / "part0.csv").write_text("0,1\n")
    return root


def test_an_overwrite_that_is_refused_keeps_the_old_data_set(graph: Path, outcome: Any) -> None:
    before = contents(graph)
    (graph.parent / "bad.csv").write_text("1,2\n0,1\nno,edge\n")
    code, _, err = outcome("import", "bad.csv", "--out", "graph", "--overwrite")
    assert code != 0
    assert "bad.csv" in err
    assert contents(graph) == before
    assert outcome("check", "graph")[0] == 0


def test_an_overwrite_replaces_the_data_set_and_keeps_files_of_the_user(
    graph: Path, outcome: Any
) -> None:
    (graph.parent / "more.csv").write_text("1,2\n0,1\n2,3\n3,4\n")
    assert outcome("import", "more.csv", "--out", "graph", "--overwrite")[0] == 0
    assert outercore.open(graph).num_nodes == 5
    assert (graph / "edges" / "part0.csv").read_text() == "0,1\n"
    assert outcome("check", "graph")[0] == 0


@pytest.mark.parametrize("overwrite", [(), ("--overwrite",)])
def test_an_import_into_the_folder_of_its_own_input_is_refused_and_the_input_stays(
    tmp_path: Path, outcome: Any, overwrite: tuple[str, ...]
) -> None:
    part = tmp_path / "raw" / "edges" / "part0.csv"
    part.parent.mkdir(parents=True)
    part.write_text("1,2\n0,1\n")
    code, _, err = outcome("import", part, "--out", "raw", *overwrite)
    assert code != 0
    assert "expected an empty or a new directory" in err
    assert "--out" in err
    assert contents(tmp_path / "raw") == {"edges/part0.csv": b"1,2\n0,1\n"}


def test_an_array_of_the_data_set_is_not_taken_as_input_of_what_replaces_it(
    graph: Path, outcome: Any
) -> None:
    before = contents(graph)
    array = graph / "edges" / "edge" / "sources.npy"
    code, _, err = outcome("import", array, "--out", "graph", "--overwrite")
    assert code != 0
    assert err
    assert contents(graph) == before


def test_a_graph_json_of_another_program_is_kept(tmp_path: Path, outcome: Any) -> None:
    (tmp_path / "good.csv").write_text("1,2\n0,1\n")
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "graph.json").write_text('{"nodes": [], "links": []}')
    for overwrite in [(), ("--overwrite",)]:
        code, _, err = outcome("import", "good.csv", "--out", "theirs", *overwrite)
        assert code != 0
        assert "only a data set that can be read is replaced" in err
        assert contents(folder) == {"graph.json": b'{"nodes": [], "links": []}'}


def test_a_manifest_that_the_device_refuses_is_an_error_of_the_device(
    tmp_path: Path, outcome: Any
) -> None:
    (tmp_path / "good.csv").write_text("1,2\n0,1\n")
    (tmp_path / "graph" / "graph.json").mkdir(parents=True)
    code, _, err = outcome("import", "good.csv", "--out", "graph", "--overwrite")
    assert code == 1
    assert "graph.json" in err
    # Nothing is known about whose it is.
    assert "only a data set that can be read" not in err
    assert (tmp_path / "graph" / "graph.json").is_dir()


def test_a_corrected_command_after_a_slip_works(tmp_path: Path, outcome: Any) -> None:
    (tmp_path / "edges.csv").write_text("1,2\n1,x\n")
    assert outcome("import", "edges.csv", "--out", "graph", "--undirected")[0] != 0
    assert not (tmp_path / "graph").exists()
    (tmp_path / "edges.csv").write_text("1,2\n0,1\n")
    code, _, err = outcome("import", "edges.csv", "--out", "graph")
    assert code == 0, err
    assert outcome("check", "graph")[0] == 0


def test_other_labels_after_refused_ones_go_on_with_the_edges(tmp_path: Path, outcome: Any) -> None:
    (tmp_path / "edges.csv").write_text("1,2\n0,1\n")
    np.save(tmp_path / "short.npy", np.zeros(2, np.int64))
    np.save(tmp_path / "right.npy", np.zeros(3, np.int64))
    command = ["import", "edges.csv", "--nodes", "3", "--out", "graph", "--labels"]
    code, _, err = outcome(*command, "short.npy")
    assert code == 1
    assert "2 rows" in err
    code, _, err = outcome(*command, "right.npy")
    assert code == 0, err
    assert outcome("check", "graph")[0] == 0


@pytest.mark.parametrize("kind", ["parquet", "npz", "npy", "txt", "scipy", "names"])
def test_edges_that_changed_since_a_stopped_import_are_not_taken_from_it(
    tmp_path: Path, outcome: Any, kind: str
) -> None:
    def write(edges: list[list[int]]) -> Path:
        path = tmp_path / f"edges.{ {'scipy': 'npz', 'names': 'txt'}.get(kind, kind) }"
        array = np.array(edges, np.int64)
        if kind == "parquet":
            pq.write_table(pa.table({"src": array[:, 0], "dst": array[:, 1]}), path)
        elif kind == "npz":
            np.savez(path, edges=array)
        elif kind == "scipy":
            values = {"row": array[:, 0], "col": array[:, 1], "data": np.ones(len(array))}
            np.savez(path, format=b"coo", shape=(3, 3), **values)
        elif kind == "npy":
            np.save(path, np.asfortranarray(array))
        else:
            np.savetxt(path, array, "%d")
        return path

    path = write([[0, 1], [1, 2], [0, 2]])
    (tmp_path / "wrong.csv").write_text("id,label\n0,0\n1,0\n1,0\n2,0\n")
    (tmp_path / "right.csv").write_text("id,label\n0,0\n1,0\n2,0\n")
    how = ["--ids", "dictionary"] if kind == "names" else ["--nodes", "3"]
    command = ["import", path, *how, "--out", "graph", "--labels"]
    assert outcome(*command, "wrong.csv")[0] == 1
    write([[2, 1], [1, 0], [2, 0]])
    os.utime(path, ns=(1, 1))
    # After a refusal nothing of it is kept.
    code, _, err = outcome(*command, "right.csv")
    assert code == 0, err
    assert edges_by_id(outercore.open("graph")) == [[2, 1], [1, 0], [2, 0]]


def test_triples_that_changed_since_a_stopped_import_are_not_taken_from_it(
    tmp_path: Path, outcome: Any
) -> None:
    def write(heads: list[str]) -> None:
        columns = {"head": heads, "relation": ["likes"] * 2, "tail": ["bob", "ann"]}
        pq.write_table(pa.table(columns), tmp_path / "train.parquet")

    command = ["import", "train.parquet", "--triples", "--valid", "valid.tsv", "--out", "graph"]
    write(["ann", "bob"])
    (tmp_path / "valid.tsv").write_text("ann\tlikes\tbob\n" * 2500 + "ann\tlikes\n")
    assert outcome(*command)[0] == 1
    write(["carol", "bob"])
    os.utime(tmp_path / "train.parquet", ns=(1, 1))
    (tmp_path / "valid.tsv").write_text("bob\tlikes\tann\n")
    code, _, err = outcome(*command)
    assert code == 0, err
    assert outercore.open("graph").entity_names() == ["ann", "bob", "carol"]


def test_a_file_that_changes_between_the_passes_over_it_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, outcome: Any
) -> None:
    path = tmp_path / "edges.csv"
    path.write_text("src,dst,w\n0,1,0.5\n1,2,1.5\n")
    numbers = TextTable.numbers

    def changed(table: TextTable, *wanted: Any) -> Any:
        path.write_text("src,dst,w\n2,1,5.5\n1,0,15.5\n")
        os.utime(path, ns=(1, 1))
        return numbers(table, *wanted)

    monkeypatch.setattr(TextTable, "numbers", changed)
    for how in ([], ["--ids", "dictionary"]):
        code, _, err = outcome("import", path, *how, "--weight", "w", "--out", "graph")
        assert code == 1
        assert "edges.csv` changed during the import" in err
        assert not (tmp_path / "graph" / "graph.json").exists()
        shutil.rmtree(tmp_path / "graph", ignore_errors=True)
        os.utime(path, ns=(2, 2))


def test_another_import_after_a_refused_one_begins_anew(tmp_path: Path, outcome: Any) -> None:
    (tmp_path / "edges.csv").write_text("1,2\n0,1\n")
    np.save(tmp_path / "short.npy", np.zeros(2, np.int64))
    command = ["import", "edges.csv", "--nodes", "3", "--out", "graph"]
    assert outcome(*command, "--labels", "short.npy")[0] == 1
    code, _, err = outcome(*command, "--undirected")
    assert code == 0, err
    assert outcome("check", "graph")[0] == 0


def test_a_flipped_byte_in_any_array_is_found_by_name(graph: Path, outcome: Any) -> None:
    arrays = sorted(path for path in graph.rglob("*.npy"))
    assert len(arrays) >= 2
    for path in arrays:
        before = path.read_bytes()
        damaged = bytearray(before)
        damaged[4096 + (len(before) - 4096) // 2] ^= 1
        path.write_bytes(damaged)
        code, out, err = outcome("check", "graph")
        assert code == 1, path
        assert str(path.relative_to(graph).with_suffix("")) in out + err
        path.write_bytes(before)
    assert outcome("check", "graph")[0] == 0


def test_files_of_edge_values_are_among_the_inputs(tmp_path: Path, outcome: Any) -> None:
    edges, weights, out = tmp_path / "e.txt", tmp_path / "w.npy", tmp_path / "out"
    edges.write_text("0 1\n1 2\n")
    np.save(weights, np.array([0.5, 2.0]))
    code, _, err = outcome("import", edges, "--weight", weights, "--out", out)
    assert code == 0, err
    provenance = json.loads((out / "graph.json").read_text())["provenance"]
    assert provenance["inputs"] == [str(edges), str(weights)]


@pytest.mark.parametrize(
    "options",
    [
        ["words.csv", "--ids", "dictionary"],
        ["--nodes", "word=names.csv:id", "--edges", "word,to,word=links.csv:src,dst"],
    ],
    ids=["dictionary", "keys"],
)
def test_a_dictionary_whose_removal_was_cut_short_is_not_in_the_way(
    tmp_path: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    (tmp_path / "words.csv").write_text("ann,bob\nbob,carol\n")
    (tmp_path / "links.csv").write_text("src,dst\nann,bob\nbob,carol\n")
    (tmp_path / "names.csv").write_text("id\nann\nbob\ncarol\n")
    expected = contents(tmp_path)
    whole = shutil.rmtree

    def cut_short(path: Path, **how: bool) -> None:
        """What a kill leaves that comes after the first file."""
        if (Path(path) / "graph.json").exists():
            (Path(path) / "graph.json").unlink()
        else:
            whole(path, **how)

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", cut_short)
        assert outcome("import", *options, "--out", "new")[0] == 0
    assert set(contents(tmp_path)) > set(expected)
    whole(tmp_path / "new")
    code, _, told = outcome("import", *options, "--out", "new")
    assert code == 0, told
    whole(tmp_path / "new")
    assert contents(tmp_path) == expected
