"""Options of a job: each option is defined once, as a field of the job's configuration.

These fields define the command line, the keywords in Python, the file of `--config`, `--help` and
`docs/options.md`. The options at the end of this module are shared by several jobs.
"""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

from outercore.base.fields import Configuration, one_of
from outercore.base.likeness import suggestion
from outercore.base.other_libraries import called_here
from outercore.base.sizes import parse_size
from outercore.errors import InvalidError, NotFoundError

_Own = TypeVar("_Own", bound=Configuration)
_ARGUMENT = re.compile(r"^    (\w+): (.*(?:\n {5,}.*)*)", re.MULTILINE)
_FLAGS = {"true": True, "false": False, "on": True, "off": False, "yes": True, "no": False}
Backend = Literal["auto", "uring", "threads", "mmap"]
Topology = Literal["auto", "resident", "paged"]
Policy = Literal["window", "lru"]
Precision = Literal["exact", "int8"]


@dataclass(frozen=True)
class Option:
    """The help text of a field, and its names for users."""

    help: str
    name: str = ""
    """Keyword in Python and option of the command line. Default: the name of the field."""
    short: str = ""
    """A second option of the command line, such as `--lr`."""
    sets_also: str = ""
    """Path of another field that gets the same value."""
    size: bool = False
    """Whether the value is a number of bytes, such as `8GiB`."""
    common: bool = False
    """Whether the field has its own command-line option; other fields are set by `--set`."""
    off: str = ""
    """The command-line flag that sets the field to `false`, such as `--directed`."""
    choices: tuple[str, ...] = ()
    """Values for shell completion, if the type does not list all values."""
    least: float | None = None
    """Smallest number that the command line accepts."""
    most: float | None = None
    """Largest number that the command line accepts."""
    panel: str = ""
    """Heading above the option in `--help`."""


@dataclass(frozen=True)
class Field:
    """A field of a configuration."""

    path: str
    """Groups and name of the field, such as `optimiser.learning_rate`."""
    option: Option
    type: Any
    default: Any

    @property
    def name(self) -> str:
        """The keyword in Python. A common field has a command-line option of the same name."""
        return self.option.name or self.path.rpartition(".")[2]

    @property
    def flag(self) -> str:
        """The command-line form: `--learning-rate`, or `--set optimiser.weight_decay`."""
        if self.option.common:
            return f"--{self.name}".replace("_", "-")
        return f"--set {self.path}"

    @property
    def choices(self) -> tuple[str, ...]:
        """The allowed or suggested values; empty if there is no list."""
        if get_origin(self.type) is Literal:
            return tuple(map(str, get_args(self.type)))
        return self.option.choices

    @property
    def described(self) -> str:
        """The help text with the default value."""
        if "default" in self.option.help:
            return self.option.help
        match self.default:
            case None | "" | () | inspect.Parameter.empty:
                return self.option.help
            case bool(value):
                default = "on" if value else "off"
            case tuple(value):
                default = ",".join(map(str, value))
            case str(value):
                default = f"`{value}`"
            case value:
                default = f"{value:.12g}"
        return f"{self.option.help} The default is {default}."

    def parse(self, text: str) -> Any:
        """Converts a string such as `15,10` to a value of the field.

        Errors: `InvalidError` if the string does not fit the type.
        """
        if self.option.size:
            size = parse_size(text, self.path)
            return size if self.type is int else text
        return _parse(self.type, text.strip(), self.path)


def fields(kind: Callable[..., Any]) -> tuple[Field, ...]:
    """All fields of a configuration, group by group, or the parameters of a function.

    The first parameter of a function, `progress` and `resources` are not options. The help texts of
    the others are the `Args:` of the function's docstring.

    Example:
        >>> from outercore.training.config import TrainConfig
        >>> next(field.name for field in fields(TrainConfig) if field.path == "model.kind")
        'model'
    """
    return _fields(kind)


@cache
def _fields(kind: Callable[..., Any]) -> tuple[Field, ...]:
    return tuple(_walk(kind, "") if isinstance(kind, type) else _parameters(kind))


