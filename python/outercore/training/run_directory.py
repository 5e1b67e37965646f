"""The directory of one training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.fields import Configuration
from outercore.data.many_graphs import ADDED, FIRST, PREFIX, REMOVED, SPLITS
from outercore.data.schema import NODE
from outercore.files.atomic import device_errors
from outercore.runs.directory import Identity, RunDirectory
from outercore.training.config import SamplingConfig, TrainConfig
from outercore.training.links.timed import times_by_type
from outercore.training.typed_network import feature_keys

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class TrainDirectory(RunDirectory):
    """The directory of a training run.

    Besides `checkpoints/`, `model/` the best model, `scratch/` removed when the run ends.
    """

    verb = "train"
    config_type = TrainConfig
    state_name = "checkpoints"
    checkpoint_names = ("latest",)

    @property
    def scratch(self) -> Path:
        """Where layer states lie during inference."""
        return self.path / "scratch"

    @property
    def links(self) -> Path:
        """Where a run that learns edges keeps those to train on and those to score."""
        return self.path / "links"

    @property
    def model(self) -> Path:
        """Where the best model is."""
        return self.path / "model"

    @property
    def result(self) -> Path:
        """The description of the best model."""
        return self.model / "model.json"

    @property
    def epochs(self) -> tuple[int, int]:
        """Epochs of a finished run, and how many of them came after the best one."""
        record = self.record()
        done, best = len(record["epochs"]), record["result"]["best_epoch"]
        return done, done if best is None else done - 1 - best

    @staticmethod
    def identity_of(graph: Graph, config: Configuration) -> Identity:
        """The topology, and the features, labels and splits that `config` names."""
        assert isinstance(config, TrainConfig)
        if config.of_graphs:
            return _read_of_graphs(graph, config.sampling)
        if config.of_links and config.sampling.time is not None:
            return _read_of_times(graph, config)
        if graph.is_typed:
            return _read_of_types(graph, config.sampling)
        return _read_by(graph, config.sampling)

    def remove_scratch(self) -> None:
        """Deletes layer states, also those that a killed run left."""
        with device_errors(f"layer states `{self.scratch}`"):
            self._storage.remove_tree(self.scratch)

    @property
    def _directories(self) -> tuple[Path, ...]:
        return (*super()._directories, self.scratch, self.links)


def _read_of_types(graph: Graph, sampling: SamplingConfig) -> Identity:
    schema = graph.schema
    keys = ["edges/edge/offsets", "edges/edge/sources"]
    keys += feature_keys(graph, sampling.features).values()
    own = sampling.labels
    keys.append(str(schema.labels) if own == "y" else f"nodes/{schema.labelled_type}/{own}")
    keys += [*_splits_of(graph, sampling), *_times_of(graph, sampling)]
    return _identity(graph, keys, classes=schema.classes)


def _read_of_times(graph: Graph, config: TrainConfig) -> Identity:
    keys = ["edges/edge/offsets", "edges/edge/sources", "edges/edge/ids"]
    keys += feature_keys(graph, config.sampling.features).values()
    return _identity(graph, [*keys, *times_by_type(graph, config).values()])


def _identity(graph: Graph, keys: list[str], **facts: Any) -> Identity:
    return Identity.of(
        graph.arrays,
        keys.__contains__,
        nodes=graph.node_types,
        edges={edges.key: edges.count for edges in graph.schema.edges.values()},
        **facts,
    )


def _times_of(graph: Graph, sampling: SamplingConfig) -> list[str]:
    """Arrays of all types that say when something comes."""
    if sampling.time is None:
        return []
    names = (sampling.time, sampling.time.removeprefix("edge_"))
    return [key for key in graph.arrays if key.rpartition("/")[2] in names]


def _splits_of(graph: Graph, sampling: SamplingConfig) -> list[str]:
    splits = graph.schema.splits
    wanted = (sampling.train, sampling.valid, sampling.test)
    return [splits[name] for name in wanted if name in splits]


def _read_by(graph: Graph, sampling: SamplingConfig) -> Identity:
    schema = graph.schema
    keys = ["edges/edge/offsets", "edges/edge/sources"]
    for name, key in ((sampling.features, schema.features), (sampling.labels, schema.labels)):
        keys.append((key if name in ("x", "y") else None) or f"nodes/node/{name}")
    keys += [*_splits_of(graph, sampling), *_times_of(graph, sampling)]
    return Identity.of(
        graph.arrays,
        keys.__contains__,
        nodes=schema.node_types[NODE],
        undirected=schema.is_undirected,
        classes=schema.classes,
    )


def _read_of_graphs(graph: Graph, sampling: SamplingConfig) -> Identity:
    keys = ["edges/edge/offsets", "edges/edge/sources", f"nodes/node/{sampling.features}"]
    keys += [FIRST, ADDED, REMOVED, PREFIX + sampling.labels]
    keys += [SPLITS + name for name in (sampling.train, sampling.valid, sampling.test)]
    return Identity.of(graph.arrays, keys.__contains__, nodes=graph.num_nodes)
