"""Custom code of a run: its place `FILE.py:NAME`, and the digest of its source.

A run records the place of its code. It never loads the code: the caller passes it again. So opening
another user's run never executes their code.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import inspect
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

from outercore.base.likeness import suggestion
from outercore.errors import InvalidError, NotFoundError


class CustomCode(NamedTuple):
    """Custom code with its place and digest. A run records both."""

    value: Any
    """A function, a class or an object."""
    place: str
    """`FILE.py:NAME`, or the module and name. Messages show it."""
    digest: str
    """Digest of its source; empty if the source is not available."""


def custom_code(what: str, code: Any, example: str, expected: str) -> CustomCode:
    """Loads custom code: a function, a class, a callable object, or a place `FILE.py:NAME`.

    A place is loaded by running the file. All messages begin with `what`. They name the `expected`
    kind of value, and show `example` as an option with a valid place.

    Errors: `NotFoundError` for a missing file or name; `InvalidError` for any other value, and for
    a file that raises an error.
    """
    is_text = isinstance(code, str)
    place = code if is_text else place_of(code)
    value = from_place(what, code, example) if is_text else code
    if not callable(value):
        raise InvalidError(f"{what} `{place}`: expected {expected}, found {type(value).__name__}")
    return CustomCode(value, place, digest_of(value))


def require_same_code(
    what: str,
    made_with: tuple[str | None, str],
    code: CustomCode | None,
    *,
    noun: str = "",
    give: str,
    leave_out: str,
) -> None:
    """Checks that `code` is the custom code that `what` was made with.

    Args:
        what: the run or embedding; messages begin with it.
        made_with: place of the code (`None` for a built-in model) and its digest.
        code: the code from the caller.
        noun: noun for the code, in messages.
        give: hint if the code is missing.
        leave_out: hint if `what` was made without custom code.

    Errors: `InvalidError`.
    """
    place, digest = made_with
    if place is None and code is not None:
        raise InvalidError(f"{what} was made with a built-in model\nhint: {leave_out}")
    if place is not None and code is None:
        raise InvalidError(f"{what} was made with {noun}`{place}`\nhint: {give}")
    if code is not None and digest and code.digest and digest != code.digest:
        raise InvalidError(
            f"{what} was made with {noun}`{place}`, and `{code.place}` has another text\n"
            "hint: give the code as it was, or start another run"
        )


def is_place(text: str) -> bool:
    """Whether a string has the form `FILE.py:NAME`.

    Example:
        >>> is_place("models/mine.py:Deep"), is_place("sage")
        (True, False)
    """
    where, _, name = text.rpartition(":")
    return where.endswith(".py") and name.isidentifier()


def from_place(what: str, place: str, example: str) -> Any:
    """Runs the file of a place `FILE.py:NAME` and returns the value NAME.

    All messages begin with `what`, and show `example` as an option with a valid place.

    Errors: `InvalidError` for a string of another form, and for a file that raises an error;
    `NotFoundError` for a missing file or name.
    """
    if not is_place(place):
        raise InvalidError(
            f"{what}: expected `FILE.py:NAME`, found `{place}`\nhint: for example `{example}`"
        )
    where, _, name = place.rpartition(":")
    module = _from_file(what, Path(where))
    if not hasattr(module, name):
        names = [known for known in vars(module) if not known.startswith("_")]
        raise NotFoundError(
            f"{what} `{place}`: `{where}` has no `{name}`\n"
            f"hint: {suggestion(name, names, otherwise='it has')}"
        )
    return getattr(module, name)


def place_of(value: Any) -> str:
    """The module and name of a function or class; for another object, of its class.

    Example:
        >>> place_of(max)
        'builtins:max'
    """
    while isinstance(value, functools.partial):
        value = value.func
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def digest_of(value: Any) -> str:
    """The digest of the source of a function or class; for another object, of its class.

    It is empty if the source is not available. It does not cover functions that the code calls.
    """
    bound = ""
    while isinstance(value, functools.partial):
        bound += f"{value.args}{value.keywords}"
        value = value.func
    if not (inspect.isfunction(value) or inspect.ismethod(value) or inspect.isclass(value)):
        value = type(value)
    try:
        text = inspect.getsource(value) + bound
    except (OSError, TypeError):
        return ""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _from_file(what: str, path: Path) -> Any:
    if not path.is_file():
        raise NotFoundError(f"{what}: no file `{path}`")
    # Files with the same name need different module names, because `inspect` finds sources by them.
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]
    name = f"outercore_own_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # `inspect` and dataclasses in the file look the module up here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InvalidError(f"{what}: `{path}` fails: {type(error).__name__}: {error}") from error
    return module
