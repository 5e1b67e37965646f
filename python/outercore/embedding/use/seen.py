"""Which entities training has seen. No PyTorch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from outercore.embedding.data import has_triples
from outercore.triples import Triples

if TYPE_CHECKING:
    from outercore.graph import Graph

_CHUNK = 1 << 18


def seen_entities(graph: Graph, entities: int) -> NDArray[np.bool_]:
    """Which entities stand in a triple of `triples/train`, or in a link of a plain graph.

    The row of another one is what it was before training: its scores mean nothing.

    Shapes: bool [entities].
    Cost: one pass over those triples or links.
    """
    seen = np.zeros(entities, np.bool_)
    if not has_triples(graph):
        for links in Triples(Path(graph.root)).chunks():
            seen[links[:, 0]] = seen[links[:, 2]] = True
        return seen
    entry = graph.arrays["triples/train"]
    path, shape = graph.root / entry["file"], tuple(entry["shape"])
    triples = np.memmap(path, np.int64, "r", int(entry["data_offset"]), shape)
    for start in range(0, len(triples), _CHUNK):
        part = triples[start : start + _CHUNK]
        seen[part[:, 0]] = seen[part[:, 2]] = True
    return seen
