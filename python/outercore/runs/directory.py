"""The directory of one run: configuration, identity of the data set, record and checkpoints."""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from outercore.base.fields import Configuration
from outercore.base.shell import quoted
from outercore.data.directories import is_data_set, made_by
from outercore.errors import (
    CorruptError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    OutercoreError,
)
from outercore.files.atomic import Storage, device_errors, replace_file, temporary_path
from outercore.files.checked_json import json_bytes, seal, unseal
from outercore.runs.places import ERRORS, LOCK, OUTPUT

if TYPE_CHECKING:
    from typing_extensions import Self

    from outercore.data.graph import Graph


@dataclass(frozen=True)
class Identity:
    """The arrays that a job reads, and facts about the data set that it depends on.

    Other arrays may be added, changed or removed without any effect on the run.
    """

    arrays: Mapping[str, list[Any]]
    """Type, shape and checksum of each, by its name in the manifest."""
    facts: Mapping[str, Any]
    """Such as the number of nodes."""

    @classmethod
    def of(cls, arrays: Mapping[str, Any], reads: Callable[[str], bool], **facts: Any) -> Identity:
        """The identity of a data set with these arrays, read where `reads` accepts the key."""
        read = {
            key: [entry["dtype"], entry["shape"], entry["checksum"]]
            for key, entry in arrays.items()
            if reads(key)
        }
        return cls(read, facts)

    @property
    def digest(self) -> str:
        """SHA-256 of all of it."""
        values = {**self.facts, "arrays": self.arrays}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def changes(self, known: Mapping[str, Any]) -> list[str]:
        """What differs from an identity that `to_dict` has described, in words."""
        before: Mapping[str, Any] = known["arrays"]
        words = [
            f"array `{name}` was {_change(before.get(name), self.arrays.get(name))}"
            for name in sorted({*before, *self.arrays})
            if before.get(name) != self.arrays.get(name)
        ]
        return words + [
            f"`{name}` was {known['facts'].get(name)} and is {value}"
            for name, value in self.facts.items()
            if known["facts"].get(name) != value
        ]

    def to_dict(self) -> dict[str, Any]:
        """As JSON has it."""
        return {"arrays": dict(self.arrays), "facts": dict(self.facts)}


def _change(before: Any, after: Any) -> str:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"


