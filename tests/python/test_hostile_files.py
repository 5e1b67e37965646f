"""Files from anywhere are read, or refused by name: no hang, no bytes of another file, no error of
a library."""

from __future__ import annotations

import os
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outercore.errors import OutercoreError
from outercore.files.file_spec import FileSpec
from outercore.files.npy import open_npy
from outercore.importing.format.description import read_yaml
from outercore.importing.format.graphbolt import read_description
from outercore.importing.format.neo4j import open_files
from outercore.importing.format.relational import read_schema
from outercore.importing.inputs import Inputs
from outercore.importing.plain_graph import open_inputs
from outercore.importing.table.npz import open_member, read_member
from outercore.importing.table.rows import open_rows
from outercore.importing.table.sparse import sparse_edges
from outercore.importing.table.torch_file import read_torch

MOST_MEMORY = 64 << 20


def described(folder: Path, name: str, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(text)
    return folder


def refused(call: Any, *arguments: Any, match: str, **more: Any) -> None:
    """The call fails with an error of ours, without much memory before."""
    tracemalloc.start()
    try:
        with pytest.raises(OutercoreError, match=match) as found:
            call(*arguments, **more)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_MEMORY
    assert "allow_pickle" not in str(found.value)
    assert len(str(found.value)) < 2000


# Descriptions.

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{one}: &a{one} [{', '.join([f'*a{one - 1}'] * 10)}]\n" for one in range(1, 10)
)
CHAIN = "a0: &a0 [x]\n" + "".join(f"a{one}: &a{one} [*a{one - 1}]\n" for one in range(1, 200))


@pytest.mark.parametrize(
    ("text", "match"),
    [
        (LAUGHS + "tables: {t: {file: *a9}}\n", "line 5: more than 100,000 values"),
        ("tables: &t {a: *t}\n", "line 1: a value that is part of itself"),
        (CHAIN, "more than 16 deep"),
        ("[" * 100_000, "more than 16 deep"),
        ("- " * 100_000 + "a", "more than 16 deep"),
        ("tables: " + "{a: " * 20_000 + "}" * 20_000, "more than 16 deep"),
        ("? " * 10_000 + "a", "more than 16 deep"),
        ("a: 1\n" * 2, "`a` is there twice"),
        ('a: "\\UFFFFFFFF"\n', "tables.yaml`: "),
        ("[a]: 1\n", "expected a name before the colon"),
        ("x" * (1 << 18) + "x", "expected at most 262,144 bytes"),
    ],
)
def test_a_description_has_as_many_values_as_people_write(
    tmp_path: Path, text: str, match: str
) -> None:
    described(tmp_path / "f", "tables.yaml", text)
    refused(read_yaml, tmp_path / "f/tables.yaml", match=match)


def test_aliases_that_a_program_wrote_are_read(tmp_path: Path) -> None:
    described(tmp_path / "f", "a.yaml", "a: &id001 {b: [c, d]}\ne: *id001\n")
    assert read_yaml(tmp_path / "f/a.yaml").value == {
        "a": {"b": ["c", "d"]},
        "e": {"b": ["c", "d"]},
    }


def test_ten_thousand_tables_are_read_once_each(tmp_path: Path) -> None:
    text = "".join(f"t{one}: {{k: v}}\n" for one in range(10_000))
    described(tmp_path / "f", "tables.yaml", text)
    assert len(read_yaml(tmp_path / "f/tables.yaml").value) == 10_000


@pytest.mark.parametrize("count", ["9" * 5000, "-1", "1.5", "٣", str(2**63), "[1]", "{a: 1}"])
def test_a_number_of_nodes_is_one(tmp_path: Path, count: str) -> None:
    text = f"graph:\n  nodes: [{{num: {count}}}]\n"
    described(tmp_path / "f", "metadata.yaml", text)
    refused(read_description, tmp_path / "f", match="`num`: expected")


