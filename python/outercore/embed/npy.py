"""Tables as `.npy` files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from outercore.errors import CorruptError
from outercore.storage import Storage, device_errors

_DATA_OFFSET = 4096
_HINT = "hint: go on from a copy of the directory, or train again"


def write_npy(storage: Storage, path: Path, table: Tensor) -> None:
    """Writes a table, data from byte 4096 on; it appears under its name once it is complete.

    Cost: a copy of the table only where it is on another device or not contiguous.
    Errors: `NoSpaceError` and `DeviceError`; what was at `path` before stays.
    """
    array = np.ascontiguousarray(table.detach().cpu().numpy())
    temporary = path.with_name(f".{path.name}.tmp")
    with device_errors(f"array `{path}`"):
        storage.write_pieces(temporary, [npy_header(array.dtype.str, array.shape), array.data])
        storage.rename(temporary, path)
        storage.sync_directory(path.parent)


def read_npy(path: Path) -> Tensor:
    """The table that `write_npy` wrote, in memory.

    Errors: `CorruptError` where there is none, or not a whole one.
    """
    try:
        return torch.from_numpy(np.load(path))
    except (OSError, ValueError, EOFError) as error:
        raise CorruptError(f"array `{path}`: {error}\n{_HINT}") from error


def npy_header(dtype: str, shape: tuple[int, ...]) -> bytes:
    """The first 4,096 bytes of a `.npy` file."""
    described = {"descr": dtype, "fortran_order": False, "shape": shape}
    header = repr(described).encode("latin1").ljust(_DATA_OFFSET - 11) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header
