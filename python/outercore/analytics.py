"""Graph algorithms over the grid of a data set, under a memory budget.

Every function takes a graph (or the path of a data set) and returns one value a node. The values of
the nodes stay in memory, or go through it partition by partition where the budget has no room for
them; the edges are read in passes. The result is the same to the last bit whatever the budget, the
back end or the number of threads; where the budget has no room for it, it is mapped from a file.
The grid is built when it is first needed and kept in the data set.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from outercore import _native
from outercore._native import Progress
from outercore.algorithm_request import (
    Direction,
    Personalization,
    Resources,
    Source,
    algorithm_of,
    checked_threads,
    config_of,
    described,
    divided,
    root_of,
    teleports,
)
from outercore.graph import Graph
from outercore.sizes import parse_size

if TYPE_CHECKING:
    from typing_extensions import Unpack


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


def grid(
    graph: Source,
    *,
    memory: str | int = "1GiB",
    threads: int | None = None,
    weights: str | None = None,
    order: Literal["auto", "degree", "natural"] = "auto",
    partition_log2: int | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Write the edges a second time, as the compressed grid that the algorithms read.

    The algorithms do it by themselves with the defaults; call this to have weights in the grid, to
    choose the order, or to have it done beforehand. Returns sizes, counts and seconds.

    Args:
        graph: an opened graph or the directory of a data set.
        memory: budget of the build, such as ``"2GiB"``.
        threads: all cores by default.
        weights: an edge array, such as ``"weight"``, whose values are stored with the edges.
        order: how the grid numbers the nodes: ``degree`` brings busy nodes together, ``natural``
            keeps an order that is local already, ``auto`` looks at the edges.
        partition_log2: nodes of a partition as a power of two, 1 to 16; chosen by default.
        overwrite: build again where there is a grid.
        progress: called as ``progress(phase, done, total, unit)``.

    Cost: reads the edges three times; writes less than twice the bytes that it reads once.

    Raises:
        InvalidError: there is a grid with other weights or another order.
        NotFoundError: there is no edge array of that name.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> summary = oc.grid(tiny_dataset)
        >>> summary["nodes"]
        200
    """
    options: dict[str, Any] = {
        "memory": parse_size(memory),
        "threads": checked_threads(threads),
        "weights": weights,
        "order": None if order == "auto" else order,
        "partition_log2": partition_log2,
        "overwrite": overwrite,
    }
    summary = _native.build_grid(root_of(graph), options, progress)
    if isinstance(graph, Graph):
        graph.reload()
    return summary


