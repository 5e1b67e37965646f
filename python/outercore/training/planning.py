"""What a training run would keep in memory, said before it begins. Needs no PyTorch."""

from __future__ import annotations

from math import prod
from pathlib import Path
from typing import Any

import numpy as np

import outercore
from outercore import _native
from outercore.config.sizes import parse_size
from outercore.errors import BudgetError
from outercore.graph import Graph
from outercore.training.config import TrainConfig
from outercore.training.loaders import beside_degrees
from outercore.training.splits import nodes_of


def plan_training(data_set: Path, config: TrainConfig) -> dict[str, Any]:
    """The budget's parts: the training loader's plan, the evaluation's share, the in-degrees.

    Cost: as `NeighborLoader.plan`: opens the topology and samples trial batches.
    Errors: `BudgetError` with the least that would do.
    """
    graph = outercore.open(data_set)
    total = parse_size(config.budget.memory)
    degrees = 4 * graph.num_nodes if config.model.kind in ("gcn", "gin") else 0
    share = int(max(total - degrees, 0) * config.budget.validation_share)
    try:
        loader = _plan(graph, config, total - share, degrees)
    except BudgetError:
        if not share:
            raise
        share = 0
        loader = _plan(graph, config, total, degrees)
    return {
        "memory": total,
        "in_degrees_memory": degrees,
        "validation_memory": share,
        "training": loader,
    }


def _plan(graph: Graph, config: TrainConfig, memory: int, degrees: int) -> dict[str, Any]:
    sampling, budget = config.sampling, config.budget
    roles = graph.manifest["roles"]
    described = {
        "fan_outs": [] if config.model.kind == "mlp" else list(sampling.fanout),
        "batch_size": sampling.batch_size,
        "replace": sampling.replace,
        "shuffle": True,
        "seed": config.run.seed,
        "edge_ids": False,
        "memory": max(memory - degrees, 0),
        "reserved": _label_bytes(graph),
        "threads": budget.threads or 0,
        "backend": budget.backend,
        "topology": budget.topology,
        "policy": budget.policy,
        "hotness": graph.hotness(budget.hotness),
    }
    if roles.get("features"):
        described["features"] = roles["features"]
    try:
        return _native.plan(Path(graph.root), described, nodes_of(graph, sampling.train))
    except BudgetError as error:
        raise beside_degrees(error, degrees) from None


def _label_bytes(graph: Graph) -> int:
    """What the loader keeps of the labels: whole, in the smallest type that holds them."""
    key = graph.manifest["roles"].get("labels")
    if key is None:
        return 0
    entry = graph.manifest["arrays"][key]
    shape = entry["shape"]
    if "float" in entry["dtype"]:
        return np.dtype(entry["dtype"]).itemsize * prod(shape)
    width = 1 if graph.num_classes <= 128 else 2 if graph.num_classes <= 1 << 15 else 4
    return width * shape[0]
