"""Running an algorithm, or planning its run: options, results and costs."""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray

from outercore import _core
from outercore.analytics.config import AnalysisConfig, split_options
from outercore.base import native
from outercore.base.display import Displayed, Rows, short, value_of, words
from outercore.base.fields import typed, within
from outercore.base.likeness import hint_like
from outercore.base.native import Progress
from outercore.base.options import Backend, fields
from outercore.base.other_libraries import FUNCTIONS, instead_of_option
from outercore.base.plan_display import RunPlan
from outercore.data.edge_types import EdgeType
from outercore.data.far import Far
from outercore.data.graph import Graph, Source
from outercore.data.node_names import names_of_nodes, node_ids
from outercore.errors import InternalError, InvalidError

Direction = Literal["out", "in", "both"]
Node = int | str | tuple[str, int | str]
"""A node. A number is its position in the result, from 0. A text is its name, or its id in the
imported files. In a graph with several types it is a type and an id, such as ``("author", 3)`` or
``"author:ann"``."""
Nodes = Sequence[Node] | tuple[str, Sequence[int | str]]
Personalization = (
    ArrayLike
    | Mapping[int, float]
    | Mapping[str, float]
    | Mapping[tuple[str, int], float]
    | Mapping[tuple[str, str], float]
)
Teleports = tuple[NDArray[np.int64] | None, NDArray[np.float64] | None]
"""Nodes and weights of a teleport vector, [nodes with a weight]; `None` for equal weights."""
Algorithm = Callable[..., NDArray[Any]]
"""A function of `outercore.analytics`. Its name and parameters define the request to the core."""


class Resources(TypedDict, total=False):
    """Options that every algorithm takes: fields of `RunConfig`, and where to save its result."""

    memory: str | int
    relation: str | EdgeType | None
    threads: int | None
    backend: Backend
    far: Far | None
    far_ratio: float | None
    scratch: str | os.PathLike[str] | None
    save: str | None
    """Save the result in the data set as a node array of this name."""
    progress: Progress | None
    """Called as ``progress(phase, done, total, unit)``."""


_NUMBERED = (Nodes, Node | Nodes)
"""Types of the options whose values are nodes."""
_OF_NODES = ("source", "sources", "nodes", "personalization")
"""Names of the options whose values are nodes."""
_LARGEST = 2**32 - 1


def checked_options(function: Algorithm, options: Mapping[str, Any]) -> dict[str, Any]:
    """All options of an algorithm, defaults included.

    Errors: `InvalidError` for an unknown option, or a number that is not finite.
    """
    algorithm = function.__name__
    checked: dict[str, Any] = {}
    known = {field.name: field for field in fields(function)}
    # The teleport vector is an array next to the request.
    known.pop("personalization", None)
    for name in options:
        if name not in known:
            raise _unknown_option(function, name)
    for name, option in known.items():
        value = options.get(name, option.default)
        if value is inspect.Parameter.empty:
            raise InvalidError(f"{algorithm}: expected a `{name}`")
        what = f"{algorithm}: {name}"
        value = _plain(what, value)
        if value is None and option.default is None:
            pass
        elif option.type in _NUMBERED:
            _require_nodes(what, value)
        else:
            value = typed(option.type, value, what)
        if isinstance(value, int) and name != "seed":
            within(what, value, 0, _LARGEST)
        checked[name] = value
    return checked


def _unknown_option(function: Callable[..., Any], name: str) -> InvalidError:
    algorithm, parameters = function.__name__, inspect.signature(function).parameters
    known = (
        ", ".join(option for option in parameters if option not in ("graph", "resources")) or "none"
    )
    hint = hint_of_option(algorithm, name, parameters)
    return InvalidError(f"{algorithm}: option `{name}`, expected one of {known}{hint}")


def hint_of_option(algorithm: str, name: str, taken: Collection[str]) -> str:
    """A hint line for an unknown option of an algorithm; `taken` are its parameters."""
    others = [option for option in taken if option != "resources"] + list(Resources.__annotations__)
    advice = instead_of_option(algorithm, name, others)
    otherwise = f"\nhint: `help(oc.{algorithm})` lists what it takes"
    return f"\nhint: {advice}" if advice else hint_like(name, others) or otherwise


