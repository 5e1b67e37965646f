"""Mini-batches of sampled neighbourhoods, under a memory budget."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data

from outercore import _core
from outercore.errors import InvalidError
from outercore.far import Far, options_of
from outercore.graph import Graph
from outercore.sizes import parse_size

InputNodes = str | NDArray[Any] | Tensor | Sequence[int] | None


class NeighborLoader:
    """Yields what PyG's ``NeighborLoader`` yields, from a graph that may exceed memory.

    A batch is a ``torch_geometric.data.Data`` with ``x``, ``y``, ``edge_index``, ``n_id``,
    ``e_id``, ``input_id``, ``batch_size``, ``num_sampled_nodes`` and ``num_sampled_edges``; seeds
    come first, ``trim_to_layer`` works. What is in a batch depends on ``seed``, the epoch and the
    arguments of the first group below, never on the budget, the back end or the threads.

    Shapes of a batch with n nodes, s edges and F features: ``x`` float32 [n, F]; ``edge_index``
    int64 [2, s]; ``n_id`` int64 [n]; ``e_id`` int64 [s]; ``y`` int64 [n] or float32 [n, classes].

    Cost: nothing is read before the first iteration or :meth:`plan`. ``x`` is written by the core
    straight into the tensor's memory; ids are converted to int64 once, and that buffer is the
    tensor's.

    Example:
        >>> import outercore as oc
        >>> graph = oc.open(tiny_dataset)
        >>> loader = oc.NeighborLoader(graph, num_neighbors=[5, 3], input_nodes="train",
        ...                            batch_size=32, shuffle=True, memory="16MiB")
        >>> batch = next(iter(loader))
        >>> batch.batch_size, batch.x.shape[1]
        (32, 8)
    """

    def __init__(
        self,
        graph: Graph,
        num_neighbors: Sequence[int],
        input_nodes: InputNodes = None,
        *,
        batch_size: int = 1,
        replace: bool = False,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        features: str | os.PathLike[str] | None = "x",
        labels: str | None = "y",
        edge_ids: bool = True,
        transform: Callable[[Data], Data] | None = None,
        memory: str | int = "1GiB",
        backend: Literal["auto", "uring", "threads", "mmap"] = "auto",
        threads: int | None = None,
        topology: Literal["auto", "resident", "paged"] = "auto",
        policy: Literal["window", "lru"] = "window",
        hotness: str = "presample",
        look_ahead: int = 1,
        group: int | None = None,
        constant_share: float | None = None,
        far: Far | None = None,
        pin_memory: bool = False,
        num_workers: int = 0,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet.

        Args:
            graph: an opened data set.
            num_neighbors: fan-out per hop; -1 takes all neighbours.
            input_nodes: name of a split, node ids, a boolean mask, or ``None`` for every node.
            batch_size: seeds per batch.
            replace: draw neighbours with replacement.
            shuffle: visit the seeds in a new order every epoch.
            drop_last: leave out a last batch that is not full.
            seed: seed of all randomness.
            features: array to deliver as ``x`` by name, the path of an ``.npy`` matrix with one row
                per node, or ``None``. A default ``x`` that the data set lacks is left out.
            labels: array to deliver as ``y``, or ``None``; likewise.
            edge_ids: deliver ``e_id``, the rows of the imported edge list.
            transform: applied to every batch.
            memory: budget for everything that the loader keeps, such as ``"2GiB"``.
            backend: how the device is read.
            threads: sampling and assembly threads; ``None`` means one per core.
            topology: where the edges live.
            policy: eviction in the dynamic part of the cache.
            hotness: how the constant part of the cache is chosen: ``"presample"``, ``"in_degree"``,
                ``"none"``, or the name of a node array whose largest values are kept, such as a
                reverse PageRank that `pagerank` saved.
            look_ahead: groups of batches sampled ahead of the one that is being fetched.
            group: batches fetched together; ``None`` leaves it to the plan.
            constant_share: share of the cache that is constant; ``None`` leaves it to the plan.
            far: a memory server that holds features and topology too; its address, or
                `far.FarOptions`.
            pin_memory: assemble ``x`` in page-locked memory, for asynchronous copies to a GPU.
            num_workers: accepted for PyG's sake; the core has threads of its own.

        Raises:
            InvalidError: an argument out of range, a seed that is no node.
            NotFoundError: a split or an array that the data set does not have.
        """
        del num_workers
        self.graph = graph
        self.transform = transform
        self._pin_memory = pin_memory
        self._edge_ids = edge_ids
        self._epoch = 0
        self._first_batch = 0
        budget = parse_size(memory)
        self._labels = _compact_labels(graph, labels)
        self._config: dict[str, Any] = {
            "fan_outs": [int(fan_out) for fan_out in num_neighbors],
            "batch_size": batch_size,
            "replace": replace,
            "shuffle": shuffle,
            "drop_last": drop_last,
            "seed": seed,
            "edge_ids": edge_ids,
            **_feature_choice(graph, features),
            "memory": budget,
            "reserved": 0 if self._labels is None else self._labels.nbytes,
            "threads": threads or 0,
            "backend": backend,
            "topology": topology,
            "policy": policy,
            "hotness": graph.hotness(hotness),
            "look_ahead": look_ahead,
            "group": group,
            "constant_share": constant_share,
        }
        far_options = options_of(far, graph.root)
        if far_options is not None:
            self._config["far"] = far_options
        self._core = _core.Loader(
            os.fspath(graph.root), json.dumps(self._config), _input_ids(graph, input_nodes)
        )

    @property
    def config(self) -> dict[str, Any]:
        """The effective configuration, as the run record keeps it."""
        return dict(self._config)

    def __len__(self) -> int:
        """Batches per epoch."""
        return int(self._core.num_batches())

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is epoch ``epoch``: its order and its samples."""
        if epoch < 0:
            raise InvalidError(f"epoch {epoch}, expected 0 or more")
        self._epoch = epoch

    def seek(self, batch: int) -> None:
        """The next iteration starts at batch ``batch``, as if those before had been consumed."""
        if not 0 <= batch <= len(self):
            raise InvalidError(f"batch {batch}, expected 0 to {len(self)}")
        self._first_batch = batch

    def __iter__(self) -> Iterator[Data]:
        """One epoch. The next iteration will be the next epoch."""
        epoch, first = self._epoch, self._first_batch
        self._epoch, self._first_batch = epoch + 1, 0
        self._core.start(epoch, first)
        width = self._core.width()
        while self._core.advance():
            yield self._data(width)

    def _data(self, width: int) -> Data:
        parts = self._core.batch()
        n_id = parts["n_id"]
        data = Data(edge_index=torch.from_numpy(parts["edge_index"]))
        data.n_id = torch.from_numpy(n_id)
        if width:
            x = self._rows(len(n_id), width)
            self._core.gather(x.numpy())
            data.x = x
        else:
            data.num_nodes = len(n_id)
        if self._labels is not None:
            data.y = torch.from_numpy(_widen(self._labels[n_id]))
        if self._edge_ids:
            data.e_id = torch.from_numpy(parts["e_id"])
        data.input_id = torch.from_numpy(parts["input_id"])
        data.batch_size = parts["batch_size"]
        data.num_sampled_nodes = parts["num_sampled_nodes"]
        data.num_sampled_edges = parts["num_sampled_edges"]
        return data if self.transform is None else self.transform(data)

    def _rows(self, nodes: int, width: int) -> Tensor:
        """Memory for ``x``: where it is large, of its own, which the budget gets back at once."""
        own = None if self._pin_memory else self._core.row_array(nodes, width)
        if own is None:
            return torch.empty((nodes, width), pin_memory=self._pin_memory)
        return torch.from_numpy(own)

    def plan(self) -> dict[str, Any]:
        """The memory plan: what lives where, batches per group, expected reads per batch.

        Cost: opens or loads the topology and samples trial batches, once.

        Raises:
            BudgetError: with the least that would do.
        """
        plan: dict[str, Any] = json.loads(self._core.plan())
        return plan

    def counters(self) -> dict[str, Any]:
        """Counters, hit ratio and timeline since the last call; see ``docs/guides/training.md``."""
        counters: dict[str, Any] = json.loads(self._core.take_counters())
        return counters

    def close(self) -> None:
        """Stop a running epoch and give back all memory; the loader cannot be used any more."""
        self._core.close()

    def __enter__(self) -> NeighborLoader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _input_ids(graph: Graph, nodes: InputNodes) -> NDArray[np.int64] | None:
    if nodes is None:
        return None
    if isinstance(nodes, str):
        return np.ascontiguousarray(graph.split(nodes), dtype=np.int64)
    ids = nodes.numpy() if isinstance(nodes, Tensor) else np.asarray(nodes)
    if ids.dtype == np.bool_:
        if ids.shape != (graph.num_nodes,):
            raise InvalidError(f"mask of shape {ids.shape}, expected ({graph.num_nodes},)")
        return np.flatnonzero(ids).astype(np.int64)
    if ids.ndim != 1 or not (np.issubdtype(ids.dtype, np.integer) or ids.size == 0):
        raise InvalidError(
            f"input nodes of type {ids.dtype} and shape {ids.shape}, expected integers [n]"
        )
    return np.ascontiguousarray(ids, dtype=np.int64)


def _feature_choice(graph: Graph, features: str | os.PathLike[str] | None) -> dict[str, str]:
    if features is None or (features == "x" and graph.num_features == 0):
        return {}
    name = os.fspath(features)
    if name == "x":
        return {"features": graph.manifest["roles"]["features"]}
    if name.endswith(".npy"):
        return {"features_path": name}
    return {"features": graph.key(name)}


def _compact_labels(graph: Graph, labels: str | None) -> NDArray[Any] | None:
    """Labels in the smallest type that holds them: they stay in memory, one entry a node."""
    if labels is None or (labels == "y" and graph.num_classes == 0):
        return None
    key = graph.manifest["roles"]["labels"] if labels == "y" else graph.key(labels)
    values = graph.array(key)
    if not np.issubdtype(values.dtype, np.integer) or values.size == 0:
        return values
    least, most = int(values.min()), int(values.max())
    for compact in (np.int8, np.int16, np.int32):
        if np.iinfo(compact).min <= least and most <= np.iinfo(compact).max:
            return values.astype(compact)
    return values


def _widen(labels: NDArray[Any]) -> NDArray[Any]:
    return labels.astype(np.int64) if np.issubdtype(labels.dtype, np.integer) else labels
