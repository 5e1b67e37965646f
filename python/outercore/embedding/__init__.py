"""Embeddings of graphs and knowledge graphs. Training and scores need the extra `torch`.

The configuration, orders of partitions, exports and `add_features` work without PyTorch. The other
functions import it on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outercore.base.lazy import attribute

if TYPE_CHECKING:
    from outercore.embedding.config import EmbedConfig
    from outercore.embedding.forecast import plan
    from outercore.embedding.ranking.assess import assess, compare, ranks
    from outercore.embedding.run import EmbedResult, embed, resume
    from outercore.embedding.use.embedding import Embedding
    from outercore.embedding.use.export import export
    from outercore.embedding.use.features import add_features
    from outercore.embedding.use.neighbours import Index, neighbours, neighbours_of_all
    from outercore.embedding.use.predict import predict

_LAZY = {
    "EmbedConfig": "config",
    "EmbedResult": "run",
    "Embedding": "use.embedding",
    "Index": "use.neighbours",
    "add_features": "use.features",
    "assess": "ranking.assess",
    "compare": "ranking.assess",
    "embed": "run",
    "export": "use.export",
    "neighbours": "use.neighbours",
    "neighbours_of_all": "use.neighbours",
    "plan": "forecast",
    "predict": "use.predict",
    "ranks": "ranking.assess",
    "resume": "run",
}

__all__ = [
    "EmbedConfig",
    "EmbedResult",
    "Embedding",
    "Index",
    "add_features",
    "assess",
    "compare",
    "embed",
    "export",
    "neighbours",
    "neighbours_of_all",
    "plan",
    "predict",
    "ranks",
    "resume",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    modules = {known: f"{__name__}.{module}" for known, module in _LAZY.items()}
    return attribute(__name__, name, modules, "embedding")
