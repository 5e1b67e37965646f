"""The file of the table: where it is, whose measurements it holds."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from outercore.errors import CorruptError, DeviceError, OutercoreError
from outercore.runs import record as records
from outercore.scheduling.decide import Table
from outercore.storage import Storage, device_errors, replace_file


def table_path() -> Path:
    """Where the table of this user is: `outercore/controller.json` in the XDG data directory."""
    home = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(home) / "outercore" / "controller.json"


def load_table(path: Path) -> tuple[Table, dict[str, Any] | None]:
    """The table in a file, and the machine that it was measured on; empty where there is none.

    Errors: `CorruptError`, `VersionError` for anything that is no table.
    """
    try:
        value = json.loads(path.read_text())
        return Table.from_dict(value), value.get("machine")
    except FileNotFoundError:
        return Table(), None
    except json.JSONDecodeError as error:
        raise CorruptError(f"table `{path}`: {error}") from None
    except OutercoreError as error:
        raise type(error)(str(error).replace("table:", f"table `{path}`:", 1)) from None
    except OSError as error:
        raise DeviceError(f"table `{path}`: {error.strerror}") from None


def store_table(path: Path, table: Table) -> None:
    """Writes a table that was measured on this machine, whole or not at all.

    Errors: `NoSpaceError`, `DeviceError` name the file.
    """
    value = {**table.to_dict(), "machine": _machine()}
    with device_errors(f"table `{path}`"):
        text = json.dumps(value, indent=1, allow_nan=False) + "\n"
        replace_file(Storage(), path, text.encode())


def same_machine(machine: dict[str, Any] | None) -> bool:
    """Whether measurements of `machine` hold for this one."""
    mine = _machine()
    return machine is None or {name: machine.get(name) for name in mine} == mine


def _machine() -> dict[str, Any]:
    described = records.machine()
    return {"processor": described["processor"], "cores": os.cpu_count()}
