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
from typing import Annotated, Any, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import typer

from outercore.base.fields import Configuration
from outercore.base.options import Field, Option, configuration, fields, parse_settings, required
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
Values = dict[str, Any]
"""The options that the user set, by name."""
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
JobDataSet = Annotated[
    Path | None, typer.Argument(help="Directory of the data set.", show_default=False)
]
Network = Annotated[str | None, Option("Load the network of a custom model from `FILE.py:NAME`.")]
ModelMemory = Annotated[
    str | None, Option("Memory budget. The default is the budget of the training.", size=True)
]
Json = Annotated[bool, Option("Print JSON on stdout.")]
OutDataSet = Annotated[Path, Option("Write the data set to this directory.")]
OutRun = Annotated[
    Path | None, Option("Write the run to this directory. The default is `runs/DATASET-MODEL-N`.")
]
Split = Annotated[
    Sequence[str],
    Option(
        "Add a split as `NAME=FILE` with ids or a mask, or all splits from an `.npz` with `train`, "
        "`valid` and `test`."
    ),
]
Overwrite = Annotated[bool, Option("Replace existing output.")]
ConfigFile = Annotated[
    Path | None,
    Option(
        "Read options from this JSON file, such as `config.json` of a run. Options of the command "
        "line override it."
    ),
]


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Makes a function a command: its parameters become arguments and options.

    The annotation of a parameter is one of:

    - Typer's own `Argument` or `Option`;
    - `Annotated[TYPE, Option(...)]`;
    - a dataclass, whose fields become options in the same way; fields without a description do
      not. A text in its annotation is their panel in `--help`.
    - a configuration: it gets an option for each common field, and `--set` for the others;
    - `Annotated[Values, KIND]`: the options of a configuration or a function. The command gets
      those that the user set, by name.
    """
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return with_parameters(function, parameters)


def with_parameters(
    function: Callable[..., None], declared: Iterable[inspect.Parameter]
) -> Callable[..., None]:
    """As `command`, for other parameters than those in the signature of the function."""
    parts = {each.name: _part(each) for each in declared}

    def arguments(values: dict[str, Any]) -> dict[str, Any]:
        return {name: part.take(values) for name, part in parts.items()}

    @functools.wraps(function)
    def run(**values: Any) -> None:
        function(**arguments(values))

    flat = [each for part in parts.values() for each in part.parameters]
    run.__signature__ = inspect.Signature(flat)  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in flat}
    run.arguments = arguments  # type: ignore[attr-defined]
    kinds = [part.kind for part in parts.values() if isinstance(part.kind, type)]
    if kinds:
        run.configuration = kinds[0]  # type: ignore[attr-defined]
    return run


class _Part(NamedTuple):
    """A parameter of a function, as parameters of the command."""

    parameters: list[inspect.Parameter]
    take: Callable[[dict[str, Any]], Any]
    """Takes their values out of the command's, and returns the argument of the function."""
    kind: Kind | None = None


def _part(declared: inspect.Parameter, panel: str | None = None) -> _Part:
    name, annotation = declared.name, declared.annotation
    is_marked = get_origin(annotation) is Annotated
    inner, *marks = get_args(annotation) if is_marked else [annotation]
    if isinstance(inner, type) and issubclass(inner, Configuration):
        return _Part(flags(inner), lambda values: _build(inner, pop_values(inner, values)), inner)
    if is_dataclass(inner):
        return _group(inner, marks[0] if marks else panel)  # type: ignore[arg-type]
    if inner is Values:
        kind, *metavars = marks
        return _Part(flags(kind, *metavars), functools.partial(pop_values, kind), kind)
    if marks and isinstance(marks[0], Option):
        field = Field(name, marks[0], required(inner), declared.default)
        return _Part([parameter(field, panel=panel)], lambda values: values.pop(field.name))
    return _Part([declared.replace(kind=_KEYWORD)], lambda values: values.pop(name))


def _group(kind: type[Any], panel: str | None) -> _Part:
    # Annotations of a base class in another module are names of that module.
    hints = get_type_hints(kind, include_extras=True)
    parts = {
        name: _part(each.replace(annotation=hints[name]), panel)
        for name, each in inspect.signature(kind).parameters.items()
        if is_dataclass(hints[name]) or get_origin(hints[name]) is Annotated
    }
    flat = [each for part in parts.values() for each in part.parameters]

    def build(values: dict[str, Any]) -> Any:
        with renamed({name: f"--{name}".replace("_", "-") for name in parts}):
            return kind(**{name: part.take(values) for name, part in parts.items()})

    return _Part(flat, build)


def parameter(
    field: Field, *, panel: str | None = None, optional: bool = False, metavar: str | None = None
) -> inspect.Parameter:
    """A field of a dataclass as an option: a number, a flag or a path, else a text.

    An `optional` one is `None` unless the user sets it; its help names the default.
    """
    option, flag = field.option, f"--{field.name}".replace("_", "-")
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
        rich_help_panel=option.panel or panel,
        autocompletion=completing(field.choices),
    )
    if field.type in (Path, os.PathLike[str]):
        kind = Path
    is_required = field.default is inspect.Parameter.empty
    default = None if optional and not is_required else field.default
    if default is None:
        kind |= None
    own = () if is_required else (default,)
    return argument(field.name, Annotated[kind, described], *own)


def argument(name: str, annotation: Any, *default: Any) -> inspect.Parameter:
    """A parameter of a command; required without a `default`."""
    value = default[0] if default else inspect.Parameter.empty
    return inspect.Parameter(name, _KEYWORD, default=value, annotation=annotation)


def flags(kind: Kind, metavars: Mapping[str, str] | None = None) -> list[inspect.Parameter]:
    """The options with a flag; a configuration also gets `--set` for the others."""
    known = metavars or {}
    parameters = [
        parameter(field, optional=True, metavar=known.get(name))
        for name, field in _with_flag(kind).items()
    ]
    if isinstance(kind, type):
        setting = _setting(f"{field.path}=" for field in fields(kind))
        parameters.append(argument(_SETTINGS, setting, None))
    return parameters


def _setting(known: Iterable[str]) -> Any:
    """The option `--set`, for which a shell completes the `known` names."""
    described = typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="Set an option that has no flag; docs/options.md lists all options. May be repeated.",
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
    # Every option of a function has a flag.
    settings = arguments.pop(_SETTINGS, None) if isinstance(kind, type) else None
    return values | parse_settings(kind, settings or ())


def _build(kind: type[_Kind], values: Mapping[str, Any]) -> _Kind:
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
