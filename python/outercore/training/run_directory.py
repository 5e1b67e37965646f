"""The directory of one run: configuration, record, checkpoints, scalars and the model."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from outercore.config.fields import Configuration
from outercore.errors import (
    CorruptError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    OutercoreError,
)
from outercore.many_graphs import ADDED, FIRST, PREFIX, REMOVED, SPLITS
from outercore.run_places import LOCK
from outercore.sealed import seal, unseal
from outercore.storage import Storage, device_errors, replace_file
from outercore.training.config import SamplingConfig, TrainConfig

if TYPE_CHECKING:
    from typing_extensions import Self

    from outercore.graph import Graph


class AnyRunDirectory:
    """What the directories of all training runs have in common.

    `config.json` what the run is a function of, `record.json` what happened, `tensorboard/`
    scalars.
    """

    verb: ClassVar[str]
    """Of the command that makes such runs."""

    def __init__(self, path: Path, storage: Storage | None = None) -> None:
        self.path = path
        self._storage = storage or Storage()
        self._own: list[Path] = []

    @classmethod
    def create(
        cls,
        path: Path,
        graph: Graph,
        config: Configuration,
        storage: Storage | None = None,
        more: Mapping[str, str] | None = None,
    ) -> Self:
        """Makes a new run; `more` is remembered with the configuration.

        Errors: `InvalidError` where `path` already is one, or has anything else in it.
        """
        run = cls(path, storage)
        if run._config.exists():
            raise InvalidError(
                f"run `{path}` exists already\n"
                f"hint: `outercore {cls.verb} --resume {path}` resumes it; or choose another "
                "`--out`"
            )
        taken = next((one for one in _entries(path) if _has_content(one)), None)
        if taken is not None:
            raise InvalidError(
                f"run `{path}`: `{taken.name}` is there already, expected an empty directory\n"
                "hint: choose another `--out`"
            )
        described = {
            "data_set": str(Path(graph.root).resolve()),
            "fingerprint": cls.identity_of(graph, config),
            "config": config.to_dict(),
            **(more or {}),
        }
        run._own = [directory for directory in run._directories if not directory.exists()]
        with run.training(new=True), device_errors(f"run `{path}`"):
            run._storage.make_directory(path)
            run._storage.make_directory(run.state)
            run._describe(described)
        return run

    @classmethod
    def open(cls, path: Path, storage: Storage | None = None) -> Self:
        """An existing run.

        Errors: `NotFoundError` where `path` is none; `InvalidError` for a data set, or a run of
        another command.
        """
        run = cls(path, storage)
        wanted = f"hint: give the directory that `outercore {cls.verb}` printed"
        if not path.exists():
            raise NotFoundError(f"run `{path}`: no such directory\n{wanted}")
        if not run._config.exists():
            if is_data_set(path):
                raise InvalidError(f"run `{path}`: this is a data set\n{wanted}")
            raise NotFoundError(f"run `{path}`: no `config.json` there\n{wanted}")
        verb = made_by(path)
        if verb not in (None, cls.verb):
            raise InvalidError(
                f"run `{path}`: this is a run of `outercore {verb}`, not of `{cls.verb}`\n"
                f"hint: `outercore {verb} --resume {path}` goes on with it"
            )
        return run

    @staticmethod
    def identity_of(graph: Graph, config: Configuration) -> str:
        """A digest of the arrays that a run reads; others may come and go."""
        raise NotImplementedError

    @property
    def state(self) -> Path:
        """Where what resuming needs is."""
        raise NotImplementedError

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        raise NotImplementedError

    @property
    def scalars(self) -> Path:
        """Where TensorBoard finds the scalars."""
        return self.path / "tensorboard"

    @property
    def data_set(self) -> Path:
        """The data set that the run trains on."""
        return Path(self._described()["data_set"])

    def require_same(self, graph: Graph) -> None:
        """Raises `InvalidError` where an array that the run reads changed since it began."""
        known = self._described()["fingerprint"]
        # Older versions took a digest of the whole manifest.
        if known not in (self.identity_of(graph, self.config()), fingerprint(graph.manifest)):
            raise InvalidError(
                f"run `{self.path}`: data set `{graph.root}` changed since the run began, so it "
                "cannot be resumed exactly\nhint: start a new run"
            )

    def config(self) -> Any:
        """The run's configuration."""
        raise NotImplementedError

    @contextlib.contextmanager
    def training(self, *, new: bool) -> Iterator[None]:
        """Within the block the run is made or trained.

        A new one that fails without a checkpoint is removed. The error of a full device says what
        works once there is space.
        """
        try:
            yield
        except OutercoreError as error:
            if new:
                self.discard_if_unused()
            if not isinstance(error, NoSpaceError):
                raise
            then = "run the same command again"
            if self._config.exists():
                then = f"resume with `outercore {self.verb} --resume {self.path}`"
            first = str(error).partition("\nhint: ")[0]
            raise NoSpaceError(f"{first}\nhint: free some space, then {then}") from error

    def write_record(self, record: dict[str, Any]) -> None:
        """Replaces `record.json`."""
        with device_errors(
            f"run record `{self._record}`", f"go on with `outercore {self.verb} --resume RUN`"
        ):
            replace_file(self._storage, self._record, _to_json(record))

    def record(self) -> dict[str, Any]:
        """The record as it was last written.

        Errors: `NotFoundError` before the first epoch has ended.
        """
        if not self._record.exists():
            raise NotFoundError(f"run `{self.path}`: no `record.json` yet")
        try:
            found: dict[str, Any] = json.loads(self._record.read_bytes())
        except ValueError as error:
            raise CorruptError(
                f"run record `{self._record}`: expected JSON, found: {error}\n"
                f"hint: `outercore {self.verb} --resume {self.path}` writes it again"
            ) from None
        return found

    def discard_if_unused(self) -> None:
        """Removes what the run made since `create` where no checkpoint was ever taken.

        A run that failed at once can then be started again under the same name. Directories that
        were there before stay with all that is in them.
        """
        if self.begun:
            return
        for directory in self._own:
            self._storage.remove_tree(directory)
        for file in (self._config, self._record):
            file.unlink(missing_ok=True)
        # What else may lie there is not ours.
        with contextlib.suppress(OSError):
            self.path.rmdir()

    @property
    def _directories(self) -> tuple[Path, ...]:
        """Those that a run fills before its first checkpoint."""
        return (self.state, self.scalars)

    @property
    def _config(self) -> Path:
        return self.path / "config.json"

    @property
    def _record(self) -> Path:
        return self.path / "record.json"

    def _described(self) -> dict[str, Any]:
        try:
            # Older versions wrote no checksum.
            return unseal(self._config.read_bytes(), f"`{self._config}`", since=1)
        except CorruptError as error:
            raise CorruptError(
                f"{error}\nhint: restore the file from a copy, or begin a new run"
            ) from None

    def _describe(self, described: dict[str, Any]) -> None:
        """Replaces `config.json`."""
        with device_errors(f"`{self._config}`"):
            replace_file(self._storage, self._config, seal(described))


