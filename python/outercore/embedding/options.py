"""The configuration of an embedding from its options. Needs no PyTorch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outercore.base.options import base_groups, groups_of, merge
from outercore.embedding.config import EmbedConfig
from outercore.embedding.recipes import recipe as recipe_of
from outercore.errors import InvalidError

_CUSTOM = "custom"
CHANGEABLE = (
    "epochs",
    "patience",
    "learning_rate",
    "relation_learning_rate",
    "regulariser_weight",
    "relation_regulariser_weight",
    "checkpoint_seconds",
)
"""Options that a run may go on with that it did not begin with."""


def configuration(
    base: EmbedConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    recipe: str | None = None,
    plain_graph: bool = False,
    has_score: bool = False,
    **options: Any,
) -> EmbedConfig:
    """A configuration from a recipe, then `base`, then single options; the last one counts.

    `base` and `options` are as for `outercore.base.options.configuration`. The links of a plain
    graph have no kinds, so its model is `dot` by default. A score function is a model of its own.

    Errors: `InvalidError` for an unknown option, key or recipe; `NotFoundError` for the file.

    Example:
        >>> config = configuration({"model": {"dim": 64}}, model="distmult", epochs=3)
        >>> config.model.kind, config.model.dim, config.optimiser.epochs
        ('distmult', 64, 3)
    """
    if has_score:
        if (model := options.get("model")) not in (None, _CUSTOM):
            raise InvalidError(
                f"model `{model}`: found a score function beside it, which is a model itself"
            )
        options["model"] = _CUSTOM
    groups = merge({} if recipe is None else recipe_of(recipe), base_groups(base))
    groups = merge(groups, groups_of(EmbedConfig, options))
    if plain_graph and "kind" not in groups.get("model", {}):
        groups = merge(groups, {"model": {"kind": "dot"}})
    return EmbedConfig.from_dict(groups)
