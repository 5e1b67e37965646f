"""Batches of whole graphs, read from disk within a budget, and the inputs of their nodes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.base.sizes import format_size, parse_size
from outercore.data.many_graphs import ManyGraphs, spans
from outercore.errors import BudgetError, CorruptError, InvalidError, NotFoundError
from outercore.files.large_arrays import blocks, mapped
from outercore.training.config import TrainConfig

if TYPE_CHECKING:
    from outercore.data.graph import Graph

TAG, DEGREE = "tag", "degree"
_MOST_DEGREE = 512
"""The largest in-degree with its own category. All larger in-degrees share one category."""
_MOST_CATEGORIES = 1 << 16
_OFFSETS, _SOURCES = "edges/edge/offsets", "edges/edge/sources"
_ARC_BYTES = 80
"""Memory for an arc of a batch: its two local ends, temporary values, and the previous batch."""
_NODE_BYTES = 112
"""Memory for a node of a batch, without its inputs."""


@dataclass(frozen=True)
class NodeInputs:
    """The inputs of a network for each node: floats or categories.

    Floats are used directly. A network learns an embedding for each category. Categories are
    columns of whole numbers, tags, or in-degrees if a data set has no node array.
    """

    key: str | None
    """The manifest key of the array; `None` for in-degrees."""
    width: int
    categories: tuple[int, ...] = ()
    """Number of categories of each column; empty for floats."""

    @property
    def row_bytes(self) -> int:
        """Bytes of the inputs of one node, in the form that the network takes."""
        return self.width * (8 if self.categories else 4)

    def tensor(self, values: NDArray[Any], ids: NDArray[np.int64]) -> Tensor:
        """Converts the array rows `values` of the nodes `ids` to the form that the network takes.

        Shapes: result [nodes, width], float32 or int64.
        Errors: `InvalidError` with the node of a value that float32 cannot hold, or of a category
        that the network does not know.
        """
        values = values.reshape(len(values), -1)
        if not self.categories:
            with np.errstate(over="ignore"):
                narrow = values.astype(np.float32)
            if values.dtype == np.float64 and (np.isinf(narrow) & np.isfinite(values)).any():
                node, column = np.argwhere(np.isinf(narrow) & np.isfinite(values))[0]
                raise InvalidError(
                    f"array `{self.key}`: node {ids[node]}, column {column}: "
                    f"{values[node, column]} does not fit float32"
                )
            return torch.from_numpy(narrow)
        if self.key is None:
            values = np.minimum(values, self.categories[0] - 1)
        wide = values.astype(np.int64)
        wrong = np.argwhere((wide < 0) | (wide >= np.array(self.categories)))
        if len(wrong):
            node, column = wrong[0]
            raise InvalidError(
                f"array `{self.key}`: node {ids[node]}, column {column}: category "
                f"{wide[node, column]}, expected 0 to {self.categories[column] - 1}"
            )
        return torch.from_numpy(wide)


def input_name(graph: Graph, features: str) -> str:
    """The name of the node array to learn from.

    Without features these are the tags, or the in-degrees if all tags are equal.
    """
    names = {key.removeprefix("nodes/node/") for key in graph.arrays if key.startswith("nodes/")}
    if features != "x" or features in names:
        return features
    if TAG in names and _varies(graph, f"nodes/node/{TAG}"):
        return TAG
    return DEGREE


def node_inputs(graph: Graph, name: str, known: tuple[int, ...] | None = None) -> NodeInputs:
    """Describes the node array `name`, or the in-degrees, as inputs.

    `known` are the numbers of categories of a trained network.

    Cost: one pass over an array of categories, unless they are `known`.
    Errors: `NotFoundError` for a missing array, `InvalidError` for an array with negative or very
    large whole numbers.
    """
    key = f"nodes/node/{name}"
    if key not in graph.arrays:
        if name == DEGREE:
            return NodeInputs(None, 1, known or (_MOST_DEGREE + 1,))
        raise NotFoundError(
            f"data set `{graph.root}`: no node array `{name}`\nhint: choose another by "
            f"`--features`; `{DEGREE}` learns from the in-degrees"
        )
    entry = graph.arrays[key]
    width = int(np.prod(entry["shape"][1:]))
    if "float" in entry["dtype"]:
        return NodeInputs(key, width)
    return NodeInputs(key, width, known or _categories(graph, key, width))


def _categories(graph: Graph, key: str, width: int) -> tuple[int, ...]:
    most = np.zeros(width, np.int64)
    for first, block in blocks(mapped(Path(graph.root), graph.arrays[key])):
        # Compare as floats, because a uint64 may be too large for int64.
        rows = block.reshape(len(block), width).astype(np.float64)
        bad = np.argwhere((rows < 0) | (rows >= _MOST_CATEGORIES))
        if len(bad):
            row, column = bad[0]
            raise InvalidError(
                f"array `{key}`: node {first + row}, column {column}: {rows[row, column]:g}, "
                f"expected categories from 0 to {_MOST_CATEGORIES - 1}\n"
                "hint: store other numbers as float32"
            )
        most = np.maximum(most, rows.max(axis=0, initial=0).astype(np.int64))
    return tuple((most + 1).tolist())


def _varies(graph: Graph, key: str) -> bool:
    values = mapped(Path(graph.root), graph.arrays[key])
    return any((block != values[:1]).any() for _, block in blocks(values))


@dataclass(frozen=True)
class GraphBatch:
    """Whole graphs. The nodes of each graph are consecutive.

    Shapes: `x` [nodes, columns], float32 or int64 categories; `edge_index` int64 [2, arcs] of local
    source and target; `graph` int64 [nodes], the index of each node's graph in the batch; `n_id`
    int64 [graphs], the ids of the graphs; `y` [graphs, ...], the labels as stored.
    """

    x: Tensor
    edge_index: Tensor
    graph: Tensor
    n_id: Tensor
    y: Tensor

    @property
    def batch_size(self) -> int:
        """The number of graphs in the batch."""
        return len(self.n_id)

    def to(self, device: torch.device) -> GraphBatch:
        """The batch in the memory of `device`."""
        return replace(self, **{name: value.to(device) for name, value in vars(self).items()})


class GraphReader:
    """Reads graphs of a data set: all arrays at once if they fit in the budget, else by batch.

    The batches are bit-identical in both cases. The budget holds topology and features, the arrays
    with a row for each graph, and a batch of the largest graphs.

    Errors: `BudgetError` with the smallest sufficient budget.
    """

    def __init__(
        self, many: ManyGraphs, inputs: NodeInputs, labels: str, *, memory: int, batch_size: int
    ) -> None:
        self._many, self._inputs = many, inputs
        self._labels = many.array(labels)
        self._keys = [_OFFSETS, _SOURCES, *([inputs.key] if inputs.key is not None else [])]
        self.count = many.num_nodes
        """The number of graphs in the data set."""
        nodes, arcs = np.diff(many.starts), _arcs_of_graphs(many)
        sizes = nodes * (_NODE_BYTES + 2 * inputs.row_bytes) + arcs * _ARC_BYTES
        batch = int(np.sort(sizes)[-batch_size:].sum())
        held = many.memory + self._labels.nbytes
        arrays = {key: _bytes(many.graph.arrays[key]) for key in self._keys}
        self._resident = held + batch + sum(arrays.values()) <= memory
        if held + batch > memory:
            raise BudgetError(
                f"memory budget {format_size(memory)}: labels take {format_size(held)}, a batch of "
                f"the {min(batch_size, many.num_nodes)} largest graphs {format_size(batch)}\n"
                f"hint: give {format_size(held + batch)}, or a smaller `--batch-size`",
                needed=held + batch,
            )
        self.plan = {
            "memory": memory,
            "graphs_bytes": held,
            "batch_bytes": batch,
            "resident_bytes": sum(arrays.values()) if self._resident else 0,
        }
        self._held: dict[str, NDArray[Any]] = {}
        self._counters = _no_reads()

    def batch(self, graphs: NDArray[np.int64]) -> GraphBatch:
        """Reads the graphs with these ids, in this order.

        Cost: arrays that are not in memory are read once for each sequence of consecutive graphs.
        Errors: `CorruptError` for an arc from another graph; `InvalidError` for an unknown
        category.
        """
        ids, sizes = self._many.nodes(graphs)
        starts, ends = (self._rows(_OFFSETS, ids + step).astype(np.int64) for step in (0, 1))
        degrees = ends - starts
        # A damaged array must not decide how much memory is allocated.
        if (degrees < 0).any() or int(degrees.sum()) > int(self._many.graph.num_edges):
            raise self._corrupt(f"array `{_OFFSETS}`: offsets decrease")
        sources = self._rows(_SOURCES, spans(starts, ends)).astype(np.int64)
        targets = np.repeat(np.arange(len(ids)), degrees)
        place = np.repeat(np.arange(len(graphs)), sizes)
        arc = place[targets]
        # The range of each graph's nodes in the batch.
        ends = np.cumsum(sizes)
        begins = ends - sizes
        local = self._places(sources, arc, ids, begins)
        if len(wrong := np.flatnonzero((local < begins[arc]) | (local >= ends[arc]))):
            at = wrong[0]
            own = ids[begins[arc[at]] : ends[arc[at]]]
            raise self._corrupt(
                f"array `{_SOURCES}`: an arc of graph {graphs[arc[at]]} begins at node "
                f"{sources[at]}, expected {own[0]} to {own[-1]}"
            )
        values = degrees if self._inputs.key is None else self._rows(self._inputs.key, ids)
        return GraphBatch(
            x=self._inputs.tensor(values, ids),
            edge_index=torch.from_numpy(np.stack([local, targets])),
            graph=torch.from_numpy(place),
            n_id=torch.from_numpy(graphs),
            y=torch.from_numpy(self._labels[graphs]),
        )

    def _places(
        self,
        sources: NDArray[np.int64],
        arc: NDArray[np.int64],
        ids: NDArray[np.int64],
        begins: NDArray[np.int64],
    ) -> NDArray[np.int64]:
        """The local id of the source of each arc. `arc` is the index of the arc's graph.

        For a source that does not belong to the graph, the result is outside the graph's nodes.
        """
        if self._many.order is None:
            return sources - ids[begins][arc] + begins[arc]
        # The nodes of a graph ascend, so the keys ascend, too.
        count = self._many.graph.num_nodes
        place = np.repeat(np.arange(len(begins)), np.diff(np.append(begins, len(ids))))
        keys, wanted = place * count + ids, arc * count + sources
        places = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
        return np.where(keys[places] == wanted, places, -1)

    def take_counters(self) -> dict[str, Any]:
        """The counters of reads since the last call."""
        taken, self._counters = self._counters, _no_reads()
        return taken

    def close(self) -> None:
        """Frees the arrays in memory."""
        self._held = {}

    def _rows(self, key: str, ids: NDArray[np.int64]) -> NDArray[Any]:
        if not self._resident:
            rows: NDArray[Any] = self._many.graph.rows(key, ids)
            self._count(key, rows.nbytes, int((np.diff(ids) != 1).sum()) + 1)
            return rows
        if key not in self._held:
            self._held[key] = self._many.graph.array(key)
            self._count(key, self._held[key].nbytes, 1)
        return self._held[key][ids]

    def _count(self, key: str, read: int, requests: int) -> None:
        counted = self._counters["feature_reads" if key == self._inputs.key else "topology_reads"]
        counted["requests"] += requests
        counted["bytes"] += read
        counted["useful_bytes"] += read

    def _corrupt(self, what: str) -> CorruptError:
        return CorruptError(
            f"data set `{self._many.root}`: {what}\n"
            "hint: run `outercore check` on it, or import it again"
        )


class GraphLoader:
    """Loads batches of the graphs `ids`, in this order, or shuffled in each epoch.

    The order depends only on seed and epoch. The class has the methods of `NeighborLoader` that
    the training loop calls.
    """

    def __init__(
        self,
        reader: GraphReader,
        ids: NDArray[np.int64],
        batch_size: int,
        *,
        shuffle: bool = False,
        seed: int = 0,
    ) -> None:
        if batch_size < 1:
            raise InvalidError(f"batch size: expected 1 or more, found {batch_size}")
        self._reader, self._ids, self._batch_size = reader, ids, batch_size
        self._shuffle, self._seed = shuffle, seed
        self._epoch = self._first = 0

    def __len__(self) -> int:
        return -(-len(self._ids) // self._batch_size)

    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch of the next iteration."""
        self._epoch, self._first = epoch, 0

    def seek(self, batch: int) -> None:
        """Sets the first batch of the next iteration."""
        self._first = batch

    def __iter__(self) -> Iterator[GraphBatch]:
        order = self._ids
        if self._shuffle:
            order = order[shuffled(len(order), self._seed, self._epoch)]
        first, self._first = self._first, 0
        for start in range(first * self._batch_size, len(order), self._batch_size):
            yield self._reader.batch(order[start : start + self._batch_size])

    def counters(self) -> dict[str, Any]:
        """The counters of reads since the last call, in the form of `NeighborLoader.counters`."""
        return {"counters": self._reader.take_counters(), "timeline": []}


