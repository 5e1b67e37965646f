"""What to type where a memory budget was too small."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from outercore.errors import BudgetError, OutercoreError

_MIB = 1 << 20
_MORE = re.compile("^(raise --memory|give (more|that) `--memory`)(, or |, |$)")
"""What a hint says, which the command says better."""


def with_memory(error: OutercoreError, arguments: Sequence[str]) -> str:
    """The message of an error; of a budget that was too small, with the command that fits.

    Example:
        >>> error = BudgetError("25% is too small\\nhint: give more", 3 * 2**20 + 1)
        >>> print(with_memory(error, ["run", "wcc", "papers", "--memory", "25%"]))
        25% is too small
        hint: `outercore run wcc papers --memory 4MiB`; or give more
    """
    message = str(error)
    # A training keeps the budget that it began with.
    keeps = "train" in arguments[:1] and any(word.startswith("--resume") for word in arguments)
    if not isinstance(error, BudgetError) or error.needed is None or keeps:
        return message
    said, _, hint = message.partition("\nhint: ")
    # Rounded up: a size as people read it is often a little less than what is needed.
    enough = f"{-(-error.needed // _MIB)}MiB"
    command = shlex.join(["outercore", *_replaced(arguments, enough)])
    other = _MORE.sub("", hint)
    return f"{said}\nhint: `{command}`" + (f"; or {other}" if other else "")


def _replaced(arguments: Sequence[str], memory: str) -> list[str]:
    words = list(arguments)
    for place, word in enumerate(words):
        if word == "--memory" and place + 1 < len(words):
            return [*words[: place + 1], memory, *words[place + 2 :]]
        if word.startswith("--memory="):
            return [*words[:place], f"--memory={memory}", *words[place + 1 :]]
    return [*words, "--memory", memory]
