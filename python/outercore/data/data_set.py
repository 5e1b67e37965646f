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
    """A data set on disk. Opening it reads only the manifest.

    :class:`Graph` adds what users do with it: views for other libraries, and new arrays.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        """Open the data set in the directory ``root``.

        Raises:
            NotFoundError: there is no data set, or the file of an array is missing.
            CorruptError: an array has another length than the manifest says.
            VersionError: a newer Outercore wrote it.
            InvalidError: ``root`` is no directory: an empty text, or a graph in memory.
        """
        _require_directory(root)
        self.root = Path(root)
        self._generation: str | None = None
        # A copy in another process may have another working directory.
        self._place = os.fspath(self.root.absolute())
        try:
            self._core = self._opened(os.fspath(root))
        except NotFoundError:
            _refuse_run(self.root)
            raise

    @cached_property
    def _core(self) -> Any:
        """The opened data set; of a copy, opened when it is first used."""
        return self._opened(self._place, self._generation)

    @staticmethod
    def _opened(place: str, generation: str | None = None) -> Any:
        """The data set in `place` at its last acknowledged update, or as it was in `generation`."""
        return _core.DataSet(place, generation)

    def __getstate__(self) -> dict[str, Any]:
        """Where the data set is: a copy, pickled or not, opens it again.

        The copy opens the same state while some process has it open. Otherwise it opens the newest
        state.
        """
        root = Path(self._place)
        return {"root": root, "_place": self._place, "_generation": self.generation}

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest ``graph.json``: arrays, roles, types and provenance."""
        return self._core.manifest()

    @cached_property
    def schema(self) -> Schema:
        """The manifest by the names of its parts: types, features, labels, splits, times."""
        return Schema(self.manifest)

    @property
    def generation(self) -> str:
        """A name for the state of the data set that this graph has open."""
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
        """The directory: a graph may stand where one is expected."""
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
        """Whether there are types besides ``node`` and ``edge`` (a heterogeneous graph)."""
        return self.schema.is_typed

    @property
    def labelled_type(self) -> str | None:
        """The node type that labels and splits belong to; ``None`` without labels."""
        return self.schema.labelled_type

    def features_of(self, node_type: str) -> str | None:
        """The key of the features of a node type; ``None`` where it has none."""
        return self.schema.features_of(node_type)

    @property
    def num_features(self) -> int:
        """Columns of the feature array, 0 without one."""
        key = self.schema.features
        return 0 if key is None else self.schema.width(key)

    @property
    def num_classes(self) -> int:
        """Classes of the labels (columns of multi-label ones), 0 without labels or for numbers."""
        return self.schema.num_classes

    @property
    def splits(self) -> list[str]:
        """Names of the splits, sorted."""
        return sorted(self.schema.splits)

    @property
    def arrays(self) -> dict[str, dict[str, Any]]:
        """Every array by key: type, shape, checksum."""
        return self.schema.arrays

    def key(self, name: str) -> str:
        """The key of an array by its short name: ``x`` is ``nodes/node/x``, of several types
        ``paper/x`` is ``nodes/paper/x``.

        Raises:
            NotFoundError: no array has this name.
            InvalidError: the name is no text.
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
        """A whole array in memory; ``bfloat16`` comes as ``float32``, texts as objects ``str``.

        Raises:
            NotFoundError: no array has this name.
        """
        if (texts := self.texts(name)) is not None:
            return np.array(texts.names(), object)
        array: NDArray[Any] = self._core.read_array(self.key(name))
        return array

    def split(self, name: str) -> NDArray[np.int64]:
        """The node ids of a split, in the order in which they were imported; ``val`` is ``valid``.

        Raises:
            NotFoundError: there is no such split; the message lists those that there are.
        """
        if (found := find_split(name, self.splits)) is None:
            guess = suggestion(name, self.splits, otherwise="it has")
            raise NotFoundError(f"split `{name}` is not in the data set\nhint: {guess}")
        ids: NDArray[np.int64] = self._core.read_array(self.schema.splits[found])
        return ids

    def rows(self, name: str, ids: Any) -> NDArray[Any]:
        """Rows of a node array, in the order of ``ids``; repetitions are allowed.

        Shapes: ``ids`` whole numbers [n], a slice, or a mask [nodes]; result [n] or [n, columns].

        Raises:
            NotFoundError: no array has this name.
            InvalidError: an id that is no row of the array; the message names it.
        """
        if (texts := self.texts(name)) is not None:
            return np.array(texts.names(chosen_rows(ids, len(texts), name)), object)
        key = self.key(name)
        wanted = chosen_rows(ids, int(self.arrays[key]["shape"][0]), key)
        rows: NDArray[Any] = self._core.read_rows(key, np.atleast_1d(wanted))
        return rows

    def texts(self, name: str) -> Names | None:
        """The texts of nodes by their name: ``title``, of several types ``paper/title``."""
        if not isinstance(name, str):
            return None
        if any(prefix + name in self.arrays for prefix in ("", f"nodes/{NODE}/", "nodes/")):
            return None
        kind = ".".join(name.removeprefix("nodes/").rsplit("/", 1))
        kind = kind if "." in kind and "/" in name else f"node.{name}"
        return Names(self.root, self.arrays, kind) if f"names/{kind}.bytes" in self.arrays else None

    @property
    def num_edge_rows(self) -> int:
        """Rows of the imported edge list: an undirected edge counts once.

        Raises:
            InvalidError: the data set does not say.
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
        """Open the newest state of the data set."""
        self._adopt(self._opened(self._place))
        # The files that only the old state needed.
        _core.tidy(self._place)

    def take_additions(self) -> None:
        """Take over arrays that were added since the graph was opened, such as a grid.

        Where anything else has changed meanwhile, the graph stays as it is: its nodes and values do
        not change while it is used.
        """
        if (newest := self._core.with_additions()) is not None:
            self._adopt(newest)

    def _adopt(self, opened: Any) -> None:
        self._core = opened
        for cached in ("manifest", "schema", "entities", "relations"):
            self.__dict__.pop(cached, None)

    @cached_property
    def entities(self) -> Names:
        """The names of the entities of a knowledge graph; their ids are the node ids.

        Raises:
            NotFoundError: the data set has no names.
        """
        _refuse_several_types(self)
        return Names(self.root, self.arrays, "entity")

    @cached_property
    def relations(self) -> Names:
        """The names of the relations of a knowledge graph.

        Raises:
            NotFoundError: the data set has no names.
        """
        return Names(self.root, self.arrays, "relation")

    def keys_of(self, node_type: str) -> Names | None:
        """The keys by which the nodes of a type were imported; ``None`` where they have none."""
        kind = f"{node_type}.{KEY}"
        if not self.is_typed or f"names/{kind}.order" not in self.arrays:
            return None
        return Names(self.root, self.arrays, kind)


