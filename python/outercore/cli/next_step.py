"""What to type after an error: the command as it was, with what its hint says."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from outercore.errors import BudgetError, OutercoreError

_MIB = 1 << 20
_MORE = re.compile("^(raise --memory|give (more|that) `--memory`)(, or |, |$)")
"""What a hint says, which the command says better."""
_OPTION = re.compile(r"`(--[a-z-]+)(?: ((?:(?![A-Z]{2})[^`])+))?`")
"""An option in a hint, with a value that is no placeholder such as FILE."""
_FLAGS = ("--overwrite",)
"""Options without a value that hints name."""


def with_command(error: OutercoreError, arguments: Sequence[str]) -> str:
    """The message of an error, with the command that follows from its hint.

    Example:
        >>> error = BudgetError("25% is too small\\nhint: give more", 3 * 2**20 + 1)
        >>> print(with_command(error, ["run", "wcc", "papers", "--memory", "25%"]))
        25% is too small
        hint: `outercore run wcc papers --memory 4MiB`; or give more
        >>> error = OutercoreError("2 are done\\nhint: `--epochs 3` or more continues")
        >>> print(with_command(error, ["train", "--resume", "first", "--epochs", "1"]))
        2 are done
        hint: `--epochs 3` or more continues: `outercore train --resume first --epochs 3`
    """
    message = str(error)
    said, _, hint = message.partition("\nhint: ")
    if isinstance(error, BudgetError) and error.needed is not None:
        # A training keeps the budget that it began with.
        if "train" in arguments[:1] and any(word.startswith("--resume") for word in arguments):
            return message
        # Rounded up: a size as people read it is often a little less than what is needed.
        command = _command(arguments, "--memory", f"{-(-error.needed // _MIB)}MiB")
        other = _MORE.sub("", hint)
        return f"{said}\nhint: `{command}`" + (f"; or {other}" if other else "")
    if "`outercore " in hint:
        return message
    option = _OPTION.search(hint)
    if option is None or (option[2] is None and option[1] not in _FLAGS):
        return message
    return f"{message}: `{_command(arguments, option[1], option[2])}`"


def _command(arguments: Sequence[str], option: str, value: str | None) -> str:
    """The command with an option as well, or with another value of it."""
    words = list(arguments)
    given = [] if value is None else [value]
    for place, word in enumerate(words):
        if word == option:
            return _joined([*words[: place + 1], *given, *words[place + 1 + len(given) :]])
        if word.startswith(f"{option}="):
            return _joined([*words[:place], f"{option}={value}", *words[place + 1 :]])
    return _joined([*words, option, *given])


def _joined(words: Sequence[str]) -> str:
    return shlex.join(["outercore", *words])
