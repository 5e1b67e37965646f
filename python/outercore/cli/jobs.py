"""`outercore jobs`: run several algorithms at once, each with enough memory and threads."""

from __future__ import annotations

import json as json_format
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from outercore.base.display import value_of
from outercore.base.likeness import hint_like
from outercore.base.options import Option
from outercore.base.sizes import parse_size
from outercore.cli import console, options
from outercore.errors import CorruptError, InvalidError, NotFoundError

if TYPE_CHECKING:
    from outercore.analytics.scheduling.launch import JobState
    from outercore.analytics.scheduling.needs import Request

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_COLUMNS = ("name", "status", "threads", "memory", "far_ratio", "seconds", "peak_memory")
FAILED = 1


@options.command
def jobs(
    file: Annotated[
        Path,
        typer.Argument(
            help='JSON file with a list of commands, such as `["run wcc papers"]`.',
            show_default=False,
        ),
    ],
    memory: Annotated[
        str,
        Option(
            "Use at most this much memory for all jobs together. `auto` is the free memory of the "
            "machine.",
            size=True,
        ),
    ] = "auto",
    table: Annotated[
        Path | None,
        Option(
            "Read the measurements from this table of `outercore tune`. The default is the table "
            "in the user's data directory."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        Option("Write the records of the jobs to this directory. The default is `runs/FILE`."),
    ] = None,
    patience: Annotated[
        float,
        Option(
            "Refuse a job that has waited this many seconds for memory of other processes, while "
            "no other job runs."
        ),
    ] = 600.0,
    json: options.Json = False,
) -> None:
    """Run a list of `outercore run` commands, as many at once as cores and memory allow.

    Each job gets separate cores and a part of the memory, by the measurements of `outercore tune`:
    the threads that save the most time, and the smallest memory that hardly slows it down. A job
    that does not fit waits. A command may set `--threads`, `--memory` and `--set far_ratio=...`.
    An entry of the list is a command, or `{"name": ..., "command": ...}`.

    Ctrl-C stops all jobs. Run the command again to resume: it skips finished jobs, and continues
    stopped jobs from their checkpoints.

    **Example**

        outercore jobs night.json --memory 16GiB
    """
    from outercore.analytics.scheduling import launch, machine
    from outercore.analytics.scheduling.files import load_table, table_path

    requests = read_requests(file)
    path = table or table_path()
    if table is not None and not table.exists():
        raise NotFoundError(f"table `{table}` does not exist\nhint: `outercore tune` writes it")
    measured = load_table(path)
    if measured.machine not in (None, machine.described()):
        console.note(f"note: table `{path}` was measured on another machine: {measured.machine}")
    directory = out or Path("runs") / file.stem
    with console.bars(quiet=json) as progress:
        states = launch.run_jobs(
            requests,
            measured,
            directory,
            machine.Machine(None if memory == "auto" else parse_size(memory)),
            patience_s=patience,
            observer=_printer(quiet=json),
            progress=progress,
        )
    if json:
        console.json_data([asdict(state) for state in states])
    else:
        _print(states, directory)
    if any(state.status != "done" for state in states):
        raise typer.Exit(FAILED)


def read_requests(file: Path) -> list[Request]:
    """The requests of the commands in a file.

    Errors: `InvalidError`, `CorruptError`, `NotFoundError` name the entry.
    """
    try:
        entries = json_format.loads(file.read_text())
    except FileNotFoundError:
        raise NotFoundError(f"jobs `{file}`: no such file") from None
    except (OSError, ValueError) as error:
        raise CorruptError(f"jobs `{file}`: {error}") from None
    if not isinstance(entries, list):
        raise InvalidError(f"jobs `{file}`: expected a JSON list of commands")
    requests: list[Request] = []
    for number, entry in enumerate(entries, 1):
        try:
            request = parse(*_entry(entry, number))
        except InvalidError as error:
            raise InvalidError(f"jobs `{file}`, entry {number}: ", *error.parts) from None
        if any(request.name == other.name for other in requests):
            raise InvalidError(f"jobs `{file}`, entry {number}: a second `{request.name}`")
        requests.append(request)
    return requests


def parse(name: str, words: Sequence[str]) -> Request:
    """The request of an `outercore run` command.

    Errors: `InvalidError` for a command that `outercore run` would refuse, or that runs nothing.
    """
    from outercore.analytics.scheduling.needs import Request
    from outercore.cli import run_

    verb, *rest = words or [""]
    if verb != "run" or not rest:
        raise InvalidError(f"expected `run ALGORITHM DATASET ...`, found `{' '.join(words)}`")
    group: Any = typer.main.get_command(run_.run_)
    command = group.commands.get(rest[0])
    if command is None:
        known = ", ".join(group.commands)
        guess = hint_like(rest[0], group.commands)
        raise InvalidError(f"algorithm `{rest[0]}`: expected one of {known}{guess}")
    usage_error: Any = typer.BadParameter.__base__
    try:
        context = command.make_context(rest[0], list(rest[1:]))
    except usage_error as error:
        raise InvalidError(error.format_message()) from None
    except typer.Exit:
        raise InvalidError(f"`{' '.join(words)}` runs nothing") from None
    arguments = command.callback.arguments(dict(context.params))
    job = run_.job_of(rest[0].replace("-", "_"), **arguments)
    output = job.output
    if output.plan or not output.keeps_record:
        option = "--plan" if output.plan else "--record none"
        raise InvalidError(f"{option}: expected a command that runs and keeps a record")
    return Request(
        name=name,
        words=tuple(words),
        data_set=job.data_set,
        config=job.config,
        memory=parse_size(job.fixed["memory"]) if "memory" in job.fixed else None,
        record=output.record,
    )


def _entry(entry: Any, number: int) -> tuple[str, list[str]]:
    fields = entry if isinstance(entry, dict) else {"command": entry}
    if "command" not in fields or fields.keys() - {"name", "command"}:
        raise InvalidError('expected `{"name": ..., "command": ...}`')
    command = fields["command"]
    if not isinstance(command, str):
        raise InvalidError(f"expected a command, found {json_format.dumps(command)}")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise InvalidError(f"`{command}`: {error}") from None
    if words[:1] == ["outercore"]:
        words = words[1:]
    name = fields.get("name", "-".join([f"{number:02}", *words[1:2]]))
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidError(
            f"name {json_format.dumps(name)}: expected letters, digits, `.`, `_`, `-`"
        )
    return name, words


def _printer(*, quiet: bool) -> Callable[[Sequence[JobState]], None]:
    """An observer that prints a line for each change of a status."""
    known: dict[str, str] = {}

    def show(states: Sequence[JobState]) -> None:
        for state in states:
            if not quiet and known.get(state.name, "waiting") != state.status:
                console.note(f"{state.name}: {_line(state)}")
            known[state.name] = state.status

    return show


def _line(state: JobState) -> str:
    words: list[str] = [state.status]
    if state.status == "running":
        cores = ",".join(str(core) for core in state.cores)
        words.append(f"on cores {cores} with {value_of('memory', state.memory)}")
        words += [] if state.estimate is None else [f"about {state.estimate:.3g} s"]
    if state.status == "done":
        words.append(f"in {value_of('seconds', state.seconds)}")
    return ", ".join([*words, *([state.error] if state.error else [])])


def _print(states: Sequence[JobState], directory: Path) -> None:
    console.columns(map(vars, states), console.cells_of(_COLUMNS))
    for state in states:
        for note in [*state.notes, *([state.error] if state.error else [])]:
            console.note(f"{state.name}: {note}")
    console.data(f"records in {directory}")
