"""The work of a run: task, network, batches and scores, for nodes and for whole graphs.

`links/work.py` has the work for edges.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.data.csc import edge_blocks, topology
from outercore.data.edge_types import PLAIN_EDGE
from outercore.data.many_graphs import FIRST, PREFIX, SPLITS, Labelled, ManyGraphs
from outercore.data.split_names import normal_split
from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.files.large_arrays import forget
from outercore.runs.custom_code import CustomCode
from outercore.runs.record import Timeline
from outercore.training.config import TrainConfig
from outercore.training.custom_network import CustomNetwork, build_custom
from outercore.training.graph_batches import GraphLoaders, NodeInputs, input_name, node_inputs
from outercore.training.inference import (
    Context,
    Inference,
    Prediction,
    Predictor,
    evaluation_batches,
    prediction_of,
)
from outercore.training.loaders import LoaderFactory, Loaders
from outercore.training.metrics import Metric, Scoring, validates_fully
from outercore.training.model_files import SavedModel
from outercore.training.models import GraphNetwork, build_model, evaluating
from outercore.training.tasks import Task, array_key, detect_task, nodes_of
from outercore.training.typed_network import (
    TypedNetwork,
    feature_keys,
    require_same_types,
    schema_of,
    table_bytes,
)

if TYPE_CHECKING:
    from outercore.data.graph import Graph


_CHUNK = 1 << 20


def in_degrees(graph: Graph, *, count_loops: bool) -> NDArray[np.float32]:
    """The number of arcs into each node, with or without self-loops.

    Shapes: float32 [nodes].
    Cost: reads the offsets once in order, and the edges once if self-loops must be found; 4 bytes
    of memory per node.
    """
    degrees = np.empty(graph.num_nodes, np.float32)
    offsets = topology(graph, "offsets")
    for first in range(0, graph.num_nodes, _CHUNK):
        last = min(first + _CHUNK, graph.num_nodes)
        degrees[first:last] = np.diff(offsets[first : last + 1].astype(np.int64))
        # Mapped pages count as memory of this process.
        forget(offsets)
    if not count_loops and graph.schema.import_options.get("self_loops") != "drop":
        for _, sources, targets, _ in edge_blocks(graph, PLAIN_EDGE):
            np.subtract.at(degrees, targets[sources == targets], 1.0)
    return degrees


class SplitScoring(Scoring):
    """Evaluates the network of a `Predictor` on the splits of a data set."""

    def __init__(
        self, graph: Labelled, config: TrainConfig, task: Task, predictor: Predictor
    ) -> None:
        self._graph, self._config, self._task, self._predictor = graph, config, task, predictor
        self.has_validation = config.sampling.valid in graph.splits
        self.validates_fully = not predictor.samples_only and validates_fully(
            config.run.validation, graph.num_edges
        )

    def _validation(self) -> Metric:
        name = self._config.sampling.valid
        nodes = self._graph.split(name)
        run = self._predictor.exact if self.validates_fully else self._predictor.sampled
        return next(iter(self._score(run(nodes), {name: nodes}).values()))

    def final(self) -> dict[str, Metric]:
        """Computes exact scores in one pass, by the normal split names `valid` and `test`.

        With sampled neighbours, each split has a separate pass. Samples depend on the other nodes
        of a batch, and `outercore evaluate` also makes batches from one split.
        """
        sampling = self._config.sampling
        splits = {
            name: self._graph.split(name)
            for name in (sampling.valid, sampling.test)
            if name in self._graph.splits
        }
        if not splits:
            return {}
        if self._predictor.samples_only:
            metrics: dict[str, Metric] = {}
            for name, nodes in splits.items():
                metrics |= self._score(self._predictor.sampled(nodes), {name: nodes})
            return metrics
        nodes = np.unique(np.concatenate(list(splits.values())))
        return self._score(self._predictor.exact(nodes), splits)

    def _score(
        self, predictions: Iterable[Prediction], splits: dict[str, NDArray[np.int64]]
    ) -> dict[str, Metric]:
        metrics = {name: self._task.metric() for name in splits}
        members = {name: np.unique(nodes) for name, nodes in splits.items()}
        for prediction in predictions:
            for name, metric in metrics.items():
                chosen = np.isin(prediction.nodes, members[name])
                if chosen.any():
                    self._task.update(metric, prediction.logits[chosen], prediction.labels[chosen])
        return {normal_split(name): metric for name, metric in metrics.items()}


class Work(ABC):
    """The task, the network and the batches of a run."""

    rows: ClassVar[str]
    """The name of the rows of predictions: `nodes`, `graphs` or `edges`."""
    labelled: Labelled
    """The graph, or the set of graphs, that has labels and splits."""
    task: Task
    model: Any
    loaders: Loaders | GraphLoaders
    _config: TrainConfig
    _graph: Graph
    """The graph whose edges pass messages."""
    _keys: Mapping[str, str] = MappingProxyType({})
    """The feature array of each node type, for a network with an `Encoder`."""
    _is_saved: bool
    _degrees: Tensor | None = None

    def prepare(self, timeline: Timeline) -> None:
        """Reads the in-degrees if the network uses them, and computes the scales of features.

        A saved network has its scales already.

        Cost: for the scales, reads at most 65,536 rows of each node type with features.
        """
        if self.model.needs_degrees:
            with timeline.span("in-degrees"):
                degrees = in_degrees(self._graph, count_loops=self.model.counts_loops)
                self._degrees = torch.from_numpy(degrees)
        if self._keys and not self._is_saved:
            with timeline.span("feature scales"):
                self.model.encoder.standardise(self._graph, self._keys)

    def _degrees_of(self, batch: Any, device: torch.device) -> Tensor | None:
        """The in-degrees of the nodes of a batch; `None` if the network does not use them."""
        return None if self._degrees is None else self._degrees[batch.n_id].to(device)

    @abstractmethod
    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The mean loss of a training batch, and the number of seeds in this mean."""

    @abstractmethod
    def scoring(self, context: Context) -> Scoring:
        """The object that scores the network after each epoch and at the end."""

    def facts(self) -> dict[str, Any]:
        """Facts about the data set for the run record."""
        return {}


