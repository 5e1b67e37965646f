"""Candidates that are given for each triple, as OGB gives them."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore.embedding.gradients.models import Side
from outercore.errors import CorruptError, InvalidError
from outercore.files.input_file import require_file
from outercore.importing.table.torch_file import read_torch

GivenCandidates = str | os.PathLike[str] | Mapping[str, ArrayLike]
"""A file `.npz` or `.pt`, or its arrays by name."""

_SIDES: dict[str, Side] = {"tail_neg": "tail", "head_neg": "head", "target_node_neg": "tail"}
"""By the names that OGB has in ogbl-wikikg2, ogbl-biokg and ogbl-citation2."""
_COLUMNS = {"head": 0, "relation": 1, "tail": 2, "source_node": 0, "target_node": 2}
_BLOCK = 1 << 12
"""Rows that are looked at together."""


def given_candidates(
    source: GivenCandidates, part: str, triples: NDArray[np.int64], entities: int
) -> dict[Side, NDArray[Any]]:
    """The candidates of a part's `triples`, int64 [m, 3], by the side that is asked for.

    Arrays `head`, `relation`, `tail` (or `source_node`, `target_node`) are compared with the
    triples, so that no row gets the candidates of another one.

    Shapes: each [m, candidates], entities by number.
    Errors: `InvalidError` for arrays of another shape or type, for other triples, and for entities
    out of range; those of reading the file.
    """
    what = "negatives" if isinstance(source, Mapping) else f"negatives `{os.fspath(source)}`"
    arrays = {
        name: np.asarray(array) if not isinstance(array, np.ndarray) else array
        for name, array in _arrays(source, what).items()
    }
    found = {side: arrays[name] for name, side in _SIDES.items() if name in arrays}
    if not found:
        raise InvalidError(
            f"{what}: expected an array {', '.join(f'`{name}`' for name in _SIDES)}, found "
            f"{', '.join(f'`{name}`' for name in arrays) or 'none'}"
        )
    for name in (name for name in _SIDES if name in arrays):
        _check(f"{what}: array `{name}`", arrays[name], part, len(triples), entities)
    for name, column in _COLUMNS.items():
        if name in arrays:
            _require_same(f"{what}: array `{name}`", arrays[name], triples[:, column], part)
    return found


def _arrays(source: GivenCandidates, what: str) -> Mapping[str, Any]:
    if isinstance(source, Mapping):
        return source
    path = Path(source)
    if path.suffix == ".pt":
        read = read_torch(path)
        if not isinstance(read, dict):
            raise InvalidError(f"{what}: expected arrays by name, found {type(read).__name__}")
        return {str(name): array for name, array in read.items() if isinstance(array, np.ndarray)}
    if path.suffix != ".npz":
        raise InvalidError(f"{what}: expected `.npz` or `.pt`, found `{path.name}`")
    require_file(path, "negatives")
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError) as error:
        raise CorruptError(f"{what}: expected an `.npz` of arrays: {error}") from error


def _check(what: str, array: NDArray[Any], part: str, count: int, entities: int) -> None:
    if array.ndim != 2 or array.dtype.kind not in "iu" or not array.shape[1]:
        raise InvalidError(
            f"{what}: expected entity ids, integers [n, candidates], found {array.dtype} "
            f"{list(array.shape)}"
        )
    if len(array) != count:
        raise InvalidError(
            f"{what}: expected a row for each of the {count:,} triples in `{part}`, found "
            f"{len(array):,}"
        )
    for first, block in _blocks(array):
        wrong = np.flatnonzero(((block < 0) | (block >= entities)).any(axis=1))
        if len(wrong):
            row = block[wrong[0]]
            bad = row[(row < 0) | (row >= entities)][0]
            raise InvalidError(
                f"{what}: row {first + int(wrong[0])}: found entity {bad}, expected 0 to "
                f"{entities - 1}\nhint: candidates are ids of the data set, which "
                "`outercore embedding export --ids` lists"
            )


def _require_same(what: str, array: NDArray[Any], column: NDArray[np.int64], part: str) -> None:
    array = array.reshape(-1)
    if len(array) != len(column):
        raise InvalidError(
            f"{what}: expected the {len(column):,} triples of `{part}`, found {len(array):,}"
        )
    other = np.flatnonzero(array != column)
    if len(other):
        row = int(other[0])
        raise InvalidError(
            f"{what}: row {row}: found {array[row]}, where `{part}` has {column[row]}\n"
            "hint: negatives belong to the triples of the data set, in their order and by its ids"
        )


def _blocks(array: NDArray[Any]) -> Iterator[tuple[int, NDArray[Any]]]:
    for first in range(0, len(array), _BLOCK):
        yield first, np.asarray(array[first : first + _BLOCK])
