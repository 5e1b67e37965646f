"""One run of an algorithm, or its plan: from what is asked for to the result and its cost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from outercore import _native
from outercore._native import Progress
from outercore.analytics.request import (
    Personalization,
    Source,
    Teleports,
    algorithm_of,
    config_of,
    described,
    divided,
    root_of,
    teleports,
)
from outercore.graph import Graph
from outercore.outputs import check_directory
from outercore.steady import steady

Algorithm = Callable[..., NDArray[Any]]
"""A function of `outercore.analytics`: its name and its parameters say what the core is asked."""


@dataclass(frozen=True)
class Run:
    """The result of an algorithm, and what it cost."""

    algorithm: str
    values: NDArray[Any]
    """One value a node, by node id."""
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


def carry_out(
    function: Algorithm,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    save: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **given: Any,
) -> Run:
    """Runs an algorithm; see `outercore.analytics.run`."""
    used, options = divided(given)
    algorithm = algorithm_of(function, options)
    opened = graph if isinstance(graph, Graph) else Graph(graph)
    if save is not None:
        opened.check_free(save, overwrite=overwrite)
        check_directory(opened.root)
    vector = teleports(personalization, opened.num_nodes)
    done = compute(function, opened, algorithm, used, vector, progress=progress)
    if save is not None:
        opened.add_node_array(save, done.values, overwrite=overwrite, origin=done.described)
    return done


def compute(
    function: Algorithm,
    graph: Graph,
    algorithm: dict[str, Any],
    used: Mapping[str, Any],
    teleports: Teleports,
    *,
    checkpoint: dict[str, Any] | None = None,
    progress: Progress | None = None,
) -> Run:
    """Runs an algorithm with all its options; `checkpoint` says where checkpoints go, how often,
    and whether the one that is there is gone on from."""
    config = config_of(graph.root, used)
    if checkpoint is not None:
        config["checkpoint"] = checkpoint
    request = {"algorithm": algorithm, "config": config}
    values, outcome = steady(
        graph.root,
        lambda: _native.run_algorithm(graph.root, request, *teleports, progress),
    )
    # The grid may have been built.
    graph.reload()
    return Run(
        function.__name__,
        values,
        outcome["facts"],
        outcome["plan"],
        outcome["counters"],
        outcome.get("profile"),
        described=described(algorithm),
    )


def plan_of(
    function: Algorithm,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    checkpoint: dict[str, Any] | None = None,
    **given: Any,
) -> dict[str, Any]:
    """How `carry_out` would divide the budget; see `outercore.analytics.plan`."""
    root = root_of(graph)
    used, options = divided(given)
    config = config_of(root, used)
    if checkpoint is not None:
        config["checkpoint"] = checkpoint
    request = {"algorithm": algorithm_of(function, options), "config": config}
    vector: Teleports = (None, None)
    if personalization is not None:
        opened = graph if isinstance(graph, Graph) else Graph(root)
        vector = teleports(personalization, opened.num_nodes)
    return steady(root, lambda: _native.plan_algorithm(root, request, *vector))
