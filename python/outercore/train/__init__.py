"""Training, evaluation and exact inference out of core. Needs the extra `torch`.

`TrainConfig` and its groups need no PyTorch; the rest imports it at first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from outercore.errors import UnsupportedError
from outercore.train.config import (
    BudgetConfig,
    LinkConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)

if TYPE_CHECKING:
    from outercore.train.export import export_model
    from outercore.train.run import evaluate, resume, train

_LAZY = {"evaluate": "run", "export_model": "export", "resume": "run", "train": "run"}
"""Functions that need PyTorch, and their modules."""

__all__ = [
    "BudgetConfig",
    "LinkConfig",
    "ModelConfig",
    "OptimiserConfig",
    "RunConfig",
    "SamplingConfig",
    "TrainConfig",
    "evaluate",
    "export_model",
    "resume",
    "train",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module `{__name__}` has no attribute `{name}`")
    try:
        module = importlib.import_module(f"outercore.train.{_LAZY[name]}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("outercore"):
            raise
        raise UnsupportedError(
            f"training needs the package `{error.name}`, which is not installed\n"
            'hint: pip install "outercore[torch]"'
        ) from error
    return getattr(module, name)
