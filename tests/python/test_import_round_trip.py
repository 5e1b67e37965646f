"""Random tables come back equal from every format, separator, compression, header and base."""

from __future__ import annotations

import bz2
import gzip
import lzma
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import outercore as oc
from outercore.importing.build.graph import import_graph
from outercore.importing.edge_arrays import EdgeChoice
from outercore.importing.inputs import Inputs
from outercore.importing.options import ImportOptions
from outercore.importing.plain_graph import open_inputs
from outercore.importing.table.rows import Reading, open_rows
from outercore.importing.table.text import TextOptions
from test_import_cases import edges_by_id

_PACKERS: dict[str, Any] = {
    "": lambda data: data,
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
    ".zst": lambda data: pa.compress(data, "zstd", asbytes=True),
}
_SEPARATORS = {"comma": ",", "tab": "\t", "semicolon": ";", "pipe": "|", "blanks": " "}

ids = st.integers(0, 60)
floats = st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False)
wholes = st.integers(-(2**63), 2**63 - 1)


@st.composite
def written(draw: st.DrawFn) -> dict[str, Any]:
    """How a table is written."""
    return {
        "separator": draw(st.sampled_from(sorted(_SEPARATORS))),
        "packed": draw(st.sampled_from(sorted(_PACKERS))),
        "header": draw(st.booleans()),
        "base": draw(st.sampled_from([0, 1])),
        "end": draw(st.sampled_from(["\n", "\r\n"])),
        "said": draw(st.booleans()),
        "parquet": draw(st.booleans()),
    }


def write(directory: Path, how: dict[str, Any], names: list[str], columns: list[list[Any]]) -> Path:
    """Writes columns as `how` says."""
    if how["parquet"]:
        path = directory / "t.parquet"
        pq.write_table(pa.table(dict(zip(names, columns, strict=True))), path)
        return path
    separator = _SEPARATORS[how["separator"]]
    rows = [separator.join(map(repr, row)) for row in zip(*columns, strict=True)]
    if how["header"]:
        rows.insert(0, separator.join(names))
    path = directory / f"t.csv{how['packed']}"
    path.write_bytes(_PACKERS[how["packed"]](how["end"].join([*rows, ""]).encode()))
    return path


def said(how: dict[str, Any]) -> TextOptions:
    """The options that say how a table is written; some of them may be left to detection."""
    return TextOptions(
        separator=how["separator"] if how["said"] else None,
        header=None if how["parquet"] else how["header"],
        one_based=how["base"] == 1,
    )


@settings(max_examples=60, deadline=None)
@given(edges=st.lists(st.tuples(ids, ids, floats, wholes), min_size=2, max_size=20), how=written())
def test_edges_with_weights_and_times_come_back_equal(
    edges: list[Any], how: dict[str, Any]
) -> None:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        base = how["base"]
        columns = [
            [u + base for u, _, _, _ in edges],
            [v + base for _, v, _, _ in edges],
            [w for _, _, w, _ in edges],
            [t for _, _, _, t in edges],
        ]
        path = write(directory, how, ["src", "dst", "w", "t"], columns)
        named = how["parquet"] or how["header"]
        choice = EdgeChoice("w", "t") if named else EdgeChoice("column 3", "column 4")
        inputs = Inputs((str(path),), nodes=61, edge_values=choice, text=said(how))
        import_graph(open_inputs(inputs), directory / "g", ImportOptions(memory="64MiB"))
        graph = oc.open(directory / "g")
        assert edges_by_id(graph) == [[u, v] for u, v, _, _ in edges]
        weights = np.asarray(graph.array("edges/edge/weight"))
        assert weights.tolist() == [w for _, _, w, _ in edges]
        assert np.asarray(graph.array("edges/edge/time")).tolist() == [t for _, _, _, t in edges]


@settings(max_examples=100, deadline=None)
@given(
    rows=st.lists(
        st.tuples(floats, wholes.filter(lambda x: abs(x) < 2**53)), min_size=2, max_size=20
    ),
    how=written(),
    order=st.randoms(use_true_random=False),
)
def test_node_tables_come_back_equal_with_and_without_ids(
    rows: list[Any], how: dict[str, Any], order: Any
) -> None:
    with tempfile.TemporaryDirectory() as name:
        base = how["base"]
        reading = Reading(said(how))
        columns = [[a for a, _ in rows], [b for _, b in rows]]
        path = write(Path(name), how, ["a", "b"], columns)
        found = np.concatenate(list(open_rows(str(path), reading).chunks()))
        assert found.tolist() == [[a, float(b)] for a, b in rows]
        places = list(range(len(rows)))
        order.shuffle(places)
        keyed = [
            [place + base for place in places],
            *([column[p] for p in places] for column in columns),
        ]
        named = how | {"header": True}
        path = write(Path(name), named, ["node_id", "a", "b"], keyed)
        found = np.concatenate(list(open_rows(str(path), Reading(said(named))).chunks()))
        assert found.tolist() == [[a, float(b)] for a, b in rows]
