"""Share of a process in the seeds of an epoch: from the caller, or from PyTorch's process group."""

from __future__ import annotations

import math
import os
import sys

from outercore.base.fields import whole
from outercore.errors import InvalidError

_MOST = 2**32 - 1
"""Maximum number of processes."""


def share_of(rank: int | None, world_size: int | None) -> tuple[int, int]:
    """Rank and world size: the arguments, or the values of ``torch.distributed`` if both are None.

    This does not import PyTorch: if a process group is initialised, PyTorch is imported already.
    Without a process group, the process takes all seeds.

    Raises:
        InvalidError: only one of the two is None, or the rank is out of range.
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
    """Checks that this is the only training process; several would each do all the work.

    Raises:
        InvalidError: PyTorch's process group or ``torchrun`` has several processes.
    """
    _, world_size = share_of(None, None)
    # torchrun sets these variables before a process group exists.
    if "TORCHELASTIC_RUN_ID" in os.environ:
        world_size = max(world_size, int(os.environ.get("WORLD_SIZE", "1")))
    if world_size > 1:
        raise InvalidError(
            f"{what}: started as one of {world_size} processes, but it trains in one\n"
            "hint: start it without torchrun; for several processes write the training loop with "
            "`outercore.NeighborLoader`, which shares the seeds among them"
        )
