"""Edges from files, handed to the importer in the cheapest way each format allows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from outercore._native import Importer
from outercore.errors import InvalidError
from outercore.sources.npz import NpzMember, open_member
from outercore.sources.rows import (
    FileSpec,
    column_names,
    csv_batches,
    kind_of,
    parquet_batches,
)

EdgeFormat = Literal["auto", "text", "npy", "npz", "parquet", "mtx"]
_CHUNK = 1 << 20
_ENDS = (
    frozenset({"source", "src", "from", "u"}),
    frozenset({"target", "dst", "destination", "to", "v"}),
)
"""What columns of sources and of targets are called."""

Batches = Callable[[], Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]]


@dataclass(frozen=True)
class EdgeSource:
    """Edges of one input; `feed` gives them to an importer."""

    name: str
    feed: Callable[[Importer], None]


def open_edges(text: str, kind: EdgeFormat = "auto") -> EdgeSource:
    """Edges of a file, by its suffix unless `kind` says otherwise.

    Errors: `NotFoundError` where there is no such file.
    """
    spec = FileSpec.parse(text)
    path = spec.path
    chosen = _FORMATS.get(kind_of(path), "text") if kind == "auto" else kind
    if chosen in ("text", "parquet") and not spec.columns:
        _require_ends_first(path, column_names(path))
    if chosen in ("text", "mtx"):
        if spec.columns:
            return pushed(str(spec), lambda: _pairs(spec, csv_batches(spec, 2)))
        return EdgeSource(text, lambda importer: importer.edges_text(path))
    if chosen == "npy":
        return EdgeSource(text, lambda importer: importer.edges_npy(path))
    if chosen == "npz":
        return npz_edges(open_member(path, spec.columns or _edge_member(path)))
    return pushed(str(spec), lambda: _pairs(spec, parquet_batches(spec, 2)))


def pushed(name: str, batches: Batches) -> EdgeSource:
    """Edges that come in batches of sources and targets."""

    def feed(importer: Importer) -> None:
        for source, target in batches():
            try:
                importer.push_edges(source, target)
            except InvalidError as error:
                raise InvalidError(f"`{name}`: {error}") from None

    return EdgeSource(name, feed)


def from_edge_index(name: str, edge_index: NDArray) -> EdgeSource:
    """Edges of an array in memory; shape [2, E]."""
    if edge_index.ndim != 2 or edge_index.shape[0] != 2:
        raise InvalidError(f"{name}: expected [2, edges], found {edge_index.shape}")

    def batches() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for first in range(0, edge_index.shape[1], _CHUNK):
            part = edge_index[:, first : first + _CHUNK].astype(np.int64)
            yield part[0], part[1]

    return pushed(name, batches)


def npz_edges(member: NpzMember) -> EdgeSource:
    """Edges of an archive's member; shape [2, E] (also where E is 2) or [E, 2], in any order."""
    member = member.in_memory_order()
    shape = member.shape
    if len(shape) != 2 or 2 not in shape or not np.issubdtype(member.dtype, np.integer):
        raise InvalidError(
            f"{member}: expected integers [2, edges] or [edges, 2], found {member.dtype} {shape}"
        )

    def columns() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        edges = shape[1]
        # Two readers at once: the sources lie before all of the targets.
        for source, target in zip(
            member.values(_CHUNK, 0, edges), member.values(_CHUNK, edges, 2 * edges), strict=True
        ):
            yield source.astype(np.int64), target.astype(np.int64)

    def pairs() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
        for flat in member.values(2 * _CHUNK):
            both = flat.astype(np.int64).reshape(-1, 2)
            yield both[:, 0], both[:, 1]

    return pushed(str(member), columns if shape[0] == 2 else pairs)


def _pairs(
    spec: FileSpec, batches: Iterator[list[NDArray]]
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64]]]:
    for columns in batches:
        if len(columns) != 2:
            raise InvalidError(f"`{spec}`: expected two columns of node ids, found {len(columns)}")
        yield columns[0], columns[1]


def _require_ends_first(path: Path, names: list[str]) -> None:
    """Errors: `InvalidError` where columns named as an edge's ends are not the first two."""
    short = [_plain(name) for name in names]
    ends = [next((at for at, name in enumerate(short) if name in kind), None) for kind in _ENDS]
    source, target = ends
    if source is None or target is None or (source, target) == (0, 1):
        return
    chosen = f"{path}:{names[source]},{names[target]}"
    raise InvalidError(
        f"`{path}`: the first two columns would be taken as source and target, and they are "
        f"`{names[0]}` and `{names[1]}`\nhint: choose the columns: `{chosen}`"
    )


def _plain(name: str) -> str:
    """`FromNodeId` and `from_node_id` as `from`."""
    plain = "".join(letter for letter in name.lower() if letter.isalnum())
    return plain.removesuffix("id").removesuffix("node") or plain


def _edge_member(path: Path) -> tuple[str, ...]:
    from outercore.sources.npz import member_names

    names = member_names(path)
    return next(((name,) for name in ("edge_index", "edges") if name in names), ())


_FORMATS: dict[str, EdgeFormat] = {
    ".npy": "npy",
    ".npz": "npz",
    ".parquet": "parquet",
    ".mtx": "mtx",
}
