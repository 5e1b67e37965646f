"""What became of each job, and the file that says so."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from outercore.errors import CorruptError
from outercore.runs import record as records
from outercore.scheduling.request import Request
from outercore.storage import Storage, device_errors, replace_file

STATE = "jobs.json"
"""In the directory of the jobs: what became of each."""

_VERSION = 1

Status = Literal["waiting", "running", "done", "failed", "refused", "stopped"]


@dataclass
class JobState:
    """What is known of a job; the whole list is the state file."""

    name: str
    words: list[str]
    status: Status = "waiting"
    threads: int | None = None
    cores: list[int] = field(default_factory=list)
    memory: int | None = None
    """The budget of the run."""
    far_ratio: float | None = None
    estimate: float | None = None
    """Seconds that the table lets expect; `None` where it knows nothing."""
    seconds: float | None = None
    """From its start to its end."""
    peak_memory: int | None = None
    code: int | None = None
    error: str | None = None
    record: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether running the list again leaves it alone."""
        return self.status == "done"


def load_states(directory: Path) -> list[JobState]:
    """What became of the jobs in a directory, nothing where none ran there.

    Errors: `CorruptError` for a file that is no state.
    """
    path = directory / STATE
    try:
        value = json.loads(path.read_text())
        if value["version"] != _VERSION:
            raise CorruptError(f"`{path}`: version {value['version']}, expected {_VERSION}")
        return [JobState(**state) for state in value["jobs"]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptError(
            f"`{path}`: {type(error).__name__}: {error}\nhint: choose another `--out`"
        ) from None


def store_states(directory: Path, states: Sequence[JobState]) -> None:
    """Writes the state file, whole or not at all.

    Errors: `NoSpaceError`, `DeviceError` name the file.
    """
    storage = Storage()
    with device_errors(f"`{directory / STATE}`"):
        storage.make_directory(directory)
        value = {"version": _VERSION, "jobs": [asdict(state) for state in states]}
        text = json.dumps(value, indent=1) + "\n"
        replace_file(storage, directory / STATE, text.encode())


def is_done(state: JobState | None, request: Request) -> bool:
    """Whether the request was carried out before, as it is, and its record is there."""
    if state is None or state.status != "done" or state.words != list(request.words):
        return False
    return state.record is not None and (Path(state.record) / records.FILE).exists()


def peak_of(state: JobState) -> int | None:
    """Bytes that the job took at most, by its record; `None` where it says nothing."""
    try:
        record = json.loads((Path(state.record or "") / records.FILE).read_text())
        return record["peak_memory_bytes"]
    except (OSError, ValueError, KeyError):
        return None
