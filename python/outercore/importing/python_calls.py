"""Imports called from Python: errors name arguments of Python instead of command-line options."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from functools import partial, wraps
from inspect import signature
from typing import ParamSpec, TypeVar

from outercore.base.likeness import suggestion
from outercore.errors import InvalidError, OutercoreError, Part, Remedy
from outercore.importing.options import ImportOptions

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")

_FIELDS = {field.name for field in fields(ImportOptions)}
_IN_CALLS = {
    "from_pandas": {"fill": "nodes['NAME'] = nodes['NAME'].fillna(0)"},
    "from_networkx": {"fill": "networkx.set_node_attributes(graph, VALUES, 'NAME')"},
    "from_scipy": {"fill": "features = numpy.nan_to_num(features)"},
    "from_pyg": {
        "fill": "data.x = torch.nan_to_num(data.x)",
        "add_reverse": "data = torch_geometric.transforms.ToUndirected()(data)",
    },
    "from_dgl": {
        "fill": "graph.ndata['NAME'] = torch.nan_to_num(graph.ndata['NAME'])",
        "add_reverse": "graph = dgl.AddReverse()(graph)",
    },
}
"""Code to run before the call of a function that lacks an option; it replaces the option."""


def called_from_python(
    function: Callable[_Arguments, _Result],
) -> Callable[_Arguments, _Result]:
    """Decorator. Errors of the function name its arguments, not command-line options.

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
            error.replace(partial(_in_call, function.__name__))
            raise

    return called


def require_kind(
    function: str, what: str, value: object, attribute: str, expected: str, hint: str = ""
) -> None:
    """Errors: `InvalidError` if `value` lacks `attribute`, which all objects of its kind have.

    `what` is the argument of `function`, and `expected` is the kind in words.
    """
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


def _in_call(function: str, part: Part) -> Part:
    """An option as the argument of a call of `function`, or as code before the call."""
    if isinstance(part, str):
        label, colon, rest = part.partition(":")
        is_option = label.startswith("--")
        return f"{label[2:].replace('-', '_')}{colon}{rest}" if is_option else part
    if part == Remedy("fill", "nan"):
        part = Remedy("allow_nan", True)
    code = _IN_CALLS[function].get(part.option)
    if code is None and part.option in _FIELDS and part.value is not None:
        code = f"options=oc.ImportOptions({part})"
    return f"`{code or part}`"
