"""The JSON files of `tune` and `jobs`: checked when read, replaced atomically when written."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeVar

from outercore.analytics.scheduling.decide import Table
from outercore.base.fields import build
from outercore.errors import CorruptError, DeviceError, InvalidError, VersionError
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import json_bytes, read_json

_Content = TypeVar("_Content")
_VERSION = 1


def table_path() -> Path:
    """Path of the user's table: `outercore/controller.json` in the XDG data directory."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "outercore" / "controller.json"


def load_table(path: Path) -> Table:
    """Reads the table from a file; empty if the file does not exist. Errors: as `load`."""
    return load(Table, path, "measure again with `outercore tune`")


def load(kind: type[_Content], path: Path, hint: str) -> _Content:
    """Reads a dataclass of type `kind` from a file; an empty one if the file does not exist.

    `hint` is advice for the user if the content is invalid.

    Errors: `CorruptError`, `VersionError`, `DeviceError`; they name the file.
    """
    try:
        value = read_json(path, "file", hint=hint)
    except FileNotFoundError:
        return kind()
    except OSError as error:
        raise DeviceError(f"`{path}`: {error.strerror}") from None
    if not isinstance(value, dict) or "version" not in value:
        raise CorruptError(f"`{path}`: expected an object with a `version`\nhint: {hint}")
    version = value.pop("version")
    if version != _VERSION:
        raise VersionError(
            f"`{path}`: version {version}, expected {_VERSION}\nhint: update Outercore, or {hint}"
        )
    try:
        return build(kind, value, "")
    except InvalidError as error:
        reason = error.message
        raise CorruptError(f"`{path}`: {reason}\nhint: {hint}") from None


def store(path: Path, content: Any) -> None:
    """Writes a dataclass in the form that `load` reads.

    Errors: `NoSpaceError`, `DeviceError`; they name the file.
    """
    storage = Storage()
    with device_errors(f"`{path}`"):
        storage.make_directory(path.parent)
        value = {"version": _VERSION, **asdict(content)}
        replace_file(storage, path, json_bytes(value))