class GraphLoaders(GraphReader):
    """The loaders of one run. Training and scoring share this reader and its whole budget."""

    def __init__(self, many: ManyGraphs, inputs: NodeInputs, config: TrainConfig) -> None:
        self._config, self._seeds = config, config.sampling.seeds
        memory = parse_size(config.budget.memory)
        super().__init__(
            many, inputs, config.sampling.labels, memory=memory, batch_size=self._seeds
        )
        self.training_plan = self.plan
        self.shares = {"memory": memory}

    def all_rows_memory(self) -> None:
        """Unknown, because this reader has no cache of feature rows."""

    def training(self) -> GraphLoader:
        """The loader for training."""
        ids = self._many.split(self._config.sampling.train)
        return GraphLoader(self, ids, self._seeds, shuffle=True, seed=self._config.run.seed)

    def evaluation(self, graphs: NDArray[np.int64] | None) -> AbstractContextManager[GraphLoader]:
        """A loader of these graphs, in this order; `None` stands for all graphs."""
        ids = np.arange(self.count) if graphs is None else graphs
        return nullcontext(GraphLoader(self, ids, self._seeds))

    def use_whole_budget(self) -> bool:
        """Does nothing: the reader has the whole budget already."""
        return False

    def release_training(self) -> None:
        """Does nothing: scoring uses the same reader."""


