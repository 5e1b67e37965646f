"""Options of the command line that come from a configuration or a function."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Container, Iterable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.base.fields import Configuration
from outercore.base.options import Field, fields, parse_settings
from outercore.base.other_libraries import instead_of_option
from outercore.cli.options import completing, parameter, renamed, set_parameters

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="JSON file of options, such as `config.json` of a run; others override it."
    ),
]
_SETTINGS = "settings"


Kind = type[Configuration] | Callable[..., Any]
"""The source of options: the fields of a configuration, or the parameters of a function."""


def takes(
    kind: Kind, *, after: str = "data_set"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the flags of a configuration or a function to a command after one of its parameters.

    The command gets what the user gave as `given`, by the names of the options.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["given"]
        place = list(own).index(after) + 1
        parameters = list(own.values())

        @functools.wraps(command)
        def run(**values: Any) -> None:
            given = taken(kind, values)
            command(**values, given=given)

        set_parameters(run, [*parameters[:place], *flags(kind), *parameters[place:]])
        if isinstance(kind, type):
            run.configuration = kind  # type: ignore[attr-defined]
        return run

    return decorate


def flags(kind: Kind, metavars: Mapping[str, str] | None = None) -> list[inspect.Parameter]:
    """The options that have a flag; for a configuration `--set`, too, which has the others."""
    known = metavars or {}
    found = [
        parameter(field, optional=True, metavar=known.get(name))
        for name, field in common(kind).items()
    ]
    if isinstance(kind, type):
        keyword = inspect.Parameter.KEYWORD_ONLY
        setting = _setting(f"{field.path}=" for field in fields(kind))
        found.append(inspect.Parameter(_SETTINGS, keyword, default=None, annotation=setting))
    return found


def _setting(known: Iterable[str]) -> Any:
    """The option `--set`, for which a shell completes what is `known`."""
    described = typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set an option that has no flag; docs/options.md lists all. May be repeated.",
        show_default=False,
        autocompletion=completing(known),
    )
    return Annotated[list[str] | None, described]


def common(kind: Kind) -> dict[str, Field]:
    """The fields that have a flag, by name."""
    return {field.name: field for field in fields(kind) if field.option.common}


def taken(kind: Kind, values: dict[str, Any]) -> dict[str, Any]:
    """Takes the options of a configuration or function out of the values of a command line, with
    the settings of `--set`.

    Errors: `InvalidError` for an unknown setting, or a value of another type.
    """
    flags = common(kind)
    found = {name: values.pop(name) for name in flags}
    given = {name: value for name, value in found.items() if value not in (None, [])}
    with named(kind, given):
        for name, value in given.items():
            if isinstance(value, str):
                given[name] = flags[name].parse(value)
    return given | parse_settings(kind, values.pop(_SETTINGS, None) or ())


def hint_for(command: Any, option: str) -> str | None:
    """A hint for a rarer option that was used as a flag: the way to set it."""
    kind = getattr(command.callback, "configuration", None)
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    for field in fields(kind) if kind is not None else ():
        if field.name == name:
            return f"\nhint: `--set {field.path}=VALUE`: {field.described}"
    taken = {param.name for param in command.params}
    algorithm = getattr(command.callback, "algorithm", "")
    advice = instead_of_option(algorithm, name, taken) if algorithm else ""
    return f"\nhint: {_with_flags(advice, taken)}" if advice else None


def _with_flags(advice: str, taken: Container[str]) -> str:
    """Advice for Python with options as a command has them."""

    def flag(name: re.Match[str]) -> str:
        return f"`--{name[1].replace('_', '-')}`" if name[1] in taken else name[0]

    return re.sub(r"`(\w+)`", flag, advice)


def named(kind: Kind, given: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Names the option in errors of a configuration: `--model (model.kind): expected ...`.

    Errors: `InvalidError` as the block raises it, with the option in front.
    """
    flags = common(kind).values()
    return renamed({field.path: field.flag for field in flags if field.name in given})
