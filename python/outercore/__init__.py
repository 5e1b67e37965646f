"""Outercore: graph learning for graphs that do not fit in memory, on one machine.

``import outercore`` loads only the core. Other packages are imported on first use: NumPy by
``oc.open``, PyTorch by training.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from outercore._core import __version__
from outercore.base.lazy import attribute
from outercore.base.other_libraries import FUNCTIONS
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

if TYPE_CHECKING:
    from outercore import analytics
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
    from outercore.analytics.edge_stream import EdgeStream
    from outercore.data import far
    from outercore.data.graph import Graph, open
    from outercore.embedding import embed
    from outercore.embedding.tables.order import partition_order
    from outercore.embedding.use.embedding import Embedding
    from outercore.importing.build.triples import TripleOptions, import_triples
    from outercore.importing.format.dgl import from_dgl
    from outercore.importing.format.frames import from_networkx, from_pandas, from_scipy
    from outercore.importing.format.pyg import from_pyg
    from outercore.importing.options import ImportOptions
    from outercore.loading.link_loader import LinkNeighborLoader
    from outercore.loading.loader import HGTLoader, NeighborLoader
    from outercore.loading.sampler import NeighborSampler, SampledSubgraph
    from outercore.runs.jobs import plan, resume
    from outercore.serving.client import Client
    from outercore.training import evaluate, predict, train

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
    # The default is `analytics`; other modules follow.
    **dict.fromkeys(__all__, "outercore.analytics"),
    "Client": "outercore.serving.client",
    **dict.fromkeys(("Graph", "open"), "outercore.data.graph"),
    "EdgeStream": "outercore.analytics.edge_stream",
    "Embedding": "outercore.embedding.use.embedding",
    "embed": "outercore.embedding",
    "evaluate": "outercore.training",
    "HGTLoader": "outercore.loading.loader",
    "ImportOptions": "outercore.importing.options",
    "LinkNeighborLoader": "outercore.loading.link_loader",
    "NeighborLoader": "outercore.loading.loader",
    "NeighborSampler": "outercore.loading.sampler",
    "SampledSubgraph": "outercore.loading.sampler",
    "TripleOptions": "outercore.importing.build.triples",
    **dict.fromkeys(
        ("from_networkx", "from_pandas", "from_scipy"), "outercore.importing.format.frames"
    ),
    "from_dgl": "outercore.importing.format.dgl",
    "from_pyg": "outercore.importing.format.pyg",
    "import_triples": "outercore.importing.build.triples",
    "partition_order": "outercore.embedding.tables.order",
    "plan": "outercore.runs.jobs",
    "predict": "outercore.training",
    "resume": "outercore.runs.jobs",
    "train": "outercore.training",
}


_MODULES = {"analytics": "outercore.analytics", "far": "outercore.data.far"}


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    return attribute(__name__, name, _LAZY, hint=FUNCTIONS.get(name, ""))
