"""Options: each is written once, and reachable from the command line, Python and a file."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperOption

from outercore.analytics import ALGORITHMS, RunConfig
from outercore.base.fields import Configuration
from outercore.base.options import Field, configuration, fields, parse_settings
from outercore.cli import app
from outercore.embedding.config import EmbedConfig
from outercore.training.config import TrainConfig

DOCS = Path(__file__).parents[2] / "docs"
MOST_OPTIONS = 20
COMMANDS = [
    *(("train",), ("plan", "train"), ("embed",), ("plan", "embed")),
    *(("run", name.replace("_", "-")) for name in ALGORITHMS),
]
KINDS = (TrainConfig, EmbedConfig, RunConfig)
ALL = [(kind, field) for kind in KINDS for field in fields(kind)]
# Values that are no defaults, for fields that take only some.
OTHERS = {
    "model.relation_dim": 3,
    "loss.kind": "margin",
    "budget.far.address": "tcp://10.0.0.7:7411",
    "far.address": "tcp://10.0.0.7:7411",
    "evaluation.also": ["uniform"],
    "sampling.fanout": [4, 3],
    "budget.group": 1,
    "link.edges": "/held-out.npz",
}


def another(field: Field) -> Any:
    """A value of the field that is not its default."""
    if field.path in OTHERS:
        return OTHERS[field.path]
    if field.path == "model.kind" and field.type is str:
        return "gcn"
    choices = [one for one in getattr(field.type, "__args__", ()) if one != field.default]
    if choices:
        return next(one for one in choices if not hasattr(one, "__args__"))
    if field.type is bool:
        return not field.default
    if field.type is str:
        return "512MiB" if field.option.size else "another"
    return field.type((field.default or 0) + (2 if field.type is int else 0.125))


def value_at(config: Configuration, path: str) -> Any:
    found: Any = config.to_dict()
    for name in path.split("."):
        found = found[name]
    return found


@pytest.mark.parametrize(("kind", "field"), ALL, ids=lambda one: getattr(one, "path", None))
def test_a_field_is_set_by_command_line_python_and_file(
    kind: type[Configuration], field: Field, tmp_path: Path
) -> None:
    value = another(field)
    rest: dict[str, Any] = {}
    if field.path == "model.relation_dim":
        rest = {"model": "custom"}
    if "far." in field.path and field.name != "far":
        rest = {"far": "10.0.0.7"}
    text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
    from_command_line = parse_settings(kind, [f"{field.path}={text}"])
    assert list(from_command_line) == [field.name]
    by_setting = configuration(kind, None, {**rest, **from_command_line})
    by_keyword = configuration(kind, None, {**rest, field.name: value})
    (tmp_path / "config.json").write_text(json.dumps(by_keyword.to_dict()))
    by_file = configuration(kind, tmp_path / "config.json")
    assert value_at(by_keyword, field.path) == value
    assert value_at(by_keyword, field.path) != field.default
    assert by_setting == by_keyword == by_file


@pytest.mark.parametrize("kind", KINDS)
def test_names_and_paths_are_unique_and_every_field_has_an_option(
    kind: type[Configuration],
) -> None:
    names = [field.name for field in fields(kind)]
    assert len(names) == len(set(names))
    described = {field.path for field in fields(kind)}
    far = {"far": {"address": "10.0.0.7"}}
    given = {TrainConfig: {"budget": far}, EmbedConfig: {}, RunConfig: far}[kind]
    values = kind.from_dict(given).to_dict()

    def paths(groups: dict[str, Any], prefix: str = "") -> set[str]:
        found = set()
        for name, value in groups.items():
            inner = paths(value, f"{prefix}{name}.") if isinstance(value, dict) else None
            found |= inner or {prefix + name}
        return found

    assert paths(values) == described


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_a_command_shows_at_most_twenty_options(words: tuple[str, ...]) -> None:
    command: Any = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]
    options = [one.name for one in command.params if isinstance(one, TyperOption)]
    assert len(options) <= MOST_OPTIONS, options


def test_the_page_of_options_is_up_to_date() -> None:
    described = importlib.util.spec_from_file_location("options", DOCS / "options.py")
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    assert (DOCS / "options.md").read_text() == module.page(), "run `python docs/options.py`"
