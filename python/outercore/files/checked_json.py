"""Reads and writes JSON files that contain a checksum, which reveals damaged bytes."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from outercore.errors import CorruptError, VersionError

CHECKSUM = "checksum"
"""The key whose value is the checksum of all other values."""

_PIECE = 1 << 20


def checked_json_bytes(values: dict[str, Any]) -> bytes:
    """The bytes of a JSON file with `values` and their checksum.

    Example:
        >>> parse_checked_json(checked_json_bytes({"epoch": 3}), "`state.json`")
        {'epoch': 3}
    """
    return json_bytes({**values, CHECKSUM: _checksum(values)})


def json_bytes(values: Any) -> bytes:
    """The bytes of a JSON file. Errors: `ValueError` for a number that is not finite."""
    return (json.dumps(values, indent=1, allow_nan=False) + "\n").encode()


def parse_json(data: bytes) -> Any:
    """Parses the bytes of a JSON file.

    Errors: `ValueError` if `data` is not JSON, or is nested too deeply.
    """
    try:
        return json.loads(data)
    except RecursionError:
        raise ValueError("lists or objects in each other, too deep to be read") from None


def read_json(path: Path, what: str, *, hint: str) -> Any:
    """Reads the value of a JSON file without a checksum.

    `what` is the name of the file in errors, `hint` the advice for a damaged file.

    Errors: `CorruptError` if the file is not JSON.
    """
    try:
        return parse_json(path.read_bytes())
    except ValueError as error:
        raise CorruptError(
            f"{what} `{path}`: expected JSON, found: {error}\nhint: {hint}"
        ) from None


def parse_checked_json(data: bytes, what: str) -> dict[str, Any]:
    """Parses the result of `checked_json_bytes`; `what` is the name of the file in errors.

    Errors: `CorruptError` for damaged bytes.
    """
    try:
        values = parse_json(data)
    except ValueError as error:
        raise CorruptError(f"{what}: expected JSON, found: {error}") from None
    if not isinstance(values, dict):
        raise CorruptError(f"{what}: expected a JSON object")
    expected = values.pop(CHECKSUM, None)
    found = _checksum(values)
    if found != expected:
        raise CorruptError(f"{what}: found checksum {found}, expected {expected}")
    return values


def read_checked_json(
    path: Path, version: int, needed: Iterable[str] = (), *, hint: str, what: str = ""
) -> dict[str, Any]:
    """Reads the values of a file with the bytes of `checked_json_bytes`.

    `what` is the name of the file in errors, `hint` the advice for a damaged file.

    Errors: `CorruptError` for a damaged file, or if a `needed` key is missing; `VersionError` if
    the file does not have this `version`.
    """
    what = what or f"`{path}`"
    try:
        values = parse_checked_json(path.read_bytes(), what)
    except CorruptError as error:
        raise CorruptError(f"{error}\nhint: {hint}") from None
    except OSError as error:
        raise CorruptError(f"{what}: {error}\nhint: {hint}") from error
    if values.get("version") != version:
        raise VersionError(
            f"{what}: expected version {version}, found {values.get('version')}\n"
            "hint: use the version of Outercore that wrote it"
        )
    for key in needed:
        if key not in values:
            raise CorruptError(f"{what}: `{key}` is missing\nhint: {hint}")
    return values


def checksum_of(data: bytes | memoryview) -> str:
    """The CRC-32 of bytes, as text."""
    return f"crc32:{zlib.crc32(data):08x}"


def checksum_of_file(path: Path) -> str:
    """The checksum of a whole file. Cost: one sequential read."""
    total = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            total = zlib.crc32(piece, total)
    return f"crc32:{total:08x}"


def _checksum(values: dict[str, Any]) -> str:
    # The checksum covers the values, not the bytes of the file, because the file includes it.
    return checksum_of(json.dumps(values, sort_keys=True).encode())
