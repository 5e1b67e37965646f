"""Sources stream what files hold, exactly, and name what is wrong with them."""

from __future__ import annotations

import gzip
import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from outercore.errors import InvalidError, NotFoundError, OutercoreError, UnsupportedError
from outercore.sources import graph as graph_module
from outercore.sources import named, rows
from outercore.sources.graph import ImportOptions, import_graph
from outercore.sources.inputs import Inputs, open_inputs
from outercore.sources.rows import FileSpec, open_rows
from outercore.sources.splits import open_split, open_splits


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

    def edges_text(self, path: Path, text: str) -> None:
        self.files.append(("text", path))
        self.texts.append(("text", path, json.loads(text)))

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


@pytest.mark.parametrize("kind", ["npz", "npy"])
@pytest.mark.parametrize("fortran", [False, True])
def test_two_edges_need_to_be_told_apart_by_an_option(
    kind: str, fortran: bool, tmp_path: Path
) -> None:
    edges = np.array([[0, 1], [2, 3]], order="F" if fortran else "C")
    path = str(tmp_path / f"g.{kind}")
    np.savez(path, edge_index=edges) if kind == "npz" else np.save(path, edges)
    with pytest.raises(InvalidError, match=r"shape \(2, 2\) may be .*\nhint: say which"):
        imported(Inputs((path,)))
    assert imported(Inputs((path,), edge_shape="2,E")).edges.tolist() == [[0, 1], [2, 3]]
    assert imported(Inputs((path,), edge_shape="E,2")).edges.tolist() == [[0, 2], [1, 3]]


def test_parquet_edges_stream_and_columns_can_be_chosen(tmp_path: Path) -> None:
    table = pa.table({"when": [9, 9, 9], "from": [1, 2, 3], "to": [4, 5, 6]})
    pq.write_table(table, tmp_path / "e.parquet", row_group_size=2)
    path = str(tmp_path / "e.parquet")
    assert imported(Inputs((f"{path}:from,to",))).edges.tolist() == [[1, 2, 3], [4, 5, 6]]
    assert imported(Inputs((f"{path}:when,from",))).edges.tolist() == [[9, 9, 9], [1, 2, 3]]
    with pytest.raises(NotFoundError, match="no column `form`; it has `when`"):
        imported(Inputs((f"{path}:form,to",)))


def test_chosen_columns_of_a_text_file_become_edges(tmp_path: Path) -> None:
    (tmp_path / "e.csv").write_text("id,src,dst\n7,0,9007199254740993\n8,2,1\n")
    made = imported(Inputs((f"{tmp_path / 'e.csv'}:src,dst",)))
    ((kind, path, layout),) = made.texts
    assert (kind, path) == ("text", tmp_path / "e.csv")
    assert (layout["source"], layout["target"], layout["dialect"]["columns"]) == (1, 2, 3)


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


def test_several_edge_lists_become_one_graph(tmp_path: Path) -> None:
    for name in "ab":
        np.savez(tmp_path / f"{name}.npz", np.array([[0, 1, 2], [1, 2, 0]]))
    made = imported(Inputs((str(tmp_path / "a.npz"), str(tmp_path / "b.npz"))))
    assert made.edges.shape == (2, 6)


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
            splits=tmp_path / "s.npz",
            split=(f"test={tmp_path / 't.csv'}",),
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


