"""Reads lists of pairs of nodes in chunks, from text, Parquet and NumPy arrays."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.names import Names
from outercore.data.node_names import FileIds, NamesOfType
from outercore.errors import HINT, InvalidError, NotFoundError, Remedy, UnsupportedError
from outercore.files.file_spec import FileSpec
from outercore.importing.table.columns import EdgeColumns, edge_columns
from outercore.importing.table.edge_array import EdgeArrayTable
from outercore.importing.table.keys import key_texts
from outercore.importing.table.parts import Parts
from outercore.importing.table.table import Table
from outercore.importing.table.text import Purpose, TextOptions, offsets_and_bytes, suffix_of

_OTHERS = (".npz", ".mtx", ".gr", ".dimacs", ".nt")


@dataclass(frozen=True)
class PairList:
    """Pairs of nodes in a file. If the data set has names, the file names nodes by them.

    Otherwise it has the ids of the imported files. Row numbers in messages count from 0.
    """

    spec: FileSpec
    ids: NamesOfType

    @classmethod
    def parse(cls, text: str, ids: NamesOfType) -> PairList:
        """Opens the list in `FILE` or `FILE:SOURCE,TARGET`.

        Errors: `NotFoundError` for a missing file; `UnsupportedError` for formats of graphs and
        matrices.
        """
        spec = FileSpec.parse(text)
        if suffix_of(spec.path) in _OTHERS:
            raise UnsupportedError(
                f"edges `{spec.path}`: expected a list of pairs\n"
                "hint: give a text, Parquet, or `.npy` [edges, 2] or [2, edges]"
            )
        return cls(spec, ids)

    def chunks(self) -> Iterator[NDArray[np.int64]]:
        """The positions of the pairs, [n, 2], in the order of the file.

        Errors: `InvalidError` with the row of a value that is not a node.
        """
        if isinstance(self.ids, Names):
            yield from self._named(self.ids)
            return
        first = 0
        for pairs in self._numbers():
            found = pairs - self.ids.first
            bad = (found < 0) | (found >= len(self.ids))
            if bad.any():
                row, end = (int(at) for at in np.argwhere(bad)[0])
                raise InvalidError(
                    f"edges `{self.spec}`: row {first + row}: node {pairs[row, end]}, expected "
                    f"{self.ids.range}"
                )
            yield found
            first += len(pairs)

    def _numbers(self) -> Iterator[NDArray[np.int64]]:
        for name in self._ends:
            if self._table.kind(name) == "text":
                raise InvalidError(
                    f"edges `{self.spec}`: column `{name}` holds text, and the nodes of the data "
                    "set have ids and no names"
                )
        yield from self._table.numbers(self._ends, np.dtype(np.int64), "nan")

    def _named(self, names: Names) -> Iterator[NDArray[np.int64]]:
        first = 0
        for columns in key_texts(self._table, self._ends):
            ends = [self._found(names, column, first) for column in columns]
            yield np.stack(ends, axis=1)
            first += len(columns[0])

    def _found(self, names: Names, column: Any, first: int) -> NDArray[np.int64]:
        found = names.lookup(*offsets_and_bytes(column))
        if len(missing := np.flatnonzero(found < 0)):
            row = int(missing[0])
            name = column[row].as_py()
            raise NotFoundError(
                f"edges `{self.spec}`: row {first + row}: node `{name}` is not in the data set"
            )
        return found

    @cached_property
    def _table(self) -> Table:
        if suffix_of(self.spec.path) == ".npy" and isinstance(self.ids, FileIds):
            return EdgeArrayTable.open(self.spec, what="edges")
        purpose: Purpose = "edges" if isinstance(self.ids, FileIds) else "named_edges"
        try:
            return Parts().open(self.spec, TextOptions(), purpose)
        except InvalidError as error:
            if error.names("comment"):
                # Comments are read as rows. They do not name nodes, so the rows are refused.
                return Parts().open(self.spec, TextOptions(comment=""), purpose)
            if not any(isinstance(part, Remedy) for part in error.hint):
                raise
            # The commands that take pairs lack options for texts.
            way = "write the pairs as Parquet, or with tabs between them and a header above"
            raise InvalidError(f"{error.message}{HINT}{way}") from None

    @cached_property
    def _ends(self) -> list[str]:
        ends: EdgeColumns = edge_columns(self.spec, self._table)
        return [ends.source, ends.target]
