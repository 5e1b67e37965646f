"""Custom code: its place, and the digest of its text.

A run names the code that made it, but only the caller passes code: opening another user's run never
runs their code.
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
    """Custom code with its place and digest, which a run records."""

    value: Any
    """A function, a class or an object."""
    place: str
    """`FILE.py:NAME`, or module and name, for people."""
    digest: str
    """The digest of its source; empty without a source."""


def custom_code(what: str, code: Any, example: str, expected: str) -> CustomCode:
    """A function, a class or a callable object, or its place `FILE.py:NAME`. Runs the file.

    Errors: `NotFoundError` for the file or the name; `InvalidError` for any other value, and for a
    file that fails. They begin with `what`.
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
    """Makes sure that `code` is the custom code that `what` was made with.

    `made_with` has its place, `None` for a built-in model, and its digest. `noun` names the code,
    `give` and `leave_out` are the next steps.

    Errors: `InvalidError`, which begins with `what`.
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
    """Whether a text names code in a file, as `FILE.py:NAME` does.

    Example:
        >>> is_place("models/mine.py:Deep"), is_place("sage")
        (True, False)
    """
    where, _, name = text.rpartition(":")
    return where.endswith(".py") and name.isidentifier()


def from_place(what: str, place: str, example: str) -> Any:
    """The value NAME of the file of `FILE.py:NAME`, which this runs.

    Errors: `InvalidError` for another text, and for a file that fails; `NotFoundError` for the file
    or the name. They begin with `what`.
    """
    if not is_place(place):
        raise InvalidError(
            f"{what}: expected `FILE.py:NAME`, found `{place}`\nhint: for example `{example}`"
        )
    where, _, name = place.rpartition(":")
    module = _from_file(what, Path(where))
    if not hasattr(module, name):
        names = [one for one in vars(module) if not one.startswith("_")]
        raise NotFoundError(
            f"{what} `{place}`: `{where}` has no `{name}`\n"
            f"hint: {suggestion(name, names, otherwise='it has')}"
        )
    return getattr(module, name)


def place_of(value: Any) -> str:
    """The module and the name of a function, a class or an instance's class.

    Example:
        >>> place_of(max)
        'builtins:max'
    """
    while isinstance(value, functools.partial):
        value = value.func
    named = value if hasattr(value, "__qualname__") else type(value)
    return f"{named.__module__}:{named.__qualname__}"


def digest_of(value: Any) -> str:
    """The digest of the source of a function, a class or an instance's class; else empty.

    Functions that it calls do not count.
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
    # Two files of one name are two modules: `inspect` looks their texts up by it.
    digest = hashlib.sha256(os.fsencode(path.resolve())).hexdigest()[:8]
    name = f"outercore_own_{path.stem}_{digest}"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Where `inspect` and the file's own dataclasses look for it.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise InvalidError(f"{what}: `{path}` fails: {type(error).__name__}: {error}") from error
    return module
