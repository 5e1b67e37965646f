"""The directory of one embedding run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.fields import Configuration
from outercore.embedding.config import BudgetConfig, EmbedConfig
from outercore.files.atomic import device_errors, replace_file
from outercore.files.checked_json import checked_json_bytes
from outercore.runs.directory import Identity, RunDirectory

if TYPE_CHECKING:
    from outercore.data.graph import Graph

DESCRIPTION = "embedding.json"
DESCRIPTION_VERSION = 2
"""Version 1 lacks checksums."""
_TOPOLOGY: tuple[str, ...] = ("edges/edge/offsets", "edges/edge/sources")
_WEIGHTS = "edges/edge/weight"
_OF_WEIGHTS = (_WEIGHTS, "edges/edge/ids")
_NAMES: tuple[str, ...] = ("names/entity.", "names/relation.")
"""Keys of arrays with names of entities and relations; other names are texts of nodes."""


class EmbedDirectory(RunDirectory):
    """The directory of an embedding run.

    During training, `table/` has the tables. A finished run has `entities.npy`, `relations.npy` and
    their description `embedding.json`.
    """

    verb = "embed"
    config_type = EmbedConfig
    state_name = "table"
    checkpoint_names = ("checkpoint.json", "journal.json")

    @staticmethod
    def identity_of(graph: Graph, config: Configuration | None = None) -> Identity:
        """The identity of the data set: triples, or topology with weights, and names."""
        folders, links = _NAMES, _TOPOLOGY
        if graph.schema.has_triples:
            folders, links = ("triples/", *_NAMES), ()
        elif _WEIGHTS in graph.arrays:
            links = (*_TOPOLOGY, *_OF_WEIGHTS)
        return Identity.of(
            graph.arrays,
            lambda key: key.startswith(folders) or key in links,
            nodes=graph.num_nodes,
            undirected=graph.schema.is_undirected,
        )

    @property
    def entities(self) -> Path:
        """The file with the rows of entities of the best epoch."""
        return self.path / "entities.npy"

    @property
    def relations(self) -> Path:
        """The file with the rows of relations of the best epoch."""
        return self.path / "relations.npy"

    @property
    def description(self) -> Path:
        """The file with the description of the tables. It is written after the tables."""
        return self.path / DESCRIPTION

    @property
    def result(self) -> Path:
        """See `RunDirectory`."""
        return self.description

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the data set that the run trains on."""
        return str(self._described()["fingerprint"])

    def config(self) -> EmbedConfig:
        """The configuration of the run. Until the run has a table, it has the user's budget."""
        described = self._described()
        values = described["config"]
        budget = values["budget"]
        if not (self.begun or self.description.exists()):
            budget = described.get("asked", budget)
        return EmbedConfig.from_dict({**values, "budget": budget})

    def settle(self, chosen: BudgetConfig) -> None:
        """Saves the chosen partitions before the table is created. The user's budget is kept."""
        described = self._described()
        config = described["config"]
        requested = described.get("asked", config["budget"])
        budget = {**asdict(chosen), "memory": requested["memory"]}
        described |= {"config": {**config, "budget": budget}, "asked": requested}
        self._describe(described)

    @property
    def started_from(self) -> tuple[str | None, str | None]:
        """The run that provided initial rows, and the directory of its data set if it was moved."""
        described = self._described()
        return described.get("started_from"), described.get("started_from_data")

    def describe(self, values: dict[str, Any]) -> None:
        """Replaces `embedding.json`."""
        data = checked_json_bytes({"version": DESCRIPTION_VERSION, **values})
        with device_errors(f"`{self.description}`", "run `outercore embed --resume RUN`"):
            replace_file(self._storage, self.description, data)

    def withdraw(self) -> None:
        """Removes `embedding.json` before its tables are replaced."""
        if self.description.exists():
            with device_errors(f"`{self.description}`"):
                self.description.unlink()
                self._storage.sync_directory(self.path)

    def discard_if_unused(self) -> None:
        """See `RunDirectory`. Does nothing if the run has tables, or has trained an epoch."""
        trained = self._record.exists() and self.record()["epochs"]
        if not trained and not self.description.exists():
            super().discard_if_unused()
