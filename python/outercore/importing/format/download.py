"""Libraries that know where data sets are, and what to say where one cannot be fetched."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
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


@contextmanager
def download_errors(what: str) -> Iterator[None]:
    """Turns a failed download of `what` into an error that says so.

    Errors: `DeviceError` where it cannot be fetched; `InvalidError` where the library refuses it.
    """
    try:
        yield
    except OSError as error:
        raise DeviceError(
            f"{what}: cannot be downloaded: {error}\n"
            "hint: fetch its files elsewhere and import those"
        ) from error
    except (ValueError, AssertionError, TypeError) as error:
        raise InvalidError(f"{what}: {error}") from error
