"""Sources stream what files hold, exactly, and name what is wrong with them."""

from __future__ import annotations

import gzip
import io
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outercore.errors import InvalidError, OutercoreError, UnsupportedError
from outercore.importing.build import graph as graph_module
from outercore.importing.build.graph import import_graph
from outercore.importing.format import pyg
from outercore.importing.inputs import Inputs
from outercore.importing.options import ImportOptions
from outercore.importing.plain_graph import open_inputs
from outercore.importing.splits import SplitChoice, open_split
from outercore.importing.table import rows
from outercore.importing.table.rows import open_rows


class RecordingImporter:
    """Keeps what it is given; the last one made is `RecordingImporter.last`."""

    last: RecordingImporter

    def __init__(self, out: Path, options: dict[str, Any], progress: Any) -> None:
        self.out, self.options = out, options
        self.files: list[tuple[str, Path]] = []
        self.texts: list[tuple[str, Path, Any]] = []
        self.batches: list[np.ndarray] = []
        self.arrays: dict[tuple[str, str], Any] = {}
        self.described: dict[tuple[str, str], Any] = {}
        self._open: tuple[str, str] | None = None
        RecordingImporter.last = self

    def __enter__(self) -> RecordingImporter:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def edges_text(self, path: Path, layout: dict[str, Any]) -> None:
        self.files.append(("text", path))
        self.texts.append(("text", path, layout))

    def edges_npy(self, path: Path) -> None:
        self.files.append(("npy", path))

    def push_edges(self, source: np.ndarray, target: np.ndarray) -> None:
        assert source.dtype == target.dtype == np.int64
        self.batches.append(np.stack([source, target]))

    def array_npy(self, role: str, name: str, path: Path, options: dict[str, Any]) -> None:
        self.arrays[role, name] = path
        self.described[role, name] = options

    def array_begin(
        self, role: str, name: str, dtype: str, width: int | None, options: dict[str, Any]
    ) -> None:
        self._open = role, name
        self.arrays[role, name] = []
        self.described[role, name] = {"dtype": dtype, "width": width, "options": options}

    def array_push(self, chunk: np.ndarray) -> None:
        assert self._open is not None
        described = self.described[self._open]
        assert chunk.dtype == described["dtype"]
        assert chunk.ndim == (1 if described["width"] is None else 2)
        self.arrays[self._open].append(chunk)

    def array_end(self) -> None:
        assert self._open is not None
        self.arrays[self._open] = np.concatenate(self.arrays[self._open])

    def finish(self) -> dict[str, Any]:
        return {"nodes": self.options["nodes"]}

    @property
    def edges(self) -> np.ndarray:
        return np.concatenate(self.batches, axis=1)


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_module, "Importer", RecordingImporter)
    # Small enough that every stream has several chunks.
    monkeypatch.setattr(rows, "_CHUNK_BYTES", 256)


def imported(inputs: Inputs, **options: Any) -> RecordingImporter:
    import_graph(open_inputs(inputs), "out", ImportOptions(**options))
    return RecordingImporter.last


def edges_csv(tmp_path: Path) -> str:
    path = tmp_path / "edges.csv"
    path.write_text("source,target\n0,1\n1,2\n2,0\n")
    return str(path)


@pytest.fixture
def random() -> np.random.Generator:
    return np.random.default_rng(0)


