"""Imports that Python calls: errors name arguments of Python instead of options of a command."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import fields
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from outercore.base.likeness import suggestion
from outercore.errors import InvalidError, OutercoreError
from outercore.importing.options import ImportOptions

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_OPTION = re.compile(r"`--([a-z-]+)(?: ([^`]+))?`|--([a-z-]+)(?: ([a-z]+))?(?=:)")
"""An option in a message: with backticks, or before a colon."""
_FIELDS = {field.name: field.type for field in fields(ImportOptions)}
_INSTEAD = (
    ("`--fill nan`", "`options=oc.ImportOptions(allow_nan=True)`"),
    ("name one by `--features`, or leave", "leave"),
)
"""What hints say where no option is named as in Python, and what they say there."""
_FILL, _REVERSE = "mend the file, give missing values a number (`--fill VALUE`)", "`--add-reverse`"
_OF_FUNCTION = {
    "from_pandas": {_FILL: "`nodes['NAME'] = nodes['NAME'].fillna(0)`"},
    "from_networkx": {_FILL: "`networkx.set_node_attributes(graph, VALUES, 'NAME')`"},
    "from_scipy": {_FILL: "`features = numpy.nan_to_num(features)`"},
    "from_pyg": {
        _FILL: "`data.x = torch.nan_to_num(data.x)`",
        _REVERSE: "`data = torch_geometric.transforms.ToUndirected()(data)`",
    },
    "from_dgl": {
        _FILL: "`graph.ndata['NAME'] = torch.nan_to_num(graph.ndata['NAME'])`",
        _REVERSE: "`graph = dgl.AddReverse()(graph)`",
    },
}
"""What does the same before a call of the function."""


def called_from_python(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """The function with errors in words of Python.

    Errors: `InvalidError` for an unknown argument, and for options of another type.
    """
    known = signature(function).parameters

    @wraps(function)
    def called(*given: _Arguments.args, **named: _Arguments.kwargs) -> _Result:
        for name in named:
            if name not in known:
                raise _unknown(function.__name__, name, named[name], list(known))
        options = named.get("options")
        if not isinstance(options, ImportOptions | None):
            raise InvalidError(
                f"{function.__name__}: options: expected `oc.ImportOptions`, found "
                f"{type(options).__name__}\n"
                "hint: such as `options=oc.ImportOptions(overwrite=True)`"
            )
        try:
            return function(*given, **named)
        except OutercoreError as error:
            error.args = (in_python(str(error), function.__name__), *error.args[1:])
            raise

    return called


def require_kind(
    function: str, what: str, value: object, attribute: str, expected: str, hint: str = ""
) -> None:
    """Errors: `InvalidError` where `value` lacks the attribute that tells the kind `expected`."""
    if not hasattr(value, attribute):
        mend = f"\nhint: {hint}" if hint else ""
        raise InvalidError(
            f"{function}: {what}: expected {expected}, found {type(value).__name__}{mend}"
        )


def _unknown(function: str, name: str, value: object, known: list[str]) -> InvalidError:
    hint = suggestion(name, known)
    if name in _FIELDS:
        hint = f"it is one of the options: `options=oc.ImportOptions({name}={value!r})`"
    return InvalidError(f"{function}: unknown argument `{name}`\nhint: {hint}")


def in_python(message: str, function: str = "") -> str:
    """A message with the options of an import as arguments of Python, for callers of `function`.

    Example:
        >>> in_python("`g` holds a data set\\nhint: pass `--overwrite` to replace it")
        '`g` holds a data set\\nhint: pass `options=oc.ImportOptions(overwrite=True)` to replace it'
    """
    instead_here = _OF_FUNCTION.get(function, {})
    if (fill := instead_here.get(_FILL)) is not None:
        message = message.replace(_FILL, f"give missing values a number ({fill})")
    if (reverse := instead_here.get(_REVERSE)) is not None:
        message = message.replace(_REVERSE, reverse)
    for said, instead in _INSTEAD:
        message = message.replace(said, instead)
    return _OPTION.sub(_argument, message)


def _argument(option: re.Match[str]) -> str:
    name, value = (option[1] or option[3]).replace("-", "_"), option[2] or option[4]
    if name not in _FIELDS:
        return option[0]
    if option[3] is not None:
        return f"{name}={value!r}" if value else name
    return _as_argument(name, value)


def _as_argument(name: str, value: str | None) -> str:
    otherwise = "True" if "bool" in str(_FIELDS[name]) else "..."
    return f"`options=oc.ImportOptions({name}={otherwise if value is None else repr(value)})`"
