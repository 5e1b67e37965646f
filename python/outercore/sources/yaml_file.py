"""Descriptions of data sets in YAML, whose values stay the text that they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from outercore.errors import InvalidError
from outercore.likeness import suggestion


class _Plain(yaml.BaseLoader):
    """Text, lists and maps only: a column `no` or `2013` stays a name, and nothing is executed."""


def _map_without_doubles(loader: _Plain, node: yaml.MappingNode) -> dict[Any, Any]:
    keys = [loader.construct_object(key, deep=True) for key, _ in node.value]
    for place, key in enumerate(keys):
        if not isinstance(key, str):
            raise yaml.constructor.ConstructorError(
                None, None, "expected a name before the colon", node.value[place][0].start_mark
            )
        if key in keys[:place]:
            raise yaml.constructor.ConstructorError(
                None, None, f"`{key}` is there twice", node.value[place][0].start_mark
            )
    return loader.construct_mapping(node, deep=True)


_Plain.add_constructor("tag:yaml.org,2002:map", _map_without_doubles)


def read_yaml(path: Path) -> Any:
    """What a YAML file holds: maps, lists and texts.

    Errors: `InvalidError` with the line of what is no YAML, and of a key that comes twice.
    """
    try:
        with path.open(encoding="utf-8") as file:
            return yaml.load(file, Loader=_Plain)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}: " if mark is not None else ""
        raise InvalidError(f"`{path}`: {line}{error.problem}") from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidError(f"`{path}`: {error}") from None


def map_of(value: Any, where: str, known: tuple[str, ...] | None = None) -> dict[str, Any]:
    """`value` as a map; an empty value is an empty map.

    Errors: `InvalidError` for anything else, and for a key that is not in `known`.
    """
    if value in ("", None):
        return {}
    if not isinstance(value, dict):
        raise InvalidError(f"{where}: expected `name: value` lines, found {_kind(value)}")
    for key in value:
        if known is not None and key not in known:
            guess = suggestion(str(key), known, otherwise="known are")
            raise InvalidError(f"{where}: `{key}` is not known\nhint: {guess}")
    return value


def list_of(value: Any, where: str) -> list[Any]:
    """`value` as a list; an empty value is an empty list.

    Errors: `InvalidError` for anything else.
    """
    if value in ("", None):
        return []
    if not isinstance(value, list):
        raise InvalidError(f"{where}: expected a list, found {_kind(value)}")
    return value


def text_of(value: Any, where: str) -> str:
    """`value` as a text.

    Errors: `InvalidError` for anything else, and for none.
    """
    if not isinstance(value, str):
        raise InvalidError(f"{where}: expected one value, found {_kind(value)}")
    if not value:
        raise InvalidError(f"{where}: expected a value, found none")
    return value


def _kind(value: Any) -> str:
    return (
        "a map" if isinstance(value, dict) else "a list" if isinstance(value, list) else str(value)
    )