def test_text_and_npy_edges_are_left_to_the_core(tmp_path: Path) -> None:
    text = edges_csv(tmp_path)
    packed = tmp_path / "more.tsv.gz"
    packed.write_bytes(gzip.compress(b"0\t1\n"))
    np.save(tmp_path / "even.npy", np.zeros((2, 3), np.int64))
    made = imported(Inputs((text, str(packed), str(tmp_path / "even.npy"))))
    assert [kind for kind, _ in made.files] == ["text", "text", "npy"]


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("layout", ["columns", "pairs", "fortran"])
@pytest.mark.parametrize("dtype", ["int64", "uint32", ">i4"])
def test_npz_edges_stream_in_either_layout(
    packed: bool, layout: str, dtype: str, tmp_path: Path, random: np.random.Generator
) -> None:
    edges = random.integers(1000, size=(2, 2_500_000 if packed else 3000)).astype(dtype)
    save = np.savez_compressed if packed else np.savez
    forms = {"columns": edges, "pairs": np.ascontiguousarray(edges.T), "fortran": edges.T}
    save(tmp_path / "g.npz", edges=forms[layout], other=edges[:, :3])
    made = imported(Inputs((str(tmp_path / "g.npz"),)))
    assert np.array_equal(made.edges, edges)


@pytest.mark.parametrize(
    ("header", "choice"),
    [
        ("time,src,dst", "src,dst"),
        (",source,target", "source,target"),
        ("to_id,FromNodeId,w", "FromNodeId,to_id"),
        ("weight,u,v", "u,v"),
    ],
)
def test_columns_that_are_named_as_ends_elsewhere_have_to_be_chosen(
    tmp_path: Path, header: str, choice: str
) -> None:
    path = tmp_path / "e.csv"
    path.write_text(f"{header}\n7,0,1\n")
    with pytest.raises(InvalidError, match=f"hint: choose the columns: `.*:{choice}`"):
        imported(Inputs((str(path),)))
    table = tmp_path / "e.parquet"
    names = header.split(",")
    pq.write_table(pa.table({name: [place] for place, name in enumerate(names)}), table)
    with pytest.raises(InvalidError, match=f"hint: choose the columns: `.*:{choice}`"):
        imported(Inputs((str(table),)))


def test_columns_of_other_names_are_the_ends_in_their_order(tmp_path: Path) -> None:
    for header in ("source,target,time", "userId,movieId,rating", "head,tail,from", "a,b,to"):
        path, table = tmp_path / "e.csv", tmp_path / "e.parquet"
        path.write_text(f"{header}\n0,1,7\n2,1,8\n")
        assert imported(Inputs((str(path),))).files == [("text", path)]
        path.write_text("\n5,1\n")
        assert imported(Inputs((str(path),))).files == [("text", path)]
        columns = zip(header.split(","), ([0, 2], [1, 1], [7, 8]), strict=True)
        pq.write_table(pa.table(dict(columns)), table)
        assert imported(Inputs((str(table),))).edges.tolist() == [[0, 2], [1, 1]]


def test_features_labels_and_splits_come_from_any_file(
    tmp_path: Path, random: np.random.Generator
) -> None:
    x = random.normal(size=(100, 5)).astype(np.float32)
    y = random.integers(3, size=100)
    mask = random.random(100) < 0.5
    pq.write_table(pa.table({f"c{i}": x[:, i] for i in range(5)}), tmp_path / "x.parquet")
    np.savez(tmp_path / "y.npz", y=y, z=y)
    np.savez(tmp_path / "s.npz", train_mask=mask, val_idx=np.flatnonzero(~mask))
    (tmp_path / "t.csv").write_text("node\n" + "\n".join(str(i) for i in range(20)) + "\n")
    np.save(tmp_path / "when.npy", y.astype(np.int32))
    made = imported(
        Inputs(
            (edges_csv(tmp_path),),
            features=str(tmp_path / "x.parquet"),
            labels=f"{tmp_path / 'y.npz'}:y",
            splits=SplitChoice((f"test={tmp_path / 't.csv'}",), tmp_path / "s.npz"),
            arrays=(f"when={tmp_path / 'when.npy'}",),
        ),
        feature_dtype="float16",
    )
    assert np.array_equal(made.arrays["features", "x"], x)
    assert made.described["features", "x"]["options"]["dtype"] == "float16"
    assert np.array_equal(made.arrays["labels", "y"], y)
    assert np.array_equal(made.arrays["split", "train"], mask)
    assert np.array_equal(made.arrays["split", "valid"], np.flatnonzero(~mask))
    assert made.arrays["split", "test"].tolist() == list(range(20))
    assert made.arrays["split", "test"].dtype == np.int64
    assert made.arrays["array", "when"] == tmp_path / "when.npy"
    assert made.options["nodes"] == 100


