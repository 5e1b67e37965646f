"""Archives of molecules: `.npz` files with arrays of atoms, bonds and labels.

`num_nodes` and `num_bonds` [graphs]; `atom` [nodes, columns]; `bond_begin`, `bond_end` [bonds]
with ids within the graph, every bond once; `bond` [bonds, columns]; `y` [graphs, tasks] with NaN
for a missing label; and `scaffold_split` [graphs] with 0, 1, 2 for train, valid and test.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.data.split_names import KNOWN
from outercore.errors import InvalidError
from outercore.importing.edge_arrays import FEATURES
from outercore.importing.edges import pushed
from outercore.importing.inputs import Inputs
from outercore.importing.many_graphs import GraphLevel, first_of_counts, labels_of, whole_counts
from outercore.importing.options import ImportOptions
from outercore.importing.source import Format, GraphSource
from outercore.importing.table.file_state import states
from outercore.importing.table.npz import NpzMember, member_names, open_member, read_member
from outercore.importing.table.rows import NodeArray, npz_rows
from outercore.importing.table.text import suffix_of

_NEEDED = ("num_nodes", "num_bonds", "atom", "bond_begin", "bond_end", "y")
_BONDS = 1 << 20


def is_molecules(path: Path) -> bool:
    """Whether a path is a `.npz` archive with the required arrays."""
    if not path.is_file() or suffix_of(path) != ".npz":
        return False
    return set(_NEEDED) <= set(member_names(path))


def open_molecules(path: Path, _: Inputs, options: ImportOptions) -> GraphSource:
    """Opens the molecules of such an archive. Every bond counts in both directions.

    `atom` becomes the features and `bond` the edge array `attr`, unchanged. An array of another
    name with a row for each molecule becomes an array of graphs.

    Cost: streams atoms and bonds; reads arrays of molecules whole.
    Errors: `InvalidError` names the array with wrong rows or values.
    """
    files = states(path)
    atoms, bonds = open_member(path, ("atom",)), open_member(path, ("bond_begin",))
    counts, bond_counts = (
        whole_counts(read_member(path, name), f"`{path}:{name}`")
        for name in ("num_nodes", "num_bonds")
    )
    first = first_of_counts(counts, f"`{path}:num_nodes`")
    level = GraphLevel(first, int(counts.sum()), local_ids=True)
    _require_rows(open_member(path, ("num_bonds",)), level.count, "graphs")
    _require_rows(atoms, level.nodes, "nodes, the sum of `num_nodes`")
    for name in ("bond_begin", "bond_end"):
        what = "bonds, the sum of `num_bonds`"
        member = open_member(path, (name,))
        _require_rows(member, int(bond_counts.sum()), what)
        if len(member.shape) != 1 or member.dtype.kind not in "iu":
            raise InvalidError(
                f"`{path}:{name}`: expected whole numbers [bonds], found {member.dtype} "
                f"{member.shape}"
            )
    ends = np.cumsum(bond_counts)

    def batches() -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        yield from _bonds(path, bonds.shape[0], first, ends, counts)

    edges = pushed(str(path), batches, files=files)
    notes = _graph_arrays(path, level, options.task)
    arrays = [NodeArray("features", "x", npz_rows(atoms))]
    if "bond" in member_names(path):
        rows = npz_rows(open_member(path, ("bond",)))
        arrays.append(NodeArray("edge", FEATURES, rows))
    return GraphSource(
        [edges],
        arrays,
        level.nodes,
        True,
        notes=[f"{path}: {level.count:,} molecules, {level.nodes:,} atoms", *notes],
        graphs=level,
    )


def _bonds(
    path: Path,
    count: int,
    first: NDArray[np.int64],
    ends: NDArray[np.int64],
    nodes: NDArray[np.int64],
) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
    """The bonds in batches, with ids of nodes in the data set.

    Errors: `InvalidError` for an end beyond the atoms of its molecule.
    """
    columns = [open_member(path, (name,)).values(_BONDS) for name in ("bond_begin", "bond_end")]
    for start, pair in zip(range(0, count, _BONDS), zip(*columns, strict=True), strict=True):
        graph = np.searchsorted(ends, np.arange(start, start + len(pair[0])), side="right")
        local = np.stack(pair).astype(np.int64)
        outside = ((local < 0) | (local >= nodes[graph])).any(axis=0)
        if len(wrong := np.flatnonzero(outside)):
            at = int(wrong[0])
            raise InvalidError(
                f"`{path}`: bond {start + at}: atoms {local[0, at]} and {local[1, at]}, expected "
                f"0 to {nodes[graph[at]] - 1}: those of molecule {graph[at]}"
            )
        yield local[0] + first[graph], local[1] + first[graph]


def _graph_arrays(path: Path, level: GraphLevel, task: str | None) -> list[str]:
    """Adds labels, splits and further arrays to `level`; returns notes on ignored arrays."""
    others = []
    for name in member_names(path):
        member = open_member(path, (name,))
        if name in (*_NEEDED[:-1], "bond"):
            continue
        if not member.shape or member.shape[0] != level.count or member.dtype.kind not in "iufb":
            if name == "y":
                _require_rows(member, level.count, "graphs")
            others.append(name)
            continue
        values = read_member(path, name).reshape(member.rows_in_order().shape)
        if name == "y":
            level.arrays["y"] = labels_of(values, str(member), task)
        elif name == "scaffold_split":
            level.splits.update(_splits(values, str(member)))
        else:
            level.arrays[name] = values
    return [f"{path}: not taken: {', '.join(others)}"] if others else []


def _splits(values: NDArray[Any], where: str) -> dict[str, NDArray[np.int64]]:
    if len(wrong := np.flatnonzero(~np.isin(values, (0, 1, 2)))):
        raise InvalidError(
            f"{where}: row {wrong[0]}: found {values[wrong[0]]}, expected 0, 1 or 2 for train, "
            "valid and test"
        )
    found = {name: np.flatnonzero(values == number) for number, name in enumerate(KNOWN)}
    return {name: ids for name, ids in found.items() if len(ids)}


def _require_rows(member: NpzMember, count: int, what: str) -> None:
    if not member.shape or member.shape[0] != count:
        raise InvalidError(f"{member}: shape {member.shape}, expected {count} rows: {what}")


FORMAT = Format("an archive of molecules", is_molecules, open_molecules)
