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
from outercore.files.checked_json import (
    checked_json_bytes,
    json_bytes,
    parse_checked_json,
    read_json,
)
from outercore.runs.places import ERRORS, LOCK, OUTPUT
from outercore.runs.record import FILE

if TYPE_CHECKING:
    from typing_extensions import Self

    from outercore.data.graph import Graph


@dataclass(frozen=True)
class Identity:
    """Identity of a data set for a job: the arrays that the job reads, and facts that it needs.

    Other arrays may be added, changed or removed without an effect on the run.
    """

    arrays: Mapping[str, list[Any]]
    """Type, shape and checksum of each array, by its key in the manifest."""
    facts: Mapping[str, Any]
    """Further facts, such as the number of nodes."""

    @classmethod
    def of(cls, arrays: Mapping[str, Any], reads: Callable[[str], bool], **facts: Any) -> Identity:
        """Identity from the `arrays` of a data set whose keys `reads` accepts, and from facts."""
        read = {
            key: [entry["dtype"], entry["shape"], entry["checksum"]]
            for key, entry in arrays.items()
            if reads(key)
        }
        return cls(read, facts)

    @property
    def digest(self) -> str:
        """SHA-256 of arrays and facts."""
        values = {**self.facts, "arrays": self.arrays}
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()

    def changes(self, known: Mapping[str, Any]) -> list[str]:
        """Differences to an earlier identity, as text. `known` is the result of its `to_dict`."""
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
        """The identity as plain JSON values."""
        return {"arrays": dict(self.arrays), "facts": dict(self.facts)}


def _change(before: Any, after: Any) -> str:
    if before is None:
        return "added"
    return "removed" if after is None else "changed"


