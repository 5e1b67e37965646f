"""The model that a configuration describes."""

from __future__ import annotations

from outercore.embedding.config import ModelConfig
from outercore.embedding.gradients.custom import GIVE
from outercore.embedding.gradients.models.base import Model
from outercore.embedding.gradients.models.bilinear import ComplEx, DistMult, Dot, SimplE
from outercore.embedding.gradients.models.custom import CustomModel, ScoreFunction
from outercore.embedding.gradients.models.distance import RotatE, TransE
from outercore.errors import InvalidError


def build_model(config: ModelConfig, score: ScoreFunction | None = None) -> Model:
    """The model that `config` describes; `score` is the function of `custom`.

    Errors: `InvalidError` for `custom` without a function, or a function for another model.
    """
    if (score is not None) != (config.kind == "custom"):
        found = "no score function" if score is None else "a score function of one's own"
        raise InvalidError(f"model `{config.kind}`: found {found}\nhint: {GIVE}")
    match config.kind:
        case "dot":
            return Dot()
        case "distmult":
            return DistMult()
        case "complex":
            return ComplEx()
        case "simple":
            return SimplE()
        case "transe":
            return TransE(config.norm)
        case "rotate":
            return RotatE()
        case "custom":
            assert score is not None
            return CustomModel(score)
