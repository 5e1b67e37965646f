"""Attributes of packages that are imported on first use."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any

from outercore.base.likeness import missing_attribute
from outercore.errors import UnsupportedError


def attribute(
    package: str, name: str, modules: Mapping[str, str], job: str = "", hint: str = ""
) -> Any:
    """The attribute `name` of `package`; `modules` maps each name to the module that defines it.

    Errors: `AttributeError` for an unknown name, with the `hint` or a similar name;
    `UnsupportedError` if the `job` needs a package that is not installed.
    """
    if name not in modules:
        raise missing_attribute(f"module `{package}`", name, modules, hint)
    with package_needed(f"{job} needs") if job else nullcontext():
        return getattr(import_module(modules[name]), name)


@contextmanager
def package_needed(what: str) -> Iterator[None]:
    """Context for imports of an optional package; `what` begins the message.

    Errors: `UnsupportedError` for a package that is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("outercore"):
            raise
        raise UnsupportedError(
            f"{what} the package `{error.name}`, which is not installed\n"
            'hint: pip install "outercore[torch]"'
        ) from error
