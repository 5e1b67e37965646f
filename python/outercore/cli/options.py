"""Options of commands, from a dataclass, a configuration or a function; shared options."""

from __future__ import annotations

import functools
import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from outercore.base.fields import Configuration
from outercore.base.options import Field, configuration, fields, parse_settings
from outercore.base.other_libraries import instead_of_option
from outercore.base.sizes import parse_size
from outercore.errors import InvalidError

OF_TRIPLES = ("valid", "test", "columns", "unknown")
"""Options of `outercore import` for triples only."""
OF_EACH_IMPORT = (
    *("out", "separator", "header", "comment", "duplicates", "memory", "overwrite", "json"),
)
"""Options of `outercore import` for triples and for any other graph."""
WITH_TRIPLES = (*OF_TRIPLES, *OF_EACH_IMPORT)
"""Options that go with `--triples`."""
Kind = type[Configuration] | Callable[..., Any]
"""Source of options: the fields of a configuration, or the parameters of a function."""
_SETTINGS = "settings"
_Kind = TypeVar("_Kind", bound=Configuration)
_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def size(option: typer.CallbackParam, text: str | None) -> str | None:
    """Callback of an option for a size: the error for another text names the option."""
    if text is not None:
        parse_size(text, option.opts[0])
    return text


def completing(values: Iterable[str]) -> Callable[[str], list[str]] | None:
    """Completion of an option in a shell: the `values` that begin with the typed text.

    `None` for no values: the shell then offers files.
    """
    known = list(values)

    def matching(incomplete: str) -> list[str]:
        return [value for value in known if value.startswith(incomplete)]

    return matching if known else None


DataSet = Annotated[Path, typer.Argument(help="Directory of the data set.", show_default=False)]
Network = Annotated[
    str | None,
    typer.Option(
        help="For a custom model: the code of its network, `FILE.py:NAME`.", show_default=False
    ),
]
ModelMemory = Annotated[
    str | None,
    typer.Option("--memory", help="Memory budget; as in training by default.", callback=size),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
OutDataSet = Annotated[
    Path, typer.Option("--out", help="Directory of the data set to write.", show_default=False)
]
OutRun = Annotated[
    Path | None, typer.Option("--out", help="Run directory; `runs/DATASET-MODEL-N` by default.")
]
Split = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        help="`NAME=FILE` with ids or a mask, may be repeated; or `.npz` with train, valid and "
        "test.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace existing output.")]
ConfigFile = Annotated[
    Path | None,
    typer.Option(
        "--config", help="JSON file of options, such as `config.json` of a run; others override it."
    ),
]


def of(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes the fields of a dataclass the options of a command, which gets them as one value.

    An `Option` or Typer's own classes describe each field. A field that is a dataclass itself
    stands for its fields with an `Option`; a text in its annotation is their panel in `--help`.
    A command whose first parameter is `context` also gets Typer's context.
    """
    parameters: list[inspect.Parameter] = []
    described = {field.path: field for field in fields(kind)}
    groups: dict[str, Any] = {}
    # Annotations of a base class in another module are names of that module.
    hints = get_type_hints(kind, include_extras=True)
    for name, plain in inspect.signature(kind).parameters.items():
        hint = hints[name]
        inner, *marks = get_args(hint) or [hint]
        if is_dataclass(inner):
            groups[name] = inner
            panel = marks[0] if marks else None
            parameters += [parameter(field, panel=panel) for field in fields(inner)]  # type: ignore[arg-type]
        elif name in described:
            parameters.append(parameter(described[name]))
        else:
            parameters.append(plain.replace(annotation=hint))

    def build(values: dict[str, Any]) -> Any:
        for name, group in groups.items():
            parts = {field.path: values.pop(field.name) for field in fields(group)}
            values[name] = group(**parts)
        return kind(**values)

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        wants_context = "context" in inspect.signature(command).parameters

        @functools.wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            with renamed({name: f"--{name}".replace("_", "-") for name in values}):
                arguments = build(values)
            command(context, arguments) if wants_context else command(arguments)

        context = inspect.Parameter("context", _KEYWORD, annotation=typer.Context)
        set_parameters(run, [context, *parameters])
        return run

    return decorate


def takes(
    kind: Kind, *, after: str = "data_set"
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Adds the flags of a configuration or a function to a command, behind one of its parameters.

    The command gets the options that the user set as `values`, by name.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        parameters = dict(inspect.signature(command, eval_str=True).parameters)
        del parameters["values"]
        place = list(parameters).index(after) + 1
        own = list(parameters.values())

        @functools.wraps(command)
        def run(**arguments: Any) -> None:
            values = pop_values(kind, arguments)
            command(**arguments, values=values)

        set_parameters(run, [*own[:place], *flags(kind), *own[place:]])
        if isinstance(kind, type):
            run.configuration = kind  # type: ignore[attr-defined]
        return run

    return decorate


def set_parameters(command: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Has Typer read these parameters instead of the command's own."""
    ordered = [parameter.replace(kind=_KEYWORD) for parameter in parameters]
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in ordered}