class RunDirectory:
    """The directory of one run. Each job has a subclass.

    `config.json` has the configuration and the identity of the data set, `record.json` has the
    record, and `tensorboard/` has scalars.
    """

    verb: ClassVar[str]
    """The command of the job, such as `train`."""
    option: ClassVar[str] = "--out"
    """The command-line option for the directory."""
    config_type: ClassVar[type[Configuration]]
    """The type of the job's configuration."""
    state_name: ClassVar[str]
    """Name of the subdirectory for checkpoints."""
    checkpoint_names: ClassVar[tuple[str, ...]]
    """File names in this subdirectory. One of them exists as soon as there is a checkpoint."""

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
        """Creates the directory of a new run. `more` are further entries of its `config.json`.

        Errors: `InvalidError` if `path` is a run already, or is not empty.
        """
        run = cls(path, storage)
        if run._config.exists():
            raise InvalidError(
                f"run `{path}` exists already\n"
                f"hint: {run.next_step()}; or choose another `{cls.option}`"
            )
        taken = next((entry for entry in _entries(path) if _has_content(entry)), None)
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
        """Opens the directory of an existing run.

        Errors: `NotFoundError` if `path` is not a run; `InvalidError` if it is a data set, or a run
        of another command.
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
        """Hint for a run that exists already: the command that resumes it."""
        return f"`{self._resume}` resumes it"

    @property
    def _resume(self) -> str:
        return f"outercore {self.verb} --resume {quoted(self.path)}"

    @staticmethod
    def identity_of(graph: Graph, config: Configuration) -> Identity:
        """The identity of a data set for a run with this configuration."""
        raise NotImplementedError

    @property
    def state(self) -> Path:
        """The directory of the checkpoints."""
        return self.path / self.state_name

    @property
    def begun(self) -> bool:
        """Whether there is a checkpoint."""
        return any((self.state / name).exists() for name in self.checkpoint_names)

    @property
    def result(self) -> Path:
        """A file that exists as soon as the run has a result."""
        return self._record

    @property
    def finished(self) -> bool:
        """Whether the run has finished. With a damaged record it counts as unfinished."""
        return self.result.exists() and self.known_record().get("status") == "finished"

    @property
    def scalars(self) -> Path:
        """The directory of the scalars for TensorBoard."""
        return self.path / "tensorboard"

    @property
    def data_set(self) -> Path:
        """The data set that the run trains on."""
        return Path(self._described()["data_set"])

    def require_same(self, graph: Graph) -> None:
        """Checks that the data set has not changed since the run began.

        Errors: `InvalidError` with a list of the changes.
        """
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
        """Changes the configuration of the run atomically, for the rest of the run.

        `values` maps a path to old and new value, such as `{"optimiser.epochs": [4, 8]}`.
        `progress` is the progress of the run at the change.
        """
        described = self._described()
        for path, (_, after) in values.items():
            group, _, key = path.partition(".")
            described["config"][group][key] = after
        changes = [*self.changes, {**progress, "values": dict(values)}]
        self._describe({**described, "changes": changes})

    @property
    def changes(self) -> list[dict[str, Any]]:
        """The changes of the configuration by `change`, in the order of the calls."""
        return list(self._described().get("changes", []))

    def code(self, name: str) -> tuple[str | None, str]:
        """Place and digest of the custom code `name`. The place is `None` without custom code."""
        described = self._described()
        return described.get(name), described.get(f"{name}_digest", "")

    @contextlib.contextmanager
    def training(self, *, new: bool) -> Iterator[None]:
        """Context in which the run is created or trained.

        If a new run fails before its first checkpoint, its directory is removed. The error for a
        full device gets a hint that tells the user how to continue.
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
            first = error.message
            raise NoSpaceError(f"{first}\nhint: free some space, then {then}") from error

    def write_record(self, record: dict[str, Any]) -> None:
        """Replaces `record.json`."""
        with device_errors(f"run record `{self._record}`", f"resume with `{self._resume}`"):
            replace_file(self._storage, self._record, json_bytes(record))

    def record(self) -> dict[str, Any]:
        """The record of the run.

        Errors: `NotFoundError` before the end of the first epoch; `CorruptError` for a damaged
        record.
        """
        if not self._record.exists():
            raise NotFoundError(f"run `{self.path}`: no `record.json` yet")
        return read_json(self._record, "run record", hint=f"`{self._resume}` writes it again")

    def known_record(self) -> dict[str, Any]:
        """The record; empty if it is missing or damaged."""
        try:
            return self.record()
        except (NotFoundError, CorruptError):
            return {}

    def discard_if_unused(self) -> None:
        """Removes the files of the run if it never took a checkpoint.

        Then a run that failed early can be started again in the same directory. Directories that
        existed before `create`, and their contents, stay.
        """
        if self.begun:
            return
        for directory in self._own:
            self._storage.remove_tree(directory)
        for file in (self._config, self._record):
            file.unlink(missing_ok=True)
        # The directory stays if it has files of the user.
        with contextlib.suppress(OSError):
            self.path.rmdir()

    @property
    def _directories(self) -> tuple[Path, ...]:
        """Directories with files of the run before its first checkpoint."""
        return (self.state, self.scalars)

    @property
    def _config(self) -> Path:
        return self.path / "config.json"

    @property
    def _record(self) -> Path:
        return self.path / FILE

    def _described(self) -> dict[str, Any]:
        try:
            return parse_checked_json(self._config.read_bytes(), f"`{self._config}`")
        except CorruptError as error:
            raise CorruptError(
                f"{error}\nhint: restore the file from a copy, or begin a new run"
            ) from None

    def _describe(self, described: dict[str, Any]) -> None:
        with device_errors(f"`{self._config}`"):
            replace_file(self._storage, self._config, checked_json_bytes(described))


def _entries(path: Path) -> list[Path]:
    """Entries of a directory, except leftovers of a crash in `create` and output of a process."""
    ours = (LOCK, temporary_path(path / "config.json").name, OUTPUT, ERRORS)
    return [entry for entry in path.iterdir() if entry.name not in ours] if path.is_dir() else []


def _has_content(path: Path) -> bool:
    return any(path.iterdir()) if path.is_dir() else path.exists()
