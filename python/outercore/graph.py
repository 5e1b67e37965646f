"""A data set on disk, opened for reading."""

from __future__ import annotations

import json
import os
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore import _core

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from outercore.stores import FeatureStore, GraphStore

_NODE_PREFIX = "nodes/node/"
_SPLIT_PREFIX = "splits/"


class Graph:
    """A graph on disk with its features, labels and splits. Opening it reads only the manifest.

    Example:
        >>> import outercore as oc
        >>> graph = oc.open(tiny_dataset)
        >>> graph
        Graph(nodes=200, edges=..., features=8, classes=4, splits=['test', 'train', 'valid'])
        >>> graph.split("train").dtype
        dtype('int64')
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Open the data set in the directory ``root``.

        Raises:
            NotFoundError: there is no data set.
            CorruptError: an array is missing or has another length than the manifest says.
            VersionError: a newer Outercore wrote it.
        """
        self.root = Path(root)
        self._core = _core.DataSet(os.fspath(root))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest ``graph.json``: arrays, roles, types and provenance."""
        manifest: dict[str, Any] = json.loads(self._core.manifest())
        return manifest

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self._core.num_nodes())

    @property
    def num_edges(self) -> int:
        """Number of arcs in the CSC; an undirected edge counts twice."""
        return int(self._core.num_edges())

    @property
    def num_features(self) -> int:
        """Columns of the feature array, 0 without one."""
        key = self._role("features")
        if key is None:
            return 0
        shape = self.manifest["arrays"][key]["shape"]
        return int(shape[1]) if len(shape) == 2 else 1

    @property
    def num_classes(self) -> int:
        """Classes of the labels (columns of multi-label ones), 0 without labels."""
        key = self._role("labels")
        if key is None:
            return 0
        shape = self.manifest["arrays"][key]["shape"]
        if len(shape) == 2:
            return int(shape[1])
        return int(self.manifest["roles"].get("classes") or 0)

    @property
    def splits(self) -> list[str]:
        """Names of the splits, sorted."""
        return sorted(self.manifest.get("roles", {}).get("splits", {}))

    @property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """Every array by key, as the manifest describes it."""
        arrays: dict[str, dict[str, Any]] = self.manifest["arrays"]
        return arrays

    def key(self, name: str) -> str:
        """The key of an array by its short name: ``x`` is ``nodes/node/x``.

        Raises:
            NotFoundError: no array has this name.
        """
        for candidate in (name, _NODE_PREFIX + name, _SPLIT_PREFIX + name):
            if candidate in self.arrays:
                return candidate
        from outercore.errors import NotFoundError

        known = ", ".join(sorted(self.arrays))
        raise NotFoundError(f"array `{name}` is not in the data set\nhint: it has {known}")

    def array(self, name: str) -> NDArray[Any]:
        """A whole array in memory; ``bfloat16`` comes as ``float32``.

        Raises:
            NotFoundError: no array has this name.
        """
        array: NDArray[Any] = self._core.read_array(self.key(name))
        return array

    def split(self, name: str) -> NDArray[np.int64]:
        """The node ids of a split, in the order in which they were imported.

        Raises:
            NotFoundError: there is no such split; the message lists those that there are.
        """
        splits = self.manifest.get("roles", {}).get("splits", {})
        if name not in splits:
            from outercore.errors import NotFoundError

            known = ", ".join(self.splits) or "none"
            raise NotFoundError(f"split `{name}` is not in the data set\nhint: it has {known}")
        ids: NDArray[np.int64] = self._core.read_array(splits[name])
        return ids

    def rows(self, name: str, ids: NDArray[np.int64]) -> NDArray[Any]:
        """Rows of a node array, in the order of ``ids``; repetitions are allowed.

        Shapes: ``ids`` int64 [n]; result [n] or [n, columns].
        """
        wanted = np.ascontiguousarray(ids, dtype=np.int64)
        rows: NDArray[Any] = self._core.read_rows(self.key(name), wanted)
        return rows

    def pyg(self) -> tuple[FeatureStore, GraphStore]:
        """The feature store and the graph store for PyG's own loaders and samplers."""
        from outercore.stores import FeatureStore, GraphStore

        return FeatureStore(self), GraphStore(self)

    def _role(self, role: str) -> str | None:
        key: str | None = self.manifest.get("roles", {}).get(role)
        return key

    def __repr__(self) -> str:
        return (
            f"Graph(nodes={self.num_nodes}, edges={self.num_edges}, "
            f"features={self.num_features}, classes={self.num_classes}, splits={self.splits})"
        )


def open(root: str | os.PathLike[str]) -> Graph:
    """Open the data set in the directory ``root``; see :class:`Graph`."""
    return Graph(root)
