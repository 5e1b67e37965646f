"""Running an algorithm, or planning its run: from the options to the result and its cost."""

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
from outercore.errors import InternalError, InvalidError

Algorithm = Callable[..., NDArray[Any]]
"""A function of `outercore.analytics`. Its name and parameters define the request to the core."""


@dataclass(frozen=True, repr=False)
class Run(Shown):
    """The result of an algorithm, and its cost."""

    algorithm: str
    values: NDArray[Any]
    """One value per node, by node id; in a graph with several types, ordered by type.

    Shapes: [nodes]."""
    facts: dict[str, Any]
    """Results about the whole graph: iterations, number of components and others."""
    plan: dict[str, Any]
    """How the budget was divided."""
    counters: dict[str, Any]
    """Passes, reads and seconds; ``far`` if a memory server was used."""
    profile: dict[str, Any] | None = None
    """Memory of each group and reads of each segment, if the run counted them."""
    note: str = ""
    """Why the run has no record, if the default record could not be written."""
    described: str = ""
    """The algorithm with its options, for the provenance of saved values."""
    of_nodes: bool = False
    """Whether the values are nodes, such as predecessors."""
    data_set: Path | None = None
    """Directory of the data set."""
    relation: str | None = None
    """The edge type or relation of the run; `None` for all edges."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All options of the algorithm, defaults included."""

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


def compute(
    graph: Graph,
    algorithm: dict[str, Any],
    run: RunConfig,
    teleports: Teleports,
    *,
    checkpoint: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Runs an algorithm with all its options.

    `checkpoint` holds the directory of the checkpoints, the seconds between them, and whether to
    resume from an existing checkpoint.
    """
    request = _request(graph.root, algorithm, run, checkpoint)
    graph.take_additions()
    values, outcome = native.run_algorithm(graph._core, request, *teleports, progress)
    # The run may have added a grid to the data set.
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
) -> RunPlan:
    """Plan a run: how it divides the budget and how much it reads; needs the grid, runs nothing.

    Takes the arguments of `run`, except ``record``, ``save``, ``overwrite`` and ``progress``, and
    returns the plan of that run. ``checkpoint_every`` is the seconds between the checkpoints of a
    run with a ``record``. In the plan, ``least`` is the smallest budget that works.

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
) -> RunPlan:
    """`plan` for a configuration; `checkpoints`: whether the run writes checkpoints."""
    opened = graph if isinstance(graph, Graph) else Graph(graph)
    opened.take_additions()
    root = opened.root
    called = algorithm_called(algorithm)
    options = numbered(opened, run.relation, options)
    # A plan does not look for checkpoints, so it needs no directory.
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
