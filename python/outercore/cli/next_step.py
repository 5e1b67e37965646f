"""What to type after an error: the command as it was, with what its hint says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Container, Sequence
from typing import Any

from outercore.config.sizes import as_option
from outercore.errors import BudgetError, OutercoreError

_MORE = re.compile("^(raise --memory|give (more|that) `--memory`)(, or |, |$)")
"""What a hint says, which the command says better."""
_OPTION = re.compile(r"(?<!leave out )`(--[a-z-]+)(?: ((?:(?![A-Z]{2})[^`])+))?`")
"""An option in a hint, with a value that is no placeholder such as FILE."""
_FLAGS = ("--overwrite", "--triples", "--outside-files", "--header", "--no-header", "--one-based")
"""Options without a value that hints name."""
_CHOICE = "say which"
"""How a hint begins whose options are readings to choose from: each has a command."""


def options_of(command: Any, arguments: Sequence[str]) -> set[str]:
    """The options that a command line takes: those of the innermost command that it names."""
    for word in arguments:
        command = getattr(command, "commands", {}).get(word, command)
    return {
        name
        for parameter in command.params
        for name in (*parameter.opts, *parameter.secondary_opts)
    }


def with_command(
    error: OutercoreError, arguments: Sequence[str], known: Callable[[], Container[str]]
) -> str:
    """The message of an error, with the command that follows from its hint.

    `known` gives the options that the command takes. A part of the hint that is of no use, because
    the command does not take its option or has it already, is left out where others remain.

    Example:
        >>> error = BudgetError("25% is too small\\nhint: give more", 3 * 2**20 + 1)
        >>> known = lambda: {"--epochs", "--memory"}
        >>> print(with_command(error, ["run", "wcc", "papers", "--memory", "25%"], known))
        25% is too small
        hint: `outercore run wcc papers --memory 4MiB`; or give more
        >>> error = OutercoreError("2 are done\\nhint: `--epochs 3` or more continues")
        >>> print(with_command(error, ["train", "--resume", "first", "--epochs", "1"], known))
        2 are done
        hint: `--epochs 3` or more continues: `outercore train --resume first --epochs 3`
    """
    message = str(error)
    said, _, hint = message.partition("\nhint: ")
    if isinstance(error, BudgetError) and error.needed is not None:
        # A training keeps the budget that it began with.
        if "train" in arguments[:1] and any(word.startswith("--resume") for word in arguments):
            return message
        command = _command(arguments, "--memory", as_option(error.needed))
        other = _MORE.sub("", hint)
        return f"{said}\nhint: `{command}`" + (f"; or {other}" if other else "")
    if "`outercore " in hint:
        return message
    if "`--" not in hint:
        return message
    options = known()
    parts = hint.split("; ")
    hint = "; ".join([one for one in parts if _is_of_use(one, arguments, options)] or parts)
    message = f"{said}\nhint: {hint}"
    named = list(_OPTION.finditer(hint))
    commands = [
        f"`{_command(arguments, option[1], _value(option))}`"
        for option in (named if hint.startswith(_CHOICE) else named[:1])
        if (option[2] is not None or option[1] in _FLAGS)
        and _is_of_use(option[0], arguments, options)
    ]
    return f"{message}: {' or '.join(commands)}" if commands else message


def read_again(arguments: Sequence[str], option: str = "", value: str | None = None) -> str | None:
    """The command of a finished import that reads its input otherwise, in place of the data set.

    There is none for standard input, which is gone.

    Example:
        >>> read_again(["import", "e.csv", "--one-based", "--out", "g"], "--ids", "dictionary")
        'outercore import e.csv --out g --ids dictionary --overwrite'
    """
    if not option or any(word == "-" or word.startswith("-:") for word in arguments):
        return None
    words = [word for word in arguments if word != "--one-based"]
    words = shlex.split(_command(words, option, value))[1:]
    return _command(words, "--overwrite", None)


def _value(option: re.Match[str]) -> str | None:
    """The value of an option in a hint, which quotes it for the shell where that needs it.

    Example:
        >>> [_value(option) for option in _OPTION.finditer("`--comment '#'` or `--comment ''`")]
        ['#', '']
    """
    if option[2] is None:
        return None
    try:
        words = shlex.split(option[2])
    except ValueError:
        return option[2]
    return words[0] if len(words) == 1 else option[2]


def _is_of_use(part: str, arguments: Sequence[str], options: Container[str]) -> bool:
    """Whether the command takes the options that a part of a hint names, and lacks their values.

    Example:
        >>> given = ["import", "e.csv", "--ids", "dictionary"]
        >>> _is_of_use("nodes with names: `--ids dictionary`", given, {"--ids"})
        False
    """
    for option in _OPTION.finditer(part):
        if option[1] not in options:
            return False
        if option[2] is not None and (
            _command(arguments, option[1], _value(option)) == _joined(arguments)
        ):
            return False
    return True


def _command(arguments: Sequence[str], option: str, value: str | None) -> str:
    """The command with an option as well, or with another value of it.

    Of several values `NAME=...` of one option, that of the same name is replaced.

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
