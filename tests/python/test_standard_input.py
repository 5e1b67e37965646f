"""`outercore import -`: standard input as an edge list."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore.errors import NoSpaceError
from outercore.importing.table import standard_input
from test_import_cases import edges_by_id

EDGES = [[0, 1], [1, 2], [2, 0]]
TEXT = b"w,src,dst\n5,0,1\n6,1,2\n7,2,0\n"


def pipe(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    stream = SimpleNamespace(buffer=io.BytesIO(data), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stream)


def as_parquet() -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"src": [0, 1, 2], "dst": [1, 2, 0]}), file)
    return file.getvalue()


def as_npy() -> bytes:
    file = io.BytesIO()
    np.save(file, np.array(EDGES))
    return file.getvalue()


@pytest.mark.parametrize(
    ("data", "given"),
    [
        (TEXT, "/dev/stdin:src,dst"),
        (gzip.compress(TEXT, mtime=0), "/dev/stdin:src,dst"),
        (as_parquet(), "-"),
        (as_npy(), "-"),
        (b"%%MatrixMarket matrix coordinate pattern general\n3 3 3\n1 2\n2 3\n3 1\n", "-"),
    ],
)
def test_what_is_piped_is_read_as_a_file_would_be(
    data: bytes, given: str, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, data)
    code, _, told = outcome("import", given, "--out", "g")
    assert code == 0, told
    assert edges_by_id(oc.open("g")) == EDGES
    assert sorted(path.name for path in Path().iterdir()) == ["g"]


def test_triples_and_names_are_piped_too(outcome: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, b"ann\tlikes\tbob\nbob\tlikes\tcy\n")
    assert outcome("import", "-", "--triples", "--out", "facts")[0] == 0
    assert oc.open("facts").entity_names() == ["cy", "ann", "bob"]
    pipe(monkeypatch, b"src,dst\nann,bob\n")
    assert outcome("import", "-", "--ids", "dictionary", "--out", "named")[0] == 0
    assert oc.open("named").entity_names() == ["ann", "bob"]


def test_the_same_pipe_resumes_a_stopped_import(
    outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*_: Any) -> None:
        raise KeyboardInterrupt

    pipe(monkeypatch, TEXT)
    with monkeypatch.context() as patch:
        patch.setattr("outercore.base.native.Importer.finish", stop)
        assert outcome("import", "/dev/stdin:src,dst", "--out", "g")[0] == 130
    assert [path.name for path in Path().glob(".*stdin*")] == []
    pipe(monkeypatch, TEXT)
    code, _, told = outcome("import", "/dev/stdin:src,dst", "--out", "g")
    assert code == 0, told
    assert edges_by_id(oc.open("g")) == EDGES


def test_what_cannot_be_read_is_told(outcome: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe(monkeypatch, TEXT)
    code, _, told = outcome("import", "-", "-", "--out", "g")
    assert code == 1
    assert "standard input is read once" in told
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    code, _, told = outcome("import", "-", "--out", "g")
    assert code == 1
    assert "| outercore import - --out g`" in told
    pipe(monkeypatch, b"")
    code, _, told = outcome("import", "-", "--out", "g")
    assert code == 1
    assert "standard input" in told
    pipe(monkeypatch, b"x,y\na,b\n")
    code, _, told = outcome("import", "-", "--out", "g")
    assert code == 1
    assert "standard input: line " in told
    assert ".g.stdin" not in told
    pipe(monkeypatch, b"w,src,dst\n1,2,0\n")
    code, _, told = outcome("import", "-", "--out", "g")
    assert code == 1
    assert "choose the columns: `/dev/stdin:src,dst`" in told


def test_a_data_set_in_the_place_is_told_before_anything_is_read(
    outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipe(monkeypatch, TEXT)
    assert outcome("import", "/dev/stdin:src,dst", "--out", "g")[0] == 0
    pipe(monkeypatch, TEXT)
    code, _, told = outcome("import", "/dev/stdin:src,dst", "--out", "g")
    assert code == 1
    assert "holds a data set already" in told
    assert sys.stdin.buffer.tell() == 0
    code, _, told = outcome("import", "/dev/stdin:src,dst", "--out", "g", "--overwrite")
    assert code == 0, told
    assert told.startswith("standard input: comma separated")


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            if self.tell():
                raise OSError(28, "No space left on device")
            return super().read(4)

    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=Full(TEXT), isatty=lambda: False))
    with pytest.raises(NoSpaceError), standard_input.piped(["-"], tmp_path / "g", overwrite=False):
        pass
    assert list(tmp_path.iterdir()) == []
