"""Training, evaluation and exact inference out of core. Needs the extra `torch`.

`TrainConfig` and its groups need no PyTorch; the rest imports it at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from outercore.base.lazy import attribute
from outercore.training.config import (
    BudgetConfig,
    LinkConfig,
    ModelConfig,
    OptimiserConfig,
    RunConfig,
    SamplingConfig,
    TrainConfig,
)

if TYPE_CHECKING:
    from outercore.training.export import export_model
    from outercore.training.run import plan, resume, train
    from outercore.training.trained_model import evaluate, predict

_LAZY = {
    "evaluate": "outercore.training.trained_model",
    "export_model": "outercore.training.export",
    "plan": "outercore.training.run",
    "predict": "outercore.training.trained_model",
    "resume": "outercore.training.run",
    "train": "outercore.training.run",
}
"""Names that need PyTorch, with the modules that define them."""

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
    "plan",
    "predict",
    "resume",
    "train",
]


def __dir__() -> list[str]:
    return __all__


def __getattr__(name: str) -> Any:
    return attribute(__name__, name, _LAZY, "training")
