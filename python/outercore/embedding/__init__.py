"""Embeddings of graphs and knowledge graphs. Training needs the extra `torch`.

Configuration, orders and plans need no PyTorch; the rest imports it at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outercore.lazy import attribute

if TYPE_CHECKING:
    from outercore.embedding.config import EmbedConfig
    from outercore.embedding.forecast import plan
    from outercore.embedding.run import embed, resume
    from outercore.embedding.use.result import EmbedResult

_LAZY = {
    "EmbedConfig": "outercore.embedding.config",
    "EmbedResult": "outercore.embedding.use.result",
    "embed": "outercore.embedding.run",
    "plan": "outercore.embedding.forecast",
    "resume": "outercore.embedding.run",
}

__all__ = ["EmbedConfig", "EmbedResult", "embed", "plan", "resume"]


def __getattr__(name: str) -> Any:
    return attribute(__name__, name, _LAZY, "embedding")
