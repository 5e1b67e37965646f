"""Configurations as frozen dataclasses. They are read from plain values, checked, and written."""

from __future__ import annotations

import dataclasses
import json
import math
import types
import typing
from collections.abc import Iterable, Mapping
from operator import index
from typing import Any, Literal, TypeVar

from outercore.base.likeness import hint_like, suggestion
from outercore.errors import InvalidError

_Built = TypeVar("_Built")
_Own = TypeVar("_Own", bound="Configuration")
_NAMES = {int: "a whole number", float: "a number", bool: "True or False", str: "a text"}


class Configuration:
    """Base class of configurations: frozen dataclasses whose fields are groups of options."""

    def to_dict(self) -> dict[str, Any]:
        """The groups of options as plain JSON values, in the order of the fields."""
        return dataclasses.asdict(self)  # type: ignore[call-overload]

    def to_json(self) -> str:
        """The configuration as indented JSON."""
        return json.dumps(self.to_dict(), indent=2) + "\n"

    @classmethod
    def from_dict(cls: type[_Own], values: Mapping[str, Any]) -> _Own:
        """The configuration with these groups of values. Missing values take their defaults.

        Errors: `InvalidError` names an unknown group or key, or a value of the wrong type.
        """
        return build(cls, values, "")


def build(kind: type[_Built], values: Any, path: str) -> _Built:
    """Builds a dataclass of type `kind` from plain values. `path` is for messages.

    Errors: `InvalidError` names an unknown group or key, or a value of the wrong type.
    """
    name = path or "configuration"
    if not isinstance(values, Mapping):
        raise InvalidError(f"{name}: expected an object, found {values!r}")
    hints = typing.get_type_hints(kind)
    prefix = f"{path}." if path else ""
    for key in values:
        if key not in hints:
            known = [prefix + name for name in hints]
            guess = suggestion(f"{prefix}{key}", known)
            raise InvalidError(f"{name}: unknown key `{prefix}{key}`\nhint: {guess}")
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        required = (field.default, field.default_factory) == (dataclasses.MISSING,) * 2
        if required and field.name not in values:
            raise InvalidError(f"{prefix}{field.name}: expected a value, found none")
    return kind(**{key: typed(hints[key], value, prefix + key) for key, value in values.items()})


def typed(hint: Any, value: Any, path: str) -> Any:
    """Converts `value` to the type `hint`; `path` is for messages.

    It does not convert strings to numbers (`"3"`), because that would hide mistakes. Numbers of
    NumPy and PyTorch become Python numbers.

    Errors: `InvalidError` for a value of another type.
    """
    if hint is Any:
        return value
    if dataclasses.is_dataclass(hint):
        return build(hint, value, path)  # type: ignore[arg-type]
    origin = typing.get_origin(hint)
    if origin is Literal:
        one_of(path, value, typing.get_args(hint))
        return value
    if origin is dict:
        if not isinstance(value, Mapping):
            raise InvalidError(f"{path}: expected an object, found {value!r}")
        return dict(value)
    if origin is types.UnionType:
        inner = next(choice for choice in typing.get_args(hint) if choice is not type(None))
        return None if value is None else typed(inner, value, path)
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise InvalidError(f"{path}: expected a list, found {value!r}")
        return tuple(typed(typing.get_args(hint)[0], item, path) for item in value)
    return _plain(hint, value, path)


def _plain(hint: Any, value: Any, path: str) -> Any:
    """Checks a string, Boolean or number. Scalars of NumPy and PyTorch become Python values."""
    if hasattr(value, "dtype") and getattr(value, "ndim", None) == 0:
        value = value.item()
    accepted = (int, float) if hint is float else hint
    if not isinstance(value, accepted) or (isinstance(value, bool) and hint is not bool):
        raise InvalidError(f"{path}: expected {_NAMES.get(hint, hint.__name__)}, found {value!r}")
    return float(value) if hint is float else value


def one_of(name: str, value: Any, choices: Iterable[Any]) -> None:
    """Errors: `InvalidError` if `value` is not one of the choices."""
    known = list(choices)
    if value not in known:
        listed = [str(choice) for choice in known]
        guess = hint_like(str(value), listed)
        raise InvalidError(f"{name}: expected one of {', '.join(listed)}; found {value!r}{guess}")


def positive(name: str, value: float) -> None:
    """Errors: `InvalidError` if `value` is not a finite number above zero."""
    if not 0 < value < math.inf:
        raise InvalidError(f"{name}: expected a positive number, found {value}")


def within(name: str, value: float, least: float, most: float | None) -> None:
    """Errors: `InvalidError` if `value` is not from `least` to `most`; `None` means unlimited."""
    if not (least <= value < math.inf) or (most is not None and value > most):
        limits = (
            f"at least {_shown(least)}" if most is None else f"{_shown(least)} to {_shown(most)}"
        )
        raise InvalidError(f"{name}: expected {limits}, found {value}")


def whole(name: str, value: Any, least: float, most: float | None = None) -> int:
    """Converts an integer of Python, NumPy or PyTorch to a Python integer.

    Errors: `InvalidError` for another type, and for a number outside `least` to `most`.
    """
    try:
        if isinstance(value, bool):
            raise TypeError
        integer = index(value)
    except TypeError:
        raise InvalidError(f"{name}: expected a whole number, found {value!r}") from None
    within(name, integer, least, most)
    return integer


def number(name: str, value: Any) -> float:
    """Converts a finite number of Python, NumPy or PyTorch to a Python float.

    Errors: `InvalidError` for another type, and for infinity or NaN.
    """
    result: float = _plain(float, value, name)
    if not math.isfinite(result):
        raise InvalidError(f"{name}: expected a finite number, found {value!r}")
    return result


def _shown(bound: float) -> str:
    """A bound as text. Integers are written with all digits."""
    return str(bound) if isinstance(bound, int) else f"{bound:g}"
