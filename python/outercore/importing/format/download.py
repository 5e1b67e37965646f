"""Imports of libraries that download data sets, and errors for failed downloads."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outercore.errors import DeviceError, InvalidError, UnsupportedError

CACHE = Path("~/.cache/outercore")
"""Directory of downloads, with a folder for each library."""


def library(module: str, package: str, install: str) -> Any:
    """Imports `module` of the optional `package`; `install` is the advice for a missing package.

    Errors: `UnsupportedError` if the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise UnsupportedError(f"package `{package}` is not installed\nhint: {install}") from error


@contextmanager
def download_errors(what: str) -> Iterator[None]:
    """Context that turns errors of a download of `what` into Outercore's errors.

    Errors: `DeviceError` if the download fails; `InvalidError` if the library rejects the data.
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
