"""The header of a file that `neo4j-admin database import` reads.

Source: the Neo4j operations manual, "CSV header format".
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from outercore.errors import InvalidError

Role = Literal["key", "source", "target", "label", "type", "number", "numbers", "time", "text"]

_FIELD = re.compile(
    r"(?P<name>.*?)(?::(?P<kind>[A-Za-z_]+)(?P<array>\[\])?(?:\((?P<space>.*?)\))?(?:\{.*\})?)?$"
)
_ENDS: dict[str, Role] = {
    "ID": "key",
    "START_ID": "source",
    "END_ID": "target",
    "LABEL": "label",
    "TYPE": "type",
}
_WHOLE = ("int", "long", "short", "byte")
_TIMES = ("date", "datetime", "localdatetime")
_OTHERS = ("string", "char", "point", "time", "localtime", "duration")


@dataclass(frozen=True)
class Field:
    """A column: what it is called and what it holds."""

    column: int
    """Its place in the file."""
    text: str
    """The field of the header."""
    name: str
    role: Role
    dtype: np.dtype | None
    """The type of numbers."""
    space: str
    """Within what keys are unique; empty for the one space of all keys without a name."""


@dataclass(frozen=True)
class Header:
    """What the columns of a file hold, without those that are to be ignored."""

    path: Path
    fields: tuple[Field, ...]
    columns: int
    """All columns of the file."""

    def of(self, *roles: Role) -> list[Field]:
        """The columns with one of these roles."""
        return [field for field in self.fields if field.role in roles]

    @property
    def properties(self) -> list[Field]:
        """The columns that are neither keys nor types."""
        return self.of("number", "numbers", "time", "text")

    @property
    def is_nodes(self) -> bool:
        """Whether the rows are nodes, and not relationships."""
        return bool(self.of("key"))

    def space_of(self, role: Role) -> str:
        """The space of the keys in these columns."""
        return self.of(role)[0].space


def is_header(names: list[str]) -> bool:
    """Whether a first line names columns as Neo4j does."""
    kinds = {found["kind"] for name in names if (found := _FIELD.fullmatch(name)) is not None}
    return "ID" in kinds or {"START_ID", "END_ID"} <= kinds


def read_header(path: Path, names: list[str]) -> Header:
    """The header with these fields.

    Errors: `InvalidError` names the field that is not known, or what is missing.
    """
    fields = []
    for column, name in enumerate(names):
        field = _field(path, column, name)
        if field is not None:
            fields.append(field)
    header = Header(path, tuple(fields), len(names))
    if header.of("key") and header.of("source", "target", "type"):
        raise InvalidError(f"`{path}`: the header has the fields of nodes and of relationships")
    if header.of("key") and len({field.space for field in header.of("key")}) > 1:
        raise InvalidError(f"`{path}`: the fields `:ID` are of different spaces")
    roles: tuple[Role, Role] = ("label", "type")
    for role in roles:
        if len(header.of(role)) > 1:
            raise InvalidError(f"`{path}`: two fields `:{role.upper()}`, expected one")
    properties = [field.name for field in header.properties]
    for name in properties:
        if properties.count(name) > 1:
            raise InvalidError(f"`{path}`: two properties are called `{name}`")
    return header


def _field(path: Path, column: int, text: str) -> Field | None:
    found = _FIELD.fullmatch(text)
    assert found is not None  # The pattern matches any text.
    name, kind = found["name"], found["kind"] or "string"
    if kind == "IGNORE":
        return None
    if kind in _ENDS:
        return Field(column, text, name, _ENDS[kind], None, found["space"] or "")
    lower = kind.lower()
    is_array = found["array"] is not None
    role: Role = "text"
    dtype = None
    if lower in _WHOLE or lower == "boolean":
        dtype = np.dtype(np.int64 if lower in _WHOLE else np.bool_)
    elif lower in ("float", "double"):
        dtype = np.dtype(np.float64)
    elif lower in _TIMES and not is_array:
        role = "time"
    elif lower not in (*_TIMES, *_OTHERS):
        known = ", ".join([*_ENDS, "IGNORE", *_WHOLE, "boolean", "float", "double", *_TIMES])
        raise InvalidError(
            f"`{path}`: the header has `{text}`, and `{kind}` is not known\n"
            f"hint: known are {known}, {', '.join(_OTHERS)}"
        )
    if dtype is not None:
        role = "numbers" if is_array else "number"
    return Field(column, text, name, role, dtype, "")
