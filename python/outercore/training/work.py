"""The work of a run: task, network and batches. Here of nodes with sampled neighbours.

Whole graphs are in `graph_work.py`, edges in `links/work.py` and `temporal/work.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor

from outercore.data.many_graphs import Labelled
from outercore.errors import InvalidError
from outercore.runs.custom_code import CustomCode
from outercore.runs.record import Timeline
from outercore.training.config import TrainConfig
from outercore.training.custom_network import CustomNetwork, build_custom
from outercore.training.degrees import degrees_for
from outercore.training.graph_batches import GraphLoaders
from outercore.training.inference import Context, Inference, Predictor
from outercore.training.loaders import TABLE_COPIES, LoaderFactory, Loaders
from outercore.training.model_files import SavedModel
from outercore.training.models import build_model
from outercore.training.scoring import AnyScoring, Scoring
from outercore.training.splits import nodes_of
from outercore.training.tasks import Task, array_key, detect_task
from outercore.training.typed.inputs import feature_keys, require_same_types, schema_of
from outercore.training.typed.labelled_type import LabelledNodes
from outercore.training.typed.models import TypedNetwork

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class Work(ABC):
    """The task, the network and the batches of a run."""

    rows: ClassVar[str]
    """Rows of predictions: `nodes`, `graphs` or `edges`."""
    labelled: Labelled
    """The owner of labels and splits."""
    task: Task
    model: Any
    loaders: Loaders | GraphLoaders

    @abstractmethod
    def prepare(self, timeline: Timeline | None = None) -> None:
        """Reads arrays that every batch needs."""

    @abstractmethod
    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """The mean loss of a batch of training, and of how many seeds it is the mean."""

    @abstractmethod
    def scoring(self, context: Context) -> AnyScoring:
        """Scores the network after each epoch, and in the end."""

    def facts(self) -> dict[str, Any]:
        """Entries of the run record about the data set."""
        return {}


class PredictingWork(Work):
    """A work whose network predicts a value for each row, and is scored on splits of these."""

    _config: TrainConfig

    @abstractmethod
    def predictor(self, context: Context) -> Predictor:
        """Runs the network with its present weights."""

    def scoring(self, context: Context) -> AnyScoring:
        """As `Work` says."""
        return Scoring(self.labelled, self._config, self.task, self.predictor(context))


class NodeWork(PredictingWork):
    """Nodes of the labelled type, each by its sampled neighbours of all types.

    A freshly initialised network is a function of the configuration and PyTorch's seed; `saved` is
    one to score instead.

    Errors: `NotFoundError` without labels; `InvalidError` where features, types or labels do not
    fit; `BudgetError` if in-degrees or embeddings take all of the budget.
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
        """`code` makes the network in place of the configuration."""
        self._graph, self._config, self._is_saved = graph, config, saved is not None
        self.labelled = LabelledNodes(graph) if graph.is_typed else graph
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
        self._degrees: Tensor | None = None
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
        """Arguments of the loaders: features, and the memory that the network takes for nodes."""
        if self._type is None:
            degrees = 4 * self._graph.num_nodes if self.model.needs_degrees else 0
            advice = "give more memory by `--memory`, or use `--model sage` or `gat`"
            return {"reserved": {"in-degrees": degrees}, "advice": advice}
        schema, copies = self.model.schema, 1 if self._is_saved else TABLE_COPIES
        embeddings = 4 * self._config.model.hidden * copies * schema.table_rows
        features = {name: self._keys[name] for name, of in schema.inputs.items() if of.features}
        return {"reserved": {"embeddings": embeddings}, "features": features or None}

    def prepare(self, timeline: Timeline | None = None) -> None:
        """Reads the in-degrees where the network weighs by them; measures the scales of features.

        A saved model has its scales.

        Cost: of several types, reads at most 65,536 rows of each node type with features.
        """
        self._degrees = degrees_for(self.model, self._graph, timeline)
        if self._type is not None and not self._is_saved:
            with timeline.span("feature scales") if timeline is not None else nullcontext():
                self.model.encoder.standardise(self._graph, self._keys)

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """That of the task, over the seeds."""
        degrees = None
        if self._degrees is not None:
            degrees = self._degrees[batch.n_id].to(device)
        batch = batch.to(device)
        labelled = batch if self._type is None else batch[self._type]
        count = int(labelled.batch_size)
        return self.task.loss(self.model(batch, degrees), labelled.y[:count]), count

    def predictor(self, context: Context) -> Predictor:
        """As `PredictingWork` says."""
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
        """With several types: the types, and the inputs of their nodes."""
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
    """Whether a model is scored with sampled neighbours in any case."""
    return config.sampling.time is not None or isinstance(model, CustomNetwork)