class RunDirectory:
    """The directory of one run; each job has a subclass.

    `config.json` has the configuration and the identity of the data set, `record.json` the record,
    `tensorboard/` scalars.
    """

    verb: ClassVar[str]
    """The command that makes such runs."""
    option: ClassVar[str] = "--out"
    """The option that names another directory."""
    config_type: ClassVar[type[Configuration]]
    """The configuration of such runs."""
    state_name: ClassVar[str]
    """The directory of what resuming needs."""
    checkpoint_names: ClassVar[tuple[str, ...]]
    """One of these files is in it once there is a checkpoint."""

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
                f"hint: {run.next_step()}; or choose another `{cls.option}`"
            )
        taken = next((one for one in _entries(path) if _has_content(one)), None)
        if taken is not None:
            raise InvalidError(
                f"run `{path}`: `{taken.name}` is there already, expected an empty directory\n"
                f"hint: choose another `{cls.option}`"
            )
        identity = cls.identity_of(graph, config)
        described = {
            "data_set": str(Path(graph.root).resolve()),
            "fingerprint": identity.digest,
            "reads": identity.to_dict(),
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

        Errors: `NotFoundError` if there is none; `InvalidError` for a data set, or a run of
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
                f"hint: `outercore {verb} --resume {quoted(path)}` resumes it"
            )
        return run

    def next_step(self) -> str:
        """The command for a run that is there already."""
        return f"`{self._resume}` resumes it"

    @property
    def _resume(self) -> str:
        return f"outercore {self.verb} --resume {quoted(self.path)}"

    @staticmethod
    def identity_of(graph: Graph, config: Configuration) -> Identity:
        """The arrays and facts of a data set that a run with this configuration reads."""
        raise NotImplementedError

    @property
    def state(self) -> Path:
        """The directory of what resuming needs."""
        return self.path / self.state_name

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint."""
        return any((self.state / name).exists() for name in self.checkpoint_names)

    @property
    def result(self) -> Path:
        """A file that is there once the run has its result."""
        return self._record

    @property
    def finished(self) -> bool:
        """Whether the run has ended. The end writes a damaged record again."""
        return self.result.exists() and self.known_record().get("status") == "finished"

    @property
    def scalars(self) -> Path:
        """Where TensorBoard finds the scalars."""
        return self.path / "tensorboard"

    @property
    def data_set(self) -> Path:
        """The data set that the run trains on."""
        return Path(self._described()["data_set"])

    def require_same(self, graph: Graph) -> None:
        """Errors: `InvalidError` names an array that the run reads and that changed since."""
        described, now = self._described(), self.identity_of(graph, self.config())
        if described["fingerprint"] == now.digest:
            return
        raise InvalidError(
            f"run `{self.path}`: data set `{graph.root}` changed since the run began, so it "
            f"cannot be resumed exactly: {'; '.join(now.changes(described['reads']))}\n"
            "hint: start a new run"
        )

    def config(self) -> Any:
        """The run's configuration."""
        return self.config_type.from_dict(self._described()["config"])

    def change(self, values: Mapping[str, Sequence[Any]], **progress: int) -> None:
        """Gives the run's configuration other values from here on; all of them, or none.

        `values` has those before and after by path, such as `{"optimiser.epochs": [4, 8]}`;
        `progress` says when.
        """
        described = self._described()
        for path, (_, after) in values.items():
            group, _, key = path.partition(".")
            described["config"][group][key] = after
        changes = [*self.changes, {**progress, "values": dict(values)}]
        self._describe({**described, "changes": changes})

    @property
    def changes(self) -> list[dict[str, Any]]:
        """What `change` was called with, in order."""
        return list(self._described().get("changes", []))

    def code(self, name: str) -> tuple[str | None, str]:
        """The place of the custom code `name`, `None` without any, and the digest of its text."""
        described = self._described()
        return described.get(name), described.get(f"{name}_digest", "")

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
                then = f"resume with `{self._resume}`"
            first = str(error).partition("\nhint: ")[0]
            raise NoSpaceError(f"{first}\nhint: free some space, then {then}") from error

    def write_record(self, record: dict[str, Any]) -> None:
        """Replaces `record.json`."""
        with device_errors(f"run record `{self._record}`", f"resume with `{self._resume}`"):
            replace_file(self._storage, self._record, json_bytes(record))

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
                f"hint: `{self._resume}` writes it again"
            ) from None
        return found

    def known_record(self) -> dict[str, Any]:
        """The record; empty if it is missing or damaged."""
        try:
            return self.record()
        except (NotFoundError, CorruptError):
            return {}

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
        # Other files in the directory are not ours.
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
            return unseal(self._config.read_bytes(), f"`{self._config}`")
        except CorruptError as error:
            raise CorruptError(
                f"{error}\nhint: restore the file from a copy, or begin a new run"
            ) from None

    def _describe(self, described: dict[str, Any]) -> None:
        """Replaces `config.json`."""
        with device_errors(f"`{self._config}`"):
            replace_file(self._storage, self._config, seal(described))


def _entries(path: Path) -> list[Path]:
    """Entries of a directory without leftovers of a crash at creation, and output of a process."""
    ours = (LOCK, temporary_path(path / "config.json").name, OUTPUT, ERRORS)
    return [one for one in path.iterdir() if one.name not in ours] if path.is_dir() else []


def _has_content(path: Path) -> bool:
    """Whether something is lost when it is written over or emptied."""
    return any(path.iterdir()) if path.is_dir() else path.exists()
