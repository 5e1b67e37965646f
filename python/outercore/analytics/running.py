"""One run of an algorithm, or its plan: from what is asked for to the result and its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from outercore import _core
from outercore.analytics.config import RunConfig, divided
from outercore.analytics.request import (
    Personalization,
    Teleports,
    algorithm_of,
    described,
    numbered,
    teleports,
)
from outercore.base import native
from outercore.base.display import Rows, Shown, short, value_of, words
from outercore.base.likeness import hint_like
from outercore.base.native import Progress
from outercore.base.other_libraries import FUNCTIONS
from outercore.base.plan_display import RunPlan
from outercore.data.graph import Graph, Source
from outercore.data.node_numbers import NodeNumbers
from outercore.data.outputs import node_frame
from outercore.errors import InternalError, InvalidError

Algorithm = Callable[..., NDArray[Any]]
"""A function of `outercore.analytics`: its name and its parameters say what the core is asked."""


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """The result of an algorithm, and what it cost."""

    algorithm: str
    values: NDArray[Any]
    """One value a node, by node id; in a graph with several types, type after type."""
    facts: dict[str, Any]
    """What is worth saying beside the values: iterations, components, and the like."""
    plan: dict[str, Any]
    """How the budget was divided."""
    counters: dict[str, Any]
    """Passes, reads, seconds; ``far`` where there was a memory server."""
    profile: dict[str, Any] | None = None
    """What was held, group by group, and the reads of each segment, where they were counted."""
    note: str = ""
    """Why no record of it was kept, where none was asked for and none could be."""
    described: str = ""
    """The algorithm with its options, for the provenance of what is saved."""
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
        """What the caller should know before the values are used; mostly nothing."""
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
    """Runs an algorithm with all its options; `checkpoint` says where checkpoints go, how often,
    and whether the one that is there is gone on from."""
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
    """How a run would divide the budget, and what it would read; needs the grid, runs nothing.

    Takes what `run` takes, except for what becomes of the result; the plan is that of the run with
    the same arguments. ``checkpoint_every`` has the seconds between the checkpoints of a run
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
    return RunPlan(_core.plan_algorithm(opened._core, request, *vector))


def _request(
    root: Path, algorithm: dict[str, Any], run: RunConfig, checkpoint: dict[str, Any] | None
) -> dict[str, Any]:
    config = run.native(root)
    if checkpoint is not None:
        config["checkpoint"] = checkpoint
    return {"algorithm": algorithm, "config": config}
