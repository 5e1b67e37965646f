"""The directory of one training run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.fields import Configuration
from outercore.data.many_graphs import ADDED, FIRST, PREFIX, REMOVED, SPLITS
from outercore.data.schema import NODE
from outercore.files.atomic import device_errors
from outercore.runs.directory import Identity, RunDirectory
from outercore.training.config import TrainConfig
from outercore.training.links.timed import times_by_type
from outercore.training.typed_network import feature_keys

if TYPE_CHECKING:
    from outercore.data.graph import Graph


class TrainDirectory(RunDirectory):
    """The directory of a training run.

    In addition to `checkpoints/`, `model/` holds the best model, and `scratch/` has layer states
    until the run ends. `links/` holds the prepared edges of a run that learns to predict edges.
    """

    verb = "train"
    config_type = TrainConfig
    state_name = "checkpoints"
    checkpoint_names = ("latest",)

    @property
    def scratch(self) -> Path:
        """The directory of layer states during inference."""
        return self.path / "scratch"

    @property
    def links(self) -> Path:
        """The directory of prepared edges, for a run that learns to predict edges."""
        return self.path / "links"

    @property
    def model(self) -> Path:
        """The directory of the best model."""
        return self.path / "model"

    @property
    def result(self) -> Path:
        """The file that describes the best model."""
        return self.model / "model.json"

    @property
    def epochs(self) -> tuple[int, int]:
        """The number of epochs of a finished run, and the number of epochs after the best epoch."""
        record = self.record()
        done, best = len(record["epochs"]), record["result"]["best_epoch"]
        return done, done if best is None else done - 1 - best

    @staticmethod
    def identity_of(graph: Graph, config: Configuration) -> Identity:
        """Identity of the topology, and of the features, labels, splits and times in `config`."""
        assert isinstance(config, TrainConfig)
        schema, sampling = graph.schema, config.sampling
        splits = (sampling.train, sampling.valid, sampling.test)
        keys = ["edges/edge/offsets", "edges/edge/sources"]
        facts: dict[str, Any] = {"nodes": graph.num_nodes}
        of_types = {
            "nodes": graph.node_types,
            "edges": {edges.key: edges.count for edges in schema.edges.values()},
        }
        if config.of_graphs:
            keys += [f"nodes/node/{sampling.features}", FIRST, ADDED, REMOVED]
            keys += [PREFIX + sampling.labels, *(SPLITS + name for name in splits)]
        elif config.of_links and sampling.time is not None:
            keys += ["edges/edge/ids", *feature_keys(graph, sampling.features).values()]
            keys += times_by_type(graph, config).values()
            facts = of_types
        else:
            labels = schema.labels if sampling.labels == "y" else None
            keys.append(labels or f"nodes/{schema.labelled_type or NODE}/{sampling.labels}")
            keys += [schema.splits[name] for name in splits if name in schema.splits]
            keys += _times(graph, sampling.time)
            if graph.is_typed:
                keys += feature_keys(graph, sampling.features).values()
                facts = {**of_types, "classes": schema.classes}
            else:
                features = schema.features if sampling.features == "x" else None
                keys.append(features or f"nodes/node/{sampling.features}")
                facts |= {"undirected": schema.is_undirected, "classes": schema.classes}
        return Identity.of(graph.arrays, keys.__contains__, **facts)

    def remove_scratch(self) -> None:
        """Deletes layer states, including files that a killed run left."""
        with device_errors(f"layer states `{self.scratch}`"):
            self._storage.remove_tree(self.scratch)

    @property
    def _directories(self) -> tuple[Path, ...]:
        return (*super()._directories, self.scratch, self.links)


def _times(graph: Graph, attribute: str | None) -> list[str]:
    """The keys of the arrays of times, of all types."""
    if attribute is None:
        return []
    names = (attribute, attribute.removeprefix("edge_"))
    return [key for key in graph.arrays if key.rpartition("/")[2] in names]
