"""What is asked of the core: an algorithm with its options, and what a run may use."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, TypedDict, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore._native import Progress
from outercore.config.common import Backend
from outercore.config.options import fields
from outercore.config.sizes import parse_size
from outercore.errors import InvalidError
from outercore.far import Far, FarOptions, options_of
from outercore.graph import Graph
from outercore.threads import checked_threads

Source = Graph | str | os.PathLike[str]
"""An opened graph, or the directory of a data set."""

Direction = Literal["out", "in", "both"]
Personalization = ArrayLike | Mapping[int, float]
Teleports = tuple[NDArray[np.int64] | None, NDArray[np.float64] | None]
"""Nodes and weights of a teleport vector, [nodes with a weight]; `None` where all are alike."""


class Resources(TypedDict, total=False):
    """What every algorithm takes besides its own options, and what becomes of its result."""

    memory: str | int
    """Budget, such as ``"128MiB"``; ``"1GiB"`` by default."""
    threads: int | None
    """All cores by default."""
    backend: Backend
    """How to read; ``"auto"`` by default."""
    far: Far | None
    """A memory server that holds edges too; its address, or `far.FarOptions`."""
    far_ratio: float | None
    """Share of the edges' bytes that is left to it; what the budget leaves by default."""
    buffering: bool
    """Whether to read ahead of what is computed; only experiments turn it off."""
    profile: bool
    """Count the reads of each segment."""
    reads_by_segment: Sequence[int] | None
    """Of an earlier run's profile, by which to choose what stays in memory."""
    scratch: str | os.PathLike[str] | None
    """Directory for what memory has no room for; that of the data set by default."""
    save: str | None
    """Keep the result in the data set as a node array of this name."""
    progress: Progress | None
    """Called as ``progress(phase, done, total, unit)``."""


_FAR = {field.path: field.name for field in fields(FarOptions)}
"""Options of a memory server, and what they are called beside others."""
USED = Resources.__annotations__.keys() - {"save", "progress"} | set(_FAR.values())
"""What says how a run is done, beside the algorithm's own options."""
_SHARED = ("graph", "personalization", "resources")


def divided(given: Mapping[str, Any]) -> tuple[Resources, dict[str, Any]]:
    """What a run may use, and the options of its algorithm."""
    used = {name: value for name, value in given.items() if name in USED}
    options = {name: value for name, value in given.items() if name not in USED}
    return cast("Resources", used), options


def config_of(root: Path, used: Mapping[str, Any]) -> dict[str, Any]:
    """What a run may use, as the core takes it.

    Errors: `InvalidError` for a value out of its range.
    """
    config: dict[str, Any] = {
        "memory": parse_size(used.get("memory", "1GiB")),
        "threads": checked_threads(used.get("threads")),
        "backend": used.get("backend", "auto"),
    }
    server = options_of(_server(used), root)
    config |= {} if server is None else {"far": server}
    far_ratio = used.get("far_ratio")
    if far_ratio is not None:
        if not 0 <= far_ratio <= 1:
            raise InvalidError(f"far_ratio {far_ratio}, expected 0 to 1")
        config["far_ratio"] = far_ratio
    # Absent where it is the default, so that records of runs stay comparable.
    config |= {} if used.get("buffering", True) else {"buffering": False}
    config |= {"profile": True} if used.get("profile") else {}
    reads_by_segment, scratch = used.get("reads_by_segment"), used.get("scratch")
    if reads_by_segment is not None:
        config["reads_by_segment"] = [int(reads) for reads in reads_by_segment]
    config |= {} if scratch is None else {"scratch": os.fspath(scratch)}
    return config


def _server(used: Mapping[str, Any]) -> Far | None:
    """The memory server by its options, which may be given one by one.

    Errors: `InvalidError` for options without an address.
    """
    far = used.get("far")
    given = {path: used[name] for path, name in _FAR.items() if path != "address" and name in used}
    if not given:
        return far
    if far is None:
        raise InvalidError(f"{_FAR[next(iter(given))]}: expected the address of a server: `far`")
    return FarOptions(far, **given) if isinstance(far, str) else replace(far, **given)


def algorithm_of(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """An algorithm by its function, with every option that it has.

    Errors: `InvalidError` for an unknown option, or a value that is no finite number.
    """
    algorithm = function.__name__
    chosen: dict[str, Any] = {"algorithm": algorithm}
    taken = inspect.signature(function).parameters
    own = {name: value for name, value in taken.items() if name not in _SHARED}
    for name in options:
        if name not in own:
            known = ", ".join(own) or "none"
            raise InvalidError(f"{algorithm}: option `{name}`, expected one of {known}")
    for name, parameter in own.items():
        value = options.get(name, parameter.default)
        if value is inspect.Parameter.empty:
            raise InvalidError(f"{algorithm}: expected a `{name}`")
        chosen[name] = _plain(f"{algorithm}: {name}", value)
    return chosen


def _plain(what: str, value: Any) -> Any:
    """A value that JSON can hold; all our numbers are finite, all whole ones 0 or more."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidError(f"{what} {value}, expected a finite number")
    if isinstance(value, int) and value < 0:
        raise InvalidError(f"{what} {value}, expected 0 or more")
    if isinstance(value, (Sequence, np.ndarray)) and not isinstance(value, str):
        return [_plain(what, item) for item in value]
    return value


def teleports(wanted: Personalization | None, nodes: int) -> Teleports:
    """Nodes and weights of a teleport vector, int64 and float64 [nodes with a weight].

    Errors: `InvalidError` for another number of weights than `nodes`.
    """
    if wanted is None:
        return None, None
    if isinstance(wanted, Mapping):
        ids = np.fromiter(wanted.keys(), np.int64, len(wanted))
        return ids, np.fromiter(wanted.values(), np.float64, len(wanted))
    weights = np.asarray(wanted, np.float64)
    if weights.shape != (nodes,):
        raise InvalidError(
            f"personalization: shape {weights.shape}, expected one weight a node: ({nodes},)"
        )
    ids = np.flatnonzero(weights)
    return ids.astype(np.int64), weights[ids]


def described(algorithm: Mapping[str, Any]) -> str:
    """An algorithm with its options in one line, for the provenance."""
    chosen = dict(algorithm)
    name = chosen.pop("algorithm")
    words = [f"{key}={value}" for key, value in chosen.items() if value is not None]
    return " ".join(["outercore run", name, *words])


def root_of(graph: Source) -> Path:
    """The directory of a data set."""
    return graph.root if isinstance(graph, Graph) else Path(graph)
