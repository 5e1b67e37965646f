"""The directory of an algorithm's run: what was asked, its checkpoint, its record."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from outercore.analytics.config import RunConfig, relation_key
from outercore.analytics.request import Teleports
from outercore.base.fields import Configuration
from outercore.base.shell import quoted
from outercore.data.graph import Graph
from outercore.data.graph_arrays import TRIPLES, holds_triples
from outercore.files.atomic import whole_file
from outercore.runs import record as records
from outercore.runs.directory import RunDirectory
from outercore.runs.identity import Identity

_TOPOLOGY = ("edges/edge/offsets", "edges/edge/sources")


@dataclass(frozen=True)
class AnalysisConfig(Configuration):
    """What a run of an algorithm computes, and where its result goes."""

    algorithm: str
    options: dict[str, Any]
    """Of the algorithm, as its function names them."""
    run: RunConfig = field(default_factory=RunConfig)
    save: str | None = None
    """A node array that gets the result."""
    out: str | None = None
    """A file that gets it."""
    overwrite: bool = False
    """Whether these two may replace what is there."""


class AnalysisDirectory(RunDirectory):
    """Where a run of an algorithm keeps its checkpoint, until it has ended, and its record."""

    verb = "run"
    option = "--record"

    @staticmethod
    def identity_of(graph: Graph, config: Configuration | None = None) -> Identity:
        """The topology, or triples and names, and the weights of edges that the algorithm reads."""
        options, edges = {}, "edge"
        if isinstance(config, AnalysisConfig):
            options = config.options
            if config.run.relation is not None:
                edges = relation_key(graph, config.run.relation) or edges
        weights = options.get("weights")
        if not holds_triples(graph):
            read = {*_TOPOLOGY}
            read |= {"edges/edge/ids", f"edges/{edges}/{weights}"} if weights else set()
        else:
            # Ids of triples mean nothing without their names.
            read = {
                key for key in graph.arrays if key.startswith(("names/entity", "names/relation"))
            }
            read |= {TRIPLES, f"{TRIPLES}.{weights}"}
        return Identity.of(graph.manifest, lambda key: key in read, nodes=graph.num_nodes)

    def next_step(self) -> str:
        """As `RunDirectory.next_step`; an algorithm that has ended is not resumed."""
        if not self.begun and (self.path / records.FILE).exists():
            return f"`outercore report {quoted(self.path)}` shows its record"
        return super().next_step()

    @property
    def state(self) -> Path:
        """The checkpoint."""
        return self.path / "checkpoint"

    @property
    def begun(self) -> bool:
        """Whether there is one."""
        return (self.state / "checkpoint.json").exists()

    def config(self) -> AnalysisConfig:
        """What is computed."""
        return AnalysisConfig.from_dict(self._described()["config"])

    def command(self) -> str:
        """The command line that began the run."""
        return str(self._described().get("command", ""))

    def keep_options(self, options: dict[str, Any]) -> None:
        """Saves the algorithm's options of a run that is resumed with different ones."""
        described = self._described()
        self._describe({**described, "config": {**described["config"], "options": options}})

    def keep_teleports(self, teleports: Teleports) -> None:
        """Writes the teleport vector down; nothing where all nodes are alike."""
        nodes, weights = teleports
        if nodes is not None and weights is not None:
            with whole_file(self._teleports) as file:
                np.savez(file, nodes=nodes, weights=weights)

    def teleports(self) -> Teleports:
        """The teleport vector."""
        if not self._teleports.exists():
            return None, None
        with np.load(self._teleports, allow_pickle=False) as found:
            return found["nodes"], found["weights"]

    def forget_checkpoint(self) -> None:
        """Removes the checkpoint of a run that has come to its end."""
        self._storage.remove_tree(self.state)
        self._teleports.unlink(missing_ok=True)

    def discard_if_unused(self) -> None:
        """Removes what was made for a run that has left no checkpoint."""
        if not self.begun:
            self._teleports.unlink(missing_ok=True)
        super().discard_if_unused()

    @property
    def _teleports(self) -> Path:
        return self.path / "teleports.npz"
