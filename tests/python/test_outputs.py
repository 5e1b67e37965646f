"""Files of results: the format that the name says, whole or not at all, refused before the work."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import outercore as oc
from fakes import FakeGraph, planted
from outercore.data.node_names import names_of_items
from outercore.data.outputs import (
    TABLES,
    VALUES,
    check_output,
    node_values,
    table_file,
    write_node_values,
)
from outercore.errors import DeviceError, InvalidError, NoSpaceError, NotFoundError
from outercore.files import atomic


def read(path: Path) -> pa.Table:
    return pq.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return FakeGraph(planted(tmp_path_factory.mktemp("data") / "planted", nodes=30))


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".parquet"])
def test_names_that_a_spreadsheet_takes_for_formulas_arrive_unchanged(
    tmp_path: Path, outcome: Any, ending: str
) -> None:
    names = ["=1+1", "+1", "-2", "@SUM(A1)", "=cmd|' /C calc'!A0", "'quoted", "plain"]
    path = tmp_path / f"names{ending}"
    with table_file(path, dict.fromkeys(("source", "target"), pa.large_string())) as table:
        table.append({"source": names, "target": names[::-1]})
    code, _, told = outcome("import", path, "--ids", "dictionary", "--out", "graph")
    assert code == 0, told
    assert sorted(oc.open("graph").entity_names()) == sorted(names)


@pytest.mark.parametrize("ending", VALUES)
@pytest.mark.parametrize("dtype", ["float64", "float32", "int64", "uint8", "bool"])
def test_a_value_a_node_comes_back_from_every_format(
    graph: Any, tmp_path: Path, ending: str, dtype: str
) -> None:
    values = np.random.default_rng(1).normal(size=30).astype(dtype)
    if dtype == "float64":
        values[:3] = [np.inf, 1e-300, 0.1 + 0.2]
    path = tmp_path / f"rank{ending}"
    write_node_values(path, names_of_items(graph), values)
    if ending == ".npy":
        found = np.load(path)
    else:
        table = read(path)
        assert table.column_names == ["id", "value"]
        assert table["id"].to_pylist() == list(range(30))
        found = np.array(table["value"].to_pylist())
    assert np.array_equal(found.astype(dtype), values)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("ending", VALUES)
def test_several_values_a_node_are_columns_with_numbers(
    graph: Any, tmp_path: Path, ending: str
) -> None:
    path, rows = tmp_path / f"out{ending}", np.arange(12, dtype=np.float32).reshape(4, 3)
    nodes = np.array([9, 2, 4, 3])
    with node_values(path, names_of_items(graph), (4, 3), np.float32) as file:
        file.append(nodes[:1], rows[:1])
        file.append(nodes[1:], rows[1:])
    if ending == ".npy":
        assert np.array_equal(np.load(path), rows)
        return
    table = read(path)
    assert table.column_names == ["id", "value_0", "value_1", "value_2"]
    assert table["id"].to_pylist() == nodes.tolist()
    assert np.array_equal(np.stack([table[f"value_{c}"] for c in range(3)], axis=1), rows)


@pytest.mark.parametrize("ending", [".parquet", ".csv"])
def test_nodes_with_names_are_called_by_them(
    embedded_graph: oc.Graph, tmp_path: Path, ending: str
) -> None:
    path, nodes = tmp_path / f"degree{ending}", embedded_graph.num_nodes
    write_node_values(path, names_of_items(embedded_graph), np.arange(nodes))
    table = read(path)
    assert table["id"].to_pylist() == embedded_graph.entity_names()
    assert table["value"].to_pylist() == list(range(nodes))
    with node_values(path, names_of_items(embedded_graph), (2,), np.int64) as file:
        file.append(np.array([5, 3]), np.array([1, 2]))
    assert read(path)["id"].to_pylist() == embedded_graph.entity_names([5, 3])


def test_text_holds_every_name_that_it_can_and_refuses_the_others(tmp_path: Path) -> None:
    names = ["plain", 'a "quoted" one', "with, comma", "two\nlines", "tab\there"]
    columns = {"name": pa.large_string(), "score": pa.float32()}
    for ending in (".parquet", ".csv"):
        with table_file(tmp_path / f"t{ending}", columns) as table:
            table.append({"name": names, "score": [0.5] * 5})
        options = pyarrow.csv.ParseOptions(newlines_in_values=True)
        found = (
            pq.read_table(tmp_path / "t.parquet")
            if ending == ".parquet"
            else pyarrow.csv.read_csv(tmp_path / "t.csv", parse_options=options)
        )
        assert found["name"].to_pylist() == names
    told = pytest.raises(InvalidError, match=r"row 3: the name 'two.nlines'")
    with told, table_file(tmp_path / "t.tsv", columns) as table:
        table.append({"name": names, "score": [0.5] * 5})
    assert sorted(one.name for one in tmp_path.iterdir()) == ["t.csv", "t.parquet"]


def test_a_missing_value_is_an_empty_cell(tmp_path: Path) -> None:
    with table_file(tmp_path / "t.csv", {"name": pa.string(), "seen": pa.bool_()}) as table:
        table.append({"name": ["a", None], "seen": [None, True]})
    assert (tmp_path / "t.csv").read_text() == "name,seen\na,\n,true\n"


def test_what_cannot_be_written_is_refused_before_the_work(tmp_path: Path) -> None:
    for name, said, kind in (
        ("rank.txt", r"expected a name that ends in one of \.npy, \.parquet, \.csv", InvalidError),
        ("rank", "expected a name that ends in", InvalidError),
        ("rank.parquet.gz", "expected a name that ends in", InvalidError),
        ("missing/rank.npy", "`.*missing` does not exist\nhint: make it first", NotFoundError),
        ("there.npy", "exists already\nhint: .* `overwrite=True`", InvalidError),
        ("folder.npy", "expected a file, found a directory", InvalidError),
        ("/proc/rank.npy", "`/proc/rank.npy`: ", DeviceError),
    ):
        (tmp_path / "there.npy").touch()
        (tmp_path / "folder.npy").mkdir(exist_ok=True)
        with pytest.raises(kind, match=said):
            check_output(tmp_path / name, VALUES, option="--out")
    check_output(tmp_path / "there.npy", VALUES, overwrite=True)
    check_output(tmp_path / "RANK.CSV", VALUES)
    check_output(tmp_path / "near.tsv", TABLES)
    assert sorted(one.name for one in tmp_path.iterdir()) == ["folder.npy", "there.npy"]


class Limited(io.FileIO):
    """A file on a device with room for so many bytes; `full` is what happens then."""

    def __init__(self, path: Path, room: int, full: Callable[[], None]) -> None:
        super().__init__(path, "w")
        self._room, self._full = room, full

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        fits = min(self._room, size)
        written = super().write(memoryview(data).cast("B")[:fits]) or 0
        self._room -= written
        if written < size:
            self._full()
        return written


def no_space() -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def limited(room: int, full: Callable[[], None]) -> Callable[[Path], Any]:
    return lambda path: io.BufferedWriter(Limited(path, room, full), 512)


@pytest.mark.parametrize("ending", VALUES)
def test_a_full_device_leaves_the_old_result_and_nothing_else(
    graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path = tmp_path / f"rank{ending}"
    write_node_values(path, names_of_items(graph), np.zeros(30))
    old = path.read_bytes()
    for room in range(0, len(old), max(1, len(old) // 40)):
        monkeypatch.setattr(atomic, "_opened", limited(room, no_space))
        with pytest.raises(NoSpaceError, match="hint: free some space, then run the same"):
            write_node_values(path, names_of_items(graph), np.arange(30.0) / 7)
        assert path.read_bytes() == old, room
        assert [one.name for one in tmp_path.iterdir()] == [path.name], room


@pytest.mark.parametrize("ending", VALUES)
def test_a_process_that_is_killed_leaves_the_old_result_or_the_new_one(
    graph: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    path = tmp_path / f"rank{ending}"
    values = np.arange(30.0) / 7
    write_node_values(path, names_of_items(graph), values)
    new = path.read_bytes()
    seen = set()
    for room in [*range(0, len(new), max(1, len(new) // 12)), len(new) + 1]:
        write_node_values(path, names_of_items(graph), np.zeros(30))
        old = path.read_bytes()
        child = os.fork()
        if child == 0:
            try:
                monkeypatch.setattr(atomic, "_opened", limited(room, lambda: os._exit(9)))
                write_node_values(path, names_of_items(graph), values)
            finally:
                os._exit(9)
        os.waitpid(child, 0)
        assert path.read_bytes() in (old, new), room
        seen.add(path.read_bytes())
    assert len(seen) == 2
    write_node_values(path, names_of_items(graph), values)
    assert [one.name for one in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["rank.parquet", "rank.csv", "rank.npy"])
def test_run_writes_what_the_name_says(outcome: Any, tmp_path: Path, name: str) -> None:
    data = planted(tmp_path / "data")
    code, _, err = outcome("run", "pagerank", data, "--out", name, "--record", "none")
    assert code == 0, err
    expected = oc.pagerank(oc.open(data))
    path = tmp_path / name
    found = np.load(path) if name.endswith(".npy") else np.array(read(path)["value"])
    assert np.array_equal(found, expected)


def test_run_refuses_an_output_before_it_begins(outcome: Any, tmp_path: Path) -> None:
    data = planted(tmp_path / "data")
    for options, said in (
        (["--out", "missing/pr.parquet"], "directory `missing` does not exist"),
        (
            ["--out", "my pr.xlsx"],
            "--out: `my pr.xlsx`: expected a name that ends in one of .npy, .parquet, .csv\n"
            "hint: `--out 'my pr.npy'`",
        ),
        (["--record", "/proc/record"], "/proc/record"),
    ):
        code, out, err = outcome("run", "pagerank", data, *options)
        assert (code, out) == (1, ""), err
        assert said in err
        assert "Traceback" not in err
    code, _, err = outcome("tune", data, "--out", "table.csv")
    assert (code, err.splitlines()[0]) == (
        1,
        "error: --out: `table.csv`: expected a name that ends in .json",
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["data"]
    assert not list((tmp_path / "data").glob("grid*"))
