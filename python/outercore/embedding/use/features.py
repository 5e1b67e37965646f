"""Writes embeddings to a data set as a node array, for `outercore train --features`.

Does not need PyTorch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from outercore.base.native import Progress, verify_arrays
from outercore.data.node_names import NodeNumbers
from outercore.data.outputs import check_directory
from outercore.embedding.data.warm_start import match_names
from outercore.embedding.use.embedding import has_names
from outercore.errors import InvalidError
from outercore.files.atomic import scratch_directory
from outercore.files.npy import NpyRows, map_npy

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.use.embedding import Embedding

Missing = Literal["error", "zeros"]
_BLOCK_BYTES = 8 << 20


@dataclass(frozen=True)
class Features:
    """The result of `add_features`."""

    name: str
    nodes: int
    width: int
    missing: int
    """Number of nodes without an embedding; their rows are zero."""


def add_features(
    embedding: Embedding,
    graph: Graph,
    name: str,
    *,
    beside: str | None = None,
    entities: NDArray[np.integer] | None = None,
    missing: Missing = "error",
    overwrite: bool = False,
    progress: Progress = lambda *_: None,
) -> Features:
    """Writes the rows of entities to a data set, as the float32 node array `name`.

    A node gets the row of the entity with the same name. If one side has no names, it gets the row
    of the entity with the same id. In a graph with several types, each node type gets an array.

    Args:
        embedding: the embedding.
        graph: the data set to write to, usually the data set that was embedded.
        name: the name of the new array, for `train --features`.
        beside: a node array of numbers. Its columns come first in the new array, then the
            embedding.
        entities: int64 [nodes]: the entity of each node, or -1. Needed if nodes and entities cannot
            be matched by name or id.
        missing: `error` refuses nodes without an embedding, `zeros` gives them rows of zeros.
        overwrite: replace an array of this name.
        progress: called with the progress.

    Cost: two passes over both arrays and one write. If rows are combined or reordered, one more
    pass and write. Memory: at most a few tens of MiB, and 8 bytes per node.

    Raises:
        InvalidError: the name is taken, nodes lack an embedding, or the number of nodes differs.
        CorruptError: the embedding or the array `beside` is damaged.

    Example:
        >>> import outercore as oc
        >>> from outercore.embedding import add_features
        >>> graph = oc.open(tiny_dataset)
        >>> add_features(oc.Embedding.open(tiny_embedding), graph, "place", overwrite=True)
        Features(name='place', nodes=200, width=8, missing=0)
        >>> graph.array("place").shape
        (200, 8)
    """
    if graph.is_typed and (beside is not None or entities is not None):
        raise InvalidError(
            f"features `{name}`: a graph with several types takes the rows of its own embedding "
            "alone\nhint: leave out `--beside` and `--map`"
        )
    # The table holds the node types one after the other.
    parts: list[tuple[str | None, int, int]] = [(None, 0, graph.num_nodes)]
    if graph.is_typed:
        parts = [*NodeNumbers(graph.node_types).ranges()]
    for node_type, _, _ in parts:
        graph.check_free(name, overwrite=overwrite, node_type=node_type)
    check_directory(graph.root)
    if missing not in ("error", "zeros"):
        raise InvalidError(f"missing: expected `error` or `zeros`, found `{missing}`")
    places = _places(embedding, graph, entities)
    without = 0 if places is None else int((places < 0).sum())
    if without and missing == "error":
        first = int(np.flatnonzero(places < 0)[0])  # type: ignore[operator]
        raise InvalidError(
            f"features `{name}`: {without:,} of {graph.num_nodes:,} nodes have no embedding, the "
            f"first is node {first}\nhint: `--missing zeros` gives them rows of zeros"
        )
    add = partial(
        graph.add_node_array, name, overwrite=overwrite, origin=f"embedding {embedding.root}"
    )
    # The new array gets a new checksum, so damage of the table must be detected here.
    embedding.verify()
    if beside is not None:
        verify_arrays(graph.root, [graph.key(beside)])
    if places is None and beside is None:
        # The table is copied without a change.
        for node_type, start, stop in parts:
            add(embedding.entities[start:stop], node_type=node_type)
        return Features(name, graph.num_nodes, embedding.width, 0)
    if places is None:
        places = np.arange(graph.num_nodes)
    width = embedding.width + (0 if beside is None else _columns(graph, beside))
    with scratch_directory(graph.root, ".features-") as scratch:
        path = scratch / "rows.npy"
        with NpyRows(path, (graph.num_nodes, width), durable=False) as file:
            step = max(1, _BLOCK_BYTES // (4 * width))
            for start in range(0, graph.num_nodes, step):
                stop = min(start + step, graph.num_nodes)
                file.append(_rows(embedding, graph, places[start:stop], beside, start))
                progress("collecting rows", stop, graph.num_nodes, "nodes")
        add(map_npy(path, "array"))
    return Features(name, graph.num_nodes, width, without)


def _places(
    embedding: Embedding, graph: Graph, entities: NDArray[np.integer] | None
) -> NDArray[np.int64] | None:
    """The entity of each node, or -1; `None` if node ids equal entity ids."""
    if entities is not None:
        places = np.asarray(entities)
        if places.shape != (graph.num_nodes,) or places.dtype.kind not in "iu":
            raise InvalidError(
                f"entities: expected integers [{graph.num_nodes}], one a node, found "
                f"{places.dtype} {list(places.shape)}"
            )
        bad = np.flatnonzero((places < -1) | (places >= embedding.num_entities))
        if bad.size:
            raise InvalidError(
                f"entities: row {bad[0]}: expected -1 to {embedding.num_entities - 1}, found "
                f"{places[bad[0]]}"
            )
        return places.astype(np.int64)
    if embedding.data_set.exists() and graph.root.resolve() == embedding.data_set.resolve():
        # The data set is the embedded one. `embedding.graph` raises an error if it has changed.
        assert embedding.graph is not None
        return None
    if has_names(graph) and embedding.named:
        return match_names(embedding.graph.entities, graph.entities)
    if graph.num_nodes != embedding.num_entities:
        raise InvalidError(
            f"data set `{graph.root}` has {graph.num_nodes:,} nodes, embedding "
            f"`{embedding.root}` {embedding.num_entities:,} entities, and no names say which is "
            "which\nhint: give the entity of each node by `--map FILE.npy`"
        )
    return None


def _columns(graph: Graph, name: str) -> int:
    key = graph.key(name)
    entry = graph.arrays[key]
    if entry["shape"][0] != graph.num_nodes or len(entry["shape"]) > 2:
        raise InvalidError(f"array `{key}`: shape {entry['shape']}, expected a row a node")
    return int(entry["shape"][1]) if len(entry["shape"]) == 2 else 1


def _rows(
    embedding: Embedding,
    graph: Graph,
    places: NDArray[np.int64],
    beside: str | None,
    start: int,
) -> NDArray[np.float32]:
    rows = np.zeros((len(places), embedding.width), np.float32)
    known = places >= 0
    rows[known] = embedding.entities[places[known]]
    if beside is None:
        return rows
    own = graph.rows(beside, np.arange(start, start + len(places)))
    return np.concatenate([own.reshape(len(places), -1).astype(np.float32), rows], axis=1)