def _require_directory(root: object) -> None:
    """Errors: `InvalidError` for anything but the directory of a data set."""
    if not isinstance(root, (str, os.PathLike)):
        reader = reader_of(root)
        hint = f"\nhint: `{reader}(graph, DIRECTORY)` makes a data set of it" if reader else ""
        found = type(root).__name__
        raise InvalidError(
            f"data set: expected its directory or an opened graph, found {found}{hint}"
        )
    if not os.fspath(root):
        raise InvalidError("data set: expected its directory, found an empty text")


def _refuse_run(root: Path) -> None:
    """Errors: `NotFoundError` for the directory of a run in place of a data set."""
    if (job := made_by(root)) is not None:
        raise NotFoundError(
            f"data set `{root}`: this is a run of `outercore {job}`\n"
            f"hint: `outercore report {quoted(root)}` shows it"
        ) from None


def _refuse_several_types(graph: DataSet) -> None:
    """Errors: `NotFoundError` where nodes have keys of their types instead of names."""
    if graph.is_typed:
        raise NotFoundError(
            f"data set `{graph.root}` has several types of nodes, whose keys are their names\n"
            f'hint: `graph.keys_of("{min(graph.node_types)}").names()`'
        )


def require_edges(graph: DataSet) -> None:
    """Makes sure that there are edges to sample.

    Errors: `InvalidError` for a knowledge graph, with the command that makes a graph of it.
    """
    if graph.schema.holds_triples:
        # The core says what to make of triples.
        _core.DataSet(str(graph.root)).read_array("edges/edge/offsets")
