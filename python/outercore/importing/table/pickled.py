"""Pickles as data: a small machine that knows containers, numbers, texts and arrays.

A pickle is a program. Python's own unpickler calls what it names, and passes on the values that the
program built before, so each function would have to defend itself against every type. This machine
cannot do that: its values have the types that are listed here, an extent is an `int` and nothing
else, and an unexpected value ends the reading. Nothing is imported or called by name.

**Cost** a pass in Python over the operations; it builds at most as many bytes as the pickle has.

**Source** Python's module `pickletools` describes the operations, and parses them here.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from outercore.files.npy import MOST_EMPTY

_CODES = frozenset(["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "b1"])
_LEAST, _MOST = -(2**63), 2**64 - 1
"""Whole numbers that NumPy has."""
_MOST_AXES = 32
_MOST_DEPTH = 32
_SHARED = 1 << 20
"""Values that may be reached again on another way, besides one for each byte of the pickle."""
_LARGEST = 2**63 - 1


class Refused(Exception):  # noqa: N818 - caught by `torch_file`, never seen outside
    """A pickle asks for more than numbers, texts, containers and arrays."""


class Named:
    """A function or type that a pickle names; only compared with those that are known."""

    def __init__(self, name: str) -> None:
        self.name = name


class _Type:
    """A type of NumPy, before and after its byte order is known."""

    def __init__(self, code: str) -> None:
        self.code = code
        self.order = "<"

    def dtype(self) -> np.dtype:
        if self.code not in _CODES or self.order not in ("<", ">", "|", "="):
            raise Refused(f"the type `{self.code[:20]}`")
        return np.dtype(f"{self.order}{self.code}")


class _Array:
    """An array of NumPy whose shape and bytes follow."""

    def __init__(self) -> None:
        self.values: NDArray[Any] | None = None


class _Mark:
    """Where the items of a container begin on the stack."""


_MARK = _Mark()
Persistent = Callable[[tuple[Any, ...]], Any]
Functions = dict[str, Callable[[tuple[Any, ...]], Any]]


def read_pickle(data: bytes, functions: Functions, persistent: Persistent, most: int) -> Any:
    """The value of a pickle.

    `functions` are those besides NumPy's, by `module.name`; they get what the pickle passes and
    have to look at it. `persistent` gives what is stored outside. The value's arrays may have
    `most` bytes together, one that is there twice counted twice.

    Errors: `Refused`; `ValueError` for other bytes than a pickle.
    """
    machine = _Machine(data, functions, persistent)
    return _Plain(_SHARED + len(data), most).of(machine.run())


class _Machine:
    """Carries out the operations of one pickle."""

    def __init__(self, data: bytes, functions: Functions, persistent: Persistent) -> None:
        self._data = data
        self._functions = {**_NUMPY, **functions, "_codecs.encode": self._encoded}
        self._persistent = persistent
        self._stack: list[Any] = []
        self._memo: dict[int, Any] = {}
        self._encoded_bytes = 0

    def run(self) -> Any:
        for operation, argument, _ in pickletools.genops(self._data):
            name = operation.name
            if name == "STOP":
                break
            if name in _PASSED:
                continue
            if name in _CONSTANTS:
                self._stack.append(_CONSTANTS[name])
            elif name in _MADE:
                self._stack.append(_MADE[name]())
            elif name in _SCALARS:
                self._stack.append(_scalar_of(argument))
            elif name in _TUPLES:
                self._stack.append(tuple(self._pop_last(_TUPLES[name])))
            else:
                step = getattr(self, f"_do_{name.lower()}", None)
                if step is None:
                    raise Refused(f"the operation `{name}` of a pickle")
                step(argument)
        return self._pop()

    def _pop(self) -> Any:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError("it takes more from the stack than there is")
        return self._stack.pop()

    def _pop_last(self, count: int) -> list[Any]:
        return [self._pop() for _ in range(count)][::-1]

    def _pop_to_mark(self) -> list[Any]:
        items = list[Any]()
        while self._stack:
            item = self._stack.pop()
            if item is _MARK:
                return items[::-1]
            items.append(item)
        raise ValueError("it ends a container that it has not begun")

    def _top(self, kind: type, what: str) -> Any:
        if not self._stack or type(self._stack[-1]) is not kind:
            raise Refused(f"an item for a value that is not a {what}")
        return self._stack[-1]

    # The machine reads the operations below; each has the name that `pickletools` gives it.

    def _do_mark(self, _: Any) -> None:
        self._stack.append(_MARK)

    def _do_pop(self, _: Any) -> None:
        self._pop()

    def _do_pop_mark(self, _: Any) -> None:
        self._pop_to_mark()

    def _do_tuple(self, _: Any) -> None:
        self._stack.append(tuple(self._pop_to_mark()))

    def _do_list(self, _: Any) -> None:
        self._stack.append(self._pop_to_mark())

    def _do_dict(self, _: Any) -> None:
        items = self._pop_to_mark()
        self._stack.append({})
        self._set_items(items)

    def _do_append(self, _: Any) -> None:
        item = self._pop()
        self._top(list, "list").append(item)

    def _do_appends(self, _: Any) -> None:
        items = self._pop_to_mark()
        self._top(list, "list").extend(items)

    def _do_setitem(self, _: Any) -> None:
        self._set_items(self._pop_last(2))

    def _do_setitems(self, _: Any) -> None:
        self._set_items(self._pop_to_mark())

    def _set_items(self, items: list[Any]) -> None:
        found = self._top(dict, "map")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if type(key) is bytes:
                key = key.decode()
            # Other keys would compare, or be hashed, in ways that cost as much as they like.
            if type(key) not in (str, int):
                raise Refused(f"a key of type {type(key).__name__}, expected text or a number")
            found[key] = value

    def _do_memoize(self, _: Any) -> None:
        self._do_put(len(self._memo))

    def _do_put(self, place: int) -> None:
        if not self._stack or self._stack[-1] is _MARK:
            raise ValueError("it keeps a value that is not there")
        self._memo[place] = self._stack[-1]

    _do_binput = _do_long_binput = _do_put

    def _do_get(self, place: int) -> None:
        if place not in self._memo:
            raise ValueError(f"it asks for value {place}, which it has not kept")
        self._stack.append(self._memo[place])

    _do_binget = _do_long_binget = _do_get

    def _do_global(self, argument: str) -> None:
        module, _, name = argument.partition(" ")
        self._name(module, name)

    def _do_stack_global(self, _: Any) -> None:
        module, name = self._pop_last(2)
        if type(module) is not str or type(name) is not str:
            raise Refused("a function without a name")
        self._name(module, name)

    def _name(self, module: str, name: str) -> None:
        # NumPy 2 moved its core.
        found = f"{module.replace('numpy._core', 'numpy.core')}.{name}"
        if found not in self._functions and found not in _TYPES:
            raise Refused(f"`{found[:80]}`")
        self._stack.append(Named(found))

    def _do_reduce(self, _: Any) -> None:
        function, arguments = self._pop_last(2)
        if type(function) is not Named or type(arguments) is not tuple:
            raise Refused("a call of a value that is not a function")
        call = self._functions.get(function.name)
        if call is None:
            raise Refused(f"a call of `{function.name}`")
        self._stack.append(call(arguments))

    def _do_build(self, _: Any) -> None:
        target, state = self._pop_last(2)
        if type(target) is _Type:
            _set_type(target, state)
        elif type(target) is _Array:
            _set_array(target, state)
        else:
            raise Refused("a state for a value other than an array")
        self._stack.append(target)

    def _do_binpersid(self, _: Any) -> None:
        pid = self._pop()
        if type(pid) is not tuple:
            raise Refused("a tensor of another kind")
        self._stack.append(self._persistent(pid))

    def _encoded(self, arguments: tuple[Any, ...]) -> bytes:
        """Bytes as Python 2 writes them."""
        text, encoding = checked(arguments, (str,), (str, bytes))
        if as_text(encoding) != "latin1":
            raise Refused(f"text as {as_text(encoding)[:20]}")
        # One text may be encoded again and again, by three bytes of pickle each time.
        self._encoded_bytes += len(text)
        if self._encoded_bytes > 2 * len(self._data):
            raise Refused("bytes that are made again and again")
        return text.encode("latin1")


def checked(arguments: tuple[Any, ...], *kinds: tuple[type, ...]) -> tuple[Any, ...]:
    """The first arguments, each of exactly one of its types: a Boolean is no `int` here.

    Errors: `Refused` for another type, or for fewer arguments.
    """
    if len(arguments) < len(kinds):
        raise Refused("a call with too few values")
    for value, kind in zip(arguments, kinds, strict=False):
        if type(value) not in kind:
            expected = " or ".join(one.__name__.strip("_").lower() for one in kind)
            raise Refused(f"{type(value).__name__.strip('_').lower()} where {expected} is expected")
    return arguments[: len(kinds)]


def whole_numbers(value: Any, what: str) -> tuple[int, ...]:
    """A shape, or strides: a tuple of whole numbers, 0 or more.

    Errors: `Refused` for anything else.
    """
    if type(value) is not tuple or len(value) > _MOST_AXES:
        raise Refused(f"{what} other than a tuple of at most {_MOST_AXES} numbers")
    if any(type(one) is not int or not 0 <= one <= _LARGEST for one in value):
        raise Refused(f"{what} of other than whole numbers")
    return value


def as_text(value: str | bytes) -> str:
    """A text that Python 2 may have written as bytes."""
    return value.decode() if isinstance(value, bytes) else value


def _scalar_of(value: Any) -> Any:
    if type(value) is int and not _LEAST <= value <= _MOST:
        raise Refused("a whole number of more than 64 bits")
    return value


def _ordered(arguments: tuple[Any, ...]) -> dict[Any, Any]:
    """An empty `OrderedDict`; its items follow."""
    if arguments:
        raise Refused("an `OrderedDict` of items")
    return {}


def _no_bytes(arguments: tuple[Any, ...]) -> bytes:
    """What Python 3 writes for no bytes, in a form that Python 2 reads."""
    if arguments:
        raise Refused("a call of `bytes`")
    return b""


def _type(arguments: tuple[Any, ...]) -> _Type:
    (code,) = checked(arguments, (str, bytes))
    return _Type(as_text(code))


def _set_type(target: _Type, state: Any) -> None:
    """The state is (version, byte order, part of, names, fields, ...)."""
    if type(state) is not tuple:
        raise Refused("the state of a type")
    _, order = checked(state, (int,), (str, bytes))
    if any(one is not None for one in state[2:5]):
        raise Refused("a type of fields")
    target.order = as_text(order)


def _begun(arguments: tuple[Any, ...]) -> _Array:
    """`_reconstruct(ndarray, (0,), b"b")`: an array whose state follows."""
    (kind,) = checked(arguments, (Named,))
    if kind.name != "numpy.ndarray":
        raise Refused(f"an array of `{kind.name}`")
    return _Array()


def _set_array(target: _Array, state: Any) -> None:
    """The state is (version, shape, type, whether columns come first, bytes)."""
    if type(state) is not tuple:
        raise Refused("the state of an array")
    _, shape, kind, in_columns, data = checked(
        state, (int,), (tuple,), (_Type,), (bool,), (bytes, list)
    )
    target.values = _shaped(shape, kind, "F" if in_columns else "C", data)


def _shaped(shape: Any, kind: _Type, order: str, data: Any) -> NDArray[Any]:
    if type(data) is not bytes:
        raise Refused("an array of objects")
    dtype = kind.dtype()
    if prod(whole_numbers(shape, "a shape")) * dtype.itemsize != len(data):
        raise Refused(f"an array of {len(data)} bytes, but its shape says otherwise")
    if not data:
        return nothing(shape, dtype)
    return np.frombuffer(data, dtype).reshape(shape, order="F" if order == "F" else "C")


def nothing(shape: tuple[int, ...], dtype: np.dtype) -> NDArray[Any]:
    """An array without values.

    Errors: `Refused` for one with many rows, which cost time all the same.
    """
    if max(shape, default=0) > MOST_EMPTY:
        raise Refused("rows without a number")
    return np.empty(shape, dtype)


def _number(arguments: tuple[Any, ...]) -> Any:
    kind, data = checked(arguments, (_Type,), (bytes,))
    dtype = kind.dtype()
    if len(data) != dtype.itemsize:
        raise Refused(f"a number of {len(data)} bytes, expected {dtype.itemsize}")
    return np.frombuffer(data, dtype)[0].item()


def _from_buffer(arguments: tuple[Any, ...]) -> NDArray[Any]:
    data, kind, shape, order = checked(arguments, (bytes,), (_Type,), (tuple,), (str, bytes))
    return _shaped(shape, kind, as_text(order), data)


_NUMPY: Functions = {
    "numpy.core.multiarray._reconstruct": _begun,
    "numpy.core.multiarray.scalar": _number,
    "numpy.core.numeric._frombuffer": _from_buffer,
    "numpy.dtype": _type,
    "__builtin__.bytes": _no_bytes,
    "collections.OrderedDict": _ordered,
}
_TYPES = frozenset(["numpy.ndarray"])
"""What may be named and not called."""

_PASSED = frozenset(["PROTO", "FRAME"])
_CONSTANTS: dict[str, Any] = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
_MADE: dict[str, Callable[[], Any]] = {
    "EMPTY_LIST": list,
    "EMPTY_DICT": dict,
    "EMPTY_TUPLE": tuple,
}
_SCALARS = frozenset(
    [
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
        *("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    ]
)
_TUPLES = {"TUPLE1": 1, "TUPLE2": 2, "TUPLE3": 3}


class _Plain:
    """The value that was built, with arrays in place of what built them.

    A list that is in two places is walked twice, here and by the reader of the value: a few hundred
    bytes of pickle can describe more places than a machine can visit. So places are counted.
    """

    def __init__(self, places: int, most: int) -> None:
        self._places, self._bytes = places, most

    def of(self, value: Any, depth: int = 0) -> Any:
        self._places -= 1
        if self._places < 0:
            raise Refused("lists that are in each other again and again")
        if depth > _MOST_DEPTH:
            raise Refused(f"lists in each other, more than {_MOST_DEPTH} deep")
        kind = type(value)
        if kind is _Array:
            if value.values is None:
                raise Refused("an array without values")
            value, kind = value.values, np.ndarray
        if kind is np.ndarray or kind is np.memmap:
            self._bytes -= value.nbytes
            if self._bytes < 0:
                raise Refused("more numbers than the file has")
            return value
        if kind is dict:
            return {self._text(key): self.of(one, depth + 1) for key, one in value.items()}
        if kind is list or kind is tuple:
            return [self.of(one, depth + 1) for one in value]
        if kind is bytes:
            return self._text(value.decode())
        if kind is str:
            return self._text(value)
        if value is None or kind in (bool, int, float):
            return value
        raise Refused(f"{kind.__name__.strip('_').lower()}, expected numbers and arrays")

    def _text(self, value: Any) -> Any:
        # Half of a surrogate pair is a text that nothing can print.
        if type(value) is str and not value.isascii():
            value.encode()
        return value
