"""Commands in messages, which users can paste into a shell."""

from __future__ import annotations

import shlex


def quoted(word: object) -> str:
    """A path or another word of a command, in quotes if a shell needs them.

    Example:
        >>> quoted("my file.csv"), quoted("edges.csv")
        ("'my file.csv'", 'edges.csv')
    """
    return shlex.quote(str(word))
