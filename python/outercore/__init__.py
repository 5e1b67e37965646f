"""Outercore: graph learning for graphs that do not fit in memory, on one machine.

``import outercore`` needs NumPy alone; what needs PyTorch is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outercore._core import __version__
from outercore.errors import (
    BudgetError,
    CorruptError,
    DeviceError,
    InternalError,
    InterruptError,
    InvalidError,
    NoSpaceError,
    NotFoundError,
    OutercoreError,
    UnsupportedError,
    VersionError,
)
from outercore.graph import Graph, open
from outercore.lazy import attribute
from outercore.other_libraries import FUNCTIONS

if TYPE_CHECKING:
    from outercore import analytics, far
    from outercore.analytics import (
        Run,
        betweenness,
        bfs,
        closeness,
        degrees,
        grid,
        hits,
        kcore,
        label_propagation,
        local_clustering,
        louvain,
        pagerank,
        radii,
        run,
        scc,
        sssp,
        triangles,
        wcc,
    )
    from outercore.client import Client
    from outercore.edge_stream import EdgeStream
    from outercore.embedding import embed
    from outercore.embedding.tables.order import partition_order
    from outercore.embedding.use.embedding import Embedding
    from outercore.hgt_loader import HGTLoader
    from outercore.link_loader import LinkNeighborLoader
    from outercore.loader import NeighborLoader
    from outercore.sampler import NeighborSampler, SampledSubgraph
    from outercore.sources.dgl import from_dgl
    from outercore.sources.frames import from_networkx, from_pandas, from_scipy
    from outercore.sources.graph import ImportOptions
    from outercore.sources.pyg import from_pyg
    from outercore.sources.triples import TripleOptions, import_triples
    from outercore.training import evaluate, predict, train
    from outercore.verbs import plan, resume

__all__ = [
    "BudgetError",
    "Client",
    "CorruptError",
    "DeviceError",
    "EdgeStream",
    "Embedding",
    "Graph",
    "HGTLoader",
    "ImportOptions",
    "InternalError",
    "InterruptError",
    "InvalidError",
    "LinkNeighborLoader",
    "NeighborLoader",
    "NeighborSampler",
    "NoSpaceError",
    "NotFoundError",
    "OutercoreError",
    "Run",
    "SampledSubgraph",
    "TripleOptions",
    "UnsupportedError",
    "VersionError",
    "__version__",
    "analytics",
    "betweenness",
    "bfs",
    "closeness",
    "degrees",
    "embed",
    "evaluate",
    "far",
    "from_dgl",
    "from_networkx",
    "from_pandas",
    "from_pyg",
    "from_scipy",
    "grid",
    "hits",
    "import_triples",
    "kcore",
    "label_propagation",
    "local_clustering",
    "louvain",
    "open",
    "pagerank",
    "partition_order",
    "plan",
    "predict",
    "radii",
    "resume",
    "run",
    "scc",
    "sssp",
    "train",
    "triangles",
    "wcc",
]

_LAZY = {
    # What no other module has is in `analytics`.
    **dict.fromkeys(__all__, "outercore.analytics"),
    "Client": "outercore.client",
    "EdgeStream": "outercore.edge_stream",
    "Embedding": "outercore.embedding.use.embedding",
    "embed": "outercore.embedding",
    "evaluate": "outercore.training",
    "HGTLoader": "outercore.hgt_loader",
    "ImportOptions": "outercore.sources.graph",
    "LinkNeighborLoader": "outercore.link_loader",
    "NeighborLoader": "outercore.loader",
    "NeighborSampler": "outercore.sampler",
    "SampledSubgraph": "outercore.sampler",
    "TripleOptions": "outercore.sources.triples",
    **dict.fromkeys(("from_networkx", "from_pandas", "from_scipy"), "outercore.sources.frames"),
    "from_dgl": "outercore.sources.dgl",
    "from_pyg": "outercore.sources.pyg",
    "import_triples": "outercore.sources.triples",
    "partition_order": "outercore.embedding.tables.order",
    "plan": "outercore.verbs",
    "predict": "outercore.training",
    "resume": "outercore.verbs",
    "train": "outercore.training",
}


_MODULES = ("analytics", "far")


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"outercore.{name}")
    return attribute(__name__, name, _LAZY, hint=FUNCTIONS.get(name, ""))
