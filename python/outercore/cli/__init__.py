"""The command `outercore`: one file for each verb, which parses, calls and prints."""

from __future__ import annotations

import sys
import warnings
from importlib import import_module
from typing import Annotated, Any, ClassVar, NoReturn

import typer

from outercore.base.system_errors import explained
from outercore.base.threads import share_cores
from outercore.cli import console
from outercore.cli.lazy_group import LazyGroup
from outercore.errors import InternalError, InterruptError, OutercoreError
from outercore.runs.stop import terminate_like_interrupt

# Newer versions of Typer contain a copy of Click, older ones import the package. The classes that
# Typer exports lead to the right one.
_UsageError: Any = typer.BadParameter.__base__
_ClickException: Any = _UsageError.__base__

_STOPPED_EARLY = (
    "before the end\nhint: run the same command again: imports and jobs continue; `train`, `embed` "
    "and `run` continue with `--resume RUN`; all others start again and have changed nothing"
)
USER_ERROR, OUR_ERROR, STOPPED = 1, 2, 130


COMMANDS = {
    "import": "Import a graph of any size.",
    "add": "Add features, labels, splits or arrays to a data set, without importing it again.",
    "check": "Verify the structure and the checksums of a data set.",
    "info": "Describe a data set: its sizes, arrays, splits and provenance.",
    "convert": "Convert the features to a smaller type in place, so that they take fewer bytes.",
    "grid": "Write the edges a second time, compressed and in blocks, for `outercore run`.",
    "layout": (
        "Write the features a second time for `outercore serve`, in another order or as int8."
    ),
    "memory-server": (
        "Lend memory to `outercore run` and `outercore train` on this machine or others."
    ),
    "probe": (
        "Measure the latency, requests and bytes per second of a disk, for `outercore plan`."
    ),
    "train": "Train a graph neural network on a graph that need not fit in memory.",
    "evaluate": (
        "Score a model on a split, with all neighbours of each node, layer by layer and out of "
        "core."
    ),
    "predict": "Write a model's predictions for all nodes, all graphs, or the edges of a list.",
    "export-model": (
        "Write the best model of a run as a manifest and weights, to read them without PyTorch."
    ),
    "serve": "Answer requests for predictions, on the machine that holds the data set.",
    "embed": "Learn embeddings of a graph or knowledge graph that need not fit in memory.",
    "tune": "Measure time, bytes and memory of algorithms, by numbers of threads and far ratios.",
    "jobs": "Run a list of `outercore run` commands, as many at once as cores and memory allow.",
    "report": (
        "Write a self-contained HTML page about runs: curves, stages, hits, bytes, passes, memory."
    ),
    "generate": "Generate a graph of any size.",
    "run": "Run a graph algorithm out of core, or resume one.",
    "far": "Manage the data on a memory server.",
    "plan": (
        "Show how a job would divide its memory, without running it. The default job is `train`."
    ),
    "embedding": "Search, rank, compare and export the embeddings of `outercore embed`.",
}
"""The commands in the order of `outercore --help`, with the first paragraphs of their help.

The file of a command repeats its summary, and a test compares the two."""
_MODULES = {"import": "import_", "run": "run_"}
"""Modules with another name than their command, whose word is a keyword or a function here."""


class _Verbs(LazyGroup):
    """All commands."""

    summaries: ClassVar = COMMANDS

    @staticmethod
    def build(name: str) -> Any:
        """Imports the file of a command, and builds the function or group named like the file."""
        module = _MODULES.get(name, name.replace("-", "_"))
        member = getattr(import_module(f"outercore.cli.{module}"), module)
        group = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        if isinstance(member, typer.Typer):
            group.add_typer(member, name=name)
            # A callback keeps the group from being replaced by its only command.
            group.callback()(lambda: None)
            return typer.main.get_command(group).commands[name]  # type: ignore[attr-defined]
        group.command(name, no_args_is_help=True)(member)
        return typer.main.get_command(group)


app = typer.Typer(
    cls=_Verbs,
    name="outercore",
    help="Graph learning on graphs that do not fit in memory.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from outercore import __version__

        console.data(f"outercore {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_show_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Graph learning on graphs that do not fit in memory."""


def main() -> NoReturn:
    """Runs the command line and ends the process: 0 success, 1 the user's error, 2 ours."""
    with terminate_like_interrupt():
        code = run(sys.argv[1:])
    sys.exit(code)


def run(arguments: list[str]) -> int:
    """Runs `outercore ARGUMENTS` and returns the exit code; prints errors instead of raising."""
    share_cores()
    # Recent PyTorch warns about the import of PyTorch Geometric; a user cannot change it.
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
        from outercore.cli.next_step import Known, with_command

        known = lambda: Known.of(typer.main.get_command(app), arguments)  # noqa: E731
        console.error(with_command(error, arguments, known))
        return OUR_ERROR if isinstance(error, InternalError) else USER_ERROR
    except BrokenPipeError:
        # The reader of our output closed it, such as `head`.
        sys.stderr.close()
        return 0
    except BaseException as error:
        # The core panics if the system refuses a thread.
        if not (isinstance(error, Exception) or type(error).__name__ == "PanicException"):
            raise
        if (message := explained(error)) is None:
            console.crash(error)
            return OUR_ERROR
        console.error(message)
        return USER_ERROR
    if code == STOPPED:
        # Typer handles Ctrl-C without a message.
        console.stopped(_STOPPED_EARLY)
    return code if isinstance(code, int) else 0


def _usage(error: Any) -> int:
    message = error.format_message()
    if type(error).__name__ == "NoArgsIsHelpError":
        console.note(message)
        return USER_ERROR
    context = getattr(error, "ctx", None)
    hint = f"\nhint: see `{context.command_path} --help`" if context else ""
    if context and (option := getattr(error, "option_name", None)):
        from outercore.cli.options import hint_for

        hint = hint_for(context.command, option) or hint
    console.error(message + hint)
    return USER_ERROR
