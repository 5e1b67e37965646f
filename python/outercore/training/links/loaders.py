"""The loaders of a run that learns edges, and what it keeps in memory besides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.base.sizes import format_size, parse_size
from outercore.data.graph import Graph
from outercore.errors import BudgetError
from outercore.training.checkpoint import Position
from outercore.training.config import TrainConfig
from outercore.training.links.adjacency import Adjacency
from outercore.training.links.batches import LinkLoader
from outercore.training.links.data import LinkData
from outercore.training.links.negatives import Negatives
from outercore.training.links.order import EpochOrder
from outercore.training.loaders import TABLE_COPIES, LoaderFactory, Loaders

_SCORED_BYTES = 96
"""For each pair of a held-out part while it is scored: ends, their places, score and rank."""


class LinkLoaders(Loaders):
    """`Loaders` over the training edges of a run; a training batch is one of `LinkLoader`."""

    advice = "give more memory by `--memory`, hold out fewer edges, or use smaller batches"

    def __init__(
        self,
        data: LinkData,
        config: TrainConfig,
        position: Callable[[], Position],
        *,
        degrees: bool,
        open_loader: LoaderFactory,
        note: Callable[[str], None],
    ) -> None:
        """`position` says where training stands; `degrees` whether the network needs in-degrees.

        Errors: `BudgetError` where the budget leaves nothing beside what is always in memory.
        """
        self._data, self._position = data, position
        seed = config.run.seed
        edges = Adjacency(data.graph)
        self._negatives = Negatives(config.link, seed, data.graph.num_nodes, edges)
        ends = 2 + self._negatives.ends
        size = config.sampling.seeds
        self._order = EpochOrder(len(data.train()), size, ends, seed)
        pairs = [sum(data.sizes(one)) for one in data.parts]
        reserved = {
            "in-degrees": 4 * data.graph.num_nodes if degrees else 0,
            "pools of edges": self._order.pool_bytes,
            "learned table": 0 if data.features else table_bytes(data.graph, config),
            "held-out edges": _SCORED_BYTES * max(pairs, default=0),
        }
        super().__init__(data.graph, config, reserved=reserved, open_loader=open_loader, note=note)

    def _open_training(self) -> LinkLoader:
        position = self._position()
        return LinkLoader(
            self._data.train(),
            self._order,
            self._negatives,
            self._data.graph.num_nodes,
            self._open_pool,
            (position.epoch, position.batch),
        )

    def _open_pool(self, seeds: NDArray[np.int64], width: int) -> Any:
        return self._open(
            num_neighbors=self.fanout(),
            input_nodes=seeds,
            batch_size=width,
            memory=self.training_memory,
            replace=self._config.sampling.replace,
            features=self._data.features,
            labels=None,
            hotness=self._config.budget.hotness,
            far=None,
        )


def table_bytes(graph: Graph, config: TrainConfig) -> int:
    """Memory for a learned row for each node, and for what training keeps of it."""
    return TABLE_COPIES * 4 * config.model.hidden * graph.num_nodes


def require_fits(graph: Graph, config: TrainConfig) -> None:
    """Errors: `BudgetError` where nodes without features need a larger table than the budget."""
    if config.sampling.features != "x" or graph.manifest["roles"].get("features"):
        return
    needed, budget = table_bytes(graph, config), parse_size(config.budget.memory)
    if needed >= budget:
        raise BudgetError(
            f"memory budget {format_size(budget)}: the nodes of data set `{graph.root}` have no "
            f"features, and a learned table with {config.model.hidden} values for each of "
            f"{graph.num_nodes:,} nodes takes {format_size(needed)} while it is trained\n"
            "hint: give more memory, a smaller `--hidden`, or import node features with "
            "`--features`; `outercore embed` writes some within any budget",
            needed,
        )