@pytest.mark.parametrize(
    "entry",
    [
        "{domain: [node], name: x, format: numpy, path: e.csv}",
        "{domain: node, type: [a], name: x, format: numpy, path: e.csv}",
        "{domain: node, name: {a: b}, format: numpy, path: e.csv}",
        "{domain: node, name: x, format: [numpy], path: e.csv}",
        "{domain: node, name: x, format: numpy, path: [e.csv]}",
        "[domain]",
        "{domain: node, name: x, format: numpy, path: " + "e" * 5000 + "}",
        '{domain: node, name: x, format: numpy, path: "a\\0b"}',
    ],
)
def test_an_entry_of_another_kind_is_named(tmp_path: Path, entry: str) -> None:
    graph = "graph:\n  nodes: [{num: 3}]\n  edges: [{format: csv, path: e.csv}]\n"
    described(tmp_path / "f", "metadata.yaml", f"{graph}feature_data:\n  - {entry}\n")
    (tmp_path / "f/e.csv").write_text("0,1\n")
    refused(read_description, tmp_path / "f", match=r"metadata.yaml`: `feature_data`, entry 0")


def outside_of(folder: Path, kind: str) -> str:
    """The name in a description of a table that is outside of the folder."""
    outside = folder.parent / "outside.csv"
    outside.write_text("id,v\n1,2\n")
    if kind == "absolute":
        return str(outside)
    if kind == "parent":
        return "../outside.csv"
    if kind == "link":
        (folder / "t.csv").symlink_to(outside)
        return "t.csv"
    if kind == "linked folder":
        (folder / "up").symlink_to(folder.parent)
        return "up/outside.csv"
    (folder / "t").mkdir()
    pq.write_table(pa.table({"id": [1]}), folder.parent / "outside.parquet")
    (folder / "t/a.parquet").symlink_to(folder.parent / "outside.parquet")
    return "t"


@pytest.mark.parametrize("kind", ["absolute", "parent", "link", "linked folder", "parquet folder"])
def test_a_description_names_files_of_its_folder_unless_the_user_says_more(
    tmp_path: Path, kind: str
) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    name = outside_of(folder, kind)
    described(folder, "tables.yaml", f"tables: {{t: {{file: '{name}'}}}}\n")
    refused(read_schema, folder, match=r"outside of the folder(.|\n)*`outside_files=True`")
    assert read_schema(folder, outside=True)["t"].file == folder / name
    edges = f"edges: [{{format: csv, path: '{name}'}}]"
    described(folder, "metadata.yaml", f"graph:\n  nodes: [{{num: 3}}]\n  {edges}\n")
    refused(read_description, folder, match="outside of the folder")
    assert read_description(folder, outside=True).edges[0].path == folder / name


def test_a_table_that_is_found_by_its_name_is_not_a_link_out_of_the_folder(tmp_path: Path) -> None:
    folder = described(tmp_path / "f", "tables.yaml", "tables: {t: {primary_key: id}}\n")
    outside_of(folder, "link")
    refused(read_schema, folder, match="outside of the folder")


def test_an_export_of_neo4j_has_its_files_in_its_folder(tmp_path: Path) -> None:
    from outercore.importing.table.text import TextOptions

    folder = described(tmp_path / "f", "user-header.csv", ":ID,name\n")
    (tmp_path / "passwd").write_text("a,b\n")
    (folder / "user.csv").symlink_to(tmp_path / "passwd")
    refused(open_files, folder, TextOptions(), match="user.csv` is outside of the folder")
    assert open_files(folder, TextOptions(), outside=True)[0]


def test_the_command_line_names_the_option_for_files_outside(tmp_path: Path, outcome: Any) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    name = outside_of(folder, "parent")
    text = f"tables: {{t: {{file: '{name}', primary_key: id}}}}\n"
    described(folder, "tables.yaml", text)
    code, _, told = outcome("import", "f", "--out", "g")
    assert code == 1
    assert "outercore import f --out g --outside-files" in told
    assert outcome("import", "f", "--out", "g", "--outside-files")[0] == 0
    (tmp_path / "e.csv").write_text("0,1\n")
    code, _, told = outcome("import", "e.csv", "--out", "h", "--outside-files")
    assert code == 1
    assert "--outside-files: has no effect" in told


