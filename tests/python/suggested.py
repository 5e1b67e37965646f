"""Finds the commands that messages suggest, and runs them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from typing import Any

Run = Callable[..., tuple[int, str, str]]

_COMMAND = re.compile("`(outercore [^`]+)`")
_PLACEHOLDER = re.compile(
    r"(?<![\w/.-])(FILE|DATASET|DIR|OUT|NAME|TYPE|COLUMN|RUN|N|NEW)(?![\w/.-])"
)


def commands_in(message: str) -> list[str]:
    """Commands that can be pasted: those without placeholders."""
    commands = _COMMAND.findall(" ".join(message.split()))
    return [command for command in commands if not _PLACEHOLDER.search(command)]


def without_result(message: str, outcome: Run, depth: int = 3) -> list[tuple[str, str]]:
    """Suggested commands that fail, with their messages.

    A command may fail if its message suggests another command that works.
    """
    wrong = []
    for command in commands_in(message):
        arguments: list[Any] = shlex.split(command)[1:]
        code, _, stderr = outcome(*arguments)
        if code == 0:
            continue
        next_ones = commands_in(stderr) if depth > 1 else []
        if not next_ones or len(without_result(stderr, outcome, depth - 1)) == len(next_ones):
            wrong.append((command, stderr))
    return wrong
