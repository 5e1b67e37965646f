"""Stores standard input in a file next to the data set, until the import is complete."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO

from outercore.base.shell import quoted
from outercore.data.directories import is_data_set
from outercore.errors import InvalidError, OutercoreError
from outercore.files.atomic import device_errors, require_directory_of

_CHUNK = 1 << 20
_KINDS = {
    b"PAR1": ".parquet",
    b"\x93NUMPY": ".npy",
    b"PK\x03\x04": ".npz",
    b"%%MatrixMarket": ".mtx",
}
"""First bytes and endings of files other than text. Compressed text counts as text."""


@dataclass(frozen=True)
class Piped:
    """Input files, one of which may hold standard input."""

    files: list[str]
    path: Path | None = None
    """The file with the content of standard input, if any."""

    def named(self, message: str) -> str:
        """The message, with "standard input" instead of the path of its file."""
        if self.path is None:
            return message
        for path in (re.escape(str(one)) for one in (self.path.resolve(), self.path)):
            message = re.sub(rf"{path}(?=:\S)", "/dev/stdin", message)
            message = re.sub(f"(file )?`{path}`", "standard input", message)
            message = re.sub(path, "standard input", message)
        return message


@contextmanager
def piped(files: Sequence[str], out: Path, *, overwrite: bool) -> Iterator[Piped]:
    """Context that replaces `-` or `/dev/stdin:SOURCE,TARGET` in `files` by a temporary file.

    The end of the block removes the file.

    Cost: disk space next to `out` for all bytes of standard input.
    Errors: `InvalidError` if `-` is given twice, if standard input is a terminal, or if `out` holds
    a data set without `overwrite`; `NoSpaceError`. Errors of the block name standard input.
    """
    given = [text for text in files if text.partition(":")[0] in ("-", "/dev/stdin")]
    if not given:
        yield Piped([*files])
        return
    if len(given) > 1:
        raise InvalidError("`-`: standard input is read once, expected one `-`")
    if sys.stdin is None or sys.stdin.isatty():
        raise InvalidError(
            "`-`: expected edges by standard input\nhint: `zcat edges.gz | outercore import - "
            f"--out {quoted(out)}`"
        )
    require_directory_of(out)
    # The import would raise this error, too, but only after all input has been read.
    if is_data_set(out) and not overwrite:
        raise InvalidError(
            f"`{out}` holds a data set already\nhint: choose another directory, or pass "
            "`--overwrite` to replace it"
        )
    path = _saved(sys.stdin.buffer, out.parent / f".{out.name}.stdin")
    columns = "".join(given[0].partition(":")[1:])
    found = Piped([f"{path}{columns}" if text in given else text for text in files], path)
    try:
        yield found
    except OutercoreError as error:
        error.replace(lambda part: found.named(part) if isinstance(part, str) else part)
        raise
    finally:
        with suppress(OSError):
            path.unlink()


def _saved(stream: BinaryIO, path: Path) -> Path:
    """Writes `stream` to the file `path`, with the ending of its format added."""
    start = stream.read(_CHUNK)
    kind = next((kind for sign, kind in _KINDS.items() if start.startswith(sign)), ".txt")
    path = path.with_name(path.name + kind)
    digest = blake2b(digest_size=7)
    try:
        with device_errors(f"`{path}`", "run the same command again"), path.open("wb") as file:
            chunk = start
            while chunk:
                digest.update(chunk)
                file.write(chunk)
                chunk = stream.read(_CHUNK)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise
    # The file's time is a digest of its bytes. So a stopped import resumes with the same input.
    os.utime(path, ns=(int.from_bytes(digest.digest(), "little"),) * 2)
    return path