# What is no file.


def opened(path: Path) -> Any:
    """Reads a file as an import does, by its name."""
    if path.suffix == ".pt":
        return read_torch(path)
    if path.suffix == ".yaml":
        return read_yaml(path)
    return open_rows(FileSpec(path, ()))


@pytest.mark.parametrize("name", ["x.csv", "x.npy", "x.npz", "x.parquet", "x.pt", "x.yaml", "x"])
def test_no_pipe_and_no_folder_is_waited_for(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / name)
    refused(opened, tmp_path / name, match="a pipe or a device")
    (tmp_path / name).unlink()
    (tmp_path / name).mkdir()
    refused(opened, tmp_path / name, match="folder|directory|expected")


# Arrays of NumPy.

HEADERS = [
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (4611686018427387904, 2)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (4294967296, 4294967296)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (-1, 2)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (True, 2)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (4611686018427387904, 0)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (" + b"1," * 65 + b")}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (2147483648, 2147483648, 0)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (9, 2)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (" + b"9" * 5000 + b",)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': " + b"(" * 900 + b"1" + b",)" * 900 + b"}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (" + b"-" * 9000 + b"1,)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': None}",
    b"{'descr': '<i8', 'fortran_order': False}",
    b"{'descr': 'O', 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': '|V9999999999999', 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': [('a', '<i8'), ('b', 'O')], 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': [], 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': (), 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': '<i8', 'fortran_order': 7, 'shape': (2,)}",
    b"{'descr': __import__('os').getcwd(), 'fortran_order': False, 'shape': (2,)}",
    b"{'descr': '<i8', 'fortran_order': False, 'shape': (2,)}" + b" " * 60_000,
    b"\x00" * 40,
    b"{" * 200,
    b"",
]


def npy(header: bytes, data: bytes = bytes(64)) -> bytes:
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


@pytest.mark.parametrize("header", HEADERS, ids=range(len(HEADERS)))
def test_a_header_that_cannot_be_true_is_refused(tmp_path: Path, header: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(npy(header))
    refused(open_npy, FileSpec(path, ()), "array", match="array `")
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", npy(header))
    refused(open_member, tmp_path / "x.npz", ("x",), match="x.npz:x`")


def test_every_cut_of_an_array_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(5))
    whole = path.read_bytes()
    np.testing.assert_array_equal(open_npy(FileSpec(path, ()), "array"), np.arange(5))
    for length in [*range(0, 128, 5), *range(128, len(whole))]:
        path.write_bytes(whole[:length])
        refused(open_npy, FileSpec(path, ()), "array", match="array `")


@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0), (), (3,), (2, 3), (2, 3, 4)])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_that_of_numpy(tmp_path: Path, shape: tuple[int, ...], order: Any) -> None:
    expected = np.asarray(np.arange(np.prod(shape), dtype=">i4").reshape(shape), order=order)
    np.save(tmp_path / "x.npy", expected)
    found = open_npy(FileSpec(tmp_path / "x.npy", ()), "array")
    assert found.dtype == expected.dtype
    np.testing.assert_array_equal(found, expected)


