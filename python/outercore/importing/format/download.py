"""Libraries that know where data sets are, and what to say where one cannot be fetched."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from outercore.errors import DeviceError, InvalidError, UnsupportedError

CACHE = Path("~/.cache/outercore")
"""Where downloads are kept, a folder for each library."""


def library(module: str, package: str, install: str) -> Any:
    """A module of an optional package.

    Errors: `UnsupportedError` where the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"package `{package}` is not installed\nhint: {install}") from error


class reaching:  # noqa: N801 - reads as the statement `with reaching(...)`
    """Turns a failed download into an error that says so."""

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, OSError):
            raise DeviceError(
                f"{self._what}: cannot be downloaded: {error}\n"
                "hint: fetch its files elsewhere and import those"
            ) from error
        if isinstance(error, (ValueError, AssertionError, TypeError)):
            raise InvalidError(f"{self._what}: {error}") from error
