"""Random numbers as a function of the seed, their purpose and a place, such as a batch number."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from torch import Tensor

from outercore import _core


class Purpose(IntEnum):
    """The purpose of a random stream. All results depend on these values: never change them."""

    ENTITIES = 1
    RELATIONS = 2
    ORDER = 3
    CANDIDATES = 5


def generator(seed: int, purpose: Purpose, *place: int) -> torch.Generator:
    """The random generator for one purpose at one place, such as (epoch, pool, batch)."""
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

    Values are normal with standard deviation `scale`, or uniform in [-`scale`, `scale`]. The values
    of a row depend on its number, so they are the same for every number of partitions.

    Shapes: `numbers` int64 [rows], `out` float32 [rows, width] on the CPU.
    """
    _core.initial_rows(seed, int(purpose), numbers.numpy(), out.numpy(), scale, uniform)
