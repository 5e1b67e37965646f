"""One run of an algorithm, or its plan: the request to the core, the result and its cost."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypedDict, get_type_hints

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore.analytics.config import RunConfig, divided
from outercore.base import native
from outercore.base.display import Rows, Shown, short, value_of, words
from outercore.base.fields import typed, within
from outercore.base.likeness import hint_like
from outercore.base.native import Progress
from outercore.base.options import Backend
from outercore.base.other_libraries import FUNCTIONS, instead_of_option
from outercore.base.plan_display import RunPlan
from outercore.data.far import Far
from outercore.data.graph import EdgeType, Graph, Source
from outercore.data.graph_arrays import NODE
from outercore.data.node_numbers import NodeNumbers, by_name, node_names
from outercore.data.outputs import node_frame
from outercore.errors import InternalError, InvalidError

Direction = Literal["out", "in", "both"]
Node = int | str | tuple[str, int | str]
"""A node: a number is its place in the result, from 0 on; a text is its name, or the id that the
imported files have for it. In a graph with several types it is a type and an id, such as
``("author", 3)`` or ``"author:ann"``."""
Nodes = Sequence[Node] | tuple[str, Sequence[int | str]]
Personalization = (
    ArrayLike
    | Mapping[int, float]
    | Mapping[str, float]
    | Mapping[tuple[str, int], float]
    | Mapping[tuple[str, str], float]
)
Teleports = tuple[NDArray[np.int64] | None, NDArray[np.float64] | None]
"""Nodes and weights of a teleport vector, [nodes with a weight]; `None` where all are alike."""
Algorithm = Callable[..., NDArray[Any]]
"""A function of `outercore.analytics`: its name and its parameters become the request to the
core."""


class Resources(TypedDict, total=False):
    """Options that all algorithms share: resources, and the destination of the result."""

    memory: str | int
    """Budget, such as ``"128MiB"``; ``"1GiB"`` by default."""
    relation: str | EdgeType | None
    """The edge type, or relation of triples, that counts; all together by default."""
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
    profile: str | os.PathLike[str] | None
    """Count the reads of each segment, and write them to this ``.json``."""
    by_profile: str | os.PathLike[str] | None
    """Keep in memory what this profile has most reads of."""
    scratch: str | os.PathLike[str] | None
    """Directory for scratch files; by default the directory of the data set."""
    save: str | None
    """Keep the result in the data set as a node array of this name."""
    progress: Progress | None
    """Called as ``progress(phase, done, total, unit)``."""


_NUMBERED = (Nodes, Node | Nodes, Nodes | None)
"""Types of options that name nodes."""

_OF_NODES = ("source", "sources", "nodes", "personalization")
"""Names of these options."""

_LARGEST = 2**32 - 1

_SHARED = ("graph", "personalization", "resources")


def algorithm_of(function: Callable[..., Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """An algorithm by its function, with every option that it has.

    Errors: `InvalidError` for an unknown option, or a value that is not a finite number.
    """
    algorithm = function.__name__
    chosen: dict[str, Any] = {"algorithm": algorithm}
    taken = inspect.signature(function).parameters
    own = {name: value for name, value in taken.items() if name not in _SHARED}
    for name in options:
        if name not in own:
            raise _unknown_option(function, name)
    # Only type checkers need `Unpack`.
    hints = get_type_hints(function, localns={"Unpack": list})
    for name, parameter in own.items():
        value = options.get(name, parameter.default)
        if value is inspect.Parameter.empty:
            raise InvalidError(f"{algorithm}: expected a `{name}`")
        what = f"{algorithm}: {name}"
        value = _plain(what, value)
        if hints[name] in _NUMBERED and value is not None:
            _require_nodes(what, value)
        elif value is not None or hints[name] in (bool, int, float):
            value = typed(hints[name], value, what)
        if isinstance(value, int) and name != "seed":
            within(what, value, 0, _LARGEST)
        chosen[name] = value
    return chosen


def _unknown_option(function: Callable[..., Any], name: str) -> InvalidError:
    algorithm, taken = function.__name__, inspect.signature(function).parameters
    known = ", ".join(one for one in taken if one not in ("graph", "resources")) or "none"
    hint = hint_of_option(algorithm, name, taken)
    return InvalidError(f"{algorithm}: option `{name}`, expected one of {known}{hint}")


def hint_of_option(algorithm: str, name: str, taken: Collection[str]) -> str:
    """The line of a hint for an option that an algorithm lacks, whose function has `taken`."""
    others = [one for one in taken if one != "resources"] + list(Resources.__annotations__)
    advice = instead_of_option(algorithm, name, others)
    otherwise = f"\nhint: `help(oc.{algorithm})` lists what it takes"
    return f"\nhint: {advice}" if advice else hint_like(name, others) or otherwise


def call_of(function: Callable[..., Any]) -> str:
    """How an algorithm is called, for a hint.

    Example:
        >>> def pagerank(graph, *, damping=0.85, **resources): ...
        >>> call_of(pagerank)
        'pagerank(graph, damping=...)'
    """
    parts = []
    for name, parameter in inspect.signature(function).parameters.items():
        if parameter.kind is not inspect.Parameter.VAR_KEYWORD:
            named = parameter.kind is inspect.Parameter.KEYWORD_ONLY
            parts.append(f"{name}=..." if named else name)
    return f"{function.__name__}({', '.join(parts)})"


def _require_nodes(what: str, value: Any) -> None:
    """Errors: `InvalidError` for anything but a node, or a list of them."""
    for node in value if isinstance(value, list) else [value]:
        if not isinstance(node, (int, np.integer)) or isinstance(node, bool):
            why = "; the nodes of this graph have no names" if isinstance(node, str) else ""
            raise InvalidError(f"{what}: expected node ids, found {value!r:.80}{why}")


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


def numbered(graph: Graph, relation: str | None, given: Mapping[str, Any]) -> dict[str, Any]:
    """Options of an algorithm with the numbers of nodes that they name.

    Errors: `NotFoundError`, `InvalidError` for a node that is not there.
    """
    of_nodes = {name: value for name, value in given.items() if name in _OF_NODES}
    if not of_nodes:
        return dict(given)
    numbers = NodeNumbers.of_graph(graph, relation)
    if numbers is not None:
        return {**given, **{name: numbers.resolve(value) for name, value in of_nodes.items()}}
    ids = node_names(graph, NODE)
    return {**given, **{name: by_name(ids, value) for name, value in of_nodes.items()}}


def teleports(
    function: Callable[..., Any],
    wanted: Personalization | None,
    graph: Graph,
    relation: str | None,
) -> Teleports:
    """Nodes and weights of a teleport vector, int64 and float64 [nodes with a weight].

    Errors: `InvalidError` for an algorithm without one, for another number of weights than nodes,
    or for a weight that is not a number.
    """
    if wanted is None:
        return None, None
    if "personalization" not in inspect.signature(function).parameters:
        raise _unknown_option(function, "personalization")
    numbers = NodeNumbers.of_graph(graph, relation)
    nodes = graph.num_nodes if numbers is None else len(numbers)
    if isinstance(wanted, Mapping):
        wanted = numbered(graph, relation, {"personalization": wanted})["personalization"]
    if isinstance(wanted, Mapping):
        _require_nodes("personalization", list(wanted))
        ids = np.fromiter(wanted.keys(), np.int64, len(wanted))
        return ids, np.fromiter(map(_weight, wanted.values()), np.float64, len(wanted))
    try:
        weights = np.asarray(wanted, np.float64)
    except (TypeError, ValueError):
        raise InvalidError(f"personalization: expected numbers, found {wanted!r:.80}") from None
    if weights.shape != (nodes,):
        raise InvalidError(
            f"personalization: shape {weights.shape}, expected one weight a node: ({nodes},)"
        )
    ids = np.flatnonzero(weights)
    return ids.astype(np.int64), weights[ids]


def _weight(value: object) -> float:
    if not isinstance(value, (int, float, np.number)):
        raise InvalidError(f"personalization: expected a number for each node, found {value!r:.80}")
    return float(value)


def described(algorithm: Mapping[str, Any], relation: str | None) -> str:
    """An algorithm with its options in one line, for the provenance."""
    chosen = {**algorithm, "relation": relation}
    name = chosen.pop("algorithm")
    words = [f"{key}={value}" for key, value in chosen.items() if value is not None]
    return " ".join(["outercore run", name, *words])


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """The result of an algorithm, and its cost."""

    algorithm: str
    values: NDArray[Any]
    """One value a node, by node id; in a graph with several types, type after type."""
    facts: dict[str, Any]
    """Facts about the values: iterations, components, and the like."""
    plan: dict[str, Any]
    """How the budget was divided."""
    counters: dict[str, Any]
    """Passes, reads, seconds; ``far`` where there was a memory server."""
    profile: dict[str, Any] | None = None
    """The segments in memory, group by group, and the reads of each segment, if counted."""
    note: str = ""
    """Why no record was written, if the default directory failed."""
    described: str = ""
    """The algorithm with its options, for the provenance of saved arrays."""
    of_nodes: bool = False
    """Whether the values are nodes themselves, such as predecessors."""
    data_set: Path | None = None
    """Where the graph is."""
    relation: str | None = None
    """The edges that counted, in a graph with several types."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """Of the algorithm, those included that were not given."""

    @property
    def warnings(self) -> list[str]:
        """Warnings about the values; mostly empty."""
        found = []
        if (self.facts.get("farthest") or 0) > _WHOLE:
            found.append("lengths beyond 2^53 are rounded: they are added as float64")
        if alternating := self.facts.get("alternating"):
            found.append(
                f"{alternating:,} of {len(self.values):,} nodes alternate between two labels, as "
                "nodes of bipartite graphs do; with the update `asynchronous` they settle"
            )
        if self.options.get("update") == "asynchronous" and not self.facts["settled"]:
            found.append("labels still change: with more iterations there are fewer communities")
        return found

    def to_pandas(self) -> Any:
        """The values as a frame: `id`, the name of a node or its id in files, and `value`.

        With several types of nodes there is a column `type`, too. Values that are nodes have their
        names. `oc.run(...).to_pandas().to_parquet(...)` has what `outercore run --out` writes.

        **Example**

        >>> import outercore as oc
        >>> oc.run("degrees", tiny_dataset).to_pandas().columns.tolist()
        ['id', 'value']
        """
        if self.data_set is None:
            raise InternalError("a run without its data set")
        graph = Graph(self.data_set)
        numbers = NodeNumbers.of_graph(graph, self.relation)
        values = {"value": self.values}
        return node_frame(graph, values, of_nodes=self.of_nodes, numbers=numbers)

    def _shown(self) -> tuple[str, Rows]:
        facts = [(words(name), value_of(name, fact)) for name, fact in self.facts.items()]
        rows = [("values", short(self.values)), *facts]
        counted = [name for name in ("passes", "seconds") if name in self.counters]
        rows += [(words(name), value_of(name, self.counters[name])) for name in counted]
        return f"Run of {self.algorithm}", rows


_WHOLE = 2**53
"""Up to here float64 holds every whole number."""

COMPONENTS = ("wcc", "scc", "label_propagation", "louvain")
"""Algorithms whose values are nodes: each names the set that a node is in."""

ALGORITHMS: dict[str, Algorithm] = {}
"""The algorithms by name; each enters itself by `outercore.analytics.recorded_run.algorithm`."""


def algorithm_called(name: str) -> Algorithm:
    """The function of an algorithm.

    Errors: `InvalidError` for an unknown name.
    """
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        advice = FUNCTIONS.get(name, "")
        hint = f"\nhint: {advice}" if advice else hint_like(name, ALGORITHMS)
        raise InvalidError(f"algorithm `{name}`: expected one of {known}{hint}")
    return ALGORITHMS[name]


def compute(
    graph: Graph,
    algorithm: dict[str, Any],
    run: RunConfig,
    teleports: Teleports,
    *,
    checkpoint: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Runs an algorithm with all its options. `checkpoint` has the directory of checkpoints, the
    seconds between them, and whether the run resumes from one."""
    request = _request(graph.root, algorithm, run, checkpoint)
    graph.take_additions()
    values, outcome = native.run_algorithm(graph._core, request, *teleports, progress)
    # The grid may have been built.
    graph.take_additions()
    return Run(
        algorithm["algorithm"],
        values,
        outcome["facts"],
        outcome["plan"],
        outcome["counters"],
        outcome.get("profile"),
        described=described(algorithm, run.relation),
        of_nodes=algorithm["algorithm"] in COMPONENTS or algorithm.get("result") == "predecessors",
        data_set=graph.root,
        relation=run.relation,
        options={name: value for name, value in algorithm.items() if name != "algorithm"},
    )