class PredictingWork(Work):
    """A work whose network predicts outputs of nodes or graphs, and is scored on their splits."""

    @abstractmethod
    def predictor(self, context: Context) -> Predictor:
        """The object that runs the network with its current weights."""

    def scoring(self, context: Context) -> Scoring:
        """The object that scores the network on the splits."""
        return SplitScoring(self.labelled, self._config, self.task, self.predictor(context))


class NodeWork(PredictingWork):
    """Predicts nodes of the labelled type from their sampled neighbours of all types.

    `saved` is a trained model to score; without it, a new network is made. Its weights depend only
    on the configuration and PyTorch's random state.

    Errors: `NotFoundError` without labels; `InvalidError` if features, types or labels do not fit;
    `BudgetError` if in-degrees or embeddings take the whole budget.
    """

    rows = "nodes"
    loaders: Loaders

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        *,
        open_loader: LoaderFactory,
        note: Callable[[str], None],
        saved: SavedModel | None = None,
        code: CustomCode | None = None,
    ) -> None:
        """Makes the network and the loaders. `code` is custom code that makes the network."""
        self._graph, self._config, self._is_saved = graph, config, saved is not None
        self.labelled = graph
        self._type = graph.labelled_type if graph.is_typed else None
        sampling = config.sampling
        self._keys = feature_keys(graph, sampling.features) if graph.is_typed else {}
        if saved is None:
            self.task = detect_task(
                self.labelled,
                sampling.labels,
                config.run.metric,
                config.run.task,
                nodes_of(self.labelled, sampling.train),
            )
            self.model: Any = self._built(code, note)
        else:
            self.task, self.model = saved.task, saved.model
            self._require_same_inputs()
        self.loaders = Loaders(
            graph, config, open_loader=open_loader, note=note, **self._loader_arguments()
        )

    def _built(self, code: CustomCode | None, note: Callable[[str], None]) -> Any:
        config = self._config
        if self._type is not None:
            schema = schema_of(self._graph, (self._type,), config, self._keys, note)
            return TypedNetwork(config.model, schema, self.task.outputs)
        features = self._graph.schema.width(array_key(self._graph, config.sampling.features))
        sizes = (config.model, config.layers, features, self.task.outputs)
        return build_model(*sizes) if code is None else build_custom(code, *sizes)

    def _require_same_inputs(self) -> None:
        if self._type is not None:
            require_same_types(self._graph, self._keys, self.model.schema, (self._type,))
            return
        found, expected = self._graph.num_features, self.model.features
        if self._config.sampling.features == "x" and found != expected:
            raise InvalidError(
                f"data set `{self._graph.root}`: expected {expected} features a node, as the model "
                f"was trained with, found {found}"
            )

    def _loader_arguments(self) -> dict[str, Any]:
        """Arguments for `Loaders`: the features, and the memory of the network for all nodes."""
        if self._type is None:
            degrees = 4 * self._graph.num_nodes if self.model.needs_degrees else 0
            advice = "give more memory by `--memory`, or use `--model sage` or `gat`"
            return {"reserved": {"in-degrees": degrees}, "advice": advice}
        schema, hidden = self.model.schema, self._config.model.hidden
        embeddings = table_bytes(schema.table_rows, hidden, is_saved=self._is_saved)
        return {"reserved": {"embeddings": embeddings}, "features": schema.features(self._keys)}

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The loss of the seeds, and their number."""
        degrees, batch = self._degrees_of(batch, device), batch.to(device)
        labelled = batch if self._type is None else batch[self._type]
        count = int(labelled.batch_size)
        return self.task.loss(self.model(batch, degrees), labelled.y[:count]), count

    def predictor(self, context: Context) -> Predictor:
        """The object that runs the network over nodes."""
        return Inference(
            self._graph,
            self.model,
            self._config.sampling,
            self.loaders,
            context,
            degrees=self._degrees,
            samples_only=samples_only(self._config, self.model),
        )

    def facts(self) -> dict[str, Any]:
        """The types and the inputs of their nodes; empty for a graph with one type."""
        if self._type is None:
            return {}
        described = self.model.schema.to_dict()
        return {
            "node_types": self._graph.node_types,
            "edge_types": described["edge_types"],
            "labelled_type": self._type,
            "inputs": described["inputs"],
        }


def samples_only(config: TrainConfig, model: Any) -> bool:
    """Whether a model can only be scored with sampled neighbours."""
    return config.sampling.time is not None or isinstance(model, CustomNetwork)


def with_inputs(graph: Graph, config: TrainConfig) -> TrainConfig:
    """Sets the features in a configuration to the node array that the network will use."""
    name = input_name(graph, config.sampling.features)
    return replace(config, sampling=replace(config.sampling, features=name))


class GraphWork(PredictingWork):
    """Predicts labels of whole graphs, each from all its nodes and arcs.

    Arguments and errors are the same as for `NodeWork`. In addition: `NotFoundError` for a data set
    of one graph, `BudgetError` if a batch needs more than the budget, `InvalidError` for far
    memory.
    """

    rows = "graphs"
    loaders: GraphLoaders

    def __init__(
        self, graph: Graph, config: TrainConfig, *, saved: SavedModel | None = None
    ) -> None:
        if config.sampling.time is not None:
            raise UnsupportedError("--time: whole graphs have no past\nhint: leave it out")
        if config.budget.far is not None:
            raise InvalidError(
                "far memory: whole graphs are read from the disk\nhint: leave it out"
            )
        self._many = self.labelled = ManyGraphs(graph)
        self._config, self._graph = config, graph
        sampling = config.sampling
        _require_labels(graph, sampling.labels)
        trained = saved.model if saved is not None else None
        assert trained is None or isinstance(trained, GraphNetwork)
        known = None if trained is None else trained.categories
        self._inputs = node_inputs(graph, sampling.features, known)
        if saved is None or trained is None:
            self.task = detect_task(
                self._many,
                sampling.labels,
                config.run.metric,
                nodes=nodes_of(self._many, sampling.train),
            )
            self.model = graph_network(config, self._inputs, self.task.outputs)
        else:
            self.task, self.model = saved.task, trained
            _require_inputs(graph, self._inputs, trained)
        self.loaders = GraphLoaders(self._many, self._inputs, config)

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The loss of the graphs, and their number."""
        batch = batch.to(device)
        return self.task.loss(self.model(batch), batch.y), int(batch.batch_size)

    def predictor(self, context: Context) -> Predictor:
        """The object that runs the network, always with all neighbours."""
        return _GraphPredictor(self.loaders, self.model, context)

    def facts(self) -> dict[str, Any]:
        """The number of graphs, and the name of the used node array."""
        return {"graphs": self._many.num_nodes, "inputs": self._config.sampling.features}


