"""Errors: one class per kind, so that callers can handle each kind.

Every message names the thing, the expected value and the found value. If the next step is not
obvious, it follows after ``hint:``. Options in a message are values, of which each front end makes
its own text.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

HINT = "\nhint: "
"""Text between the message of an error and its hint."""


@dataclass(frozen=True)
class Remedy:
    """An option that an error names, and the value to pass; None only names the option."""

    option: str
    """Name of the field: `memory`. With its group if only a configuration sets it."""
    value: str | bool | None = None

    def __str__(self) -> str:
        """The argument of a call in Python."""
        if self.value is None:
            return self.option
        is_number = isinstance(self.value, str) and self.value.isdecimal()
        return f"{self.option}={self.value}" if is_number else f"{self.option}={self.value!r}"


Part = str | Remedy
"""A part of a message: text, or an option."""


class OutercoreError(Exception):
    """Base class of all errors that Outercore raises.

    The text of an error has its options as arguments of Python.

    Example:
        >>> str(OutercoreError("`g` exists\\nhint: pass ", Remedy("overwrite", True)))
        '`g` exists\\nhint: pass `overwrite=True`'
    """

    def __init__(self, *parts: Part) -> None:
        self.parts = tuple(_with_options(parts))
        super().__init__(in_words(self.parts))

    def replace(self, change: Callable[[Part], Part]) -> None:
        """Replaces each part of the text."""
        self.parts = tuple(map(change, self.parts))
        self.args = (in_words(self.parts),)

    @property
    def message(self) -> str:
        """The text without the hint."""
        return str(self).partition(HINT)[0]

    def names(self, option: str) -> bool:
        """Whether the text names the option."""
        return any(isinstance(part, Remedy) and part.option == option for part in self.parts)

    @property
    def hint(self) -> tuple[Part, ...]:
        """The parts of the hint."""
        for place, part in enumerate(self.parts):
            if isinstance(part, str) and HINT in part:
                start = part.partition(HINT)[2]
                return (start, *self.parts[place + 1 :]) if start else self.parts[place + 1 :]
        return ()


_NOTATION = re.compile("`--([a-z0-9-]+)(?: ([^`]+))?`")
_FLAGS = ("overwrite", "triples", "outside_files", "header", "no_header", "one_based")
"""Options without a value that hints ask for."""


def _with_options(parts: Iterable[Part]) -> Iterator[Part]:
    """The parts of an error, with the options of its hint as values.

    The text before the hint quotes names of the user's data. A node may be called `--overwrite`.
    """
    is_hint = False
    for part in parts:
        if isinstance(part, Remedy):
            yield part
            continue
        message, begins, hint = ("", "", part) if is_hint else part.partition(HINT)
        is_hint = is_hint or bool(begins)
        if message + begins:
            yield message + begins
        yield from parsed(hint)


def parsed(text: str) -> list[Part]:
    """The parts of a hint that has options as `--NAME VALUE`, the notation of this package.

    Example:
        >>> parsed("nodes with names: `--ids dictionary`")
        ['nodes with names: ', Remedy(option='ids', value='dictionary')]
    """
    parts: list[Part] = []
    end = 0
    for match in _NOTATION.finditer(text):
        parts += [text[end : match.start()], _remedy(match[1].replace("-", "_"), match[2])]
        end = match.end()
    return [part for part in (*parts, text[end:]) if part]


def _remedy(name: str, value: str | None) -> Remedy:
    if value is None:
        return (
            Remedy(name.removeprefix("no_"), name[:3] != "no_") if name in _FLAGS else Remedy(name)
        )
    try:
        words = shlex.split(value)
    except ValueError:
        words = []
    value = words[0] if len(words) == 1 else value
    return Remedy(*value.split("=", 1)) if name == "set" else Remedy(name, value)


def in_words(parts: Iterable[Part], remedy: Callable[[Remedy], str] = str) -> str:
    """The text of parts; `remedy` makes the text of an option."""
    return "".join(part if isinstance(part, str) else f"`{remedy(part)}`" for part in parts)


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

    def __init__(self, *parts: Part, needed: int | None = None) -> None:
        super().__init__(*parts)
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


def from_core(
    kind: str,
    message: str,
    hint: Iterable[str | tuple[str, str | None]] = (),
    needed: int | None = None,
) -> OutercoreError:
    """The exception for an error of the core, by the name of its kind.

    A pair in the hint is an option and its value.
    """
    parts: list[Part] = [_of_value(message) if kind == "Invalid" else message]
    flags: dict[str | None, bool] = {"true": True, "false": False}
    following = [
        part if isinstance(part, str) else Remedy(part[0], flags.get(part[1], part[1]))
        for part in hint
    ]
    parts += [HINT, *following] if following else []
    if kind == "Budget":
        return BudgetError(*parts, needed=needed)
    return _OF_KIND.get(kind, InternalError)(*parts)


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