def _parameters(function: Callable[..., Any]) -> Iterator[Field]:
    # Only type checkers need `Unpack`; its parameter is not an option.
    hints = typing.get_type_hints(function, localns={"Unpack": list})
    _, _, described = (inspect.getdoc(function) or "").partition("Args:\n")
    helps = dict(_ARGUMENT.findall(described.partition("\n\n")[0]))
    _first, *others = inspect.signature(function).parameters.values()
    for parameter in others:
        if (name := parameter.name) not in ("progress", "resources"):
            plain = required(hints[name])
            text = " ".join(helps.get(name, "").replace("``", "`").split())
            option = Option(text[:1].upper() + text[1:], size=plain == str | int, common=True)
            yield Field(name, option, plain, parameter.default)


def _walk(kind: Any, prefix: str) -> Iterator[Field]:
    hints = typing.get_type_hints(kind, include_extras=True)
    for field in dataclasses.fields(kind):
        hint, path = hints[field.name], prefix + field.name
        marks = getattr(hint, "__metadata__", ())
        option = next((mark for mark in marks if isinstance(mark, Option)), None)
        plain = required(typing.get_args(hint)[0] if option is not None else hint)
        if dataclasses.is_dataclass(plain):
            yield from _walk(plain, f"{path}.")
        elif option is not None:
            default = None if field.default is dataclasses.MISSING else field.default
            yield Field(path, option, plain, default)


def required(hint: Any) -> Any:
    """A type without `None`."""
    if typing.get_origin(hint) in (types.UnionType, typing.Union):
        choices = [choice for choice in typing.get_args(hint) if choice is not type(None)]
        return typing.Union[tuple(choices)]  # noqa: UP007 - for one type, the result is that type
    return hint


def _parse(hint: Any, text: str, name: str) -> Any:
    origin = typing.get_origin(hint)
    if origin is Literal:
        # The allowed choices may be numbers.
        choices = {str(choice): choice for choice in typing.get_args(hint)}
        one_of(name, text, choices)
        return choices[text]
    if origin is tuple:
        return [_parse(typing.get_args(hint)[0], part, name) for part in text.split(",") if part]
    if hint is bool:
        if text.lower() not in _FLAGS:
            raise InvalidError(f"{name}: expected `true` or `false`, found `{text}`")
        return _FLAGS[text.lower()]
    if origin is not None:
        return text
    try:
        return hint(text)
    except ValueError:
        kind = "a whole number" if hint is int else "a number"
        raise InvalidError(f"{name}: expected {kind}, found `{text}`") from None


