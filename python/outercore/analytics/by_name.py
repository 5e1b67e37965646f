"""The algorithms by name, to run or to plan them where the name is not known beforehand."""

from __future__ import annotations

from typing import Any

from outercore._native import Progress
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
from outercore.analytics.running import Algorithm, Run, carry_out, plan_of
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


def run(
    algorithm: str,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    keep_checkpoint: bool = False,
    save: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
    **given: Any,
) -> Run:
    """Run an algorithm by its name; returns the values with facts, plan and counters.

    Args:
        algorithm: the name of one of the functions of `outercore.analytics`.
        graph: an opened graph or the directory of a data set.
        personalization: for ``pagerank``.
        keep_checkpoint: leave the directory as it is when the run has come to its end, for a caller
            who then calls `forget_checkpoint`.
        save: keep the result in the data set as a node array of this name.
        overwrite: let ``save`` replace an array.
        progress: called as ``progress(phase, done, total, unit)``.
        given: what the algorithm's function takes, with its defaults, and ``memory``, ``threads``,
            ``far``, ``checkpoint`` and the others of `Resources`.

    Raises:
        InvalidError: an unknown algorithm or option; what its function raises.

    Example:
        >>> import outercore as oc
        >>> done = oc.run("pagerank", tiny_dataset, damping=0.9)
        >>> done.values.shape, done.counters["passes"] > 0
        ((200,), True)
    """
    return carry_out(
        algorithm_called(algorithm),
        graph,
        personalization=personalization,
        keep_checkpoint=keep_checkpoint,
        save=save,
        overwrite=overwrite,
        progress=progress,
        **given,
    )


def plan(
    algorithm: str,
    graph: Source,
    *,
    personalization: Personalization | None = None,
    **given: Any,
) -> dict[str, Any]:
    """How a run would divide the budget, and what it would read; needs the grid, runs nothing.

    Takes what `run` takes, except for what becomes of the result; the plan is that of the run with
    the same arguments. ``least`` is the least budget that works.

    Raises:
        NotFoundError: the grid is not built.
        BudgetError: the message says how much memory works.
        UnsupportedError: checkpoints of an algorithm that leaves none.

    Example:
        >>> import outercore as oc
        >>> from outercore import analytics
        >>> _ = oc.grid(tiny_dataset)
        >>> analytics.plan("wcc", tiny_dataset, memory="64MiB")["budget"]
        67108864
    """
    return plan_of(algorithm_called(algorithm), graph, personalization=personalization, **given)
