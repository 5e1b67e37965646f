"""Random numbers that are a function of what they are for, and of nothing else."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

_BLOCK_ROWS = 4096


class Purpose(IntEnum):
    """What a stream of random numbers is for. The numbers are part of every result: keep them."""

    ENTITIES = 1
    RELATIONS = 2
    ORDER = 3
    NEGATIVES = 4
    CANDIDATES = 5


def generator(seed: int, purpose: Purpose, *place: int) -> torch.Generator:
    """A generator for one purpose at one place, such as (epoch, pool, batch)."""
    words = np.random.SeedSequence((seed, int(purpose), *place)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0]) >> 1)


def initial_rows(
    seed: int, purpose: Purpose, first: int, out: Tensor, scale: float, *, uniform: bool = False
) -> None:
    """Fills `out` with rows `first`, `first` + 1, ... of a table's initial values.

    Normal with deviation `scale`, or uniform within plus and minus `scale`. A row's values depend
    on its number, so that they are the same however the table is cut into partitions.

    Shapes: `out` [rows, width].
    Cost: draws whole blocks of 4,096 rows: PyTorch's values depend on how many are drawn.
    """
    stop = first + out.size(0)
    for block in range(first // _BLOCK_ROWS, -(-stop // _BLOCK_ROWS)):
        start = block * _BLOCK_ROWS
        random = generator(seed, purpose, block)
        values = torch.empty(_BLOCK_ROWS, out.size(1), dtype=torch.float32)
        if uniform:
            values.uniform_(-scale, scale, generator=random)
        else:
            values.normal_(0.0, scale, generator=random)
        begin = max(first, start)
        end = min(stop, start + _BLOCK_ROWS)
        out[begin - first : end - first] = values[begin - start : end - start]
