"""Configurations that were measured, by name. Needs no PyTorch.

A recipe is chosen on the validation split only. What each reaches is in
`docs/benchmarks/embedding.md`; `benchmarks/run.py embed-quality` trains them all again.
"""

from __future__ import annotations

import difflib
import json
from importlib import resources
from typing import Any

from outercore.embedding.config import EmbedConfig
from outercore.errors import InvalidError


def _read() -> dict[str, dict[str, Any]]:
    text = resources.files("outercore.embedding").joinpath("recipes.json").read_text("utf-8")
    return json.loads(text)


_FILE = _read()

RECIPES: dict[str, dict[str, Any]] = {name: one["config"] for name, one in _FILE.items()}
"""Groups and keys of `EmbedConfig`; what a recipe leaves out takes its default."""

ABOUT: dict[str, str] = {name: one["about"] for name, one in _FILE.items()}
"""One line on each recipe."""

SOURCES: dict[str, str] = {name: one["source"] for name, one in _FILE.items()}
"""Where each recipe comes from."""


def recipe(name: str) -> EmbedConfig:
    """The configuration of that name.

    Errors: `InvalidError` names the recipes that there are.
    """
    if name not in RECIPES:
        close = difflib.get_close_matches(name, RECIPES, n=1)
        guess = f"did you mean `{close[0]}`" if close else f"known: {', '.join(RECIPES)}"
        raise InvalidError(f"recipe: unknown name `{name}`\nhint: {guess}")
    return EmbedConfig.from_dict(RECIPES[name])
