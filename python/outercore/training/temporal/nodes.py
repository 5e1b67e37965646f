"""Labels of nodes that see their past alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from outercore.errors import NotFoundError, UnsupportedError
from outercore.training.config import TrainConfig

if TYPE_CHECKING:
    from outercore.data.graph import Graph

BY_DEGREE = ("gcn", "gin")
"""Models that weigh by the in-degrees of the whole graph."""


def require_past(graph: Graph, node_type: str, config: TrainConfig) -> None:
    """With times: whether nodes of the labelled type have some, and the network is one for them.

    Errors: `NotFoundError`, `UnsupportedError`.
    """
    attribute = config.sampling.time
    if attribute is None:
        return
    if f"nodes/{node_type}/{attribute}" not in graph.arrays:
        raise NotFoundError(
            f"--time {attribute}: nodes of type `{node_type}` have no array `{attribute}`, which "
            "says when each asks\nhint: import it, or add `--task link` to learn edges by time"
        )
    if config.model.kind in BY_DEGREE:
        raise UnsupportedError(
            f"model `{config.model.kind}`: it weighs by the in-degrees of the whole graph, which "
            "tell of later edges\nhint: use `--model sage` or `gat`"
        )