def pagerank(
    graph: Source,
    *,
    damping: float = 0.85,
    max_iterations: int = 100,
    tolerance: float = 1e-6,
    personalization: Personalization | None = None,
    weights: str | None = None,
    reverse: bool = False,
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """How often a walker who follows arcs, and jumps now and then, is at a node.

    Args:
        graph: an opened graph or the directory of a data set.
        damping: chance to follow an arc instead of jumping, 0 to below 1.
        max_iterations: one pass over the edges each.
        tolerance: ends when the ranks change by less, summed over all nodes; 0 takes what
            ``max_iterations`` give.
        personalization: where jumps lead: one weight a node, or a mapping from nodes to weights;
            all nodes alike by default. A walker at a node without out-arcs jumps too.
        weights: edge array by which an arc is chosen; all alike by default.
        reverse: follow arcs from target to source.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes], which sums to 1.

    Raises:
        InvalidError: an option out of its range; no convergence within ``max_iterations``.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> ranks = oc.pagerank(tiny_dataset, tolerance=1e-9)
        >>> ranks.shape, round(float(ranks.sum()), 6)
        ((200,), 1.0)
    """
    return run(
        "pagerank",
        graph,
        personalization=personalization,
        damping=damping,
        max_iterations=max_iterations,
        tolerance=tolerance,
        weights=weights,
        reverse=reverse,
        **resources,
    ).values


def bfs(
    graph: Source,
    source: int,
    *,
    direction: Direction = "out",
    **resources: Unpack[Resources],
) -> NDArray[np.int32]:
    """Hops from ``source`` to every node; -1 where none lead there.

    Args:
        graph: an opened graph or the directory of a data set.
        source: where to begin.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int32 [nodes].

    Raises:
        InvalidError: ``source`` is no node.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> levels = oc.bfs(tiny_dataset, 3)
        >>> int(levels[3]), levels.dtype
        (0, dtype('int32'))
    """
    return run(
        "bfs",
        graph,
        source=source,
        direction=direction,
        **resources,
    ).values


def sssp(
    graph: Source,
    source: int,
    *,
    weights: str | None = None,
    direction: Direction = "out",
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """Length of the shortest path from ``source`` to every node; infinity where none leads there.

    Args:
        graph: an opened graph or the directory of a data set.
        source: where to begin.
        weights: edge array with the lengths, 0 or more; 1 each by default.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes]. Lengths are read as float32 and added as float64.

    Raises:
        InvalidError: ``source`` is no node; a length is negative.
        NotFoundError: there is no edge array of that name.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> distances = oc.sssp(tiny_dataset, 3)
        >>> float(distances[3])
        0.0
    """
    return run(
        "sssp",
        graph,
        source=source,
        weights=weights,
        direction=direction,
        **resources,
    ).values


def wcc(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Weakly connected components: who can be reached when arcs lead both ways.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes], the smallest node id of each node's component.

    Cost: one pass.

    Raises:
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> components = oc.wcc(tiny_dataset)
        >>> int(components[0])
        0
    """
    return run(
        "wcc",
        graph,
        **resources,
    ).values


def scc(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Strongly connected components: nodes that can all reach each other along arcs.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes], the smallest node id of each node's component.

    Raises:
        BudgetError: the message says how much memory works.

    Source: trimming, forward-backward search from one pivot, then colouring (Slota et al., 2014).

    Example:
        >>> import outercore as oc
        >>> components = oc.scc(tiny_dataset)
        >>> int(components[0])
        0
    """
    return run(
        "scc",
        graph,
        **resources,
    ).values


def radii(
    graph: Source,
    *,
    sources: int = 64,
    seed: int = 0,
    direction: Direction = "out",
    **resources: Unpack[Resources],
) -> NDArray[np.int32]:
    """How far the farthest of some sampled nodes is from each node that they reach.

    The largest value is a lower bound of the diameter.

    Args:
        graph: an opened graph or the directory of a data set.
        sources: nodes to begin at, drawn without repetition from those with an arc; rounded up to
            a multiple of 64, which share their passes.
        seed: which nodes are drawn is a function of it.
        direction: follow arcs ``out`` of nodes, ``in`` to them, or ``both`` ways.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int32 [nodes], -1 where no sampled node reaches.

    Raises:
        InvalidError: no sources.
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> oc.radii(tiny_dataset).shape
        (200,)
    """
    return run(
        "radii",
        graph,
        sources=sources,
        seed=seed,
        direction=direction,
        **resources,
    ).values


def betweenness(
    graph: Source,
    *,
    sources: Sequence[int] | None = None,
    samples: int | None = None,
    seed: int = 0,
    normalized: bool = True,
    **resources: Unpack[Resources],
) -> NDArray[np.float64]:
    """How many shortest paths between other nodes lead through a node.

    Args:
        graph: an opened graph or the directory of a data set.
        sources: where paths begin; all nodes by default.
        samples: draw this many sources without repetition, and scale up.
        seed: which sources are drawn is a function of it.
        normalized: divide by the number of pairs, as networkx does.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: float64 [nodes].

    Cost: two passes a level and source; exact on all nodes only for small graphs.

    Raises:
        InvalidError: sources that are no nodes, or together with ``samples``.
        BudgetError: the message says how much memory works.

    Source: Brandes, 2001.

    Example:
        >>> import outercore as oc
        >>> oc.betweenness(tiny_dataset, samples=8).shape
        (200,)
    """
    return run(
        "betweenness",
        graph,
        sources=sources,
        samples=samples,
        seed=seed,
        normalized=normalized,
        **resources,
    ).values


def kcore(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Core numbers: the largest k such that a node is in a subgraph of degrees k and more.

    The direction of arcs does not matter, loops do not count, parallel edges do.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes].

    Raises:
        BudgetError: the message says how much memory works.

    Source: Montresor, De Pellegrini, Miorandi, 2013; Lü et al., 2016.

    Example:
        >>> import outercore as oc
        >>> cores = oc.kcore(tiny_dataset)
        >>> bool((cores <= oc.degrees(tiny_dataset, which="total")).all())
        True
    """
    return run(
        "kcore",
        graph,
        **resources,
    ).values


def label_propagation(
    graph: Source,
    *,
    max_iterations: int = 10,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """Communities: again and again each node takes the most frequent label of its neighbours.

    Labels begin as node ids; of equally frequent ones the smallest wins. An arc both ways counts
    twice.

    Args:
        graph: an opened graph or the directory of a data set.
        max_iterations: rounds at most; fewer where no label changes.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes], a node id each.

    Raises:
        BudgetError: the message says how much memory works.

    Source: CDLP of LDBC Graphalytics.

    Example:
        >>> import outercore as oc
        >>> labels = oc.label_propagation(tiny_dataset)
        >>> bool((labels < 200).all())
        True
    """
    return run(
        "label_propagation",
        graph,
        max_iterations=max_iterations,
        **resources,
    ).values


def triangles(
    graph: Source,
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """How many triangles a node is in; the direction of arcs, loops and parallel arcs do not count.

    Args:
        graph: an opened graph or the directory of a data set.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes]; their sum is three times the number of triangles.

    Raises:
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> counts = oc.triangles(tiny_dataset)
        >>> int(counts.sum()) % 3
        0
    """
    return run(
        "triangles",
        graph,
        **resources,
    ).values


def degrees(
    graph: Source,
    *,
    which: Literal["in", "out", "total"] = "in",
    **resources: Unpack[Resources],
) -> NDArray[np.int64]:
    """How many arcs lead into a node, out of it, or both together.

    Args:
        graph: an opened graph or the directory of a data set.
        which: ``in``, ``out`` or ``total``.
        resources: ``memory``, ``threads``, ``far``, ``save`` and the others of `Resources`.

    Shapes: int64 [nodes]; loops and parallel arcs count, an undirected edge once whatever
    ``which``.

    Cost: no pass.

    Raises:
        BudgetError: the message says how much memory works.

    Example:
        >>> import outercore as oc
        >>> int(oc.degrees(tiny_dataset).sum()) == oc.open(tiny_dataset).num_edges
        True
    """
    return run(
        "degrees",
        graph,
        which=which,
        **resources,
    ).values


ALGORITHMS: dict[str, Callable[..., NDArray[Any]]] = {
    function.__name__: function
    for function in (
        pagerank,
        bfs,
        sssp,
        wcc,
        scc,
        radii,
        betweenness,
        kcore,
        label_propagation,
        triangles,
        degrees,
    )
}
"""The algorithms by name."""


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
        algorithm: the name of one of this module's functions.
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
    root = root_of(graph)
    used, options = divided(given)
    config = config_of(root, used)
    request = {"algorithm": algorithm_of(ALGORITHMS, algorithm, options), "config": config}
    opened = graph if isinstance(graph, Graph) else Graph(root)
    if save is not None:
        opened.check_free(save, overwrite=overwrite)
    ids, scales = teleports(personalization, opened.num_nodes)
    values, outcome = _native.run_algorithm(root, request, ids, scales, progress)
    if isinstance(graph, Graph):
        graph.reload()
    if save is not None:
        opened.reload()
        opened.add_node_array(save, values, overwrite=overwrite, origin=described(request))
    checkpoint = used.get("checkpoint")
    if checkpoint is not None and not keep_checkpoint:
        forget_checkpoint(checkpoint)
    return Run(
        algorithm,
        values,
        outcome["facts"],
        outcome["plan"],
        outcome["counters"],
        outcome.get("profile"),
    )


def forget_checkpoint(directory: str | os.PathLike[str]) -> None:
    """Removes a checkpoint, whose run has come to its end, and nothing else."""
    directory = Path(directory)
    names = ("checkpoint.json", "checkpoint.tmp", "state-0.bin", "state-1.bin", "checkpoint.lock")
    for name in names:
        (directory / name).unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        directory.rmdir()


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
    root = root_of(graph)
    used, options = divided(given)
    config = config_of(root, used)
    request = {"algorithm": algorithm_of(ALGORITHMS, algorithm, options), "config": config}
    ids, scales = None, None
    if personalization is not None:
        opened = graph if isinstance(graph, Graph) else Graph(root)
        ids, scales = teleports(personalization, opened.num_nodes)
    return _native.plan_algorithm(root, request, ids, scales)