def parameter(
    field: Field, *, panel: str | None = None, optional: bool = False, metavar: str | None = None
) -> inspect.Parameter:
    """A field of a dataclass as an option: a number, a flag or a path, else a text.

    An `optional` one is `None` unless the user sets it; its help names the default.
    """
    option, flag = field.option, f"--{field.name}".replace("_", "-")
    required = inspect.Parameter.empty
    kind: Any = field.type if field.type in (int, float, bool) else str
    off = option.off or (flag.replace("--", "--no-", 1) if optional and kind is bool else "")
    help = field.described if optional else option.help
    if field.type == Sequence[str]:
        kind, help = list[str], f"{help} May be repeated."
    described = typer.Option(
        f"{flag}/{off}" if off else flag,
        *([option.short] if option.short else []),
        help=help,
        min=option.least,
        max=option.most,
        callback=size if option.size and not optional else None,
        metavar=metavar,
        rich_help_panel=panel,
        autocompletion=completing(field.choices),
    )
    if field.type == os.PathLike[str]:
        kind = Path
    default = None if optional and field.default is not required else field.default
    if default is None:
        kind |= None
    annotation = Annotated[kind, described]
    return inspect.Parameter(field.name, _KEYWORD, default=default, annotation=annotation)


def flags(kind: Kind, metavars: Mapping[str, str] | None = None) -> list[inspect.Parameter]:
    """The options with a flag; a configuration also gets `--set` for the others."""
    known = metavars or {}
    parameters = [
        parameter(field, optional=True, metavar=known.get(name))
        for name, field in _with_flag(kind).items()
    ]
    if isinstance(kind, type):
        setting = _setting(f"{field.path}=" for field in fields(kind))
        parameters.append(inspect.Parameter(_SETTINGS, _KEYWORD, default=None, annotation=setting))
    return parameters


def _setting(known: Iterable[str]) -> Any:
    """The option `--set`, for which a shell completes the `known` names."""
    described = typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set any option that has no flag; docs/options.md lists all. May be repeated.",
        show_default=False,
        autocompletion=completing(known),
    )
    return Annotated[list[str] | None, described]


def _with_flag(kind: Kind) -> dict[str, Field]:
    """The fields that have a flag, by name."""
    return {field.name: field for field in fields(kind) if field.option.common}


def pop_values(kind: Kind, arguments: dict[str, Any]) -> dict[str, Any]:
    """Removes the options of a configuration or function from the arguments of a command.

    Returns those that the user set, by flag or by `--set`.

    Errors: `InvalidError` for an unknown setting, or a value of another type.
    """
    flags = _with_flag(kind)
    popped = {name: arguments.pop(name) for name in flags}
    values = {name: value for name, value in popped.items() if value not in (None, [])}
    with named(kind, values):
        for name, value in values.items():
            if isinstance(value, str):
                values[name] = flags[name].parse(value)
    return values | parse_settings(kind, arguments.pop(_SETTINGS, None) or ())


def build(kind: type[_Kind], values: Mapping[str, Any]) -> _Kind:
    """The configuration of the options that the user set.

    Errors: `InvalidError` names the flag of a wrong value.
    """
    with named(kind, values):
        return configuration(kind, None, values)


def hint_for(command: Any, option: str) -> str | None:
    """A hint for an unknown flag: the `--set` of an option without a flag, or another option."""
    kind = getattr(command.callback, "configuration", None)
    name = option.removeprefix("--").removeprefix("no-").replace("-", "_")
    for field in fields(kind) if kind is not None else ():
        if field.name == name:
            return f"\nhint: `--set {field.path}=VALUE`: {field.described}"
    known = {param.name for param in command.params}
    algorithm = getattr(command.callback, "algorithm", "")
    advice = instead_of_option(algorithm, name, known) if algorithm else ""
    return f"\nhint: {_with_flags(advice, known)}" if advice else None


def _with_flags(advice: str, known: Container[str]) -> str:
    """Advice for Python with its keywords as flags of a command."""

    def flag(name: re.Match[str]) -> str:
        return f"`--{name[1].replace('_', '-')}`" if name[1] in known else name[0]

    return re.sub(r"`(\w+)`", flag, advice)


def command_line() -> str:
    """The command as the user typed it, for the provenance."""
    return shlex.join(["outercore", *sys.argv[1:]])


def set_on_command_line(context: typer.Context) -> dict[str, str]:
    """Options that the user typed: `--learning-rate` for the parameter `learning_rate`."""
    typed = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.param_type_name == "option" and source and source.name == "COMMANDLINE":
            typed[str(parameter.name)] = parameter.opts[0]
    return typed


def require_one(command: str, data_set: object | None, resume: object | None) -> None:
    """Errors: `InvalidError` unless the user names either a data set or a run to resume."""
    if data_set is None and resume is None:
        raise InvalidError(f"{command}: expected a data set, or `--resume RUN`")
    if data_set is not None and resume is not None:
        raise InvalidError(
            f"{command}: expected a data set, or `--resume RUN`, found both\n"
            f"hint: a run knows its data set: leave `{data_set}` away"
        )


def named(kind: Kind, values: Mapping[str, Any]) -> AbstractContextManager[None]:
    """Names the flag in errors of a configuration, for the options that the user set.

    Errors: `InvalidError` of the block, as `renamed` changes it.
    """
    flags = _with_flag(kind).values()
    return renamed({field.path: field.flag for field in flags if field.name in values})


@contextmanager
def renamed(options: Mapping[str, str]) -> Iterator[None]:
    """Puts the option in front of an error in a configuration: `--model (model.kind): expected`.

    `options` has the flags by their paths in the configuration.

    Errors: `InvalidError` of the block, with the option in front.
    """
    try:
        yield
    except InvalidError as error:
        first, *others = error.parts
        place, _, rest = str(first).partition(": ")
        if (option := options.get(place)) is None:
            raise
        # An option with the same name as its key is named once.
        same = option == f"--{place}".replace("_", "-")
        raise InvalidError(f"{option}{'' if same else f' ({place})'}: {rest}", *others) from None
