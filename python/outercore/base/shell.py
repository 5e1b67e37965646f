"""Commands in messages: what is in them can be pasted into a shell."""

from __future__ import annotations

import shlex


def quoted(word: object) -> str:
    """A path or another word of a command, in quotes where a shell needs them.

    Example:
        >>> quoted("my file.csv"), quoted("edges.csv")
        ("'my file.csv'", 'edges.csv')
    """
    return shlex.quote(str(word))
