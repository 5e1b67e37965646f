"""What the loaders of sampled neighbourhoods share: seeds, epochs, budget; no PyTorch.

A loader has threads and locks of its process. In another process, after ``fork`` or in a spawned
one, it opens the data set again when it is first used.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.base.display import Forecast, short
from outercore.base.fields import whole
from outercore.base.plan_display import LoaderPlan
from outercore.base.sizes import format_size, parse_size
from outercore.base.threads import checked_threads
from outercore.data.batch_arrays import batch_arrays, own_names
from outercore.data.data_set import require_edges
from outercore.data.edge_types import EdgeType
from outercore.data.far import Far, options_of
from outercore.data.forms import (
    compact_labels,
    features_in_form,
    given_forms,
    labels_in_form,
    rows_in_form,
)
from outercore.data.graph import Graph
from outercore.data.sample_rules import SampleRules, input_times, sample_rules
from outercore.data.schema import NODE
from outercore.errors import InvalidError
from outercore.loading.batch_options import batch_options
from outercore.loading.forecast import forecast
from outercore.loading.input_nodes import Seeds
from outercore.loading.ranks import share_of
from outercore.loading.typed_choice import (
    FeatureNames,
    features_by_type,
    input_type,
    numbers,
    path_of,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Source: TypeAlias = Graph | str | os.PathLike[str] | tuple[Any, Any]
"""A data set: opened, by its directory, or by the two stores that `Graph.pyg` gives."""
FanOuts: TypeAlias = (
    "Sequence[int] | Mapping[EdgeType, Sequence[int]] | Mapping[str, Sequence[int]]"
)
"""Numbers per hop, or lists of them by edge type; of HGT sampling by node type."""
InputNodes: TypeAlias = str | NDArray[Any] | Sequence[int] | Sequence[str] | tuple[str, Any] | None
Batch = TypeVar("Batch")


class MiniBatches(ABC, Generic[Batch]):
    """Epochs of batches from a graph that may exceed memory; a subclass says what a batch is.

    One epoch runs at a time: an iterator ends with `InvalidError` once a newer one has begun.

    A copy, pickled or not, has the arguments and the next epoch of the original. It opens the data
    set when it is first used.
    """

    _of_links: ClassVar[bool] = False
    forms: Mapping[str, Any]
    """The given forms of features and labels by key. Empty, they come as they are stored: features
    as float32 [n, F], classes as int64 [n]."""

    def __init__(
        self,
        graph: Source,
        num_neighbors: FanOuts,
        input_nodes: InputNodes,
        *,
        features: str | os.PathLike[str] | FeatureNames | None,
        labels: str | None,
        arrays: Sequence[str] | None,
        rank: int | None,
        world_size: int | None,
        memory: str | int,
        threads: int | None,
        hotness: str,
        far: Far | None,
        rules: SampleRules | None = None,
        input_time: Any = None,
        **options: Any,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet. ``options`` are `BatchOptions`.

        Raises:
            InvalidError: an argument out of range, a seed that is no node.
            NotFoundError: a split or an array that the data set does not have.
        """
        self.graph = graph = opened(graph)
        require_edges(graph)
        # The working directory may be another one when the data set is opened again.
        self._rank, self._world_size = rank, world_size
        self._epoch = 0
        self._first_batch = 0
        self._begun = 0
        # Epoch and next batch of the iteration that is running, or that was left before its end.
        self._running: tuple[int, int] | None = None
        self._label_key, self.forms = _label_key(graph, labels), given_forms(graph)
        self._labels = compact_labels(graph, self._label_key)
        node_type, seeds = "node", input_nodes
        if graph.is_typed:
            node_type, seeds = input_type(graph, input_nodes)
            chosen = {"input_type": node_type, **features_by_type(graph, features)}
        else:
            if isinstance(input_nodes, tuple) and any(isinstance(one, str) for one in input_nodes):
                raise InvalidError(
                    f"input_nodes: found {input_nodes!r:.80}, but the graph has one type of nodes\n"
                    "hint: give a split, ids, a mask, or None for every node"
                )
            chosen = dict(_feature_choice(graph, features))
        self._num_neighbors = num_neighbors
        self._input_nodes = Seeds(seeds, node_type)
        self._input_times = input_times(input_time)
        self._rules = rules or SampleRules()
        chosen |= numbers(graph, num_neighbors, of_nodes=self._rules.method == "hgt")
        if rules is not None:
            chosen |= sample_rules(graph, rules)
        hotness = graph.hotness(hotness)
        self._arrays = batch_arrays(
            graph,
            arrays,
            besides=(*_feature_keys(chosen).values(), self._label_key, hotness),
            taken=own_names(self._rules, of_links=self._of_links),
        )
        self._config: dict[str, Any] = {
            **batch_options(options),
            **chosen,
            "arrays": list(self._arrays.values()),
            "memory": parse_size(memory),
            "threads": checked_threads(threads) or 0,
            "hotness": hotness,
        }
        self._config["reserved"] = self._reserved()
        far_options = options_of(far, graph.root)
        if far_options is not None:
            if "token_file" in far_options:
                token = Path(far_options["token_file"]).absolute()
                far_options["token_file"] = os.fspath(token)
            self._config["far"] = far_options
        self._closed = False
        self._handle: Any = None
        self._process = 0
        self._open()

    def _reserved(self) -> int:
        """Bytes that are kept here, beside what the core plans for."""
        return 0 if self._labels is None else self._labels.nbytes

    def _open(self) -> None:
        """Opens the data set for this process, with its share of the seeds."""
        if self._closed:
            raise InvalidError("the loader is closed\nhint: make a new one over the same graph")
        if self._labels is None:
            self._labels = compact_labels(self.graph, self._label_key)
        rank, world_size = share_of(self._rank, self._world_size)
        self._config.update(rank=rank, world_size=world_size)
        # What another process has opened is neither used nor closed here: its threads are not here.
        self._handle = _core.Loader(
            self.graph._core,
            self._config,
            self._input_nodes.ids(self.graph),
            self._input_times,
        )
        self._process = os.getpid()

    @property
    def _core(self) -> Any:
        """The core's loader of this process."""
        if self._handle is None or self._process != os.getpid():
            self._open()
        return self._handle

    def __getstate__(self) -> dict[str, Any]:
        """All but what this process has opened and what the data set holds.

        The share of a process group goes along: a worker of this process does not see the group.
        """
        unopened = {"_handle": None, "_labels": None, "_process": 0, "_running": None}
        state = {**self.__dict__, **unopened, "_config": dict(self._config)}
        if self._rank is None and share_of(None, None)[1] > 1:
            state["_rank"], state["_world_size"] = share_of(None, None)
        return state

    @abstractmethod
    def _batch(self, widths: dict[str, int]) -> Batch:
        """The current batch of the core, with so many features a node by node type."""

    @property
    def config(self) -> dict[str, Any]:
        """The effective configuration, as the run record keeps it."""
        return dict(self._config)

    def __len__(self) -> int:
        """Batches per epoch, of this rank."""
        self._follow_process_group()
        return int(self._core.num_batches())

    def set_epoch(self, epoch: int) -> None:
        """The next iteration is epoch ``epoch``: its order and its samples."""
        self._epoch, self._running = whole("epoch", epoch, 0), None

    def seek(self, batch: int) -> None:
        """The next iteration starts at batch ``batch``, as if those before had been consumed."""
        self._first_batch, self._running = whole("batch", batch, 0, len(self)), None

    def state_dict(self) -> dict[str, int]:
        """Where the loader is: after the batches that an iteration has delivered so far.

        As loaders of ``torchdata`` have it: also after a loop was left by ``break``. After the last
        batch it is at the next epoch. Saved with a checkpoint, :meth:`load_state_dict` resumes
        there.

        Returns:
            ``epoch`` and ``batch``, the next one in it; ``batches`` of an epoch and ``seed``, by
            which another loader is told apart.

        Example:
            >>> import outercore as oc
            >>> loader = oc.NeighborLoader(tiny_dataset, [5, 3], "train", batch_size=8)
            >>> for batch in loader:
            ...     break
            >>> loader.state_dict()["epoch"], loader.state_dict()["batch"]
            (0, 1)
        """
        epoch, batch = self._running or (self._epoch, self._first_batch)
        return {"epoch": epoch, "batch": batch, **self._identity()}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """The next iteration is the rest of the epoch in which ``state`` was taken, then the next.

        Raises:
            InvalidError: no state of a loader, or of one with another seed or other batches.
        """
        own = self._identity()
        wanted = ("epoch", "batch", *own)
        if not isinstance(state, Mapping) or any(name not in state for name in wanted):
            raise InvalidError(
                f"state: expected {', '.join(wanted)}; found {state!r}\n"
                "hint: `loader.state_dict()` makes one"
            )
        for name, value in own.items():
            if state[name] != value:
                raise InvalidError(
                    f"state: of a loader with {name}={state[name]}, this one has {value}\n"
                    "hint: make the loader with the arguments of the first run"
                )
        batch = whole("batch", state["batch"], 0, own["batches"])
        self.set_epoch(state["epoch"])
        self.seek(batch)

    def _identity(self) -> dict[str, int]:
        return {"batches": len(self), "seed": self._config["seed"]}

    def __iter__(self) -> Iterator[Batch]:
        """One epoch. The next iteration will be the next epoch.

        Raises:
            InvalidError: a newer iterator of the same loader has begun.
        """
        self._follow_process_group()
        core, epoch, first = self._core, self._epoch, self._first_batch
        self._epoch, self._first_batch = epoch + 1, 0
        self._begun += 1
        own = self._begun
        core.start(epoch, first)
        widths, total = core.widths(), core.num_batches()
        while core.advance():
            first += 1
            yield self._delivered(self._batch(widths), epoch, first, total)
            self._require_own(own, epoch)

    def _delivered(self, batch: Batch, epoch: int, count: int, total: int) -> Batch:
        """The batch, the last of the first `count` of its epoch."""
        # Some programs count batches, and never ask for one after the last.
        self._running = (epoch, count) if count < total else None
        return batch

    def _require_own(self, begun: int, epoch: int) -> None:
        """Errors: `InvalidError` for an iterator of another process, or one that is not the newest.

        The core has one epoch at a time: its batches would be those of the newer iterator.
        """
        if self._process != os.getpid():
            raise InvalidError(
                f"iterator of epoch {epoch}: it began in another process\n"
                "hint: begin a new one in this process"
            )
        if begun != self._begun:
            raise InvalidError(
                f"iterator of epoch {epoch}: a newer iterator of the same loader has begun\n"
                "hint: finish one before the next, or make a loader for each of nested loops"
            )

    def _follow_process_group(self) -> None:
        """Opens the loader again where a process group has come or gone since."""
        share = (self._config["rank"], self._config["world_size"])
        if self._handle is not None and share != share_of(self._rank, self._world_size):
            if self._process == os.getpid():
                self._handle.close()
            self._open()

    def _input_id(self, parts: dict[str, Any], n_id: NDArray[Any]) -> NDArray[np.int64]:
        """[batch_size] places of the seeds in the input nodes: in a mask, the nodes themselves."""
        if self._input_nodes.is_mask:
            return n_id[: parts["batch_size"]].astype(np.int64)
        places: NDArray[np.int64] = parts["input_id"]
        return places

    def _named(self, rows: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The further arrays of a batch by their names there."""
        found = zip(self._arrays.items(), rows, strict=True)
        return {name: rows_in_form(one, self.forms.get(key)) for (name, key), one in found}

    def _labels_of(self, n_id: NDArray[Any]) -> NDArray[Any] | None:
        if self._labels is None:
            return None
        return labels_in_form(self._labels[n_id], self.forms.get(self._label_key or ""))

    def _in_form(self, x: NDArray[Any], node_type: str) -> NDArray[Any]:
        """Features of a node type as they were given."""
        key = _feature_keys(self._config).get(node_type)
        if key is None:
            return x
        # Steps of int8 are not the whole numbers themselves.
        is_exact = self._config["precision"] == "exact"
        stored = self.graph.arrays[key]["dtype"] if is_exact else "float32"
        return features_in_form(x, stored, self.forms.get(key))

    def plan(self) -> dict[str, Any]:
        """The memory plan: what lives where, batches per group, expected reads per batch.

        Cost: opens or loads the topology and samples trial batches, once.

        Raises:
            BudgetError: with the least that would do.
        """
        self._follow_process_group()
        return LoaderPlan(self._core.plan())

    def forecast(self, step: Callable[[Batch], object] | None = None) -> dict[str, Any]:
        """What the first and a later epoch will read, and about how long they will take.

        The cache is run over the batches of two epochs, or over the first ones of them where these
        are many, and no row of them is read. Then each stage is timed on a few batches.

        Cost: a few seconds; before the first iteration.

        Args:
            step: the training step, which is called with some batches to be timed.

        Returns:
            ``first_epoch`` and ``later_epochs`` with ``seconds``, ``bottleneck``, ``hit_ratio``,
            ``rows_read``, ``requests``, ``bytes``, and seconds by stage if it worked alone;
            ``processor_s`` are those of all stages on all cores. Beside them ``batches`` of an
            epoch, ``traced_batches`` that were looked at, ``nodes_per_batch``,
            ``edges_per_batch``, ``fill_s`` in which the first epoch fills the static cache, and
            ``took_s`` of the forecast itself.

        Raises:
            InvalidError: an iteration has begun.
            BudgetError: a batch needs more memory than those that the plan was made with.
        """
        self._follow_process_group()
        core = self._core
        widths = core.widths()
        return Forecast(forecast(core, lambda: self._batch(widths), step))

    def counters(self) -> dict[str, Any]:
        """Counters, hit ratio and timeline since the last call; see ``docs/guides/training.md``."""
        return self._core.take_counters()

    def close(self) -> None:
        """Stop a running epoch and give back all memory; the loader cannot be used any more."""
        if self._handle is not None and self._process == os.getpid():
            self._handle.close()
        self._closed = True
        self._handle = None

    @property
    def batch_size(self) -> int:
        """Seeds, or links, per batch."""
        return int(self._config["batch_size"])

    @property
    def drop_last(self) -> bool:
        """Whether a last batch that is not full is left out."""
        return bool(self._config["drop_last"])

    @property
    def num_neighbors(self) -> FanOuts:
        """As they were given."""
        return self._num_neighbors

    @property
    def input_nodes(self) -> InputNodes:
        """A split, ids, a mask, or ``None`` for every node; of the type of the seeds."""
        nodes: InputNodes = self._input_nodes.nodes
        return nodes

    def __repr__(self) -> str:
        # Nothing that opens the data set: a closed loader, or one of another process, has a name.
        fan_outs = short(self._config.get("fan_outs", "by type"))
        return (
            f"{type(self).__name__}('{self.graph.root}', num_neighbors={fan_outs}, "
            f"batch_size={self.batch_size}, "
            f"memory='{format_size(self._config['memory'])}')"
        )

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
    if isinstance(graph, tuple):
        of_stores = [getattr(store, "graph", None) for store in graph]
        if len(of_stores) == 2 and of_stores[0] is of_stores[1] and isinstance(of_stores[0], Graph):
            found: Graph = of_stores[0]
            return found
        raise InvalidError(
            "graph: expected the feature store and the graph store of one data set\n"
            "hint: `outercore.open(DATASET).pyg()` gives both"
        )
    if not isinstance(graph, Graph):
        is_pyg = hasattr(graph, "edge_index") or hasattr(graph, "edge_index_dict")
        hint = "\nhint: `oc.from_pyg(data, DATASET)` writes it as one, once" if is_pyg else ""
        raise InvalidError(
            "graph: expected an opened data set or its directory, found "
            f"{type(graph).__name__}{hint}"
        )
    return graph


def _feature_keys(chosen: dict[str, Any]) -> dict[str, str | None]:
    """The key of the features that are delivered, by node type; `None` for those of a file."""
    if "features" in chosen:
        return {NODE: chosen["features"]}
    typed = chosen.get("typed_features", {})
    return {node_type: choice.get("array") for node_type, choice in typed.items()}


def _feature_choice(graph: Graph, features: Any) -> dict[str, str]:
    if features is None or (features == "x" and graph.num_features == 0):
        return {}
    if isinstance(features, Mapping):
        raise InvalidError(
            "features: a choice by node type, but the graph has one type of nodes\n"
            "hint: give the name of an array, or the path of an `.npy` file"
        )
    name = path_of("features", features)
    if name == "x":
        return {"features": str(graph.schema.features)}
    if name.endswith(".npy"):
        return {"features_path": os.fspath(Path(name).absolute())}
    return {"features": graph.key(name)}


def _label_key(graph: Graph, labels: str | None) -> str | None:
    if labels is None or (labels == "y" and graph.schema.labels is None):
        return None
    if graph.is_typed and labels != "y" and "/" not in labels:
        labels = f"nodes/{graph.labelled_type}/{labels}"
    return graph.schema.labels if labels == "y" else graph.key(labels)
