"""Where the rows of a table are while they are trained: the seam between training and storage.

A store yields pools: triples whose entities are all in memory, with the memory they are in.
Training knows rows of that memory and no entity; a store knows where entities are and no model.
"""

from __future__ import annotations

from outercore.embedding.tables.checks import check_triples
from outercore.embedding.tables.layout import StartRows, TableLayout
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.protocol import Pool, Progress, Store

__all__ = [
    "MemoryStore",
    "Pool",
    "Progress",
    "StartRows",
    "Store",
    "TableLayout",
    "check_triples",
]
