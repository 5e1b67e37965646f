"""The directory of one training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.fields import Configuration
from outercore.data.many_graphs import ADDED, FIRST, PREFIX, REMOVED, SPLITS
from outercore.files.atomic import device_errors
from outercore.runs.directory import Identity, RunDirectory
from outercore.training.config import SamplingConfig, TrainConfig
from outercore.training.temporal.links import times_by_type
from outercore.training.typed.inputs import feature_keys
from outercore.training.typed.labelled_type import LabelledNodes

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
            return _read_of_graphs(graph.manifest, config.sampling)
        if config.of_links and config.sampling.time is not None:
            return _read_of_times(graph, config)
        if graph.is_typed:
            return _read_of_types(graph, config.sampling)
        return _read_by(graph.manifest, config.sampling)

    def remove_scratch(self) -> None:
        """Deletes layer states, also those that a killed run left."""
        with device_errors(f"layer states `{self.scratch}`"):
            self._storage.remove_tree(self.scratch)

    @property
    def _directories(self) -> tuple[Path, ...]:
        return (*super()._directories, self.scratch, self.links)


def _read_of_types(graph: Graph, sampling: SamplingConfig) -> Identity:
    manifest, labels = graph.manifest, LabelledNodes(graph)
    roles = manifest["roles"]
    keys = ["edges/edge/offsets", "edges/edge/sources"]
    keys += feature_keys(graph, sampling.features).values()
    own = sampling.labels
    keys.append(roles["labels"] if own == "y" else f"nodes/{labels.node_type}/{own}")
    keys += [*_splits_of(roles, sampling), *_times_of(manifest, sampling)]
    return _identity(graph, keys, classes=roles.get("classes"))


def _read_of_times(graph: Graph, config: TrainConfig) -> Identity:
    keys = ["edges/edge/offsets", "edges/edge/sources", "edges/edge/ids"]
    keys += feature_keys(graph, config.sampling.features).values()
    return _identity(graph, [*keys, *times_by_type(graph, config).values()])


def _identity(graph: Graph, keys: list[str], **facts: Any) -> Identity:
    manifest = graph.manifest
    return Identity.of(
        manifest,
        keys.__contains__,
        nodes=graph.node_types,
        edges={name: of["count"] for name, of in manifest["edge_types"].items()},
        **facts,
    )


def _times_of(manifest: dict[str, Any], sampling: SamplingConfig) -> list[str]:
    """Arrays of all types that say when something comes."""
    if sampling.time is None:
        return []
    names = (sampling.time, sampling.time.removeprefix("edge_"))
    return [key for key in manifest["arrays"] if key.rpartition("/")[2] in names]


def _splits_of(roles: dict[str, Any], sampling: SamplingConfig) -> list[str]:
    splits = roles.get("splits", {})
    wanted = (sampling.train, sampling.valid, sampling.test)
    return [splits[name] for name in wanted if name in splits]


def _read_by(manifest: dict[str, Any], sampling: SamplingConfig) -> Identity:
    roles = manifest.get("roles", {})
    keys = ["edges/edge/offsets", "edges/edge/sources"]
    for name, role in ((sampling.features, "features"), (sampling.labels, "labels")):
        of_role = roles.get(role) if name in ("x", "y") else None
        keys.append(of_role or f"nodes/node/{name}")
    keys += [*_splits_of(roles, sampling), *_times_of(manifest, sampling)]
    return Identity.of(
        manifest,
        keys.__contains__,
        nodes=manifest["node_types"]["node"]["count"],
        undirected=bool(manifest["edge_types"]["edge"].get("undirected")),
        classes=roles.get("classes"),
    )


def _read_of_graphs(manifest: dict[str, Any], sampling: SamplingConfig) -> Identity:
    keys = ["edges/edge/offsets", "edges/edge/sources", f"nodes/node/{sampling.features}"]
    keys += [FIRST, ADDED, REMOVED, PREFIX + sampling.labels]
    keys += [SPLITS + name for name in (sampling.train, sampling.valid, sampling.test)]
    nodes = manifest["node_types"]["node"]["count"]
    return Identity.of(manifest, keys.__contains__, nodes=nodes)
