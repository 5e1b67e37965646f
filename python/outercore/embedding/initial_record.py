"""The part of an embedding's record that is known before the first batch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from outercore.embedding.config import EmbedConfig
from outercore.embedding.tables.placement import Placement
from outercore.runs import record as records

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.data.parts import EmbedData


def describe(
    graph: Graph,
    config: EmbedConfig,
    data: EmbedData,
    placement: Placement,
    *,
    run: str,
    device: torch.device,
) -> dict[str, Any]:
    """What runs, on what data, where."""
    relations = data.relations * (2 if config.model.reciprocal else 1)
    numbers = data.entities * config.model.dim + relations * config.model.relation_width
    return {
        "description": {
            "run": run,
            "model": config.model.kind,
            "dim": config.model.dim,
            "parameters": numbers,
            "partitions": placement.partitions,
            "slots": placement.slots,
            "metric": "MRR",
            "device": str(device),
        },
        "config": config.to_dict(),
        "data_set": {
            "path": str(Path(graph.root).resolve()),
            "entities": data.entities,
            "relations": data.relations,
            **{f"{part} triples": triples.count for part, triples in data.parts.items()},
        },
        "machine": {
            **records.machine(),
            "torch": torch.__version__,
            "threads": torch.get_num_threads(),
            "device": str(device),
        },
        "device_profile": records.device_profile(Path(graph.root)),
    }
