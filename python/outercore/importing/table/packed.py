"""Text files that Python reads line by line, packed or not."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from outercore.errors import CorruptError, InvalidError, UnsupportedError
from outercore.files.input_file import require_file

_MAGIC: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"BZh": bz2.open,
}
_LONGEST = 1 << 24
"""Characters of a line: a packed file without line ends would fill the memory."""
_ZSTD = b"\x28\xb5\x2f\xfd"
_DAMAGED = (EOFError, lzma.LZMAError, zlib.error, OSError, UnicodeDecodeError)


def lines(path: Path) -> Iterator[str]:
    """The lines of a text in gzip, xz or bzip2, by its first bytes, or in none of them.

    Errors: `UnsupportedError` for zstd; `CorruptError` for a file that is damaged or cut short;
    `InvalidError` for a line that is far too long.
    """
    require_file(path, "text")
    with path.open("rb") as file:
        start = file.read(6)
    if start.startswith(_ZSTD):
        raise UnsupportedError(
            f"`{path}`: zstd is not read for sets of many graphs\nhint: unpack it, or pack it by xz"
        )
    opener = next((opener for magic, opener in _MAGIC.items() if start.startswith(magic)), None)
    try:
        with path.open("rb") if opener is None else opener(path, "rb") as file:
            text = io.TextIOWrapper(file, encoding="utf-8")
            while line := text.readline(_LONGEST):
                if len(line) == _LONGEST:
                    raise InvalidError(
                        f"`{path}`: a line is longer than {_LONGEST >> 20} MiB, expected short "
                        "lines of text"
                    )
                yield line
    except _DAMAGED as error:
        raise CorruptError(f"`{path}`: {error}\nhint: copy the file again") from error
