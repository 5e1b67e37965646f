"""Arguments of a loader that are checked here and passed to the core unchanged."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from outercore.base.fields import build, within
from outercore.base.options import Backend, Policy, Precision, Topology

LARGEST_SEED = 2**64 - 1
_LARGEST = 2**32 - 1


@dataclass(frozen=True)
class BatchOptions:
    """Options of batches; `NeighborLoader` documents them."""

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


def batch_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options as plain values. Numbers of NumPy and PyTorch become Python numbers.

    `shuffle=None`, the default of PyTorch, means `False`.

    Errors: `InvalidError` names an option of a wrong type or out of range.
    """
    if options.get("shuffle", False) is None:
        options = {**options, "shuffle": False}
    return asdict(build(BatchOptions, options, ""))
