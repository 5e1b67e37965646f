"""The directory of one embedding run."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.base.fields import Configuration
from outercore.embedding.config import BudgetConfig, EmbedConfig
from outercore.embedding.data.parts import has_triples
from outercore.files.atomic import device_errors, replace_file
from outercore.files.checked_json import seal
from outercore.runs.directory import RunDirectory
from outercore.runs.identity import Identity

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.changes import Change
    from outercore.embedding.tables.store import Progress

DESCRIPTION_VERSION = 2
"""The first one had no checksums."""
_TOPOLOGY = ("edges/edge/offsets", "edges/edge/sources")
_WEIGHTS = "edges/edge/weight"
_OF_WEIGHTS = (_WEIGHTS, "edges/edge/ids")
_CHECKPOINTS = ("checkpoint.json", "journal.json")
"""What stands in the table's directory once there is something to go on from."""


class EmbedDirectory(RunDirectory):
    """Where an embedding run keeps what it makes.

    Besides `table/` what resuming needs, and at the end `entities.npy`, `relations.npy` and
    `embedding.json`, which says what they are.
    """

    verb = "embed"

    @staticmethod
    def identity_of(graph: Graph, config: Configuration | None = None) -> Identity:
        """Triples, or topology with weights, and names."""
        if has_triples(graph):
            read = _is_fact
        else:
            read = _is_weighted_link if _WEIGHTS in graph.arrays else _is_link
        edges = graph.manifest.get("edge_types", {}).get("edge", {})
        undirected = bool(edges.get("undirected"))
        return Identity.of(graph.manifest, read, nodes=graph.num_nodes, undirected=undirected)

    @property
    def state(self) -> Path:
        """The tables in training."""
        return self.path / "table"

    @property
    def begun(self) -> bool:
        """Whether a checkpoint was ever taken."""
        return any((self.state / name).exists() for name in _CHECKPOINTS)

    @property
    def entities(self) -> Path:
        """The entities' rows of the best tables."""
        return self.path / "entities.npy"

    @property
    def relations(self) -> Path:
        """The relations' rows of the best tables."""
        return self.path / "relations.npy"

    @property
    def description(self) -> Path:
        """What the tables are; written when they are there."""
        return self.path / "embedding.json"

    @property
    def finished(self) -> bool:
        """Whether the run came to its end."""
        return self.description.exists() and self.record().get("status") == "finished"

    @property
    def fingerprint(self) -> str:
        """Of the data set that the run trains on."""
        return str(self._described()["fingerprint"])

    def config(self) -> EmbedConfig:
        """The run's configuration; until there is a table, with the budget that was asked for."""
        described = self._described()
        values = described["config"]
        # Runs of releases that knew no groups have none.
        budget = {"group": 1, **values.get("budget", {})}
        if not (self.begun or self.description.exists()):
            budget = described.get("asked", budget)
        return EmbedConfig.from_dict({**values, "budget": budget})

    def settle(self, chosen: BudgetConfig) -> None:
        """Writes down the partitions that were chosen, before there is a table of them; what was
        asked for stays beside them."""
        described = self._described()
        config = described["config"]
        asked = described.get("asked", config["budget"])
        budget = {**asdict(chosen), "memory": asked["memory"]}
        described |= {"config": {**config, "budget": budget}, "asked": asked}
        self._describe(described)

    @property
    def changes(self) -> list[dict[str, Any]]:
        """What the run went on with that it did not have before, one entry for each time.

        From which epoch on, counted from 0, after so many of its triples; values before and after.
        """
        found: list[dict[str, Any]] = self._described().get("changes", [])
        return found

    def change(self, change: Change, progress: Progress) -> None:
        """Has the run's configuration other values from here on; all of them, or none."""
        entry = {"epoch": progress.epoch, "triples": progress.triples, "values": change.values}
        described = self._described()
        for place, (_, after) in change.values.items():
            group, key = place.split(".")
            described["config"][group][key] = after
        self._describe({**described, "changes": [*self.changes, entry]})

    @property
    def started_from(self) -> Path | None:
        """The run whose rows were the first ones, if any."""
        found = self._described().get("started_from")
        return None if found is None else Path(found)

    @property
    def started_from_data(self) -> Path | None:
        """Where the data set of that run was said to be, if anybody said so."""
        found = self._described().get("started_from_data")
        return None if found is None else Path(found)

    @property
    def own_score(self) -> tuple[str | None, str]:
        """Where the run's score function was, `None` for a built-in model, and its digest."""
        described = self._described()
        return described.get("score"), described.get("score_digest", "")

    def describe(self, values: dict[str, Any]) -> None:
        """Replaces `embedding.json`."""
        data = seal({"version": DESCRIPTION_VERSION, **values})
        with device_errors(f"`{self.description}`", "run `outercore embed --resume RUN`"):
            replace_file(self._storage, self.description, data)

    def withdraw(self) -> None:
        """Removes `embedding.json` before other tables are written than it is about."""
        if self.description.exists():
            with device_errors(f"`{self.description}`"):
                self.description.unlink()
                self._storage.sync_directory(self.path)

    def discard_if_unused(self) -> None:
        """See `RunDirectory`. A run that has tables, or has trained an epoch, stays whole."""
        trained = self._record.exists() and self.record()["epochs"]
        if not trained and not self.description.exists():
            super().discard_if_unused()


_NAMES = ("names/entity.", "names/relation.")
"""Names of rows; texts of nodes are something else."""


def _is_fact(key: str) -> bool:
    return key.startswith(("triples/", *_NAMES))


def _is_link(key: str) -> bool:
    return key in _TOPOLOGY or key.startswith(_NAMES)


def _is_weighted_link(key: str) -> bool:
    return _is_link(key) or key in _OF_WEIGHTS
