"""Standard input as an input file, stored next to the data set until the import is done."""

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
"""The first bytes of files other than text. Packed text is recognised as text is."""


@dataclass(frozen=True)
class Piped:
    """Input files, one of which may hold standard input."""

    files: list[str]
    path: Path | None = None
    """The file that holds it."""

    def named(self, message: str) -> str:
        """A message that calls the file what the user knows."""
        if self.path is None:
            return message
        for path in (re.escape(str(one)) for one in (self.path.resolve(), self.path)):
            message = re.sub(rf"{path}(?=:\S)", "/dev/stdin", message)
            message = re.sub(f"(file )?`{path}`", "standard input", message)
            message = re.sub(path, "standard input", message)
        return message


@contextmanager
def piped(files: Sequence[str], out: Path, *, overwrite: bool) -> Iterator[Piped]:
    """`files` with a file for `-` or `/dev/stdin:SOURCE,TARGET`, which is gone after the block.

    Cost: as much space next to `out` as standard input has bytes.
    Errors: `InvalidError` where `-` is given twice, nothing is piped, or `out` holds a data set
    that is not to be replaced; `NoSpaceError`. Errors of the block name standard input.
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
    # The import would say so as well, but only after everything has been read.
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
    """A file with all of `stream`, with the ending of its kind."""
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
    # The same bytes have the same time, so a stopped import is resumed when they are piped again.
    os.utime(path, ns=(int.from_bytes(digest.digest(), "little"),) * 2)
    return path
