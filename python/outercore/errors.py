"""Errors: one class per kind, so that callers can handle each kind.

Every message names the thing, the expected value and the found value. If the next step is not
obvious, it follows after ``hint:``.
"""

from __future__ import annotations

import re


class OutercoreError(Exception):
    """Base class of all errors that Outercore raises."""


class InvalidError(OutercoreError, ValueError):
    """An argument or an input file is wrong; the user can correct it."""


class NotFoundError(OutercoreError, FileNotFoundError, KeyError):
    """A file, an array, a split or another named thing does not exist."""


class CorruptError(OutercoreError):
    """Bytes on disk contradict the manifest or a checksum, or a file is short."""


class VersionError(OutercoreError):
    """A newer release wrote a file, such as a data set, a grid, a checkpoint or a table.

    Also raised if a memory server uses another version of the protocol.
    """


class BudgetError(OutercoreError, MemoryError):
    """The memory budget is too small; the message says how much memory works."""

    def __init__(self, message: str, needed: int | None = None) -> None:
        super().__init__(message)
        self.needed = needed
        """The smallest sufficient budget in bytes, or None if it is unknown."""


class DeviceError(OutercoreError, OSError):
    """The operating system refused a read or a write."""


class NoSpaceError(DeviceError):
    """The disk is full."""


class InterruptError(OutercoreError):
    """The user stopped the command."""


class UnsupportedError(OutercoreError):
    """This build, machine or kernel does not support the request."""


class InternalError(OutercoreError):
    """A bug in Outercore."""


REFUSALS = (InvalidError, NotFoundError, CorruptError, VersionError, UnsupportedError)
"""Errors that the same call raises again, until its input changes."""


_OF_KIND: dict[str, type[OutercoreError]] = {
    "Invalid": InvalidError,
    "NotFound": NotFoundError,
    "Corrupt": CorruptError,
    "Version": VersionError,
    "Budget": BudgetError,
    "Io": DeviceError,
    "NoSpace": NoSpaceError,
    "Unknown": DeviceError,
    "Interrupted": InterruptError,
    "Unsupported": UnsupportedError,
    "Internal": InternalError,
}


_WORDS = {
    **dict.fromkeys(("u8", "u16", "u32", "u64", "usize"), "a whole number, 0 or more"),
    **dict.fromkeys(("i8", "i16", "i32", "i64", "isize"), "a whole number"),
    **dict.fromkeys(("f32", "f64"), "a number"),
    "a sequence": "a list",
    "sequence": "a list",
    "map": "a dictionary",
}


def from_core(kind: str, message: str, needed: int | None = None) -> OutercoreError:
    """The exception for an error of the core, by the name of its kind."""
    if kind == "Budget":
        return BudgetError(message, needed)
    return _OF_KIND.get(kind, InternalError)(_of_value(message) if kind == "Invalid" else message)


def _of_value(message: str) -> str:
    """The core's message about a value, in terms of the Python value.

    Example:
        >>> _of_value("run: invalid type: floating point `2.5`, expected u32")
        'run: expected a whole number, 0 or more, found `2.5`'
    """
    return re.sub(
        r"^(.*?)(?:invalid (?:type|value): (?:[a-z ]+ )?|unknown variant )(.+), expected (.+)$",
        _reworded,
        message,
        flags=re.MULTILINE,
    )


def _reworded(line: re.Match[str]) -> str:
    value, expected = (_WORDS.get(line[place], line[place]) for place in (2, 3))
    return f"{line[1]}expected {expected}, found {value}"
