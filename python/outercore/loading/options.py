"""Options of loaders: all arguments except the data set, the fan-outs and the seeds."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np

from outercore.base.fields import build, within
from outercore.base.options import Backend, Policy, Precision, Topology
from outercore.base.sizes import parse_size
from outercore.base.threads import checked_threads
from outercore.data.sample_rules import SampleRules, whole_numbers
from outercore.errors import InvalidError
from outercore.loading.ranks import share_of

_LARGEST = 2**32 - 1
_LARGEST_SEED = 2**64 - 1
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class LoaderOptions(SampleRules):
    """Options of a loader; `NeighborLoader` documents them."""

    input_time: Any = None
    replace: bool = False
    transform: Any = None
    batch_size: int = 1
    shuffle: bool = False
    drop_last: bool = False
    seed: int = 0
    features: Any = "x"
    labels: Any = "y"
    edge_ids: bool = True
    arrays: Any = None
    rank: Any = None
    world_size: Any = None
    memory: Any = "1GiB"
    backend: Backend = "auto"
    threads: Any = None
    topology: Topology = "auto"
    precision: Precision = "exact"
    policy: Policy = "window"
    hotness: Any = "presample"
    look_ahead: int = 1
    group: int | None = None
    constant_share: float | None = None
    far: Any = None
    pin_memory: bool = False

    def __post_init__(self) -> None:
        within("batch_size", self.batch_size, 1, _LARGEST)
        within("seed", self.seed, 0, _LARGEST_SEED)
        within("look_ahead", self.look_ahead, 0, _LARGEST)
        if self.group is not None:
            within("group", self.group, 1, _LARGEST)
        if self.constant_share is not None:
            within("constant_share", self.constant_share, 0, 1)
        if self.transform is not None and not callable(self.transform):
            raise InvalidError(
                f"transform: expected a function of a batch, found {self.transform!r}"
            )

    @classmethod
    def of(cls, arguments: Mapping[str, Any]) -> LoaderOptions:
        """The options among the arguments of a loader; other arguments are ignored.

        Numbers of NumPy and PyTorch become Python numbers, and PyG's enumerations become texts.
        `shuffle=None`, the default of PyTorch, means `False`.

        Errors: `InvalidError` names an option of a wrong type or out of range.
        """
        values = {name: arguments[name] for name in NAMES if name in arguments}
        for field in fields(SampleRules):
            if field.name in values:
                values[field.name] = getattr(values[field.name], "value", values[field.name])
        if values.get("shuffle", False) is None:
            values["shuffle"] = False
        times = whole_numbers("input_time", values.get("input_time"), "seeds")
        values["input_time"] = None if times is None else np.ascontiguousarray(times, np.int64)
        return build(cls, values, "")

    @property
    def share(self) -> tuple[int, int]:
        """Rank and world size: the options, or else the values of the process group."""
        return share_of(self.rank, self.world_size)

    def of_core(self) -> dict[str, Any]:
        """The options in the form of the core, without the rules of sampling."""
        plain = {name: getattr(self, name) for name in _OF_CORE}
        return {
            **plain,
            "memory": parse_size(self.memory),
            "threads": checked_threads(self.threads) or 0,
        }


NAMES = tuple(field.name for field in fields(LoaderOptions))
"""Names of all options."""
_OF_CORE = (
    *("batch_size", "replace", "shuffle", "drop_last", "edge_ids", "seed", "backend", "topology"),
    *("precision", "policy", "look_ahead", "group", "constant_share"),
)


def others_of(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that are not options."""
    return {name: value for name, value in arguments.items() if name not in NAMES}


def shows_options(
    source: Callable[..., Any], without: Collection[str] = ()
) -> Callable[[Function], Function]:
    """Decorates a function with ``**options``: its signature has the options of `source` instead.

    `help` and `inspect.signature` then name every option with its default. Options in `without`
    are left out.
    """

    def decorate(function: Function) -> Function:
        own = inspect.signature(function).parameters
        named = [one for one in own.values() if one.kind is not one.VAR_KEYWORD]
        options = [
            one.replace(kind=one.KEYWORD_ONLY)
            for name, one in inspect.signature(source).parameters.items()
            if name not in {"self", *own, *without} and one.kind is not one.VAR_KEYWORD
        ]
        others = inspect.Parameter("others", inspect.Parameter.VAR_KEYWORD, annotation=Any)
        signature = inspect.Signature([*named, *options, others])
        function.__signature__ = signature  # type: ignore[attr-defined]
        return function

    return decorate
