"""What the loaders of sampled neighbourhoods share: seeds, epochs, budget; no PyTorch."""

from __future__ import annotations

import json
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from operator import index
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.errors import InvalidError
from outercore.far import Far, options_of
from outercore.graph import Graph
from outercore.sizes import parse_size
from outercore.threads import checked_threads

if TYPE_CHECKING:
    from typing_extensions import Self

Source: TypeAlias = Graph | str | os.PathLike[str]
"""A data set, opened or by its directory."""
InputNodes: TypeAlias = str | NDArray[Any] | Sequence[int] | None
Backend = Literal["auto", "uring", "threads", "mmap"]
Topology = Literal["auto", "resident", "paged"]
Policy = Literal["window", "lru"]
Batch = TypeVar("Batch")


class MiniBatches(ABC, Generic[Batch]):
    """Epochs of batches from a graph that may exceed memory; a subclass says what a batch is.

    One epoch runs at a time: an iterator ends with `InvalidError` once a newer one has begun.
    """

    def __init__(
        self,
        graph: Source,
        num_neighbors: Sequence[int],
        input_nodes: InputNodes,
        *,
        features: str | os.PathLike[str] | None,
        labels: str | None,
        edge_ids: bool,
        memory: str | int,
        threads: int | None,
        hotness: str,
        far: Far | None,
        **options: Any,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet. ``options`` go to the core as they are.

        Raises:
            InvalidError: an argument out of range, a seed that is no node.
            NotFoundError: a split or an array that the data set does not have.
        """
        self.graph = graph = opened(graph)
        self._edge_ids = edge_ids
        self._epoch = 0
        self._first_batch = 0
        self._begun = 0
        self._labels = _compact_labels(graph, labels)
        self._config: dict[str, Any] = {
            "fan_outs": _fan_outs(num_neighbors),
            "edge_ids": edge_ids,
            **_feature_choice(graph, features),
            "memory": parse_size(memory),
            "reserved": 0 if self._labels is None else self._labels.nbytes,
            "threads": checked_threads(threads) or 0,
            "hotness": graph.hotness(hotness),
            **options,
        }
        far_options = options_of(far, graph.root)
        if far_options is not None:
            self._config["far"] = far_options
        self._core = _core.Loader(
            os.fspath(graph.root), json.dumps(self._config), _input_ids(graph, input_nodes)
        )

    @abstractmethod
    def _batch(self, width: int) -> Batch:
        """The current batch of the core, with ``width`` features a node."""

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

    def __iter__(self) -> Iterator[Batch]:
        """One epoch. The next iteration will be the next epoch.

        Raises:
            InvalidError: a newer iterator of the same loader has begun.
        """
        epoch, first = self._epoch, self._first_batch
        self._epoch, self._first_batch = epoch + 1, 0
        self._begun += 1
        own = self._begun
        self._core.start(epoch, first)
        width = self._core.width()
        while self._core.advance():
            yield self._batch(width)
            # The core has one epoch at a time: from here on its batches would be the newer one's.
            if own != self._begun:
                raise InvalidError(
                    f"iterator of epoch {epoch}: a newer iterator of the same loader has begun\n"
                    "hint: finish one before the next, or make a loader for each of nested loops"
                )

    def _labels_of(self, n_id: NDArray[Any]) -> NDArray[Any] | None:
        return None if self._labels is None else _widen(self._labels[n_id])

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def opened(graph: Source) -> Graph:
    """The data set, opened where it is not.

    Errors: `InvalidError` for what is none; else as `outercore.open`.
    """
    if isinstance(graph, (str, os.PathLike)):
        return Graph(graph)
    if not isinstance(graph, Graph):
        raise InvalidError(
            f"graph: expected an opened data set or its directory, found {type(graph).__name__}"
        )
    return graph


def _fan_outs(num_neighbors: Sequence[int]) -> list[int]:
    wrong = InvalidError(
        f"num_neighbors: expected a list with a fan-out per hop, such as [15, 10], found "
        f"{num_neighbors!r}"
    )
    # Their elements would be taken for fan-outs: PyG's loader takes a dictionary by edge types.
    if isinstance(num_neighbors, (str, bytes, Mapping)):
        raise wrong
    try:
        return [index(fan_out) for fan_out in num_neighbors]
    except TypeError:
        raise wrong from None


def _input_ids(graph: Graph, nodes: InputNodes) -> NDArray[np.int64] | None:
    if nodes is None:
        return None
    if isinstance(nodes, str):
        return np.ascontiguousarray(graph.split(nodes), dtype=np.int64)
    ids = np.asarray(nodes)
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
    if labels is None or (labels == "y" and not graph.manifest["roles"].get("labels")):
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
