"""Gather rows of a table by id in one Triton kernel. The table may be in page-locked memory.

The definition is `table[ids]`.
"""

# Triton's language has no types.
# mypy: disable-error-code="no-untyped-def,untyped-decorator"
from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

_TILE_WORDS = 8192
"""Words of 4 bytes. With eight warps each thread then has eight 16-byte loads in flight."""


@triton.jit
def _gather_kernel(
    table, ids, out, rows, words: tl.constexpr, padded: tl.constexpr, tile_rows: tl.constexpr
):
    """Each program loops over tiles of rows, so a small grid uses few multiprocessors."""
    word = tl.arange(0, padded)
    step = tl.num_programs(0) * tile_rows
    for first in range(tl.program_id(0) * tile_rows, rows, step):
        row = first + tl.arange(0, tile_rows)
        inside = row < rows
        chosen = tl.load(ids + row, mask=inside, other=0).to(tl.int64)
        wanted = inside[:, None] & (word[None, :] < words)
        values = tl.load(table + chosen[:, None] * words + word[None, :], mask=wanted, other=0)
        at = row.to(tl.int64)[:, None] * words + word[None, :]
        tl.store(out + at, values, mask=wanted)


def gather(table: Tensor, ids: Tensor, out: Tensor, programs: int) -> Tensor:
    """`out[:] = table[ids]`.

    Shapes: `table` [n, words] and `out` [rows, words] of 4-byte values, `ids` int64 [rows]. `ids`
    and `out` are on the device, `table` there or in page-locked host memory.
    """
    rows, words = out.shape
    assert (table.size(1), table.element_size()) == (words, 4)
    assert table.is_contiguous()
    padded = triton.next_power_of_2(words)
    tile_rows = max(1, _TILE_WORDS // padded)
    grid = (min(programs, max(1, triton.cdiv(rows, tile_rows))),)
    _gather_kernel[grid](
        table, ids, out, rows, words=words, padded=padded, tile_rows=tile_rows, num_warps=8
    )
    return out


def register(memory: Tensor) -> None:
    """Page-locks a tensor's memory in place, and maps it for the device.

    Errors: `RuntimeError` with CUDA's code.
    """
    size = memory.numel() * memory.element_size()
    code = int(torch.cuda.cudart().cudaHostRegister(memory.data_ptr(), size, 0))
    if code:
        raise RuntimeError(f"cudaHostRegister of {size:,} bytes: error {code}")


def unregister(memory: Tensor) -> None:
    """Unlocks memory that `register` has locked."""
    torch.cuda.cudart().cudaHostUnregister(memory.data_ptr())