def groups_of(kind: type[Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """The groups of a configuration, from options by name. Options that are `None` are ignored.

    Errors: `InvalidError` for an unknown name.
    """
    by_name = {field.name: field for field in fields(kind)}
    for name in options:
        _require_known(name, by_name, "option")
    values = [(by_name[name], value) for name, value in options.items() if value is not None]
    groups: dict[str, Any] = {}
    # An option may be a whole group, such as the options of a memory server.
    for field, value in values:
        if dataclasses.is_dataclass(value):
            _put(groups, field.path.rpartition(".")[0], dataclasses.asdict(value))  # type: ignore[arg-type]
    values = [(field, value) for field, value in values if not dataclasses.is_dataclass(value)]
    # `sets_also` comes first: an explicit option for the other field overrides it in any order.
    for field, value in values:
        if field.option.sets_also:
            _put(groups, field.option.sets_also, value)
    for field, value in values:
        is_bytes = field.option.size and field.type is str and isinstance(value, Integral)
        _put(groups, field.path, str(value) if is_bytes else value)
    return groups


def parse_settings(kind: Callable[..., Any], settings: Iterable[str]) -> dict[str, Any]:
    """Reads options from the strings `NAME=VALUE` of `--set`.

    Errors: `InvalidError` for an unknown path or a value of another type.
    """
    by_path = {field.path: field for field in fields(kind)}
    options = {}
    for setting in settings:
        path, equals, text = setting.partition("=")
        if not equals:
            raise InvalidError(f"--set {setting}: expected NAME=VALUE")
        _require_known(path.strip(), by_path, "setting")
        field = by_path[path.strip()]
        options[field.name] = field.parse(text)
    return options


def _require_known(name: str, known: Mapping[str, Field], what: str) -> None:
    if name in known:
        return
    meant = called_here(name, known)
    if meant is not None:
        raise InvalidError(f"unknown {what} `{name}`\nhint: it is called `{meant}` here")
    raise InvalidError(f"unknown {what} `{name}`\nhint: {suggestion(name, known)}")


def _put(groups: dict[str, Any], path: str, value: Any) -> None:
    group, dot, rest = path.partition(".")
    if dot:
        _put(groups.setdefault(group, {}), rest, value)
    else:
        groups[group] = value


def flat(groups: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """All values of nested groups, by path such as `optimiser.learning_rate`."""
    values: dict[str, Any] = {}
    for name, value in groups.items():
        nested = isinstance(value, Mapping)
        values |= flat(value, f"{prefix}{name}.") if nested else {prefix + name: value}
    return values


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Merges the groups of two configurations. Values of `above` override values of `below`."""
    merged = dict(below)
    for name, value in above.items():
        old = merged.get(name)
        is_group = isinstance(value, Mapping) and isinstance(old, Mapping)
        merged[name] = merge(old, value) if is_group else value  # type: ignore[arg-type]
    return merged


def base_groups(base: Configuration | Mapping[str, Any] | str | Path | None) -> dict[str, Any]:
    """The groups of a configuration. A path names a JSON file, such as `config.json` of a run.

    Errors: `NotFoundError` for a missing file; `InvalidError` if it does not hold a JSON object.
    """
    if base is None:
        return {}
    if isinstance(base, Configuration):
        return base.to_dict()
    return dict(base if isinstance(base, Mapping) else _read(Path(base)))


def _read(path: Path) -> Mapping[str, Any]:
    try:
        values = json.loads(path.read_text())
    except OSError as error:
        raise NotFoundError(f"configuration `{path}`: {error.strerror}") from error
    except ValueError as error:
        raise InvalidError(f"configuration `{path}`: expected JSON, found: {error}") from None
    # `config.json` of a run has the configuration under the key `config`.
    if isinstance(values, Mapping) and "fingerprint" in values and "config" in values:
        values = values["config"]
    if not isinstance(values, Mapping):
        raise InvalidError(f"configuration `{path}`: expected an object, found {values!r}")
    return values


def configuration(
    kind: type[_Own],
    base: Configuration | Mapping[str, Any] | str | Path | None = None,
    options: Mapping[str, Any] | None = None,
) -> _Own:
    """Builds a configuration from `base` and `options`. Options override the base.

    Args:
        kind: the type of the configuration.
        base: a configuration, its groups, or a JSON file of them, such as `config.json` of a run.
        options: values by the names of `fields`. A value of `None` is ignored.

    Errors: `InvalidError` for an unknown name or a wrong value; `NotFoundError` for a missing file.

    Example:
        >>> from outercore.training.config import TrainConfig
        >>> config = configuration(TrainConfig, None, {"model": "gcn", "dropout": 0.2})
        >>> config.model.kind, config.model.dropout
        ('gcn', 0.2)
    """
    return kind.from_dict(merge(base_groups(base), groups_of(kind, options or {})))


MemoryOption = Annotated[
    str,
    Option(
        "Memory budget for data: a size such as `8GiB`, `25%` of the machine's memory, or `auto` "
        "for half of the free memory.",
        size=True,
        common=True,
    ),
]

SeedOption = Annotated[
    int, Option("Seed of all random numbers. The same seed gives the same result.", common=True)
]

DeviceOption = Annotated[
    Literal["auto", "cpu", "cuda"],
    Option("Compute on the CPU (`cpu`) or on a GPU (`cuda`). `auto` takes a GPU if possible."),
]

BackendOption = Annotated[
    Backend,
    Option(
        "Read files by `uring` (io_uring), `threads` (pread) or `mmap`. `auto` takes `uring` if "
        "the kernel offers it, otherwise `threads`."
    ),
]
