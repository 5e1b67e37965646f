"""Random numbers as a function of seed, purpose and place."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from outercore import _core


class Purpose(IntEnum):
    """The purpose of a stream of random numbers. The numbers are part of every result: keep
    them."""

    ENTITIES = 1
    RELATIONS = 2
    ORDER = 3
    CANDIDATES = 5


def generator(seed: int, purpose: Purpose, *place: int) -> torch.Generator:
    """A generator for one purpose at one place, such as (epoch, pool, batch)."""
    words = np.random.SeedSequence((seed, int(purpose), *place)).generate_state(1, np.uint64)
    return torch.Generator().manual_seed(int(words[0]) >> 1)


def initial_rows(
    seed: int,
    purpose: Purpose,
    numbers: Tensor,
    out: Tensor,
    scale: float,
    *,
    uniform: bool = False,
) -> None:
    """Fills `out` with the initial values of some of a table's rows.

    Normal with deviation `scale`, or uniform within plus and minus `scale`. A row's values depend
    on its number, so that they are the same however the table is cut into partitions.

    Shapes: `numbers` int64 [rows], `out` float32 [rows, width] on the CPU.
    """
    _core.initial_rows(seed, int(purpose), numbers.numpy(), out.numpy(), scale, uniform)
