"""Embeddings of graphs and knowledge graphs. Training needs the extra `torch`.

The package itself can be called: ``outercore.embed(data_set, ...)`` is `outercore.embed.run.embed`.
Its configuration, orders and plans need no PyTorch; the rest imports it at first use.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from outercore.errors import UnsupportedError

if TYPE_CHECKING:
    from outercore.embed.config import EmbedConfig
    from outercore.embed.result import EmbedResult
    from outercore.embed.run import embed, resume

_LAZY = {
    "EmbedConfig": "outercore.embed.config",
    "EmbedResult": "outercore.embed.result",
    "embed": "outercore.embed.run",
    "resume": "outercore.embed.run",
}

__all__ = ["EmbedConfig", "EmbedResult", "embed", "resume"]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    return _imported(_LAZY[name], name)


def _imported(module: str, name: str) -> Any:
    try:
        return getattr(importlib.import_module(module), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("outercore"):
            raise
        raise UnsupportedError(
            f"embedding needs the package `{error.name}`, which is not installed\n"
            'hint: pip install "outercore[torch]"'
        ) from error


class _Package(ModuleType):
    """The package as a function: a subpackage and a function cannot both have the name."""

    def __call__(self, *arguments: Any, **options: Any) -> EmbedResult:
        function: Callable[..., EmbedResult] = _imported("outercore.embed.run", "embed")
        return function(*arguments, **options)


sys.modules[__name__].__class__ = _Package