class RunDirectory(AnyRunDirectory):
    """Where a run of a network keeps what it makes.

    Besides `checkpoints/`, `model/` the best model, `scratch/` removed when the run ends.
    """

    verb = "train"

    @property
    def checkpoints(self) -> Path:
        """Where the checkpoints are."""
        return self.path / "checkpoints"

    @property
    def state(self) -> Path:
        """The checkpoints."""
        return self.checkpoints

    @property
    def begun(self) -> bool:
        """Whether a checkpoint was ever taken."""
        return (self.checkpoints / "latest").exists()

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

    def config(self) -> TrainConfig:
        """The run's configuration."""
        return TrainConfig.from_dict(self._described()["config"])

    @property
    def finished(self) -> bool:
        """Whether the run came to its end, with its model and the scores."""
        if not (self._record.exists() and (self.model / "model.json").exists()):
            return False
        try:
            return bool(self.record().get("status") == "finished")
        except CorruptError:
            # It is written again at the end.
            return False

    @staticmethod
    def identity_of(graph: Graph, config: Configuration) -> str:
        """A digest of the topology, and of the features, labels and splits that `config` names."""
        assert isinstance(config, TrainConfig)
        if config.of_graphs:
            return fingerprint(_read_of_graphs(graph.manifest, config.sampling))
        return fingerprint(_read_by(graph.manifest, config.sampling))

    def remove_scratch(self) -> None:
        """Deletes layer states, also those that a killed run left."""
        with device_errors(f"layer states `{self.scratch}`"):
            self._storage.remove_tree(self.scratch)

    @property
    def _directories(self) -> tuple[Path, ...]:
        return (*super()._directories, self.scratch, self.links)