def call_of(function: Callable[..., Any]) -> str:
    """The call of an algorithm with its parameters, for a hint.

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
    """Checks that a value is a node id or a list of node ids.

    Errors: `InvalidError` for any other value.
    """
    for node in value if isinstance(value, list) else [value]:
        if not isinstance(node, (int, np.integer)) or isinstance(node, bool):
            why = "; the nodes of this graph have no names" if isinstance(node, str) else ""
            raise InvalidError(f"{what}: expected node ids, found {value!r:.80}{why}")


def _plain(what: str, value: Any) -> Any:
    """Converts the value of option `what` to plain Python, for JSON.

    Errors: `InvalidError` for a number that is not finite, or a negative integer.
    """
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
    """The `given` options of an algorithm, with node ids in place of names of nodes.

    Errors: `NotFoundError`, `InvalidError` for an unknown node.
    """
    of_nodes = {name: value for name, value in given.items() if name in _OF_NODES}
    if not of_nodes:
        return dict(given)
    names = names_of_nodes(graph, relation)
    return {**given, **{name: node_ids(names, value) for name, value in of_nodes.items()}}


def teleports(
    function: Callable[..., Any],
    wanted: Personalization | None,
    graph: Graph,
    relation: str | None,
) -> Teleports:
    """The nodes and weights of the `wanted` teleport vector (`personalization` of PageRank).

    Shapes: int64 and float64, both [nodes with a weight].

    Errors: `InvalidError` for an algorithm without personalization, a number of weights other than
    the number of nodes, or a weight that is not a number.
    """
    if wanted is None:
        return None, None
    if "personalization" not in inspect.signature(function).parameters:
        raise _unknown_option(function, "personalization")
    nodes = len(names_of_nodes(graph, relation))
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


@dataclass(frozen=True, repr=False)
class Run(Displayed):
    """The result of an algorithm, and its cost."""

    algorithm: str
    values: NDArray[Any]
    """One value per node, by node id; in a graph with several types, ordered by type.

    Shapes: [nodes]."""
    facts: dict[str, Any]
    """Results about the whole graph: iterations, number of components and others."""
    plan: dict[str, Any]
    """The parts of the memory budget, and the expected reads."""
    counters: dict[str, Any]
    """Passes, reads and seconds; ``far`` if a memory server was used."""
    record: Path | None = None
    """Directory of the run's record."""
    note: str = ""
    """Why the run has no record, if the default record could not be written."""
    data_set: Path | None = None
    """Directory of the data set."""
    relation: str | None = None
    """The edge type or relation of the run; `None` for all edges."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options of the algorithm, defaults included."""

    @property
    def of_nodes(self) -> bool:
        """Whether the values are nodes, such as predecessors."""
        return self.algorithm in COMPONENTS or self.options.get("result") == "predecessors"

    @property
    def described(self) -> str:
        """The algorithm with its options in one line, for the provenance of saved values."""
        options = {**self.options, "relation": self.relation}
        words = [f"{name}={value}" for name, value in options.items() if value is not None]
        return " ".join(["outercore run", self.algorithm, *words])

    @property
    def warnings(self) -> list[str]:
        """Warnings to read before the values are used; usually empty."""
        texts = []
        if (self.facts.get("farthest") or 0) > _WHOLE:
            texts.append("lengths beyond 2^53 are rounded: they are added as float64")
        if alternating := self.facts.get("alternating"):
            texts.append(
                f"{alternating:,} of {len(self.values):,} nodes alternate between two labels, as "
                "nodes of bipartite graphs do; with the update `asynchronous` they settle"
            )
        if self.options.get("update") == "asynchronous" and not self.facts["settled"]:
            texts.append("labels still change: with more iterations there are fewer communities")
        return texts

    def to_pandas(self) -> Any:
        """The values as a data frame.

        Columns: `id`, the name of a node or its id in the imported files, and `value`; with several
        node types also `type`. Values that are nodes are shown by name.
        `oc.run(...).to_pandas().to_parquet(...)` writes the same table as `outercore run --out`.

        **Example**

        >>> import outercore as oc
        >>> oc.run("degrees", tiny_dataset).to_pandas().columns.tolist()
        ['id', 'value']
        """
        # Imports PyArrow, which takes longer than a small run.
        from outercore.data.outputs import node_frame

        if self.data_set is None:
            raise InternalError("a run without its data set")
        graph = Graph(self.data_set)
        names = names_of_nodes(graph, self.relation)
        return node_frame(names, {"value": self.values}, of_nodes=self.of_nodes)

    def _display(self) -> tuple[str, Rows]:
        facts = [(words(name), value_of(name, fact)) for name, fact in self.facts.items()]
        rows = [("values", short(self.values)), *facts]
        counted = [name for name in ("passes", "seconds") if name in self.counters]
        rows += [(words(name), value_of(name, self.counters[name])) for name in counted]
        return f"Run of {self.algorithm}", rows


