"""Which part of an epoch's seeds a process takes: given, or that of PyTorch's process group."""

from __future__ import annotations

import math
import os
import sys

from outercore.base.fields import whole
from outercore.errors import InvalidError

_MOST = 2**32 - 1
"""Processes."""


def share_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and number of processes; where neither is given, those of ``torch.distributed``.

    PyTorch is not imported for it: a process group that is initialised has done so. Without one,
    the process takes all seeds.

    Raises:
        InvalidError: only one of the two is given, or the rank is out of range.
    """
    if rank is None and world_size is None:
        return _process_group()
    if rank is None or world_size is None:
        raise InvalidError(
            f"rank={rank}, world_size={world_size}: expected both or neither\n"
            "hint: rank=0, world_size=1 takes all seeds"
        )
    world_size = whole("world_size", world_size, 1, _MOST)
    rank = whole("rank", rank, -math.inf)
    if not 0 <= rank < world_size:
        raise InvalidError(f"rank {rank} of {world_size} processes, expected 0 to {world_size - 1}")
    return rank, world_size


def _process_group() -> tuple[int, int]:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return 0, 1
    return int(distributed.get_rank()), int(distributed.get_world_size())


def require_one_process(what: str) -> None:
    """Refuses to run as one of several processes of PyTorch, each of which would do all the work.

    Raises:
        InvalidError: there is a process group of several, or ``torchrun`` has started several.
    """
    _, world_size = share_of(None, None)
    # torchrun says so before a process group is there.
    if "TORCHELASTIC_RUN_ID" in os.environ:
        world_size = max(world_size, int(os.environ.get("WORLD_SIZE", "1")))
    if world_size > 1:
        raise InvalidError(
            f"{what}: started as one of {world_size} processes, but it trains in one\n"
            "hint: start it without torchrun; for several processes write the training loop with "
            "`outercore.NeighborLoader`, which shares the seeds among them"
        )
