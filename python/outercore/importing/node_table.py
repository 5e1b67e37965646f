"""A table with a row for each node, and the column by which other files name them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from outercore.base.shell import quoted
from outercore.errors import InvalidError
from outercore.files.file_spec import FileSpec
from outercore.files.large_arrays import blocks, forget
from outercore.importing.table.columns import id_column
from outercore.importing.table.table import Table

_BLOCK = 1 << 20


@dataclass(frozen=True)
class NamedRows:
    """Rows of a file that name nodes, with the node of each; [rows] or [rows, ends]."""

    spec: FileSpec
    columns: tuple[str, ...]
    nodes: NDArray[np.int64]


def key_of(spec: FileSpec, table: Table) -> str:
    """The column of a table of nodes that has their keys: the one chosen, else by its name.

    Errors: `InvalidError` for several columns, and where no name says it.
    """
    if len(spec.columns) > 1:
        raise InvalidError(f"--nodes: expected one column of keys, found {', '.join(spec.columns)}")
    if spec.columns:
        return spec.columns[0]
    key = table.names[0] if len(table.names) == 1 else id_column(table)
    if key is None:
        raise InvalidError(
            f"--nodes: `{spec.path}`: no column is called like ids, found "
            f"{', '.join(f'`{name}`' for name in table.names)}\n"
            f"hint: name the column of keys: `--nodes {quoted(f'{spec.path}:{table.names[0]}')}`"
        )
    return key


def require_rows_of_nodes(
    table: NamedRows, uses: Sequence[NamedRows], count: int, called: Callable[[int], str]
) -> None:
    """Makes sure that each node has one row in the table. `called` gives the key of a node.

    Cost: a byte of memory for each of `count` nodes; a pass over all rows where one is missing.
    Errors: `InvalidError` names the rows of a key that comes twice, or the row that names a node
    which the table does not have.
    """
    known = np.zeros(count, np.bool_)
    for start, block in blocks(table.nodes, _BLOCK):
        if known[block].any() or len(np.unique(block)) < len(block):
            raise _twice(table, start + len(block), called)
        known[block] = True
        forget(table.nodes)
    if known.all():
        return
    for use in uses:
        unknown = sum(int((~known[block]).any(axis=-1).sum()) for block in _rows(use.nodes))
        if not unknown:
            continue
        row = 0
        for block in _rows(use.nodes):
            wrong = np.argwhere(~known[block])
            if len(wrong):
                place, column = (int(at) for at in wrong[0])
                name = called(int(block[place, column]))
                is_first = row + place == 0
                header = "if the first line names the columns: `--header`; " if is_first else ""
                raise InvalidError(
                    f"`{use.spec.path}`: row {row + place}: column `{use.columns[column]}` names "
                    f"node `{name}`, and `{table.spec.path}` has no row for it; so it is in "
                    f"{unknown:,} of {len(use.nodes):,} rows\n"
                    f"hint: {header}add rows for these nodes to the table; or leave `--nodes` out, "
                    "and all nodes that files name are nodes of the graph"
                )
            row += len(block)


def _rows(nodes: NDArray[np.int64]) -> Iterator[NDArray[np.int64]]:
    for _, block in blocks(nodes, _BLOCK):
        yield np.array(block).reshape(len(block), -1)
        forget(nodes)


def _twice(table: NamedRows, stop: int, called: Callable[[int], str]) -> InvalidError:
    nodes = np.array(table.nodes[:stop])
    order = np.argsort(nodes, kind="stable")
    again = np.flatnonzero(np.diff(nodes[order]) == 0)
    second = int(order[again + 1].min())
    first = int(np.argmax(nodes == nodes[second]))
    return InvalidError(
        f"`{table.spec.path}`: column `{table.columns[0]}`: key `{called(int(nodes[second]))}` "
        f"stands in rows {first} and {second}, expected once\n"
        "hint: each row is a node; leave the second one out"
    )