def _read_by(manifest: dict[str, Any], sampling: SamplingConfig) -> dict[str, Any]:
    """What a training reads of a data set: counts, and the checksums of its arrays."""
    roles = manifest.get("roles", {})
    splits = roles.get("splits", {})
    keys = ["edges/edge/offsets", "edges/edge/sources"]
    for name, role in ((sampling.features, "features"), (sampling.labels, "labels")):
        of_role = roles.get(role) if name in ("x", "y") else None
        keys.append(of_role or f"nodes/node/{name}")
    keys += [
        splits[name] for name in (sampling.train, sampling.valid, sampling.test) if name in splits
    ]
    return {
        "nodes": manifest["node_types"]["node"]["count"],
        "undirected": bool(manifest["edge_types"]["edge"].get("undirected")),
        "classes": roles.get("classes"),
        "arrays": _checksums(manifest, keys),
    }


def _read_of_graphs(manifest: dict[str, Any], sampling: SamplingConfig) -> dict[str, Any]:
    """What a training on whole graphs reads of a data set, likewise."""
    keys = ["edges/edge/offsets", "edges/edge/sources", f"nodes/node/{sampling.features}"]
    keys += [FIRST, ADDED, REMOVED, PREFIX + sampling.labels]
    keys += [SPLITS + name for name in (sampling.train, sampling.valid, sampling.test)]
    return {
        "nodes": manifest["node_types"]["node"]["count"],
        "arrays": _checksums(manifest, keys),
    }


def _checksums(manifest: dict[str, Any], keys: list[str]) -> dict[str, list[Any]]:
    return {
        key: [entry["dtype"], entry["shape"], entry["checksum"]]
        for key, entry in manifest["arrays"].items()
        if key in keys
    }


def is_data_set(path: Path) -> bool:
    """Whether `path` is the directory of a data set."""
    return (path / "graph.json").exists()


def made_by(path: Path) -> str | None:
    """The command whose run is in `path`, `train` or `embed`; `None` where none can be told."""
    try:
        groups = json.loads((path / "config.json").read_text())["config"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    own = {"sampling": "train", "negatives": "embed"}
    return next((verb for group, verb in own.items() if group in groups), None)


def _entries(path: Path) -> list[Path]:
    """What is in the directory `path`, if there is one, beside what a crash left of a run that was
    just made."""
    ours = (LOCK, ".config.json.tmp")
    return [one for one in path.iterdir() if one.name not in ours] if path.is_dir() else []


def _has_content(path: Path) -> bool:
    """Whether something is lost when it is written over or emptied."""
    return any(path.iterdir()) if path.is_dir() else path.exists()


def fingerprint(manifest: dict[str, Any]) -> str:
    """A digest of all that the manifest says, checksums of the arrays included."""
    text = json.dumps(manifest, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def _to_json(value: dict[str, Any]) -> bytes:
    return (json.dumps(value, indent=1, allow_nan=False) + "\n").encode()
