"""The command `outercore`: one file a verb, no logic beyond parsing and calling."""

from __future__ import annotations

import sys
import warnings
from typing import Annotated, Any, NoReturn

import typer

from outercore.base.system_errors import explained
from outercore.base.threads import share_cores
from outercore.cli import console
from outercore.cli.add import add
from outercore.cli.check import check
from outercore.cli.config_options import hint_for
from outercore.cli.convert import convert
from outercore.cli.embed import embed
from outercore.cli.embedding import embedding
from outercore.cli.evaluate import evaluate
from outercore.cli.export_model import export_model
from outercore.cli.far import far
from outercore.cli.generate import generate
from outercore.cli.grid import grid
from outercore.cli.import_ import import_
from outercore.cli.info import info
from outercore.cli.jobs import jobs
from outercore.cli.layout import layout
from outercore.cli.memory_server import memory_server
from outercore.cli.next_step import Known, with_command
from outercore.cli.plan import plan
from outercore.cli.predict import predict
from outercore.cli.probe import probe
from outercore.cli.report import report
from outercore.cli.run_ import algorithms
from outercore.cli.serve import serve
from outercore.cli.train import train
from outercore.cli.tune import tune
from outercore.errors import InternalError, InterruptError, OutercoreError
from outercore.runs.stop import terminate_like_interrupt

# Typer's newer versions bring their own copy of Click, older ones use the package: their common
# ancestor is reached through what Typer exports.
_UsageError: Any = typer.BadParameter.__base__
_ClickException: Any = _UsageError.__base__

_STOPPED_EARLY = (
    "before the end\nhint: run the same command again: imports and jobs go on where they stopped; "
    "`train`, `embed` and `run` go on with `--resume RUN`; everything else begins anew and has "
    "changed nothing"
)
USER_ERROR, OUR_ERROR, STOPPED = 1, 2, 130

app = typer.Typer(
    name="outercore",
    help="Graph learning on graphs that do not fit in memory.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in (
    *(import_, add, check, info, convert, grid, layout, memory_server, probe),
    *(train, evaluate, predict, export_model, serve, embed, tune, jobs, report),
):
    app.command(command.__name__.strip("_").replace("_", "-"), no_args_is_help=True)(command)
app.add_typer(generate, name="generate")
app.add_typer(algorithms, name="run")
app.add_typer(far, name="far")
app.add_typer(plan, name="plan")
app.add_typer(embedding, name="embedding")


def _show_version(wanted: bool) -> None:
    if wanted:
        from outercore import __version__

        console.data(f"outercore {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="The version."),
    ] = False,
) -> None:
    """Graph learning on graphs that do not fit in memory."""


def main() -> NoReturn:
    """Runs the command line and ends the process: 0 done, 1 the user's error, 2 ours."""
    with terminate_like_interrupt():
        code = run(sys.argv[1:])
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """The exit code of `outercore ARGUMENTS`; errors are shown, not raised."""
    share_cores()
    # Printed by PyTorch Geometric's import under recent PyTorch; nothing that a user can mend.
    warnings.filterwarnings("ignore", message=r".*torch\.jit", category=FutureWarning)
    try:
        code = app(args=arguments, obj=arguments, prog_name="outercore", standalone_mode=False)
    except _ClickException as error:
        return _usage(error)
    except InterruptError as error:
        console.stopped(str(error))
        return STOPPED
    except (typer.Abort, KeyboardInterrupt):
        console.stopped(_STOPPED_EARLY)
        return STOPPED
    except OutercoreError as error:
        known = lambda: Known.of(typer.main.get_command(app), arguments)  # noqa: E731
        console.error(with_command(error, arguments, known))
        return OUR_ERROR if isinstance(error, InternalError) else USER_ERROR
    except BrokenPipeError:
        # Whoever read our output has seen enough.
        sys.stderr.close()
        return 0
    except BaseException as error:
        # The core panics where the system gives it no thread.
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        return _unexpected(error)
    if code == STOPPED:
        # Typer answers Ctrl-C by itself, without a word.
        console.stopped(_STOPPED_EARLY)
    return code if isinstance(code, int) else 0


def _unexpected(error: BaseException) -> int:
    """The exit code for an error that is none of ours: the system's refusal, or a bug."""
    message = explained(error)
    if message is None:
        console.crash(error)
        return OUR_ERROR
    console.error(message)
    return USER_ERROR


def _usage(error: Any) -> int:
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        console.note(message)
        return USER_ERROR
    context = getattr(error, "ctx", None)
    hint = f"\nhint: see `{context.command_path} --help`" if context else ""
    if context and (option := getattr(error, "option_name", None)):
        hint = hint_for(context.command, option) or hint
    console.error(message + hint)
    return USER_ERROR
