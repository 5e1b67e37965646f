"""Profiles of memory servers: the results of probes, stored in the directory of a data set."""

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
    """The best chunk in bytes for the server at ``address``; ``None`` without a probe in ``root``.

    Raises:
        CorruptError: the file of profiles is damaged.
    """
    profile = _profiles(root).get(_core.far_address(address))
    if profile is None:
        return None
    chunk = profile.get("best_chunk") if isinstance(profile, dict) else None
    if not isinstance(chunk, int) or chunk <= 0:
        raise CorruptError(
            f"far memory profile `{root / _PROFILE}`: `best_chunk` is {chunk!r}, expected bytes"
            "\nhint: run `outercore far probe` again"
        )
    return chunk


def store_profile(root: Path, address: str, profile: dict[str, Any]) -> Path:
    """Store the result of a probe in ``root``, next to the device profile. Returns the file."""
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
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise _damaged(path, str(error)) from None
    if not isinstance(content, dict) or not isinstance(content.get("servers"), dict):
        raise _damaged(path, "expected `servers`")
    if content.get("version") != _PROFILE_VERSION:
        raise _damaged(path, f"version {content.get('version')}, expected {_PROFILE_VERSION}")
    return content["servers"]


def _damaged(path: Path, problem: str) -> CorruptError:
    return CorruptError(
        f"far memory profile `{path}`: {problem}"
        "\nhint: remove it and run `outercore far probe` again"
    )
