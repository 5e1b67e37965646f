"""Base class of the loaders of sampled neighbourhoods: seeds, epochs, budget. No PyTorch.

A loader owns threads and locks of its process. In another process, forked or spawned, it opens the
data set again on first use.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from outercore import _core
from outercore.base.display import Forecast, short
from outercore.base.fields import whole
from outercore.base.plan_display import LoaderPlan
from outercore.base.sizes import format_size
from outercore.data.batch_arrays import batch_arrays, own_names
from outercore.data.data_set import require_edges
from outercore.data.edge_types import EdgeType
from outercore.data.far import options_of
from outercore.data.forms import compact_labels, features_in_form, labels_in_form, rows_in_form
from outercore.data.graph import Graph
from outercore.data.sample_rules import sample_rules
from outercore.errors import InvalidError
from outercore.loading.forecast import forecast
from outercore.loading.input_nodes import Seeds
from outercore.loading.options import LoaderOptions
from outercore.loading.typed_choice import (
    fan_out_options,
    features_by_type,
    features_of_core,
    input_type,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Source: TypeAlias = Graph | str | os.PathLike[str] | tuple[Any, Any]
"""An open data set, its directory, or its two stores from `Graph.pyg`."""
FanOuts: TypeAlias = (
    "Sequence[int] | Mapping[EdgeType, Sequence[int]] | Mapping[str, Sequence[int]]"
)
"""Fan-outs per hop, or lists of fan-outs by edge type. For HGT sampling, by node type."""
InputNodes: TypeAlias = str | NDArray[Any] | Sequence[int] | Sequence[str] | tuple[str, Any] | None
Batch = TypeVar("Batch")


class MiniBatches(ABC, Generic[Batch]):
    """Base class: epochs of batches from a graph that may exceed memory.

    A subclass defines the form of a batch. One epoch runs at a time: an iterator raises
    `InvalidError` as soon as a newer one has begun.

    A copy, pickled or not, has the arguments and the next epoch of the original. It opens the data
    set on first use.
    """

    _of_links: ClassVar[bool] = False
    forms: Mapping[str, Any]
    """Imported type and shape of features and labels, by key. If it is empty, batches use the
    stored form: features as float32 [n, F], classes as int64 [n]."""

    def __init__(
        self,
        graph: Graph,
        num_neighbors: FanOuts,
        input_nodes: Any,
        options: LoaderOptions,
        core_options: LoaderOptions | None = None,
    ) -> None:
        """Bind a graph and the seeds; nothing is read yet.

        The core gets `core_options`, if they differ from the options of the caller.

        Raises:
            InvalidError: an argument out of range, or a seed outside the graph.
            NotFoundError: the data set lacks the split or the array.
        """
        require_edges(graph)
        self.graph, self._num_neighbors = graph, num_neighbors
        self._options, self._core_options = options, core_options or options
        self._epoch = 0
        self._first_batch = 0
        self._begun = 0
        # Epoch and next batch of an iteration that runs, or that stopped before its end.
        self._running: tuple[int, int] | None = None
        self._label_key, self.forms = _label_key(graph, options.labels), graph.schema.forms
        self._labels = compact_labels(graph, self._label_key)
        node_type, seeds = input_type(graph, input_nodes)
        self._input_nodes = Seeds(seeds, node_type)
        features = features_by_type(graph, options.features)
        self._feature_keys = {of: choice.get("array") for of, choice in features.items()}
        chosen = features_of_core(graph, features)
        if graph.is_typed:
            chosen["input_type"] = node_type
        hotness = graph.hotness(options.hotness)
        chosen |= fan_out_options(graph, num_neighbors, of_nodes=options.method == "hgt")
        chosen |= sample_rules(graph, options)
        self._arrays = batch_arrays(
            graph,
            options.arrays,
            besides=(*self._feature_keys.values(), self._label_key, hotness),
            taken=own_names(options, of_links=self._of_links),
        )
        self._config: dict[str, Any] = {
            **self._core_options.of_core(),
            **chosen,
            "arrays": self._arrays,
            "hotness": hotness,
        }
        self._config["reserved"] = self._reserved()
        far_options = options_of(options.far, graph.root)
        if far_options is not None:
            if "token_file" in far_options:
                # The working directory may change until the data set is opened again.
                token = Path(far_options["token_file"]).absolute()
                far_options["token_file"] = os.fspath(token)
            self._config["far"] = far_options
        self._closed = False
        self._handle: Any = None
        self._process = 0
        self._open()

    def _reserved(self) -> int:
        """The bytes of the budget that this object takes itself. The core plans the rest."""
        return 0 if self._labels is None else self._labels.nbytes

    def _open(self) -> None:
        """Opens the data set for this process, with its share of the seeds."""
        if self._closed:
            raise InvalidError("the loader is closed\nhint: make a new one over the same graph")
        if self._labels is None:
            self._labels = compact_labels(self.graph, self._label_key)
        rank, world_size = self._core_options.share
        self._config.update(rank=rank, world_size=world_size)
        # Do not close a core loader of another process: its threads do not exist in this process.
        self._handle = _core.Loader(
            self.graph._core,
            self._config,
            self._input_nodes.ids(self.graph),
            self._core_options.input_time,
        )
        self._process = os.getpid()

    @property
    def _core(self) -> Any:
        """The core's loader of this process."""
        if self._handle is None or self._process != os.getpid():
            self._open()
        return self._handle

    def __getstate__(self) -> dict[str, Any]:
        """The state without open handles and without data that the data set holds.

        It includes rank and world size, because a worker process does not see the process group.
        """
        unopened = {"_handle": None, "_labels": None, "_process": 0, "_running": None}
        state = {**self.__dict__, **unopened, "_config": dict(self._config)}
        for name in ("_options", "_core_options"):
            rank, world_size = state[name].share
            if world_size > 1:
                state[name] = replace(state[name], rank=rank, world_size=world_size)
        return state

    @abstractmethod
    def _batch(self, widths: dict[str, int]) -> Batch:
        """The current batch of the core. `widths`: features per node, by node type."""

    @property
    def config(self) -> dict[str, Any]:
        """The effective configuration, as written to the run record."""
        return dict(self._config)

    def __len__(self) -> int:
        """Batches per epoch of this rank."""
        self._follow_process_group()
        return int(self._core.num_batches())

    def set_epoch(self, epoch: int) -> None:
        """Makes ``epoch`` the next epoch; it decides the order and the samples."""
        self._epoch, self._running = whole("epoch", epoch, 0), None

    def seek(self, batch: int) -> None:
        """Makes the next iteration start at batch ``batch``; earlier batches are skipped."""
        self._first_batch, self._running = whole("batch", batch, 0, len(self)), None

    def state_dict(self) -> dict[str, int]:
        """Position of the loader: after the last batch that it has delivered.

        Save it with a checkpoint and resume with :meth:`load_state_dict`. As in ``torchdata``, the
        position is kept when a loop ends with ``break``. After the last batch of an epoch, the
        position is the start of the next epoch.

        Returns:
            ``epoch``, and ``batch``: the number of its next batch. ``batches`` (per epoch) and
            ``seed`` identify the loader.

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
        """Resumes at ``state``: the next iteration delivers the rest of that epoch.

        Raises:
            InvalidError: ``state`` is not the state of a loader, or its loader had another seed or
                another number of batches.
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
        """Iterates over the batches of one epoch. The next iterator runs the next epoch.

        Raises:
            InvalidError: a newer iterator of the same loader has begun.
        """
        self._follow_process_group()
        core, epoch, first = self._core, self._epoch, self._first_batch
        self._epoch, self._first_batch = epoch + 1, 0
        self._begun += 1
        own, total = self._begun, len(self)
        for start in range(first, total, self._pool):
            self._start(epoch, start)
            widths = core.widths()
            while core.advance():
                first += 1
                yield self._delivered(self._batch(widths), epoch, first, total)
                self._require_own(own, epoch)

    @property
    def _pool(self) -> int:
        """Number of batches that the core delivers after one start."""
        return max(len(self), 1)

    def _start(self, epoch: int, first: int) -> None:
        """Starts the core at batch `first` of an epoch."""
        self._core.start(epoch, first)

    def _delivered(self, batch: Batch, epoch: int, count: int, total: int) -> Batch:
        """The batch. Records that the epoch has delivered `count` of `total` batches."""
        # Some programs count batches, and never exhaust the iterator.
        self._running = (epoch, count) if count < total else None
        return batch

    def _require_own(self, begun: int, epoch: int) -> None:
        """Checks that an iterator is the newest one of this process.

        The core runs one epoch at a time, so an older iterator would get batches of the newer one.

        Errors: `InvalidError`.
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
        """Opens the loader again if the rank or world size has changed since."""
        share = (self._config["rank"], self._config["world_size"])
        if self._handle is not None and share != self._core_options.share:
            if self._process == os.getpid():
                self._handle.close()
            self._open()

    def _input_id(self, input_id: NDArray[np.int64], n_id: NDArray[Any]) -> NDArray[np.int64]:
        """[batch_size] positions of the seeds in the input nodes; for a mask, the node ids."""
        return n_id[: len(input_id)].astype(np.int64) if self._input_nodes.is_mask else input_id

    def _named(self, rows: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """The further arrays of a batch, by key."""
        return {
            key: rows_in_form(array, self.forms.get(key))
            for key, array in zip(self._arrays, rows, strict=True)
        }

    def _labels_of(self, n_id: NDArray[Any]) -> NDArray[Any] | None:
        if self._labels is None:
            return None
        return labels_in_form(self._labels[n_id], self.forms.get(self._label_key or ""))

    def _features(self, node_type: str, nodes: int, width: int) -> NDArray[Any] | None:
        """Features of a node type, in their imported type and shape; `None` without features."""
        if not width:
            return None
        x = self._room(nodes, width)
        self._core.gather(x, node_type)
        key = self._feature_keys[node_type]
        if key is None:
            return x
        # Values of an int8 layout are rounded, so they are not the imported integers.
        is_exact = self._options.precision == "exact"
        stored = self.graph.arrays[key]["dtype"] if is_exact else "float32"
        return features_in_form(x, stored, self.forms.get(key))

    def _room(self, nodes: int, width: int) -> NDArray[np.float32]:
        """An array for features. The core lends large arrays, and reuses freed ones."""
        lent: NDArray[np.float32] | None = self._core.row_array(nodes, width)
        return np.empty((nodes, width), np.float32) if lent is None else lent

    def plan(self) -> dict[str, Any]:
        """The memory plan: parts of the budget, batches per group, and expected reads per batch.

        Cost: on the first call, opens or loads the topology and samples trial batches.

        Raises:
            BudgetError: the budget is too small. The error names the smallest sufficient budget.
        """
        self._follow_process_group()
        return LoaderPlan(self._core.plan())

    def forecast(self, step: Callable[[Batch], object] | None = None) -> dict[str, Any]:
        """Forecast of reads and time, for the first epoch and for later epochs.

        It simulates the cache over the batches of two epochs, or over the first batches if an epoch
        is long. The simulation reads no feature rows. Then it measures each stage on a few batches.

        Cost: a few seconds. Call it before the first iteration.

        Args:
            step: the training step. It is called with a few batches to measure its time.

        Returns:
            A dictionary. ``first_epoch`` and ``later_epochs`` have ``seconds``, ``bottleneck``,
            ``hit_ratio``, ``rows_read``, ``requests``, ``bytes``, and the seconds of each stage
            without other load. Their ``processor_s`` is the processor time of all stages, divided
            by the available cores.

            The other keys are ``batches`` (per epoch), ``traced_batches`` (simulated batches),
            ``nodes_per_batch``, ``edges_per_batch``, ``fill_s`` (seconds in which the first epoch
            fills the static cache), and ``took_s`` (seconds for the forecast).

        Raises:
            InvalidError: an iteration has begun.
            BudgetError: a batch needs more memory than the batches of the memory plan.
        """
        self._follow_process_group()
        core = self._core
        widths = core.widths()
        return Forecast(forecast(core, lambda: self._batch(widths), step))

    def counters(self) -> dict[str, Any]:
        """The counters, hit ratio and timeline since the last call; see the guide on training."""
        return self._core.take_counters()

    def close(self) -> None:
        """Stop a running epoch and free all memory. A closed loader cannot be used again."""
        if self._handle is not None and self._process == os.getpid():
            self._handle.close()
        self._closed = True
        self._handle = None

    @property
    def batch_size(self) -> int:
        """Seeds per batch; for a loader of links, links per batch."""
        return self._options.batch_size

    @property
    def drop_last(self) -> bool:
        """Whether an incomplete last batch is left out."""
        return self._options.drop_last

    @property
    def num_neighbors(self) -> FanOuts:
        """The fan-outs, as passed to the loader."""
        return self._num_neighbors

    @property
    def input_nodes(self) -> InputNodes:
        """The seeds within their node type: a split, ids, a mask, or ``None`` for every node."""
        nodes: InputNodes = self._input_nodes.nodes
        return nodes

    def __repr__(self) -> str:
        # Must not open the data set: it also describes closed loaders, and those after a fork.
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


def as_graph(graph: Source) -> Graph:
    """The data set as an open graph.

    Errors: `InvalidError` if `graph` is not a data set; also the errors of `outercore.open`.
    """
    if isinstance(graph, (str, os.PathLike)):
        return Graph(graph)
    if isinstance(graph, tuple):
        graphs = [getattr(store, "graph", None) for store in graph]
        if len(graphs) == 2 and graphs[0] is graphs[1] and isinstance(graphs[0], Graph):
            shared: Graph = graphs[0]
            return shared
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


def _label_key(graph: Graph, labels: str | None) -> str | None:
    if labels is None or (labels == "y" and graph.schema.labels is None):
        return None
    if graph.is_typed and labels != "y" and "/" not in labels:
        labels = f"nodes/{graph.labelled_type}/{labels}"
    return graph.schema.labels if labels == "y" else graph.key(labels)