@pytest.mark.parametrize("compression", ["", ".gz"])
@pytest.mark.parametrize("header", ["", "a,b,c\n"])
def test_csv_features_with_and_without_a_header(
    header: str, compression: str, tmp_path: Path, random: np.random.Generator
) -> None:
    x = random.normal(size=(200, 3)).astype(np.float32)
    text = io.StringIO()
    np.savetxt(text, x, delimiter=",", fmt="%.9g")
    data = (header + text.getvalue()).encode()
    path = tmp_path / f"x.csv{compression}"
    path.write_bytes(gzip.compress(data) if compression else data)
    chunks = list(open_rows(str(path)).chunks())
    assert np.array_equal(np.concatenate(chunks).astype(np.float32), x)


def test_list_columns_of_parquet_are_matrices(tmp_path: Path) -> None:
    x = np.arange(30, dtype=np.float32).reshape(10, 3)
    pq.write_table(pa.table({"x": pa.array(x.tolist(), pa.list_(pa.float32()))}), tmp_path / "x.pq")
    source = open_rows(str(tmp_path / "x.pq"))
    assert (source.width, source.count, source.dtype) == (3, 10, np.float32)
    assert np.array_equal(np.concatenate(list(source.chunks())), x)


def test_a_truncated_archive_member_is_named(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.save(member, np.arange(1000))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", member.getvalue()[:-100])
    with pytest.raises(OutercoreError, match=r"x.npz:x`: expected \d+ more bytes"):
        list(open_rows(str(tmp_path / "x.npz")).chunks())


def test_the_archive_layout_of_large_ogb_sets_is_read(
    tmp_path: Path, random: np.random.Generator
) -> None:
    x = random.normal(size=(50, 4)).astype(np.float16)
    y = random.normal(size=(50, 1)).astype(np.float32)
    edges = random.integers(50, size=(2, 300))
    (tmp_path / "raw").mkdir()
    np.savez(
        tmp_path / "raw/data.npz",
        edge_index=edges,
        node_feat=x,
        num_nodes_list=np.array([50]),
        num_edges_list=np.array([300]),
    )
    np.savez(tmp_path / "raw/node-label.npz", node_label=y)
    made = imported(Inputs((str(tmp_path),)))
    assert np.array_equal(made.edges, edges)
    assert np.array_equal(made.arrays["features", "x"], x)
    assert np.array_equal(made.arrays["labels", "y"], y)
    assert made.options["nodes"] == 50


def test_names_are_looked_up_in_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pyg._pyg_class("cora") == ("Planetoid", "Cora")
    assert pyg._pyg_class("Reddit") == ("Reddit", None)
    assert pyg._pyg_class("WebKB/Texas") == ("WebKB", "Texas")
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(UnsupportedError, match="package `ogb` is not installed"):
        open_inputs(Inputs(("ogb:ogbn-arxiv",)))


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "node\n"])
def test_a_table_without_rows_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.csv"
    path.write_text(text)
    with pytest.raises(InvalidError, match=r"file `.*train\.csv`: no rows"):
        open_split("train", str(path), rows.Reading())


@pytest.mark.parametrize("option", ["edges", "features"])
def test_a_pipe_is_refused_before_anything_is_read(tmp_path: Path, option: str) -> None:
    pipe, edges = tmp_path / "pipe", tmp_path / "e.txt"
    os.mkfifo(pipe)
    edges.write_text("0 1\n1 2\n")
    inputs = (
        Inputs((str(pipe),)) if option == "edges" else Inputs((str(edges),), features=str(pipe))
    )

    with pytest.raises(UnsupportedError, match="a file that can be read twice, found a pipe"):
        open_inputs(inputs)
