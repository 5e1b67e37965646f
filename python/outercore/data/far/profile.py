"""What probes of memory servers have found, kept beside a data set."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from outercore import _core
from outercore.errors import CorruptError
from outercore.files.atomic import Storage, device_errors, replace_file
from outercore.files.checked_json import json_bytes

_PROFILE = "far.json"
_PROFILE_VERSION = 1


def probed_chunk(root: Path, address: str) -> int | None:
    """The best chunk for a data set and a server, ``None`` where nobody probed.

    Raises:
        CorruptError: the profile beside the data set is none.
    """
    found = _profiles(root).get(_core.far_address(address))
    if found is None:
        return None
    chunk = found.get("best_chunk") if isinstance(found, dict) else None
    if not isinstance(chunk, int) or chunk <= 0:
        raise CorruptError(
            f"far memory profile `{root / _PROFILE}`: `best_chunk` is {chunk!r}, expected bytes"
            "\nhint: run `outercore far probe` again"
        )
    return chunk


def store_profile(root: Path, address: str, profile: dict[str, Any]) -> Path:
    """Keep what a probe measured beside the device profile of ``root``; returns the file."""
    servers = _profiles(root)
    measured = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    servers[_core.far_address(address)] = {"measured": measured, **profile}
    path = root / _PROFILE
    with device_errors(f"far memory profile `{path}`"):
        replace_file(Storage(), path, json_bytes({"version": _PROFILE_VERSION, "servers": servers}))
    return path


def _profiles(root: Path) -> dict[str, Any]:
    """The profiles in a directory, by address."""
    path = root / _PROFILE
    try:
        found = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(found, dict) or not isinstance(found.get("servers"), dict):
        raise _damaged(path, "expected `servers`")
    if found.get("version") != _PROFILE_VERSION:
        raise _damaged(path, f"version {found.get('version')}, expected {_PROFILE_VERSION}")
    return found["servers"]


def _damaged(path: Path, problem: str) -> CorruptError:
    return CorruptError(
        f"far memory profile `{path}`: {problem}"
        "\nhint: remove it and run `outercore far probe` again"
    )
