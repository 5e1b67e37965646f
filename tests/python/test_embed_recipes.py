"""Recipes: every one is a configuration, and a wrong name says which there are."""

from __future__ import annotations

import json

import pytest

from outercore.embedding.config import RECIPES, EmbedConfig, recipe_named
from outercore.errors import InvalidError


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_a_configuration_that_survives_json(name: str) -> None:
    config = EmbedConfig.from_dict(recipe_named(name))
    assert EmbedConfig.from_dict(json.loads(config.to_json())) == config
    assert config.to_dict().keys() >= RECIPES[name].keys()
    for group, values in RECIPES[name].items():
        assert {key: config.to_dict()[group][key] for key in values} == values


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_begins_with_its_model(name: str) -> None:
    assert name.startswith(recipe_named(name)["model"]["kind"])


def test_an_unknown_recipe_names_the_nearest() -> None:
    with pytest.raises(InvalidError, match="did you mean `complex-wn18`"):
        recipe_named("complex-wn1")
    with pytest.raises(InvalidError, match=r"known: .*complex-fb15k-237"):
        recipe_named("zzz")
