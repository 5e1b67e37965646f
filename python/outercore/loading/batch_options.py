"""Arguments of a loader that the core takes as they are, checked before it sees them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from outercore.base.fields import build, within
from outercore.base.options import Backend, Policy, Precision, Topology

LARGEST_SEED = 2**64 - 1
_LARGEST = 2**32 - 1


@dataclass(frozen=True)
class BatchOptions:
    """As `NeighborLoader` explains them."""

    batch_size: int = 1
    replace: bool = False
    shuffle: bool = False
    drop_last: bool = False
    edge_ids: bool = True
    seed: int = 0
    backend: Backend = "auto"
    topology: Topology = "auto"
    precision: Precision = "exact"
    policy: Policy = "window"
    look_ahead: int = 1
    group: int | None = None
    constant_share: float | None = None

    def __post_init__(self) -> None:
        within("batch_size", self.batch_size, 1, _LARGEST)
        within("seed", self.seed, 0, LARGEST_SEED)
        within("look_ahead", self.look_ahead, 0, _LARGEST)
        if self.group is not None:
            within("group", self.group, 1, _LARGEST)
        if self.constant_share is not None:
            within("constant_share", self.constant_share, 0, 1)


def batch_options(given: dict[str, Any]) -> dict[str, Any]:
    """The options as plain values; numbers of NumPy and PyTorch become Python's.

    PyTorch's default of `shuffle` is `None`, which is no.

    Errors: `InvalidError` names an option of another type or out of range.
    """
    if given.get("shuffle", False) is None:
        given = {**given, "shuffle": False}
    return asdict(build(BatchOptions, given, ""))
