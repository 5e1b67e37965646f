"""Quotes the commands in messages, so that users can paste them into a shell."""

from __future__ import annotations

import shlex


def quoted(word: object) -> str:
    """A path or another word of a command, in quotes if a shell needs them.

    Example:
        >>> quoted("my file.csv"), quoted("edges.csv")
        ("'my file.csv'", 'edges.csv')
    """
    return shlex.quote(str(word))
