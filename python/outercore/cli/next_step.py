"""What to type after an error: the command as it was, with what its hint says."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from outercore.base.sizes import as_option
from outercore.cli.options import WITH_TRIPLES
from outercore.errors import HINT, BudgetError, OutercoreError, Part, Remedy, in_words

_MORE = ("raise ", "give more ", "give that ")
"""Texts before an option of a budget, which the command says better."""
_COLUMNS = re.compile(r"`([^`\s-][^`]*:[^`]+)`")
"""A file with columns in a hint, as the command takes it."""
_EXAMPLE = re.compile(r"\b(SOURCE|TARGET|HEAD|RELATION|TAIL|NAME|COLUMN)\b")
"""Names of columns that the user has to replace."""
_FULL = re.compile("`outercore [^`]+`")
"""A whole command in a message."""
_PLACES = {"data_set": "DATASET", "run": "RUN", "model": "RUN"}
"""Placeholders of whole commands by the arguments that have their values."""
_OFF = {"undirected": "--directed"}
"""Flags for `False`; others begin with `--no-`."""
_CHOICE = "say which"
"""How a hint begins whose options are readings to choose from: each has a command."""


@dataclass(frozen=True)
class Known:
    """The options of a command, and values of placeholders such as DATASET in its command line."""

    options: Container[str] = ()
    places: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, command: Any, arguments: Sequence[str]) -> Known:
        """The options and values of the innermost command in a command line."""
        depth = 0
        while depth < len(arguments) and arguments[depth] in getattr(command, "commands", {}):
            command = command.commands[arguments[depth]]
            depth += 1
        options = {
            name
            for parameter in command.params
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        try:
            rest = list(arguments[depth:])
            given = command.make_context(None, rest, resilient_parsing=True).params
        except OutercoreError:
            # The error to explain is one of the command line.
            given = {}
        if command.name == "import":
            given = {"data_set": given.get("out")}
        places = {
            _PLACES[name]: shlex.quote(str(one))
            for name, one in given.items()
            if name in _PLACES and one
        }
        return cls(options, places)


def with_command(
    error: OutercoreError, arguments: Sequence[str], known: Callable[[], Known]
) -> str:
    """The text of an error with options of the command line, and the command of its hint.

    A part of the hint that is of no use, because the command does not take its option or has it
    already, is left out where others remain. Whole commands get the data set and the run of the
    command line in place of DATASET and RUN.

    Example:
        >>> error = BudgetError("25% is too small\\nhint: give more", needed=3 * 2**20 + 1)
        >>> known = lambda: Known({"--epochs", "--memory"}, {"DATASET": "papers"})
        >>> print(with_command(error, ["run", "wcc", "papers", "--memory", "25%"], known))
        25% is too small
        hint: `outercore run wcc papers --memory 4MiB`; or give more
        >>> error = OutercoreError("2 are done\\nhint: `--epochs 3` or more continues")
        >>> print(with_command(error, ["train", "--resume", "first", "--epochs", "1"], known))
        2 are done
        hint: `--epochs 3` or more continues: `outercore train --resume first --epochs 3`
        >>> error = OutercoreError("`e.csv`: 3 columns\\nhint: choose two: `e.csv:user,item`")
        >>> print(with_command(error, ["import", "e.csv", "--out", "g"], known))
        `e.csv`: 3 columns
        hint: choose two: `outercore import e.csv:user,item --out g`
        >>> error = OutercoreError("damaged\\nhint: run `outercore check DATASET`")
        >>> print(with_command(error, ["info", "papers"], known))
        damaged
        hint: run `outercore check papers`
    """
    said, _, hint = in_words(error.parts, as_flag).partition(HINT)
    parts = list(error.hint)
    if isinstance(error, BudgetError) and error.needed is not None:
        # A training keeps the budget that it began with.
        if "train" in arguments[:1] and any(word.startswith("--resume") for word in arguments):
            return said + (hint and HINT + hint)
        command = _command(arguments, "--memory", as_option(error.needed))
        if parts[0:1] and parts[0] in _MORE and parts[1:2] == [Remedy("memory")]:
            hint = in_words(parts[2:], as_flag).removeprefix(",").strip().removeprefix("or ")
        return f"{said}{HINT}`{command}`" + (f"; or {hint}" if hint else "")
    if _FULL.search(hint):
        places = known().places
        return f"{said}{HINT}{_FULL.sub(lambda one: _filled(one[0], places), hint)}"
    if not any(isinstance(part, Remedy) for part in parts):
        hint = _COLUMNS.sub(lambda one: _with_columns(one, arguments), hint)
        return said + (hint and HINT + hint)
    options = known().options
    clauses = _clauses(parts)
    useful = [one for one in clauses if _is_of_use(one, arguments, options)] or clauses
    hint = "; ".join(in_words(clause, as_flag) for clause in useful)
    hint = _COLUMNS.sub(lambda one: _with_columns(one, arguments), hint)
    remedies = [part for clause in useful for part in clause if isinstance(part, Remedy)]
    commands = [
        f"`{_with(arguments, one)}`"
        for one in remedies
        if (hint.startswith(_CHOICE) or one.option == remedies[0].option)
        and one.value is not None
        and not _is_placeholder(one.value)
        and _is_of_use([one], arguments, options)
    ]
    return f"{said}{HINT}{hint}" + (f": {' or '.join(commands)}" if commands else "")


def as_flag(remedy: Remedy) -> str:
    """A remedy as an option of the command line.

    Example:
        >>> as_flag(Remedy("feature_dtype", "float64")), as_flag(Remedy("header", False))
        ('--feature-dtype float64', '--no-header')
        >>> as_flag(Remedy("link.held_out", "0.1")), as_flag(Remedy("budget.slots"))
        ('--set link.held_out=0.1', 'budget.slots')
    """
    flag, value = _words(remedy)
    if remedy.value is None:
        return remedy.option if flag == "--set" else flag
    return flag if value is None else f"{flag} {shlex.quote(value)}"


def _words(remedy: Remedy) -> tuple[str, str | None]:
    """The option of a remedy, and its value if it has one."""
    name = remedy.option
    if "." in name:
        return "--set", None if remedy.value is None else f"{name}={remedy.value}"
    if remedy.value is False:
        return _OFF.get(name, f"--no-{name.replace('_', '-')}"), None
    return f"--{name.replace('_', '-')}", remedy.value if isinstance(remedy.value, str) else None


def _with(arguments: Sequence[str], remedy: Remedy) -> str:
    return _command(arguments, *_words(remedy))


def _is_placeholder(value: str | bool | None) -> bool:
    """Whether the user has to replace a value such as FILE."""
    return isinstance(value, str) and re.search("[A-Z]{2}", value) is not None


def _clauses(parts: Sequence[Part]) -> list[list[Part]]:
    """The parts of a hint, cut at each semicolon."""
    clauses: list[list[Part]] = [[]]
    for part in parts:
        texts = part.split("; ") if isinstance(part, str) else [part]
        clauses[-1].append(texts[0])
        clauses += [[text] for text in texts[1:]]
    return clauses


def _filled(command: str, places: Mapping[str, str]) -> str:
    """A command with values in place of placeholders.

    Example:
        >>> _filled("`outercore check DATASET`", {"DATASET": "papers"})
        '`outercore check papers`'
    """
    for name, value in places.items():
        command = re.sub(rf"(?<![\w/.-]){name}(?![\w/.-])", lambda _: value, command)  # noqa: B023
    return command


def _with_columns(given: re.Match[str], arguments: Sequence[str]) -> str:
    """The command that takes other columns of one of its files, for a hint that names them.

    Example:
        >>> hint = _COLUMNS.search("`n.csv:key`")
        >>> _with_columns(hint, ["add", "g", "--labels", "paper=n.csv"])
        '`outercore add g --labels paper=n.csv:key`'
    """
    try:
        words = shlex.split(given[1])
    except ValueError:
        return given[0]
    if len(words) != 1 or words[0].startswith(("pyg:", "ogb:")) or _EXAMPLE.search(words[0]):
        return given[0]
    for place, argument in enumerate(arguments):
        for start in _starts(argument):
            file = argument[len(start) :]
            if file and (words[0].startswith(f"{file}:") or _same_file(words[0], file)):
                changed = [*arguments[:place], start + words[0], *arguments[place + 1 :]]
                return f"`{_joined(changed)}`"
    return given[0]


def _starts(argument: str) -> Iterator[str]:
    """Possible texts before a file in an argument: nothing, or `NAME=`, or `--label=TYPE=`."""
    yield ""
    for place, letter in enumerate(argument):
        if letter == "=":
            yield argument[: place + 1]


def _same_file(one: str, other: str) -> bool:
    """Whether both name columns of one file."""
    file, columns, _ = one.rpartition(":")
    return bool(columns) and other.rpartition(":")[0] == file


def read_again(arguments: Sequence[str], option: str = "", value: str | None = None) -> str | None:
    """The command of a finished import that reads its input otherwise, in place of the data set.

    Standard input cannot be read again, so it has no such command.

    Example:
        >>> read_again(["import", "e.csv", "--one-based", "--out", "g"], "--ids", "dictionary")
        'outercore import e.csv --out g --ids dictionary --overwrite'
    """
    if not option or any(word == "-" or word.startswith("-:") for word in arguments):
        return None
    words = [word for word in arguments if word != "--one-based"]
    words = shlex.split(_command(words, option, value))[1:]
    return _command(words, "--overwrite", None)


def _is_of_use(clause: Iterable[Part], arguments: Sequence[str], options: Container[str]) -> bool:
    """Whether the command takes the options of a part of a hint, and lacks their values.

    Example:
        >>> given = ["import", "e.csv", "--ids", "dictionary"]
        >>> _is_of_use(["nodes with names: ", Remedy("ids", "dictionary")], given, {"--ids"})
        False
    """
    for remedy in clause:
        if isinstance(remedy, str) or _is_placeholder(remedy.value):
            continue
        flag, value = _words(remedy)
        if flag not in options:
            return False
        if remedy == Remedy("ids", "dictionary") and _are_numbered(arguments):
            return False
        if flag == "--triples" and any(
            word.startswith("--") and _parameter(word) not in WITH_TRIPLES for word in arguments
        ):
            return False
        if value is not None and _with(arguments, remedy) == _joined(arguments):
            return False
    return True


def _parameter(word: str) -> str:
    """The parameter that an option of a command line sets.

    Example:
        >>> _parameter("--no-header"), _parameter("--edge-time=at")
        ('header', 'edge_time')
    """
    return word.partition("=")[0].removeprefix("--").removeprefix("no-").replace("-", "_")


def _are_numbered(arguments: Sequence[str]) -> bool:
    """Whether nodes have numbers: an option or the format of a file says how many there are.

    Example:
        >>> _are_numbered(["import", "e.csv", "--nodes", "4"]), _are_numbered(["import", "e.csv"])
        (True, False)
    """
    counts = any(
        one == "--nodes" and count.isdecimal() for one, count in itertools.pairwise(arguments)
    )
    formats = (".npz", ".mtx", ".gr", ".dimacs")
    # A folder of a known layout; A folder may also contain Parquet files.
    is_layout = any(Path(one).is_dir() and ".parquet" not in one for one in arguments[1:2])
    return counts or is_layout or any(one.partition(":")[0].endswith(formats) for one in arguments)


def _command(arguments: Sequence[str], option: str, value: str | None) -> str:
    """The command with an option as well, or with another value of it.

    If an option has several values `NAME=...`, the value of the same name is replaced.

    Example:
        >>> words = ["train", "p", "--set", "a.b=1", "--set", "c.d=2"]
        >>> _command(words, "--set", "c.d=3")
        'outercore train p --set a.b=1 --set c.d=3'
        >>> _command(["train", "p"], "--overwrite", None)
        'outercore train p --overwrite'
    """
    words = list(arguments)
    if value is None:
        return _joined(words if option in words else [*words, option])
    named, is_named, _ = value.partition("=")
    start = named + is_named if is_named else ""
    for place, word in enumerate(words):
        if word == option and "".join(words[place + 1 : place + 2]).startswith(start):
            return _joined([*words[: place + 1], value, *words[place + 2 :]])
        if word.startswith(f"{option}={start}"):
            return _joined([*words[:place], f"{option}={value}", *words[place + 1 :]])
    return _joined([*words, option, value])


def _joined(words: Sequence[str]) -> str:
    return shlex.join(["outercore", *words])
