"""A data set on disk, opened for reading: arrays by key, types, splits and names."""

from __future__ import annotations

import os
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.base.likeness import suggestion
from outercore.base.other_libraries import reader_of
from outercore.base.shell import quoted
from outercore.data.directories import made_by
from outercore.data.edge_types import EdgeType
from outercore.data.names import KEY, Names
from outercore.data.row_index import chosen_rows
from outercore.data.schema import EDGE, NODE, NodeTypes, Schema
from outercore.data.split_names import find_split
from outercore.errors import InvalidError, NotFoundError


class DataSet:
    """A data set on disk, opened for reading. Opening reads only the manifest.

    The subclass :class:`Graph` adds views for other libraries, and methods to add arrays.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Open the data set in the directory ``root``.

        Raises:
            NotFoundError: the data set does not exist, or the file of an array is missing.
            CorruptError: the length of an array differs from the manifest.
            VersionError: a newer Outercore wrote the data set.
            InvalidError: ``root`` is not a path, such as a graph in memory, or it is empty.
        """
        _require_directory(root)
        self.root = Path(root)
        self._generation: str | None = None
        # An absolute path is needed: another process may have another working directory.
        self._place = os.fspath(self.root.absolute())
        try:
            self._core = self._opened(os.fspath(root))
        except NotFoundError:
            _refuse_run(self.root)
            raise

    @cached_property
    def _core(self) -> Any:
        """The opened data set; a copy opens it on first use."""
        return self._opened(self._place, self._generation)

    @staticmethod
    def _opened(place: str, generation: str | None = None) -> Any:
        """Opens the data set in the directory `place` at a generation; by default, the newest."""
        return _core.DataSet(place, generation)

    def __getstate__(self) -> dict[str, Any]:
        """The path and the generation. A copy, pickled or not, opens the data set again.

        It opens the same generation if a process still has it open, or else the newest one.
        """
        root = Path(self._place)
        return {"root": root, "_place": self._place, "_generation": self.generation}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest ``graph.json``: arrays, roles, types and provenance."""
        return self._core.manifest()

    @cached_property
    def schema(self) -> Schema:
        """The manifest as an object: types, features, labels, splits, times."""
        return Schema(self.manifest)

    @property
    def generation(self) -> str:
        """The name of the open generation of the data set."""
        return str(self._core.generation())

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return int(self._core.num_nodes())

    @property
    def first_id(self) -> int:
        """The id of node 0 in the imported files. Arrays and node numbers count from 0."""
        return self.schema.first_id

    @property
    def num_edges(self) -> int:
        """Number of arcs in the CSC; an undirected edge counts twice."""
        return int(self._core.num_edges())

    def __fspath__(self) -> str:
        """The directory, so that a graph can be passed as a path."""
        return os.fspath(self.root)

    @property
    def node_types(self) -> NodeTypes:
        """Number of nodes of each type, in the order of their names; ``[0]`` is the first name."""
        return self.schema.node_types

    @property
    def edge_types(self) -> list[EdgeType]:
        """Edge types as (source type, relation, target type), in the order of their keys."""
        return list(self.schema.edges)

    @property
    def is_typed(self) -> bool:
        """Whether the graph is heterogeneous: it has other types than ``node`` and ``edge``."""
        return self.schema.is_typed

    @property
    def labelled_type(self) -> str | None:
        """The node type of labels and splits; ``None`` without labels."""
        return self.schema.labelled_type

    def features_of(self, node_type: str) -> str | None:
        """The key of the features of a node type; ``None`` without features."""
        return self.schema.features_of(node_type)

    @property
    def num_features(self) -> int:
        """Number of feature columns; 0 without features."""
        key = self.schema.features
        return 0 if key is None else self.schema.width(key)

    @property
    def num_classes(self) -> int:
        """Number of classes, or columns of multi-label labels; 0 without labels or for numbers."""
        return self.schema.num_classes

    @property
    def splits(self) -> list[str]:
        """Names of the splits, sorted."""
        return sorted(self.schema.splits)

    @property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """Type, shape and checksum of every array, by key."""
        return self.schema.arrays

    def key(self, name: str) -> str:
        """The key of an array by its short name.

        ``x`` is ``nodes/node/x``; with several types, ``paper/x`` is ``nodes/paper/x``.

        Raises:
            NotFoundError: no array has this name.
            InvalidError: the name is not a text.
        """
        if not isinstance(name, str):
            raise InvalidError(f"array: expected a name such as `x`, found {name!r}")
        prefixes = ("", f"nodes/{NODE}/", "splits/", f"edges/{EDGE}/", "nodes/", "edges/")
        for candidate in (prefix + name for prefix in prefixes):
            if candidate in self.arrays:
                return candidate
        guess = suggestion(name, sorted(self.arrays), otherwise="it has")
        raise NotFoundError(f"array `{name}` is not in the data set\nhint: {guess}")

    def array(self, name: str) -> NDArray[Any]:
        """Reads a whole array into memory.

        ``bfloat16`` becomes ``float32``. Texts become an array of ``str`` objects.

        Raises:
            NotFoundError: no array has this name.
        """
        if (texts := self.texts(name)) is not None:
            return np.array(texts.names(), object)
        array: NDArray[Any] = self._core.read_array(self.key(name))
        return array

    def split(self, name: str) -> NDArray[np.int64]:
        """The node ids of a split, in the imported order. ``val`` is another name of ``valid``.

        Shapes: int64 [n].

        Raises:
            NotFoundError: the split does not exist; the message lists the existing splits.
        """
        if (stored := find_split(name, self.splits)) is None:
            guess = suggestion(name, self.splits, otherwise="it has")
            raise NotFoundError(f"split `{name}` is not in the data set\nhint: {guess}")
        ids: NDArray[np.int64] = self._core.read_array(self.schema.splits[stored])
        return ids

    def rows(self, name: str, ids: Any) -> NDArray[Any]:
        """Rows of a node array, in the order of ``ids``; repetitions are allowed.

        Shapes: ``ids`` integers [n], a slice, or a mask [nodes]; result [n] or [n, columns].

        Raises:
            NotFoundError: no array has this name.
            InvalidError: an id is not a row of the array; the message has the id.
        """
        if (texts := self.texts(name)) is not None:
            return np.array(texts.names(chosen_rows(ids, len(texts), name)), object)
        key = self.key(name)
        numbers = chosen_rows(ids, int(self.arrays[key]["shape"][0]), key)
        rows: NDArray[Any] = self._core.read_rows(key, np.atleast_1d(numbers))
        return rows

    def texts(self, name: str) -> Names | None:
        """Texts of nodes; ``None`` if ``name`` is not an array of texts.

        The name is ``title``, or with several types ``paper/title``.
        """
        if not isinstance(name, str):
            return None
        if any(prefix + name in self.arrays for prefix in ("", f"nodes/{NODE}/", "nodes/")):
            return None
        kind = ".".join(name.removeprefix("nodes/").rsplit("/", 1))
        kind = kind if "." in kind and "/" in name else f"node.{name}"
        return Names(self.root, self.arrays, kind) if f"names/{kind}.bytes" in self.arrays else None

    @property
    def num_edge_rows(self) -> int:
        """Number of rows of the imported edge list. An undirected edge counts once.

        Raises:
            InvalidError: the data set does not record this number.
        """
        edges = self.schema.plain_edges
        rows = None if edges is None else edges.rows
        if rows is None and "edges/edge/ids" not in self.arrays:
            rows = self.num_edges
        if rows is None:
            raise InvalidError(
                f"data set `{self.root}` does not say how many edges were imported"
                "\nhint: import it again"
            )
        return int(rows)

    def reload(self) -> None:
        """Open the newest generation of the data set."""
        self._adopt(self._opened(self._place))
        # Removes the files that only the previous generation needed.
        _core.tidy(self._place)

    def take_additions(self) -> None:
        """Make arrays visible that were added after the graph was opened, such as a grid.

        If anything else has changed, the graph keeps its generation: the nodes and values of an
        open graph never change.
        """
        if (newest := self._core.with_additions()) is not None:
            self._adopt(newest)

    def _adopt(self, opened: Any) -> None:
        self._core = opened
        for cached in ("manifest", "schema", "entities", "relations"):
            self.__dict__.pop(cached, None)

    @cached_property
    def entities(self) -> Names:
        """The names of the entities of a knowledge graph. Entity ids are node ids.

        Raises:
            NotFoundError: the data set lacks names.
        """
        _refuse_several_types(self)
        return Names(self.root, self.arrays, "entity")

    @cached_property
    def relations(self) -> Names:
        """The names of the relations of a knowledge graph.

        Raises:
            NotFoundError: the data set lacks names.
        """
        return Names(self.root, self.arrays, "relation")

    def keys_of(self, node_type: str) -> Names | None:
        """The imported keys of the nodes of a type; ``None`` for a type without keys."""
        kind = f"{node_type}.{KEY}"
        if not self.is_typed or f"names/{kind}.order" not in self.arrays:
            return None
        return Names(self.root, self.arrays, kind)


def _require_directory(root: object) -> None:
    """Checks that `root` can be a path.

    Errors: `InvalidError` for other types and for an empty string.
    """
    if not isinstance(root, (str, os.PathLike)):
        reader = reader_of(root)
        hint = f"\nhint: `{reader}(graph, DIRECTORY)` makes a data set of it" if reader else ""
        kind = type(root).__name__
        raise InvalidError(
            f"data set: expected its directory or an opened graph, found {kind}{hint}"
        )
    if not os.fspath(root):
        raise InvalidError("data set: expected its directory, found an empty text")


def _refuse_run(root: Path) -> None:
    """Errors: `NotFoundError` with a hint if the directory is a run, not a data set."""
    if (job := made_by(root)) is not None:
        raise NotFoundError(
            f"data set `{root}`: this is a run of `outercore {job}`\n"
            f"hint: `outercore report {quoted(root)}` shows it"
        ) from None


def _refuse_several_types(graph: DataSet) -> None:
    """Errors: `NotFoundError` for a graph of several types, whose nodes have keys, not names."""
    if graph.is_typed:
        raise NotFoundError(
            f"data set `{graph.root}` has several types of nodes, whose keys are their names\n"
            f'hint: `graph.keys_of("{min(graph.node_types)}").names()`'
        )


def require_edges(graph: DataSet) -> None:
    """Checks that the data set has edges to sample.

    Errors: `InvalidError` for a knowledge graph, with the command that converts it to a graph.
    """
    if graph.schema.is_knowledge_graph:
        # The core raises the error, and its message has the command.
        _core.DataSet(str(graph.root)).read_array("edges/edge/offsets")
