"""Which work a configuration describes: of nodes or of whole graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from outercore.train.config import TrainConfig
from outercore.train.graph_work import GraphWork
from outercore.train.loaders import LoaderFactory
from outercore.train.saved import SavedModel
from outercore.train.work import NodeWork, Work

if TYPE_CHECKING:
    from outercore.graph import Graph


def open_work(
    graph: Graph,
    config: TrainConfig,
    *,
    open_loader: LoaderFactory,
    note: Callable[[str], None],
    saved: SavedModel | None = None,
) -> Work:
    """The task, network and batches that `config` describes; `saved` is a network to score.

    Errors: as `NodeWork` and `GraphWork`.
    """
    if config.of_graphs:
        return GraphWork(graph, config, saved=saved)
    return NodeWork(graph, config, open_loader=open_loader, note=note, saved=saved)