def shuffled(length: int, seed: int, epoch: int) -> NDArray[np.int64]:
    """A random order of `range(length)`, which depends only on seed and epoch."""
    # The words of a bit generator are the same in every version of NumPy; `permutation` may change.
    words = np.random.Philox(np.random.SeedSequence([seed, epoch])).random_raw(length)
    return np.argsort(words, kind="stable")


def _arcs_of_graphs(many: ManyGraphs) -> NDArray[np.int64]:
    """The number of arcs of each graph.

    Cost: one read per graph, or one read of all offsets if updates have changed graphs.
    """
    if many.order is None:
        ends: NDArray[np.int64] = many.graph.rows(_OFFSETS, many.starts).astype(np.int64)
    else:
        degrees = np.diff(many.graph.array(_OFFSETS).astype(np.int64))
        ends = np.append(0, np.cumsum(degrees[many.order]))[many.starts]
    return ends[1:] - ends[:-1]


def _bytes(entry: dict[str, Any]) -> int:
    """The bytes of an array in memory."""
    # The core reads bfloat16 as float32.
    dtype = "float32" if entry["dtype"] == "bfloat16" else entry["dtype"]
    return prod(entry["shape"]) * np.dtype(dtype).itemsize


def _no_reads() -> dict[str, Any]:
    none = {"requests": 0, "bytes": 0, "useful_bytes": 0}
    return {"feature_reads": dict(none), "topology_reads": dict(none)}
