"""Configurations that were measured, by name. Needs no PyTorch.

A recipe is chosen on the validation split only. What each reaches is in
`docs/benchmarks/embedding.md`; `benchmarks/run.py embed-quality` trains them all again.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import resources
from typing import Any

from outercore.base.likeness import suggestion
from outercore.errors import InvalidError


def _read() -> dict[str, dict[str, Any]]:
    text = resources.files("outercore.embedding").joinpath("recipes.json").read_text("utf-8")
    return {name: one["config"] for name, one in json.loads(text).items()}


RECIPES = _read()
"""Groups and keys of `EmbedConfig`; what a recipe leaves out takes its default."""


def recipe(name: str) -> Mapping[str, Any]:
    """What the recipe of that name says.

    Errors: `InvalidError` names the recipes that there are.
    """
    if name not in RECIPES:
        raise InvalidError(f"recipe: unknown name `{name}`\nhint: {suggestion(name, RECIPES)}")
    return RECIPES[name]
