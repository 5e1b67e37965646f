"""Options that several verbs share, and how their text is read."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from outercore.config.sizes import parse_size
from outercore.errors import InvalidError
from outercore.far import FarOptions


def size(option: typer.CallbackParam, text: str | None) -> str | None:
    """Callback of an option that takes a size: the error for what is none names the option."""
    if text is not None:
        parse_size(text, option.opts[0])
    return text


def of(kind: type[Any]) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Makes the fields of a dataclass the options of a command, which gets them as one value.

    A command whose first parameter is `context` gets Typer's, too.
    """

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        # A base class may stand in another module, where its annotations are names.
        hints = get_type_hints(kind, include_extras=True)
        own = [
            one.replace(annotation=hints[one.name])
            for one in inspect.signature(kind).parameters.values()
        ]
        wants_context = "context" in inspect.signature(command).parameters

        @functools.wraps(command)
        def run(context: typer.Context, **values: Any) -> None:
            given = kind(**values)
            command(context, given) if wants_context else command(given)

        context = inspect.Parameter(
            "context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context
        )
        ordered = [context, *(one.replace(kind=context.kind) for one in own)]
        run.__signature__ = inspect.Signature(ordered)  # type: ignore[attr-defined]
        run.__annotations__ = {one.name: one.annotation for one in ordered}
        return run

    return decorate


DataSet = Annotated[Path, typer.Argument(help="Directory of the data set.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
Memory = Annotated[
    str,
    typer.Option(
        "--memory", callback=size, help="Memory budget: `8GiB`, `25%` of the machine, or `auto`."
    ),
]
Seed = Annotated[int, typer.Option("--seed", help="Everything random is a function of it.")]
Backend = Annotated[
    str,
    typer.Option("--backend", help="How to read: `auto`, `uring`, `threads` or `mmap`."),
]
Workers = Annotated[int | None, typer.Option("--threads", help="Threads; all cores by default.")]
OutDataSet = Annotated[
    Path, typer.Option("--out", help="Directory of the data set to write.", show_default=False)
]
Overwrite = Annotated[
    bool, typer.Option("--overwrite", help="Replace a data set that is there already.")
]
OverwriteFile = Annotated[
    bool, typer.Option("--overwrite", help="Replace a file that is there already.")
]

_FAR = "Far memory"
Far = Annotated[
    str | None,
    typer.Option(
        "--far",
        metavar="ADDR",
        help="Memory server to read from: `HOST:PORT`, `unix:PATH` or `fabric://HOST:PORT`.",
        rich_help_panel=_FAR,
    ),
]
FarServer = Annotated[
    str,
    typer.Option(
        "--far",
        metavar="ADDR",
        help="The memory server: `HOST:PORT`, `unix:PATH` or `fabric://HOST:PORT`.",
        show_default=False,
    ),
]
FarTokenFile = Annotated[
    Path | None,
    typer.Option(
        "--far-token-file",
        help="File with the server's token; else `OUTERCORE_FAR_TOKEN` of the environment.",
        rich_help_panel=_FAR,
    ),
]
Fallback = Annotated[
    bool,
    typer.Option(
        "--fallback/--no-fallback",
        help="Read from the disk when the server is gone, or fail.",
        rich_help_panel=_FAR,
    ),
]


def far(
    address: str | None, *, token_file: Path | None = None, fallback: bool = True
) -> FarOptions | None:
    """A memory server and how to use it, as the command line said it."""
    if address is not None:
        token = None if token_file is None else str(token_file)
        return FarOptions(address, token_file=token, fallback=fallback)
    for option, given in (("--far-token-file", token_file), ("--no-fallback", not fallback)):
        if given:
            raise InvalidError(f"{option}: expected `--far ADDR` with it")
    return None


def command_line() -> str:
    """The command as it was typed, for the provenance."""
    return " ".join(["outercore", *sys.argv[1:]])


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
def named(context: typer.Context, places: Mapping[str, str]) -> Iterator[None]:
    """Tells a mistake in a configuration by its option: `--model (model.kind): expected ...`.

    `places` says where the value of each parameter stands; a mistake in what the command line does
    not say, but a file or a recipe, stays as it is.

    Errors: `InvalidError` as the block raises it, with the option in front.
    """
    try:
        yield
    except InvalidError as error:
        place, _, rest = str(error).partition(": ")
        for parameter, option in given(context).items():
            if places.get(parameter) == place:
                # An option that is called like its key is told once.
                same = option == f"--{place}".replace("_", "-")
                raise InvalidError(f"{option}{'' if same else f' ({place})'}: {rest}") from None
        raise
