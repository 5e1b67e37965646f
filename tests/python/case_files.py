"""Writes the files of the cases in `tests/cases/imports/`; the README there explains the form."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

DIRECTORY = Path(__file__).parents[1] / "cases/imports"

Case = dict[str, Any]

_PACKERS: dict[str, Any] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}


def cases(name: str) -> list[Case]:
    """The cases of one list."""
    return json.loads((DIRECTORY / f"{name}.json").read_text("utf-8"))


def write_files(case: Case, directory: Path) -> None:
    """Writes all files of a case below `directory`."""
    for name, content in case.get("files", {}).items():
        path = directory / name
        path.parent.mkdir(parents=True, exist_ok=True)
        _write(path, content)


def array_of(described: dict[str, Any]) -> np.ndarray:
    """An array from its values, type and order."""
    dtype = described.get("dtype")
    values = described["values"]
    if isinstance(dtype, list):
        dtype = [(name, kind) for name, kind in dtype]
        values = [tuple(row) for row in values]
    return np.array(values, dtype, order=described.get("order", "C"))


def _write(path: Path, content: Any) -> None:
    if isinstance(content, str):
        content = {"text": content}
    if "text" in content:
        data = content["text"].encode()
        path.write_bytes(_PACKERS[content["pack"]](data) if "pack" in content else data)
    elif "hex" in content:
        path.write_bytes(bytes.fromhex(content["hex"]))
    elif "npy" in content:
        with open(path, "wb") as file:
            np.save(file, array_of(content["npy"]))
    elif "npz" in content:
        save = np.savez_compressed if content.get("packed") else np.savez
        members = {name: array_of(array) for name, array in content["npz"].items()}
        with open(path, "wb") as file:
            save(file, **members)
    elif "parquet" in content:
        table = _table(content["parquet"], content.get("types", {}))
        pq.write_table(table, path, row_group_size=content.get("row_group", 2))
    elif "scipy" in content:
        _sparse(path, content["scipy"])
    else:
        assert content == {"directory": True}, content
        path.mkdir()
    if "pack" in content and "text" not in content:
        path.write_bytes(_PACKERS[content["pack"]](path.read_bytes()))
    if "cut" in content:
        path.write_bytes(path.read_bytes()[: -content["cut"]])


def _table(columns: Any, types: dict[str, Any]) -> pa.Table:
    # A list of pairs may repeat a name.
    pairs = columns.items() if isinstance(columns, dict) else columns
    names = [name for name, _ in pairs]
    arrays = [pa.array(values, _type(types.get(name))) for name, values in pairs]
    return pa.Table.from_arrays(arrays, names)


def _type(name: Any) -> pa.DataType | None:
    if name is None:
        return None
    kinds = {
        "decimal": pa.decimal128(10, 2),
        "date": pa.date32(),
        "timestamp": pa.timestamp("ms"),
        "nanoseconds": pa.timestamp("ns"),
        "duration": pa.duration("s"),
        "category": pa.dictionary(pa.int8(), pa.string()),
        "list of float32": pa.list_(pa.float32()),
        "list of 2 float32": pa.list_(pa.float32(), 2),
    }
    return kinds.get(name) or pa.type_for_alias(name)


def _sparse(path: Path, described: dict[str, Any]) -> None:
    # Imported here: only these cases need it.
    import scipy.sparse

    rows, columns, values = zip(*described["entries"], strict=True)
    data = np.array(values, described.get("dtype"))
    matrix = scipy.sparse.coo_array((data, (rows, columns)), shape=described["shape"])
    with open(path, "wb") as file:
        scipy.sparse.save_npz(file, matrix.asformat(described["format"]))
