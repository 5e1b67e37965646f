"""Importers of the core as context managers, and functions that exchange arrays with the core."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.errors import REFUSALS

Progress = Callable[[str, int, int, str], None]
"""Called as `progress(phase, done, total, unit)`; an exception stops the work."""

Role = Literal["features", "labels", "split", "array", "edge", "names"]


class Arrays:
    """Receives arrays for a data set, whole or in chunks of rows."""

    _core: Any

    def array_npy(self, role: Role, name: str, path: Path, options: dict[str, Any]) -> None:
        """Adds a whole `.npy` file. It is copied, or with the option `in_place` only referenced."""
        self._core.array_npy(role, name, path, options)

    def array_begin(
        self, role: Role, name: str, dtype: str, width: int | None, options: dict[str, Any]
    ) -> None:
        """Begins an array. `array_push` adds its rows. `width=None`: one value per row."""
        self._core.array_begin(role, name, dtype, width, options)

    def array_push(self, rows: NDArray) -> None:
        """Adds the next rows of the array."""
        self._core.array_push(np.ascontiguousarray(rows).reshape(-1).view(np.uint8), len(rows))

    def array_end(self) -> None:
        """Completes the array."""
        self._core.array_end()


class Addition(Arrays):
    """Adds arrays to a data set. `finish` commits all of them at once.

    No other process can write to the data set until `finish` or the end of the `with` block. The
    end of the block removes arrays without a commit.
    """

    def __init__(self, root: Path, progress: Progress, *, overwrite: bool) -> None:
        self._core = _core.Addition(root, overwrite, progress)

    def __enter__(self) -> Addition:
        return self

    def __exit__(self, *_: object) -> None:
        self._core.close()

    def finish(self, inputs: list[str]) -> dict[str, Any]:
        """Commits the arrays, and returns a summary of each. `inputs`: their source files."""
        return self._core.finish(inputs)


class Importer(Arrays):
    """Builds a data set from edges and arrays. `finish` commits it.

    A stopped import resumes when the caller begins it again with the same options. No other process
    can write to its directory until `finish` or the end of the `with` block.
    """

    def __init__(self, out: Path, options: dict[str, Any], progress: Progress) -> None:
        self._core = _core.Importer(out, options, progress)

    def __enter__(self) -> Importer:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._core.close(kind is not None and issubclass(kind, REFUSALS))

    def edges_text(self, path: Path, layout: dict[str, Any]) -> None:
        """Adds a text file of edges. `layout` has its dialect, and the columns of both ends."""
        self._core.edges_text(path, layout)

    def edges_npy(self, path: Path) -> None:
        """Adds a `.npy` file of edges, [E, 2] or [2, E]."""
        self._core.edges_npy(path)

    def push_edges(self, source: NDArray[np.int64], target: NDArray[np.int64]) -> None:
        """Adds a batch of edges, [n] sources and [n] targets."""
        self._core.push_edges(
            np.ascontiguousarray(source, np.int64), np.ascontiguousarray(target, np.int64)
        )

    def begin_edge_type(self, name: str) -> None:
        """Begins the edges of a type. Call it in the order of the names of the types."""
        self._core.begin_edge_type(name)

    def finish(self) -> dict[str, Any]:
        """Sorts the edges, checks all inputs together, commits, and returns the summary."""
        return self._core.finish()


Names = tuple[NDArray[np.int64], NDArray[np.uint8]]
"""Offsets [names + 1] of the names, and the bytes of all names."""


class TripleImporter:
    """Builds a data set from triples. `finish` commits it.

    A stopped import resumes when the caller begins it again with the same options. No other process
    can write to its directory until `finish` or the end of the `with` block.
    """

    def __init__(self, out: Path, options: dict[str, Any], progress: Progress) -> None:
        self._core = _core.TripleImporter(out, options, progress)

    def __enter__(self) -> TripleImporter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._core.close(kind is not None and issubclass(kind, REFUSALS))

    def text(self, part: str, path: Path, dialect: dict[str, Any]) -> None:
        """Adds a text file to a `part` (`train`, `valid`, `test`). `dialect`: its format."""
        self._core.text(part, path, dialect)

    def push(
        self,
        part: str,
        heads: Names,
        relations: Names,
        tails: Names,
        weights: NDArray[np.float32] | None,
    ) -> None:
        """Adds a batch of triples to a `part`: the names of their heads, relations and tails."""
        self._core.push(part, heads, relations, tails, weights)

    def finish(self) -> dict[str, Any]:
        """Merges the names, checks and writes the triples, commits, and returns the summary."""
        return self._core.finish()


class DictionaryImporter:
    """Numbers names: shorter names first, then by bytes. `finish` commits the data set of names.

    The array `names/entity.numbers` has the number of each name, in the order of `push`. Without a
    commit, the end of the `with` block removes the dictionary.
    """

    def __init__(self, out: Path, memory: int, progress: Progress) -> None:
        self._core = _core.DictionaryImporter(out, memory, progress)

    def __enter__(self) -> DictionaryImporter:
        return self

    def __exit__(self, *_: object) -> None:
        self._core.close(None)

    def push(self, names: Names) -> None:
        """Adds a batch of names. Names may repeat."""
        self._core.push(names)

    def finish(self, inputs: list[str]) -> None:
        """Merges the names, and commits with `inputs` in the provenance."""
        self._core.close(inputs)


def verify_arrays(path: Path, keys: list[str]) -> None:
    """Verifies the checksums of the arrays `keys`. Call it before arrays are computed from them.

    Errors: `CorruptError` names the first damaged array.
    """
    data_set = _core.DataSet(path)
    for key in keys:
        data_set.verify_array(key)


def mapped_values(descriptor: int) -> NDArray[Any]:
    """Maps results of the core that exceed the budget, from an open scratch file."""
    try:
        values: np.memmap[Any, Any] = np.load(f"/proc/self/fd/{descriptor}", mmap_mode="r")
    finally:
        os.close(descriptor)
    # The number of this descriptor will be reused for another file. Programs that open mapped
    # arrays by file name, such as joblib's workers, must not open that file.
    values.filename = None
    return values


def add_array(path: Path, key: str, values: NDArray[Any], origin: str) -> None:
    """Writes an array to a data set under `key`, or replaces it. `origin` is for the provenance."""
    flat = np.ascontiguousarray(values)
    flat = flat.astype(flat.dtype.newbyteorder("<"), copy=False)
    width = list(flat.shape[1:])
    bytes_ = flat.reshape(-1).view(np.uint8)
    _core.add_array(path, key, flat.dtype.name, width, bytes_, origin)
