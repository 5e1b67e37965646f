"""Learning the labels of one node type of a typed graph."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from outercore.runs.progress import Observer
from outercore.runs.record import Timeline
from outercore.runs.stop import StopRequest
from outercore.training.config import TrainConfig
from outercore.training.inference import Predictor
from outercore.training.loaders import TABLE_COPIES, LoaderFactory, Loaders
from outercore.training.model_files import SavedModel
from outercore.training.splits import nodes_of
from outercore.training.tasks import detect_task
from outercore.training.typed.inference import TypedInference
from outercore.training.typed.inputs import feature_keys, require_same_types, schema_of
from outercore.training.typed.labelled_type import LabelledNodes
from outercore.training.typed.models import TypedNetwork
from outercore.training.work import ScoredOnSplits

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class TypedNodeWork(ScoredOnSplits):
    """Nodes of the labelled type, each by its sampled neighbours of all types.

    Arguments as `NodeWork`.

    Errors: `NotFoundError` without labels; `InvalidError` where features, types or labels do not
    fit; `BudgetError` where the embeddings of a saved model take all of the budget.
    """

    rows = "nodes"
    labelled: LabelledNodes

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        *,
        open_loader: LoaderFactory,
        note: Callable[[str], None],
        saved: SavedModel | None = None,
    ) -> None:
        self.labelled = LabelledNodes(graph)
        self._graph, self._config = graph, config
        self._is_saved = saved is not None
        self._keys = keys = feature_keys(graph, config.sampling.features)
        if saved is None:
            self.task = detect_task(
                self.labelled,
                config.sampling.labels,
                config.run.metric,
                config.run.task,
                nodes_of(self.labelled, config.sampling.train),
            )
            schema = schema_of(graph, (self.labelled.node_type,), config, keys, note)
            self.model = TypedNetwork(config.model, schema, self.task.outputs)
            copies = TABLE_COPIES
        else:
            assert isinstance(saved.model, TypedNetwork)
            self.task, self.model = saved.task, saved.model
            require_same_types(graph, keys, self.model.schema, (self.labelled.node_type,))
            copies = 1
        schema = self.model.schema
        self.loaders = TypedLoaders(
            graph,
            config,
            features={name: keys[name] for name, of in schema.inputs.items() if of.features},
            reserved={"embeddings": 4 * config.model.hidden * copies * schema.table_rows},
            open_loader=open_loader,
            note=note,
        )

    def prepare(self, timeline: Timeline | None = None) -> None:
        """Measures the scales of features, which a saved model has.

        Cost: reads at most 65,536 rows of each node type with features.
        """
        if self._is_saved:
            return
        with timeline.span("feature scales") if timeline is not None else nullcontext():
            self.model.encoder.standardise(self._graph, self._keys)

    def loss(self, batch: Any, device: torch.device) -> tuple[Tensor, int]:
        """That of the task, over the seeds."""
        batch = batch.to(device)
        seeds = batch[self.labelled.node_type]
        count = int(seeds.batch_size)
        return self.task.loss(self.model(batch), seeds.y[:count]), count

    def _inference(
        self, *, scratch: Path, device: torch.device, observer: Observer, stop: StopRequest
    ) -> Predictor:
        return TypedInference(
            self._graph,
            self.model,
            self._config.sampling,
            self.loaders,
            scratch=scratch,
            device=device,
            observer=observer,
            stop=stop,
        )

    def facts(self) -> dict[str, Any]:
        """The types, and what the nodes of each enter the network by."""
        described = self.model.schema.to_dict()
        return {
            "node_types": self._graph.node_types,
            "edge_types": described["edge_types"],
            "labelled_type": self.labelled.node_type,
            "inputs": described["inputs"],
        }


class TypedLoaders(Loaders):
    """`Loaders` of a typed graph, beside the embeddings of nodes without features."""

    advice = "give more memory by `--memory`"

    def __init__(
        self, graph: Graph, config: TrainConfig, *, features: dict[str, str], **options: Any
    ) -> None:
        """`features` by node type; `options` as those of `Loaders`."""
        super().__init__(graph, config, **options)
        self._features = features

    def features(self) -> Any:
        """The array of each node type that has features; `None` where none has."""
        return self._features or None
