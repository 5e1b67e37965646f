"""Every file of `tests/cases/imports.json` is understood exactly, or refused with its reason."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import outercore as oc

_LIST = Path(__file__).parents[1] / "cases/imports.json"
CASES: list[dict[str, Any]] = json.loads(_LIST.read_text("utf-8"))
_PACKERS: dict[str, Any] = {
    "gz": gzip.compress,
    "xz": lzma.compress,
    "bz2": bz2.compress,
    "zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
_ARRAYS = {
    "weight": "edges/edge/weight",
    "time": "edges/edge/time",
    "attr": "edges/edge/attr",
    "labels": "nodes/node/y",
    "features": "nodes/node/x",
}


def write(case: dict[str, Any], directory: Path) -> str:
    """Writes the files of a case; the argument that names the edges."""
    first = None
    for name, content in case["files"].items():
        data = bytes.fromhex(content["hex"]) if isinstance(content, dict) else content.encode()
        if first is None and (pack := case.get("pack")):
            name, data = f"{name}.{pack}", _PACKERS[pack](data)
        (directory / name).write_bytes(data)
        first = first or str(directory / name)
    assert first is not None
    return f"{first}:{case['columns']}" if "columns" in case else first


def edges_by_id(graph: Any) -> list[list[int]]:
    """`[source, target]` of each edge of a directed graph."""
    offsets = np.asarray(graph.array("edges/edge/offsets"), np.int64)
    sources = np.asarray(graph.array("edges/edge/sources"), np.int64)
    targets = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    known = "edges/edge/ids" in graph.arrays
    ids = np.asarray(graph.array("edges/edge/ids")) if known else np.arange(len(sources))
    found = np.empty((len(sources), 2), np.int64)
    found[ids] = np.stack([sources, targets], axis=1)
    return found.tolist()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"].replace(" ", "_"))
def test_case(case: dict[str, Any], tmp_path: Path, outcome: Any) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    edges = write(case, inputs)
    args = [argument.replace("{dir}", str(inputs)) for argument in case["args"]]
    out = tmp_path / "out"
    code, summary, told = outcome("import", edges, *args, "--out", out, "--json")
    if "refused" in case:
        assert code == 1, (summary, told)
        for part in case["refused"]:
            assert part in told
        assert not (out / "graph.json").exists()
        return
    assert code == 0, told
    for part in case.get("notes", []):
        assert part in told
    for member, value in case.get("summary", {}).items():
        assert json.loads(summary)[member] == value
    graph = oc.open(out)
    if "edges" in case:
        assert edges_by_id(graph) == case["edges"]
    for member, key in _ARRAYS.items():
        if member in case:
            assert np.asarray(graph.array(key)).tolist() == case[member]
        elif member in ("weight", "time", "attr"):
            assert key not in graph.arrays
    for key, dtype in case.get("dtypes", {}).items():
        assert graph.arrays[key]["dtype"] == dtype
    for name, ids in case.get("splits", {}).items():
        assert np.asarray(graph.split(name)).tolist() == ids
