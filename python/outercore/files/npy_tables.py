"""Tables as `.npy` files."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore.errors import CorruptError
from outercore.files.atomic import Storage, device_errors, replacing
from outercore.files.large_arrays import blocks
from outercore.files.npy import npy_header

_BLOCK_NUMBERS = 1 << 20
_HINT = "hint: go on from a copy of the directory, or train again"


def write_npy(storage: Storage, path: Path, table: Tensor) -> int:
    """Writes a table, data from byte 4096 on; it appears under its name once it is complete.

    Returns the CRC-32 of the data.

    Cost: a copy of the table only where it is on another device or not contiguous.
    Errors: `NoSpaceError` and `DeviceError`; what was at `path` before stays.
    """
    array = np.ascontiguousarray(table.detach().cpu().numpy())
    with device_errors(f"array `{path}`"), replacing(storage, path) as temporary:
        storage.write_pieces(temporary, [npy_header(array.dtype.str, array.shape), array.data])
    return zlib.crc32(_bytes(array))


def read_npy(path: Path, checksum: int | None = None, into: Tensor | None = None) -> Tensor:
    """The table that `write_npy` wrote, in memory, or in the place of `into`, some rows at a time.

    `checksum` is what `write_npy` returned.

    Errors: `CorruptError` where there is none, not a whole one, one of another shape than `into`,
    or one of other bytes; then `into` is what was found.
    """
    try:
        found = np.load(path, mmap_mode="r")
    except (OSError, ValueError, EOFError) as error:
        raise CorruptError(f"array `{path}`: {error}\n{_HINT}") from error
    table = torch.empty(found.shape) if into is None else into
    if found.dtype != np.float32 or found.shape != tuple(table.shape):
        raise CorruptError(
            f"array `{path}`: expected float32 {list(table.shape)}, "
            f"found {found.dtype} {list(found.shape)}\n{_HINT}"
        )
    step, total = max(1, _BLOCK_NUMBERS // max(1, table[:1].numel())), 0
    for first in range(0, len(table), step):
        rows = np.array(found[first : first + step])
        total = zlib.crc32(_bytes(rows), total)
        table[first : first + step] = torch.from_numpy(rows)
    if checksum is not None and total != checksum:
        raise CorruptError(
            f"array `{path}`: found checksum {total:08x}, expected {checksum:08x}\n{_HINT}"
        )
    return table


def checksum_of_rows(path: Path) -> int:
    """What `write_npy` would return of a table that something else has written.

    Errors: `CorruptError` where there is none.
    """
    try:
        found, total = np.load(path, mmap_mode="r"), 0
        for _, rows in blocks(found):
            total = zlib.crc32(_bytes(rows), total)
    except (OSError, ValueError, EOFError) as error:
        raise CorruptError(f"array `{path}`: {error}\n{_HINT}") from error
    return total


def _bytes(array: NDArray[np.generic]) -> memoryview:
    """The bytes of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data