def plan(
    algorithm: str,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    checkpoint_every: float | None = None,
    **given: Any,
) -> dict[str, Any]:
    """How a run would divide the budget, and its reads; needs the grid, runs nothing.

    Takes the arguments of `run`, without the destination of the result. The plan holds for the run
    with the same arguments. ``checkpoint_every`` has the seconds between the checkpoints of a run
    with a ``record``. ``least`` is the least budget that works.

    Raises:
        NotFoundError: the grid is not built.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> from outercore import analytics
        >>> _ = oc.grid(tiny_dataset)
        >>> analytics.plan("wcc", tiny_dataset, memory="64MiB")["budget"]
        67108864
    """
    run, options = divided({**given, "checkpoint_every": checkpoint_every})
    return plan_of(
        algorithm, graph, run, options, personalization, checkpoints=checkpoint_every is not None
    )


def plan_of(
    algorithm: str,
    graph: Source,
    run: RunConfig,
    options: Mapping[str, Any],
    personalization: Personalization | None = None,
    *,
    checkpoints: bool,
) -> dict[str, Any]:
    """As `plan`, by a configuration; `checkpoints`: whether the run takes some."""
    opened = graph if isinstance(graph, Graph) else Graph(graph)
    opened.take_additions()
    root = opened.root
    called = algorithm_called(algorithm)
    options = numbered(opened, run.relation, options)
    # A plan looks into no directory.
    checkpoint = {"directory": "", "seconds": run.checkpoint_every, "resume": False}
    request = _request(
        root,
        algorithm_of(called, options),
        run,
        checkpoint if checkpoints else None,
    )
    vector = teleports(called, personalization, opened, run.relation)
    return RunPlan(native.plan_algorithm(opened._core, request, *vector))


def _request(
    root: Path, algorithm: dict[str, Any], run: RunConfig, checkpoint: dict[str, Any] | None
) -> dict[str, Any]:
    config = run.native(root)
    if checkpoint is not None:
        config["checkpoint"] = checkpoint
    return {"algorithm": algorithm, "config": config}