_WHOLE = 2**53
"""Float64 holds every integer up to this one."""

COMPONENTS = ("wcc", "scc", "label_propagation", "louvain")
"""Algorithms whose values are nodes: a node's value names its component or community."""


ALGORITHMS: dict[str, Algorithm] = {}
"""The algorithms by name; the decorator `outercore.analytics.recorded_run.algorithm` adds them."""


def algorithm_called(name: str) -> Algorithm:
    """The function of the algorithm `name`.

    Errors: `InvalidError` for an unknown name.
    """
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        advice = FUNCTIONS.get(name, "")
        hint = f"\nhint: {advice}" if advice else hint_like(name, ALGORITHMS)
        raise InvalidError(f"algorithm `{name}`: expected one of {known}{hint}")
    return ALGORITHMS[name]


def prepared(
    config: AnalysisConfig, graph: Graph, personalization: Personalization | None
) -> tuple[AnalysisConfig, Teleports]:
    """The configuration with all options checked and nodes as numbers, and the teleport vector.

    Errors: `InvalidError`, `NotFoundError` for an unknown algorithm, a wrong option or a node.
    """
    function, relation = algorithm_called(config.algorithm), config.run.relation
    options = checked_options(function, numbered(graph, relation, config.options))
    vector = teleports(function, personalization, graph, relation)
    return replace(config, options=options), vector


def compute(
    graph: Graph,
    config: AnalysisConfig,
    teleports: Teleports,
    *,
    checkpoint: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Runs an algorithm. `config` must come from `prepared`, so that it has all options.

    `checkpoint` has the `directory` of the checkpoints, the `seconds` between two of them, and
    `resume`: whether to resume from an existing checkpoint.
    """
    request = _request(graph, config, checkpoint)
    graph.take_additions()
    values, outcome = _core.run_algorithm(graph._core, request, *teleports, progress)
    # The run may have added a grid to the data set.
    graph.take_additions()
    return Run(
        config.algorithm,
        values if isinstance(values, np.ndarray) else native.mapped_values(values),
        outcome["facts"],
        outcome["plan"],
        outcome["counters"],
        data_set=graph.root,
        relation=config.run.relation,
        options=config.options,
    )


def plan(
    algorithm: str,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    checkpoint_every: float | None = None,
    **options: Any,
) -> RunPlan:
    """Plan a run without running it: how it divides the budget and how much it reads.

    The data set must have the grid. The function takes the arguments of `run`, except ``record``,
    ``save``, ``overwrite`` and ``progress``, and returns the plan of that run.
    ``checkpoint_every`` is the number of seconds between the checkpoints of a run with a
    ``record``. In the plan, ``least`` is the smallest budget that works.

    Raises:
        NotFoundError: the data set has no grid for this run.
        BudgetError: the budget is too small; the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> from outercore import analytics
        >>> _ = oc.grid(tiny_dataset)
        >>> analytics.plan("wcc", tiny_dataset, memory="64MiB")["budget"]
        67108864
    """
    run, own = split_options({**options, "checkpoint_every": checkpoint_every})
    config = AnalysisConfig(algorithm, own, run)
    return plan_of(config, graph, personalization, checkpoints=checkpoint_every is not None)


def plan_of(
    config: AnalysisConfig,
    graph: Source,
    personalization: Personalization | None = None,
    *,
    checkpoints: bool,
) -> RunPlan:
    """The plan of a run with this configuration. `checkpoints`: whether the run writes them."""
    opened = graph if isinstance(graph, Graph) else Graph(graph)
    opened.take_additions()
    config, vector = prepared(config, opened, personalization)
    # A plan does not look for checkpoints, so it needs no directory.
    checkpoint = {"directory": "", "seconds": config.run.checkpoint_every, "resume": False}
    request = _request(opened, config, checkpoint if checkpoints else None)
    return RunPlan(_core.plan_algorithm(opened._core, request, *vector))


def _request(
    graph: Graph, config: AnalysisConfig, checkpoint: dict[str, Any] | None
) -> dict[str, Any]:
    resources = config.run.native(graph.root)
    if checkpoint is not None:
        resources["checkpoint"] = checkpoint
    algorithm = {"algorithm": config.algorithm, **config.options}
    return {"algorithm": algorithm, "config": resources}