def test_a_ragged_list_column_is_refused_with_its_row(tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [[1.0, 2.0], [3.0, 4.0], [5.0]]}), tmp_path / "x.parquet")
    with pytest.raises(InvalidError, match="row 2: expected 2 values, found 1"):
        list(open_rows(str(tmp_path / "x.parquet")).chunks())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2\n3,4,5\n6,7\n", "line 2: `3,4,5`: found 3 columns"),
        ("1,2\n3,x\n", "column `column 2`: expected numbers, found text"),
    ],
)
def test_a_wrong_text_row_is_refused(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(InvalidError, match=message):
        list(open_rows(str(tmp_path / "x.csv")).chunks())


def test_text_columns_of_parquet_are_refused_by_name(tmp_path: Path) -> None:
    pq.write_table(pa.table({"name": ["a"], "age": [3]}), tmp_path / "x.parquet")
    with pytest.raises(InvalidError, match=r"column `name`: expected numbers, found text"):
        open_rows(str(tmp_path / "x.parquet"))
    assert next(open_rows(f"{tmp_path / 'x.parquet'}:age").chunks()).tolist() == [3]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.npz", b"nonsense", "File is not a zip file"),
        ("x.parquet", b"nonsense", "Parquet file"),
        ("x.npy", b"nonsense", "array"),
        ("x.jpg", b"", "expected .npy"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_named(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(OutercoreError, match=message):
        open_rows(str(tmp_path / name))


def test_a_truncated_array_is_named_with_what_may_have_happened(tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, np.arange(1000))
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(InvalidError, match=r"x.npy`: .*\nhint: expected `.npy` as NumPy"):
        open_rows(str(path))


def test_what_the_core_refuses_of_a_batch_is_reported_with_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> None:
        raise InvalidError("row 1: node id -4 is negative")

    path = tmp_path / "e.parquet"
    pq.write_table(pa.table({"src": [0, -4], "dst": [1, 2]}), path)
    monkeypatch.setattr(RecordingImporter, "push_edges", refuse)
    with pytest.raises(InvalidError, match=r"`.*e.parquet:src,dst`: row 1: node id -4 is neg"):
        imported(Inputs((f"{path}:src,dst",)))


def test_a_truncated_archive_member_is_named(tmp_path: Path) -> None:
    member = io.BytesIO()
    np.save(member, np.arange(1000))
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("x.npy", member.getvalue()[:-100])
    with pytest.raises(OutercoreError, match=r"x.npz:x`: expected \d+ more bytes"):
        list(open_rows(str(tmp_path / "x.npz")).chunks())


def test_objects_in_archives_are_never_unpickled(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", np.array([{"a": 1}], dtype=object))
    with pytest.raises(InvalidError, match="expected numbers, found Python objects"):
        open_rows(str(tmp_path / "x.npz"))


def test_a_matrix_in_fortran_order_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", np.zeros((4, 3)).T)
    with pytest.raises(InvalidError, match="expected C order, found Fortran order"):
        open_rows(str(tmp_path / "x.npz"))


def test_archives_say_what_they_hold(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", a=np.zeros(3), b=np.zeros(3))
    with pytest.raises(InvalidError, match=r"holds `a`, `b`\nhint: choose one by"):
        open_rows(str(tmp_path / "x.npz"))
    with pytest.raises(NotFoundError, match="no array `c`; it has `a`, `b`"):
        open_rows(f"{tmp_path / 'x.npz'}:c")
    with pytest.raises(InvalidError, match="expected `train`, `valid` or `test`"):
        open_splits(tmp_path / "x.npz")


def test_missing_files_and_malformed_options_are_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"file `nowhere.csv` does not exist"):
        FileSpec.parse("nowhere.csv")
    for missing, hint in [("x.csv", "has no such file"), ("no/x.csv", "there is no directory `")]:
        with pytest.raises(NotFoundError, match=f"\\nhint: look for a slip in its name: .*{hint}"):
            FileSpec.parse(str(tmp_path / missing))
        with pytest.raises(NotFoundError, match=hint):
            open_splits(tmp_path / missing)
    with pytest.raises(InvalidError, match="expected NAME=FILE"):
        open_split("train.npy")
    with pytest.raises(InvalidError, match="--format: expected one of auto"):
        open_inputs(Inputs((edges_csv(tmp_path),), format="xml"))
    with pytest.raises(InvalidError, match="self_loops: expected one of keep, drop, add"):
        ImportOptions.parse(self_loops="yes")


def test_options_that_would_do_nothing_are_refused(tmp_path: Path) -> None:
    edges = edges_csv(tmp_path)
    np.save(tmp_path / "x.npy", np.ones((3, 2), dtype=np.float32))
    (tmp_path / "x.csv").write_text("1,2\n3,4\n5,6\n")
    np.save(tmp_path / "train.npy", np.arange(2))
    for features in (None, str(tmp_path / "x.csv")):
        with pytest.raises(InvalidError, match=r"--in-place: expected features in a `.npy`"):
            imported(Inputs((edges,), features=features), in_place=True)
    made = imported(Inputs((edges,), features=str(tmp_path / "x.npy")), in_place=True)
    assert ("features", "x") in made.arrays
    train = f"train={tmp_path / 'train.npy'}"
    with pytest.raises(InvalidError, match="--split: `train` is given 2 times, expected once"):
        imported(Inputs((edges,), split=(train, train)))


def test_ids_that_are_no_whole_numbers_are_refused(tmp_path: Path) -> None:
    (tmp_path / "train.csv").write_text("1\n2.5\n")
    _, ids = open_split(f"train={tmp_path / 'train.csv'}")
    with pytest.raises(InvalidError, match=r"expected whole numbers, found 2.5"):
        list(ids.chunks())


def ogb_text(root: Path, x: np.ndarray, y: np.ndarray) -> None:
    def write(name: str, array: np.ndarray, form: str) -> None:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = io.StringIO()
        np.savetxt(text, array, delimiter=",", fmt=form)
        path.write_bytes(gzip.compress(text.getvalue().encode()))

    write("raw/edge.csv.gz", np.array([[0, 1], [2, 3]]), "%d")
    write("raw/node-feat.csv.gz", x, "%.9g")
    write("raw/node-label.csv.gz", y, "%d")
    write("raw/num-node-list.csv.gz", np.array([len(x)]), "%d")
    write("raw/num-edge-list.csv.gz", np.array([2]), "%d")
    for place, name in enumerate(("train", "valid", "test")):
        write(f"split/time/{name}.csv.gz", np.arange(3) + 3 * place, "%d")


def test_the_raw_ogb_text_layout_is_read(tmp_path: Path, random: np.random.Generator) -> None:
    x = random.normal(size=(12, 4)).astype(np.float32)
    y = random.integers(3, size=12)
    ogb_text(tmp_path, x, y)
    made = imported(Inputs((str(tmp_path),)))
    assert made.files == [("text", tmp_path / "raw/edge.csv.gz")]
    assert np.array_equal(made.arrays["features", "x"], x)
    assert np.array_equal(made.arrays["labels", "y"], y)
    assert made.arrays["split", "valid"].tolist() == [3, 4, 5]
    assert made.options["nodes"] == 12


def test_several_ogb_splits_have_to_be_chosen_from(tmp_path: Path) -> None:
    ogb_text(tmp_path, np.zeros((12, 2), np.float32), np.zeros(12, int))
    (tmp_path / "split/random").mkdir()
    with pytest.raises(InvalidError, match=r"found random, time\nhint: choose one"):
        open_inputs(Inputs((str(tmp_path),)))
    made = imported(Inputs((str(tmp_path),), ogb_split="time"))
    assert ("split", "train") in made.arrays


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


def test_what_is_given_explicitly_wins_over_a_layout(tmp_path: Path) -> None:
    ogb_text(tmp_path / "ogb", np.zeros((12, 2), np.float32), np.zeros(12, int))
    np.save(tmp_path / "x.npy", np.ones((12, 7), np.float32))
    made = imported(Inputs((str(tmp_path / "ogb"),), features=str(tmp_path / "x.npy")))
    assert made.arrays["features", "x"] == tmp_path / "x.npy"


def test_a_directory_that_is_no_layout_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=r"expected an OGB node data set"):
        open_inputs(Inputs((str(tmp_path),)))


def test_a_pyg_data_object_is_taken_with_its_masks() -> None:
    torch = pytest.importorskip("torch")
    data_module = pytest.importorskip("torch_geometric.data")
    from outercore.sources.pyg import open_data

    data = data_module.Data(
        x=torch.randn(20, 3),
        y=torch.arange(20) % 4,
        edge_index=torch.randint(20, (2, 60)),
        train_mask=torch.arange(20) < 10,
        val_mask=torch.stack([torch.arange(20) == 3, torch.arange(20) == 7], dim=1),
        weight=torch.ones(20, dtype=torch.bfloat16),
    )
    import_graph(open_data(data, arrays=("weight",), mask_column=1), "out")
    made = RecordingImporter.last
    assert np.array_equal(made.edges, data.edge_index.numpy())
    assert np.array_equal(made.arrays["features", "x"], data.x.numpy())
    assert made.arrays["split", "train"].sum() == 10
    assert np.flatnonzero(made.arrays["split", "valid"]).tolist() == [7]
    assert made.arrays["array", "weight"].dtype == np.float32
    assert (made.options["nodes"], made.options["undirected"]) == (20, False)
    with pytest.raises(InvalidError, match="no attribute `age`"):
        open_data(data, arrays=("age",))
    with pytest.raises(InvalidError, match="expected `edge_index`"):
        open_data(data_module.HeteroData())


def test_names_are_looked_up_in_the_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    assert named._pyg_class("cora") == ("Planetoid", "Cora")
    assert named._pyg_class("Reddit") == ("Reddit", None)
    assert named._pyg_class("WebKB/Texas") == ("WebKB", "Texas")
    monkeypatch.setitem(sys.modules, "ogb.nodeproppred", None)
    with pytest.raises(UnsupportedError, match="package `ogb` is not installed"):
        open_inputs(Inputs(("ogb:ogbn-arxiv",)))


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n", "node\n"])
def test_a_table_without_rows_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    path = tmp_path / "train.csv"
    path.write_text(text)
    with pytest.raises(InvalidError, match=r"file `.*train\.csv`: no rows"):
        open_split(f"train={path}")
