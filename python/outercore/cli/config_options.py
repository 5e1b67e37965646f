"""Options of the command line that come from the fields of a configuration."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.config.fields import Configuration
from outercore.config.options import Field, fields, parse_settings
from outercore.errors import InvalidError

ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="JSON file of options, such as `config.json` of a run; others override it."
    ),
]
Settings = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="GROUP.NAME=VALUE",
        help="Set any option of docs/options.md, also those without a flag here; may be repeated.",
        show_default=False,
    ),
]


def takes(kind: type[Configuration]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the common options of a configuration, and `--set`, to a command after its argument.

    The command gets what the user gave as `given`, by the names of the options.
    """
    common = {field.name: field for field in fields(kind) if field.option.common}

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        own = dict(inspect.signature(command, eval_str=True).parameters)
        del own["given"]
        parameters = {
            "data_set": own["data_set"],
            **{name: _parameter(name, _described(field)) for name, field in common.items()},
            "settings": _parameter("settings", Settings),
            **own,
        }

        @functools.wraps(command)
        def run(**values: Any) -> None:
            taken = {name: values.pop(name) for name in common}
            given = {name: value for name, value in taken.items() if value is not None}
            with named(kind, given):
                for name, value in given.items():
                    if isinstance(value, str):
                        given[name] = common[name].parse(value)
            given |= parse_settings(kind, values.pop("settings") or ())
            command(**values, given=given)

        ordered = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters.values()]
        run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in ordered}
        run.configuration = kind  # type: ignore[attr-defined]
        return run

    return decorate


def _described(field: Field) -> Any:
    """The annotation of a field's option."""
    names = [field.flag, *([field.option.short] if field.option.short else [])]
    kind: Any = field.type if field.type in (int, float, bool) else str
    if kind is bool:
        names[0] = f"{field.flag}/--no-{field.flag.removeprefix('--')}"
    return Annotated[kind | None, typer.Option(*names, help=field.described)]


def _parameter(name: str, annotation: Any) -> inspect.Parameter:
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter(name, kind, default=None, annotation=annotation)


def hint_for(command: Any, option: str) -> str | None:
    """How a rarer option of a command is set, where somebody used it as a flag."""
    kind = getattr(command.callback, "configuration", None)
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    for field in fields(kind) if kind is not None else ():
        if field.name == name:
            return f"hint: `--set {field.path}=VALUE`: {field.described}"
    return None


@contextmanager
def named(kind: type[Configuration], given: dict[str, Any]) -> Iterator[None]:
    """Names the option in errors of a configuration: `--model (model.kind): expected ...`.

    Errors: `InvalidError` as the block raises it, with the option in front.
    """
    try:
        yield
    except InvalidError as error:
        place, _, rest = str(error).partition(": ")
        for field in fields(kind):
            if field.path == place and field.option.common and field.name in given:
                raise InvalidError(f"{field.flag} ({place}): {rest}") from None
        raise
