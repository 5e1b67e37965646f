"""One run of an algorithm, or its plan: from what is asked for to the result and its cost."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from outercore import _native
from outercore._native import Progress
from outercore.analytics.request import (
    Personalization,
    Resources,
    Source,
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


def carry_out(
    function: Algorithm,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    keep_checkpoint: bool = False,
    save: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **given: Any,
) -> Run:
    """Runs an algorithm; see `outercore.analytics.run`."""
    root, request, used = _asked(function, graph, given)
    opened = graph if isinstance(graph, Graph) else Graph(root)
    if save is not None:
        opened.check_free(save, overwrite=overwrite)
        check_directory(root)
    ids, scales = teleports(personalization, opened.num_nodes)
    values, outcome = steady(
        root, lambda: _native.run_algorithm(root, request, ids, scales, progress)
    )
    if isinstance(graph, Graph):
        graph.reload()
    if save is not None:
        opened.reload()
        opened.add_node_array(save, values, overwrite=overwrite, origin=described(request))
    checkpoint = used.get("checkpoint")
    if checkpoint is not None and not keep_checkpoint:
        forget_checkpoint(checkpoint)
    return Run(
        function.__name__,
        values,
        outcome["facts"],
        outcome["plan"],
        outcome["counters"],
        outcome.get("profile"),
    )


def plan_of(
    function: Algorithm,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    **given: Any,
) -> dict[str, Any]:
    """How `carry_out` would divide the budget; see `outercore.analytics.plan`."""
    root, request, _ = _asked(function, graph, given)
    ids, scales = None, None
    if personalization is not None:
        opened = graph if isinstance(graph, Graph) else Graph(root)
        ids, scales = teleports(personalization, opened.num_nodes)
    return steady(root, lambda: _native.plan_algorithm(root, request, ids, scales))


def _asked(
    function: Algorithm, graph: Source, given: dict[str, Any]
) -> tuple[Path, dict[str, Any], Resources]:
    """The data set's directory, what the core is asked, and the resources among what was given."""
    root = root_of(graph)
    used, options = divided(given)
    config = config_of(root, used)
    return root, {"algorithm": algorithm_of(function, options), "config": config}, used


def forget_checkpoint(directory: str | os.PathLike[str]) -> None:
    """Removes a checkpoint, whose run has come to its end, and nothing else."""
    directory = Path(directory)
    names = ("checkpoint.json", "checkpoint.tmp", "state-0.bin", "state-1.bin", "checkpoint.lock")
    for name in names:
        (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()