def test_a_packed_array_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    header = b"{'descr': '<i8', 'fortran_order': False, 'shape': (100000000,)}"
    with (
        zipfile.ZipFile(tmp_path / "x.npz", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("x.npy", "w") as file,
    ):
        file.write(npy(header, b""))
        for _ in range(100):
            file.write(bytes(8_000_000))
    refused(read_member, tmp_path / "x.npz", "x", match="when unpacked(.|\n)*without packing")


# Sparse matrices.


def matrix(path: Path, **changed: Any) -> Path:
    parts = {
        "format": np.array("csr"),
        "shape": np.array([3, 3]),
        "indptr": np.array([0, 1, 3, 3]),
        "indices": np.array([2, 0, 1]),
        "data": np.ones(3),
    }
    np.savez(path, **{**parts, **changed})
    return path


def all_edges(path: Path) -> list[tuple[int, int]]:
    return [
        pair
        for u, v in sparse_edges(path).edges()
        for pair in zip(u.tolist(), v.tolist(), strict=True)
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"format": np.array([b"\xff\xfe"])},
        {"format": np.array([], "U3")},
        {"format": np.array(3)},
        {"shape": np.array([3])},
        {"shape": np.array(["3", "3"])},
        {"shape": np.array([3.5, 3.5])},
        {"shape": np.array([-3, -3])},
        {"shape": np.array([4, 4])},
        {"indptr": np.array([0, 1, 3])},
        {"indptr": np.array([0, 3, 1, 3])},
        {"indptr": np.array([1, 1, 3, 3])},
        {"indptr": np.array([0, 1, 3, 2**63], "u8")},
        {"indptr": np.array([0, 1, 2, 2])},
        {"indptr": np.array([0, 1, 3, 9])},
        {"indptr": np.array([0.0, 1, 3, 3])},
        {"indices": np.array([2, 0, 3])},
        {"indices": np.array(["2", "0", "1"])},
        {"indices": np.array([2, 0])},
    ],
    ids=range(18),
)
def test_a_sparse_matrix_that_scipy_does_not_write_is_refused(
    tmp_path: Path, changed: dict[str, Any]
) -> None:
    refused(all_edges, matrix(tmp_path / "m.npz", **changed), match="m.npz")


def test_row_pointers_are_read_in_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import scipy.sparse

    random = np.random.default_rng(5)
    dense = (random.random((40, 40)) < 0.2) * (random.random((40, 1)) < 0.5)
    scipy.sparse.save_npz(tmp_path / "m.npz", scipy.sparse.csr_array(dense))
    expected = list(zip(*(part.tolist() for part in np.nonzero(dense)), strict=True))
    for chunk in (1, 2, 3, 7, 1000):
        monkeypatch.setattr("outercore.importing.table.sparse._CHUNK", chunk)
        assert all_edges(tmp_path / "m.npz") == expected, chunk


# Texts and tables.


def test_numbers_of_five_thousand_digits_are_refused(tmp_path: Path, outcome: Any) -> None:
    (tmp_path / "e.csv").write_text(f"0,1\n1,{'9' * 5000}\n")
    (tmp_path / "v.csv").write_text("id,v\n0,1\n")
    (tmp_path / "g.txt").write_text(f"1\n1 0\n{'9' * 30} 0\n")
    for arguments in (
        ("e.csv",),
        ("g.txt",),
        ("--nodes", f"a={'9' * 5000}", "--edges", "a,r,a=e.csv"),
        ("v.csv", "--nodes", "9" * 5000),
    ):
        code, _, told = outcome("import", *arguments, "--out", "g")
        assert code == 1, arguments
        assert "internal error" not in told


def test_counts_of_graphs_do_not_wrap(tmp_path: Path) -> None:
    counts = np.array([2**63 - 1, 2**63 - 1, 4])
    arrays = {"num_nodes": counts, "num_bonds": np.array([0, 0, 1]), "atom": np.ones((2, 1))}
    ends = {"bond_begin": np.array([0]), "bond_end": np.array([1]), "y": np.ones(3)}
    np.savez(tmp_path / "m.npz", **arrays, **ends)
    refused(
        open_inputs, Inputs((str(tmp_path / "m.npz"),)), match="num_nodes`: .* cannot be counts"
    )


def test_a_line_without_end_does_not_fill_the_memory(tmp_path: Path) -> None:
    import gzip

    from outercore.importing.table.text import lines

    with gzip.open(tmp_path / "g.txt.gz", "wb", 1) as file:
        for _ in range(64):
            file.write(b"1" * (1 << 20))
    refused(list, lines(tmp_path / "g.txt.gz"), match="a line is longer than 16 MiB")