def graph_network(config: TrainConfig, inputs: NodeInputs, outputs: int) -> GraphNetwork:
    """A new network. Its weights depend only on the arguments and PyTorch's random state."""
    return GraphNetwork(
        config.model,
        config.layers,
        inputs.width,
        outputs,
        categories=inputs.categories,
        readout=config.graph.readout,
        of_degrees=inputs.key is None,
    )


class _GraphPredictor:
    """Runs a network over chosen graphs."""

    samples_only = False

    def __init__(self, loaders: GraphLoaders, model: GraphNetwork, context: Context) -> None:
        self._loaders, self._model, self._context = loaders, model, context

    def sampled(
        self, nodes: NDArray[np.int64] | None, what: str = "validation"
    ) -> Iterator[Prediction]:
        """The same as `exact`, because no neighbours are sampled."""
        return self.exact(nodes)

    def exact(self, nodes: NDArray[np.int64] | None) -> Iterator[Prediction]:
        """Predicts the graphs `nodes`, in this order; `None` stands for all graphs."""
        batches = evaluation_batches(self._loaders, self._context, "scores", graphs=nodes)
        with evaluating(self._model):
            for batch in batches:
                # Not around the loop: there it would also apply to the code of the caller.
                with torch.no_grad():
                    outputs = self._model(batch)
                yield prediction_of(batch, outputs)


def _require_labels(graph: Graph, labels: str) -> None:
    if PREFIX + labels in graph.arrays:
        return
    known = ", ".join(
        f"`{key.removeprefix(PREFIX)}`"
        for key in graph.arrays
        if key.startswith(PREFIX) and key != FIRST and not key.startswith(SPLITS)
    )
    raise NotFoundError(
        f"data set `{graph.root}`: no labels `{labels}` of graphs; it has {known or 'none'}\n"
        "hint: import it again with `--labels FILE`, or choose others by `--labels`"
    )


def _require_inputs(graph: Graph, inputs: NodeInputs, trained: GraphNetwork) -> None:
    expected = trained.categories
    if inputs.width != trained.features or bool(inputs.categories) != bool(expected):
        kind = "categories" if expected else "features"
        found = "categories" if inputs.categories else "features"
        raise InvalidError(
            f"data set `{graph.root}`: expected {trained.features} {kind} a node, as the model "
            f"was trained with, found {inputs.width} {found}"
        )
