"""The algorithms by name, to run or to plan them where the name is not known beforehand."""

from __future__ import annotations

from typing import Any

from outercore.analytics.centrality import betweenness, closeness, degrees, hits, pagerank
from outercore.analytics.cohesion import (
    kcore,
    label_propagation,
    local_clustering,
    louvain,
    scc,
    triangles,
    wcc,
)
from outercore.analytics.distances import bfs, radii, sssp
from outercore.analytics.request import Personalization, Source
from outercore.analytics.running import Algorithm, plan_of
from outercore.errors import InvalidError

ALGORITHMS: dict[str, Algorithm] = {
    function.__name__: function
    for function in (
        pagerank,
        bfs,
        sssp,
        wcc,
        scc,
        radii,
        betweenness,
        closeness,
        hits,
        kcore,
        label_propagation,
        louvain,
        triangles,
        local_clustering,
        degrees,
    )
}
"""The algorithms by name."""


def algorithm_called(name: str) -> Algorithm:
    """The function of an algorithm.

    Errors: `InvalidError` for an unknown name.
    """
    if name not in ALGORITHMS:
        known = ", ".join(ALGORITHMS)
        raise InvalidError(f"algorithm `{name}`: expected one of {known}")
    return ALGORITHMS[name]


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
    checkpoint = None
    if checkpoint_every is not None:
        # A plan looks into no directory.
        checkpoint = {"directory": "", "seconds": checkpoint_every, "resume": False}
    return plan_of(
        algorithm_called(algorithm),
        graph,
        personalization=personalization,
        checkpoint=checkpoint,
        **given,
    )
