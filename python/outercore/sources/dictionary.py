"""Nodes with names or sparse numbers: a dictionary on disk gives each an id from 0.

The dictionary is built by the import of triples, within the same budget. Each edge is a triple of
one relation, each row of a node table a triple of its id with itself. The triples by ids are
then the edges, and the ids of the rows, in the order of the files.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import outercore
from outercore._native import Names, Progress, TripleImporter
from outercore.errors import InvalidError
from outercore.sources.columns import NodeColumns, edge_columns, id_column, node_columns
from outercore.sources.edge_arrays import edge_arrays
from outercore.sources.edges import EdgeSource, pushed, table_values
from outercore.sources.graph import GraphSource, NodeArray
from outercore.sources.inputs import Inputs, reading_of
from outercore.sources.rows import Reading, RowSource, described, table_rows
from outercore.sources.table import FileSpec, Table, open_table
from outercore.sources.triples import names_of
from outercore.split_names import normal_split

_CHUNK = 1 << 20
_PARTS = ("offsets", "bytes")
Role = Literal["features", "labels", "array", "split"]


@dataclass(frozen=True)
class _Rows:
    """A node table and the column that names its nodes."""

    role: Role
    name: str
    spec: FileSpec
    table: Table
    columns: NodeColumns


class NamedInputs:
    """Inputs whose nodes have names; a context that removes the dictionary's own files.

    Cost: the names of both ends of each edge are read twice.
    """

    def __init__(self, inputs: Inputs, out: Path) -> None:
        """Opens all files.

        Errors: `InvalidError` for a node table without a column of ids, and for options that mean
        nothing here.
        """
        if inputs.nodes is not None:
            raise InvalidError("--nodes: the dictionary counts the nodes")
        if inputs.splits is not None:
            raise InvalidError("--splits: ids of an archive are numbers; give names by `--split`")
        self._inputs = inputs
        self._reading = Reading(inputs.text, inputs.fill, inputs.memory // 4)
        specs = [FileSpec.parse(text) for text in inputs.edges]
        self._edges = [(spec, open_table(spec, inputs.text, "named_edges")) for spec in specs]
        self._rows = self._open_rows()
        out = Path(out)
        self._place = out.parent / f".{out.name}.names"
        self._is_ours = False

    def __enter__(self) -> NamedInputs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        # After an interrupt the next run resumes from here.
        if self._is_ours and (kind is None or issubclass(kind, InvalidError)):
            shutil.rmtree(self._place, ignore_errors=True)

    def build(self, progress: Progress) -> GraphSource:
        """Builds the dictionary and gives the graph by ids."""
        options = {
            "memory": self._inputs.memory,
            "unknown": "keep",
            "inputs": [_as_it_is(spec) for spec, _ in self._edges]
            + [f"{rows.columns.key}={_as_it_is(rows.spec)}" for rows in self._rows]
            + [reading_of(self._inputs)],
            # Drops the dictionary of other inputs that an interrupted import left behind.
            "overwrite": True,
        }
        if _inputs_of(self._place) != options["inputs"]:
            with TripleImporter(self._place, options, progress) as importer:
                self._is_ours = True
                for spec, table in self._edges:
                    ends = edge_columns(spec, table)
                    for sources, targets in table.texts([ends.source, ends.target]):
                        relation = _one_name(len(sources))
                        importer.push("train", names_of(sources), relation, names_of(targets), None)
                for rows in self._rows:
                    assert rows.columns.key is not None
                    for (ids,) in rows.table.texts([rows.columns.key]):
                        named = names_of(ids)
                        importer.push("valid", named, _one_name(len(ids)), named, None)
                importer.finish()
        self._is_ours = True
        return self._source(outercore.open(self._place))

    def _source(self, names: Any) -> GraphSource:
        triples = names.array("triples/train")
        edges: list[EdgeSource] = []
        first = 0
        for spec, table in self._edges:
            part = triples[first : first + table.rows]
            first += len(part)
            ends = edge_columns(spec, table)
            edges.append(
                pushed(
                    str(spec),
                    _pairs(part),
                    others=tuple(ends.others),
                    values=table_values(table, ends),
                    notes=[f"{spec.path}: {described(table)}; nodes by a dictionary"],
                )
            )
        values, notes = edge_arrays(edges, self._inputs.edge_values, self._reading)
        arrays = self._node_arrays(names)
        arrays += [
            NodeArray("names", f"entity.{part}", _stored(names, f"names/entity.{part}"))
            for part in _PARTS
        ]
        shown = [note for edge in edges for note in edge.notes]
        shown += [note for array in arrays for note in array.rows.notes]
        return GraphSource(
            edges,
            arrays,
            int(names.num_nodes),
            edge_arrays=values,
            reading=reading_of(self._inputs) + " by a dictionary",
            notes=shown + notes,
        )

    def _node_arrays(self, names: Any) -> list[NodeArray]:
        found, first = [], 0
        for rows in self._rows:
            ids = names.array("triples/valid")[first : first + rows.table.rows, 0]
            first += len(ids)
            if rows.role == "split":
                found.append(NodeArray("split", rows.name, _ids(rows, ids)))
                continue
            reading = replace(self._reading, nodes=int(names.num_nodes), ids=_sliced(ids))
            labels = rows.role == "labels"
            if labels:
                reading = replace(reading, fill=None)
            source = table_rows(
                rows.spec,
                rows.table,
                rows.columns,
                reading,
                "minus_one" if labels else "nan",
                -1 if labels else None,
            )
            found.append(NodeArray(rows.role, rows.name, source))
        return found

    def _open_rows(self) -> list[_Rows]:
        wanted: list[tuple[Role, str, str]] = []
        if self._inputs.features is not None:
            wanted.append(("features", "x", self._inputs.features))
        if self._inputs.labels is not None:
            wanted.append(("labels", "y", self._inputs.labels))
        for option, role, texts in (
            ("--array", "array", self._inputs.arrays),
            ("--split", "split", self._inputs.split),
        ):
            for text in texts:
                name, equals, file = text.partition("=")
                if not equals or not name:
                    raise InvalidError(f"{option}: expected NAME=FILE, found `{text}`")
                chosen = normal_split(name) if role == "split" else name
                wanted.append((role, chosen, file))  # type: ignore[arg-type]
        return [self._keyed(*one) for one in wanted]

    def _keyed(self, role: Role, name: str, text: str) -> _Rows:
        spec = FileSpec.parse(text)
        table = open_table(spec, self._inputs.text)
        columns = node_columns(spec, table)
        if role == "split":
            key = spec.columns[0] if spec.columns else id_column(table) or table.names[0]
            columns = NodeColumns(key, [key])
        if columns.key is None:
            raise InvalidError(
                f"`{spec}`: no column of ids, and nodes with names have no order\n"
                "hint: call the column with the names `id`"
            )
        return _Rows(role, name, spec, table, columns)


def _as_it_is(spec: FileSpec) -> str:
    """The input with the size and the time of its file, which tell when it is another one."""
    if not spec.path.is_file():
        return str(spec)
    found = spec.path.stat()
    return f"{spec} {found.st_size} {found.st_mtime_ns}"


def _inputs_of(place: Path) -> list[str] | None:
    """The inputs of the finished dictionary in `place`, if there is one."""
    try:
        manifest = json.loads((place / "graph.json").read_text())
        return list(manifest["provenance"]["inputs"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _one_name(rows: int) -> Names:
    """The name of the one relation, once for each row."""
    return np.arange(rows + 1, dtype=np.int64), np.full(rows, ord("e"), np.uint8)


def _pairs(triples: NDArray[np.int64]) -> Any:
    def batches() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for first in range(0, len(triples), _CHUNK):
            part = np.asarray(triples[first : first + _CHUNK])
            yield np.ascontiguousarray(part[:, 0]), np.ascontiguousarray(part[:, 2])

    return batches


def _sliced(ids: NDArray[np.int64]) -> Any:
    """The ids of a table's rows, cut as the table cuts them."""

    def batches(table: Table, key: str) -> Iterator[NDArray[np.int64]]:
        first = 0
        for (names,) in table.texts([key]):
            yield np.asarray(ids[first : first + len(names)])
            first += len(names)

    return batches


def _ids(rows: _Rows, ids: NDArray[np.int64]) -> RowSource:
    def chunks() -> Iterator[NDArray[np.int64]]:
        for first in range(0, len(ids), _CHUNK):
            yield np.array(ids[first : first + _CHUNK])

    return RowSource(str(rows.spec), np.dtype(np.int64), None, len(ids), chunks)


def _stored(names: Any, key: str) -> RowSource:
    values = names.array(key)

    def chunks() -> Iterator[NDArray[Any]]:
        for first in range(0, len(values), _CHUNK):
            yield np.array(values[first : first + _CHUNK])

    return RowSource(key, values.dtype, None, len(values), chunks)
