"""Checks that an input file is a regular file before a library opens it.

Pipes and devices are refused: they have no size, and a read may wait forever. Links are followed.
"""

from __future__ import annotations

import stat
from pathlib import Path

from outercore.errors import InvalidError, UnsupportedError
from outercore.files.atomic import missing_file


def require_file(path: Path, what: str) -> None:
    """Checks that `path` is a regular file; `what` is its name in messages.

    Errors: `NotFoundError` for a missing file; `InvalidError` for a directory; `UnsupportedError`
    for a pipe or a device.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        raise missing_file(what, path) from None
    except OSError as error:
        raise InvalidError(f"{what} `{path}`: {error.strerror}") from None
    except ValueError:
        # A path with a zero byte raises this error.
        raise InvalidError(f"{what} {str(path)!r}: no name of a file") from None
    if stat.S_ISDIR(mode):
        raise InvalidError(f"{what} `{path}`: expected a file, found a directory")
    if not stat.S_ISREG(mode):
        raise UnsupportedError(
            f"{what} `{path}`: expected a file that can be read twice, found a pipe or a device\n"
            "hint: write it to a file first"
        )


def read_small(path: Path, what: str, most: int) -> bytes:
    """Reads a file that people write by hand, such as a description of tables.

    `what` is its name in messages.

    Errors: as `require_file`; `InvalidError` for more than `most` bytes.
    """
    require_file(path, what)
    with path.open("rb") as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise InvalidError(f"{what} `{path}`: expected at most {most:,} bytes, found more")
    return data


def is_there(path: Path) -> bool:
    """Whether a path exists. False for a text that cannot be a path, such as a long name."""
    try:
        return path.exists()
    except (OSError, ValueError):
        return False
