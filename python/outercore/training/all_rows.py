"""The budget with which a training keeps all feature rows in memory."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, prod
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_MIB = 1 << 20
_GROUP = 4
"""Batches that are fetched together where all rows are in memory."""
_DIVIDED = ("memory", "validation_memory")
"""Shares of a budget that are not reserved for something else."""


def all_rows_memory(
    graph: Graph, shares: Mapping[str, int], planned: Mapping[str, Any], validation_share: float
) -> int | None:
    """A budget that holds all feature rows and everything else, for any budget of the plan.

    An upper bound: what grows with the budget is taken as large as it can become. `None` without
    feature rows, and where times or further arrays of batches take a share that is not known.
    """
    split = planned.get("split") or {}
    kept = split.get("constant_slots", 0) + split.get("dynamic_slots", 0)
    if not kept or planned.get("arrays"):
        return None
    topology = planned["topology"]
    offsets, sources = _bytes(graph, "offsets"), _bytes(graph, "sources")
    fixed = planned["reserved"] + planned["delivered"]
    fixed += ceil(planned["sampled"] / split["group"]) * _GROUP
    fixed += ceil(planned["slots"] / kept) * planned["num_rows"]

    def needed(budget: int) -> int:
        """As `crates/outercore-pipeline/src/plan.rs` divides a budget."""
        staging = min(max(budget // 16, _MIB), 8 * _MIB)
        if topology["resident"]:
            return int(fixed + staging + topology["memory"])
        paged = offsets + staging + min(max(budget // 8, _MIB // 2), 64 * _MIB)
        return int(fixed + staging + max(offsets + sources, paged))

    budget = fixed
    while (more := needed(budget)) > budget:
        budget = more
    whole = ceil((budget + 1) / (1 - validation_share))
    beside = {name: size for name, size in shares.items() if name not in _DIVIDED}
    return whole + sum(beside.values())


def _bytes(graph: Graph, name: str) -> int:
    """Bytes of an array of the CSC, which has the edges of all types."""
    entry = graph.arrays[f"edges/edge/{name}"]
    return prod(entry["shape"]) * np.dtype(entry["dtype"]).itemsize
