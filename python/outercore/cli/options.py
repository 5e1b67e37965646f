"""Options that several verbs share, and how their text is read."""

from __future__ import annotations

import functools
import inspect
import os
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from outercore.base.options import Field, fields
from outercore.base.sizes import parse_size
from outercore.errors import InvalidError

OF_TRIPLES = ("valid", "test", "columns", "unknown")
"""Options of `outercore import` that only triples have."""
OF_EACH_IMPORT = (
    *("out", "separator", "header", "comment", "duplicates", "memory", "overwrite", "json"),
)
"""Options of `outercore import` for triples and for any other graph."""
WITH_TRIPLES = (*OF_TRIPLES, *OF_EACH_IMPORT)
"""Options that go with `--triples`."""


def size(option: typer.CallbackParam, text: str | None) -> str | None:
    """Callback of an option that takes a size: the error for what is none names the option."""
    if text is not None:
        parse_size(text, option.opts[0])
    return text


def of(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes the fields of a dataclass the options of a command, which gets them as one value.

    Each is described by an `Option`, or by what Typer takes. A field that is a dataclass itself
    stands for its fields that have an `Option`; a text in its annotation is their panel in
    `--help`. A command whose first parameter is `context` gets Typer's, too.
    """
    own: list[inspect.Parameter] = []
    described = {field.path: field for field in fields(kind)}
    groups: dict[str, Any] = {}
    # A base class may stand in another module, where its annotations are names.
    hints = get_type_hints(kind, include_extras=True)
    for name, one in inspect.signature(kind).parameters.items():
        hint = hints[name]
        inner, *marks = get_args(hint) or [hint]
        if is_dataclass(inner):
            groups[name] = inner
            own += [parameter(field, panel=marks[0] if marks else None) for field in fields(inner)]  # type: ignore[arg-type]
        elif name in described:
            own.append(parameter(described[name]))
        else:
            own.append(one.replace(annotation=hint))

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
                given = build(values)
            command(context, given) if wants_context else command(given)

        context = inspect.Parameter(
            "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
        )
        set_parameters(run, [context, *own])
        return run

    return decorate


def set_parameters(command: Callable[..., None], parameters: list[inspect.Parameter]) -> None:
    """Has Typer read these parameters instead of the command's own."""
    ordered = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in parameters]
    command.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in ordered}


def parameter(
    field: Field, *, panel: str | None = None, optional: bool = False, metavar: str | None = None
) -> inspect.Parameter:
    """A field of a dataclass as an option; what is no number, flag or path is text.

    An `optional` one is `None` where the user does not give it; its help names the default.
    """
    option, flag = field.option, f"--{field.name}".replace("_", "-")
    required = inspect.Parameter.empty
    kind: Any = field.type if field.type in (int, float, bool) else str
    off = option.off or (flag.replace("--", "--no-", 1) if optional and kind is bool else "")
    shown = field.described if optional else option.help
    if field.type == Sequence[str]:
        kind, shown = list[str], f"{shown} May be repeated."
    described = typer.Option(
        f"{flag}/{off}" if off else flag,
        *([option.short] if option.short else []),
        help=shown,
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
    keyword = inspect.Parameter.KEYWORD_ONLY
    annotation = Annotated[kind, described]
    return inspect.Parameter(field.name, keyword, default=default, annotation=annotation)


def completing(values: Iterable[str]) -> Callable[[str], list[str]] | None:
    """What a shell offers for an option: those of `values` that begin as what was typed.

    `None` where there are no values: the shell then offers files.
    """
    known = list(values)

    def matching(incomplete: str) -> list[str]:
        return [value for value in known if value.startswith(incomplete)]

    return matching if known else None


DataSet = Annotated[Path, typer.Argument(help="Directory of the data set.", show_default=False)]
Network = Annotated[
    str | None,
    typer.Option(
        help="Of a model of your own: the code of its network, `FILE.py:NAME`.", show_default=False
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
OutDataSet = Annotated[
    Path, typer.Option("--out", help="Directory of the data set to write.", show_default=False)
]
Split = Annotated[
    list[str] | None,
    typer.Option(
        "--split",
        help="`NAME=FILE` with ids or a mask, may be repeated; or `.npz` with train, valid and "
        "test.",
    ),
]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is there already.")]


def command_line() -> str:
    """The command as it was typed, for the provenance."""
    return shlex.join(["outercore", *sys.argv[1:]])


def require_one(command: str, data_set: object | None, resume: object | None) -> None:
    """Errors: `InvalidError` unless either a data set or a run to go on with is given."""
    if data_set is None and resume is None:
        raise InvalidError(f"{command}: expected a data set, or `--resume RUN`")
    if data_set is not None and resume is not None:
        raise InvalidError(
            f"{command}: expected a data set, or `--resume RUN`, found both\n"
            f"hint: a run knows its data set: leave `{data_set}` away"
        )


def given(context: typer.Context) -> dict[str, str]:
    """What the command line itself says: `--learning-rate` for the parameter `learning_rate`."""
    found = {}
    for parameter in context.command.params:
        source = context.get_parameter_source(parameter.name or "")
        if parameter.param_type_name == "option" and source and source.name == "COMMANDLINE":
            found[str(parameter.name)] = parameter.opts[0]
    return found


@contextmanager
def renamed(options: Mapping[str, str]) -> Iterator[None]:
    """Tells a mistake in a configuration by its option: `--model (model.kind): expected ...`.

    `options` has it by the place in the configuration.

    Errors: `InvalidError` as the block raises it, with the option in front.
    """
    try:
        yield
    except InvalidError as error:
        place, _, rest = str(error).partition(": ")
        if (option := options.get(place)) is None:
            raise
        # An option with the same name as its key is named once.
        same = option == f"--{place}".replace("_", "-")
        raise InvalidError(f"{option}{'' if same else f' ({place})'}: {rest}") from None
