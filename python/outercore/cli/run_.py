"""`outercore run`: one command an algorithm over the grid of a data set."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.analytics.config import RunConfig
from outercore.cli import config_options, options
from outercore.cli.run_job import SHARED, carry_on, carry_out, job_of
from outercore.cli.run_nodes import Nodes, teleport
from outercore.errors import InvalidError

algorithms = typer.Typer(
    invoke_without_command=True, no_args_is_help=True, rich_markup_mode="markdown"
)


@algorithms.callback()
def run(
    context: typer.Context,
    resume: Annotated[
        Path | None,
        typer.Option("--resume", help="Directory of a run to continue from its checkpoint."),
    ] = None,
    memory: Annotated[
        str | None, typer.Option(help="With `--resume`: another budget; the result is the same.")
    ] = None,
    threads: Annotated[int | None, typer.Option(help="With `--resume`: other threads.")] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="With `--resume`: passes at most, those done included.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Run a graph algorithm out of core, or resume one.

    **Examples**

        outercore run pagerank papers --memory 128MiB --save rank

        outercore run --resume runs/papers-pagerank-1
    """
    changed = {"memory": memory, "threads": threads, "max_iterations": max_iterations}
    given = {name: value for name, value in changed.items() if value is not None}
    if context.invoked_subcommand is None:
        if resume is None:
            raise InvalidError("run: expected an algorithm, or `--resume RUN`")
        carry_on(resume, given, json=json)
    elif given or json or resume is not None:
        raise InvalidError(f"run: expected the options after `{context.invoked_subcommand}`")


Direction = Annotated[
    str, typer.Option("--direction", help="Follow arcs `out` of nodes, `in` to them, or `both`.")
]
EdgeSource = Annotated[
    str, typer.Option("--source", help="The node to begin at; the nearest of `NODE,NODE`.")
]
PathResult = Annotated[
    str,
    typer.Option("--result", help="`distances`, or `predecessors`: the node before each one."),
]


def _algorithm(function: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """A command that takes the data set, the function's own options and those of `Job`.

    The function turns its own options into what `outercore.analytics.run` takes.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    data_set, *shared = SHARED.values()
    # The core's options come after those of the algorithm.
    after = own[-1].name if own else data_set.name

    @functools.wraps(function)
    def command(**values: Any) -> None:
        job = job_of(values)
        carry_out(function.__name__, job, function(**values))

    given = inspect.Parameter("given", inspect.Parameter.KEYWORD_ONLY)
    config = inspect.Parameter(
        "config", given.kind, default=None, annotation=config_options.ConfigFile
    )
    command.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [one.replace(kind=given.kind) for one in (data_set, *own, config, *shared, given)]
    )
    complete = config_options.takes(RunConfig, after=after)(command)
    name = function.__name__.replace("_", "-")
    algorithms.command(name, no_args_is_help=True)(complete)
    return complete


@_algorithm
def pagerank(
    damping: Annotated[float, typer.Option(help="Chance to follow an arc, below 1.")] = 0.85,
    max_iterations: Annotated[int, typer.Option(help="Passes at most.")] = 100,
    tolerance: Annotated[
        float, typer.Option(help="End when the ranks change by less; 0 never does.")
    ] = 1e-6,
    personalization: Annotated[
        str | None,
        typer.Option(help="Where jumps lead: `.npy` with a weight a node, or `NODE,NODE`."),
    ] = None,
    weights: Annotated[
        str | None, typer.Option(help="Edge array by which an arc is chosen.")
    ] = None,
    reverse: Annotated[
        bool, typer.Option("--reverse", help="Follow arcs from target to source.")
    ] = False,
) -> dict[str, Any]:
    """PageRank: how often a walker who follows arcs, and jumps now and then, is at a node.

    **Examples**

        outercore run pagerank papers --memory 128MiB --save rank

        outercore run pagerank papers --max-iterations 20 --tolerance 0 --top 5
    """
    return {
        "damping": damping,
        "max_iterations": max_iterations,
        "tolerance": tolerance,
        "personalization": teleport(personalization),
        "weights": weights,
        "reverse": reverse,
    }


@_algorithm
def bfs(
    source: EdgeSource,
    direction: Direction = "out",
    cutoff: Annotated[int | None, typer.Option(help="The most hops.")] = None,
    result: PathResult = "distances",
) -> dict[str, Any]:
    """Breadth-first search: hops from a node to every other, -1 where none lead.

    **Example**

        outercore run bfs papers --source 3 --out levels.npy
    """
    return {
        "source": Nodes("--source", source),
        "direction": direction,
        "cutoff": cutoff,
        "result": result,
    }


@_algorithm
def sssp(
    source: EdgeSource,
    weights: Annotated[
        str | None, typer.Option(help="Edge array with the lengths; 1 each by default.")
    ] = None,
    direction: Direction = "out",
    cutoff: Annotated[float | None, typer.Option(help="The longest path.")] = None,
    result: PathResult = "distances",
) -> dict[str, Any]:
    """Shortest paths: the length of the way from a node to every other, infinity where none leads.

    **Example**

        outercore run sssp roads --source 3 --weights length
    """
    return {
        "source": Nodes("--source", source),
        "weights": weights,
        "direction": direction,
        "cutoff": cutoff,
        "result": result,
    }


@_algorithm
def wcc() -> dict[str, Any]:
    """Weakly connected components, named by their smallest node; one pass where they fit in memory.

    **Example**

        outercore run wcc papers --save component
    """
    return {}


@_algorithm
def scc() -> dict[str, Any]:
    """Strongly connected components, named by their smallest node.

    **Example**

        outercore run scc papers
    """
    return {}


@_algorithm
def radii(
    sources: Annotated[int, typer.Option(help="Nodes to begin at.")] = 64,
    seed: options.Seed = 0,
    direction: Direction = "out",
) -> dict[str, Any]:
    """How far the farthest of some sampled nodes is; the largest bounds the diameter from below.

    **Example**

        outercore run radii papers --sources 64 --seed 1
    """
    return {"sources": sources, "seed": seed, "direction": direction}


@_algorithm
def betweenness(
    sources: Annotated[
        str | None, typer.Option(help="Only paths from `NODE,NODE`; from all nodes by default.")
    ] = None,
    samples: Annotated[
        int | None, typer.Option(help="Estimate from this many drawn sources instead.")
    ] = None,
    seed: options.Seed = 0,
    weights: Annotated[
        str | None, typer.Option(help="Edge array with the lengths; 1 each by default.")
    ] = None,
    normalized: Annotated[
        bool, typer.Option("--normalized/--counts", help="Divide by the number of pairs.")
    ] = True,
) -> dict[str, Any]:
    """Betweenness: how many shortest paths lead through a node.

    **Example**

        outercore run betweenness papers --samples 32
    """
    return {
        "sources": None if sources is None else Nodes("--sources", sources),
        "samples": samples,
        "seed": seed,
        "weights": weights,
        "normalized": normalized,
    }


@_algorithm
def closeness(
    nodes: Annotated[
        str | None, typer.Option(help="Only of `NODE,NODE`; of all nodes by default.")
    ] = None,
    direction: Direction = "in",
    improved: Annotated[
        bool, typer.Option("--improved/--plain", help="Times the share of nodes within reach.")
    ] = True,
) -> dict[str, Any]:
    """Closeness: one over the mean distance to a node.

    **Example**

        outercore run closeness papers --nodes 3,17
    """
    return {
        "nodes": None if nodes is None else Nodes("--nodes", nodes),
        "direction": direction,
        "improved": improved,
    }


@_algorithm
def hits(
    max_iterations: Annotated[int, typer.Option(help="Two passes each, at most.")] = 100,
    tolerance: Annotated[
        float, typer.Option(help="End when the hubs change by less; 0 never does.")
    ] = 1e-8,
    weights: Annotated[str | None, typer.Option(help="Edge array by which arcs count.")] = None,
    score: Annotated[str, typer.Option(help="`authorities` or `hubs`.")] = "authorities",
) -> dict[str, Any]:
    """HITS: hubs point at authorities, and authorities are what hubs point at.

    **Example**

        outercore run hits papers --score hubs
    """
    return {
        "max_iterations": max_iterations,
        "tolerance": tolerance,
        "weights": weights,
        "score": score,
    }


@_algorithm
def kcore() -> dict[str, Any]:
    """Core numbers: the largest k such that a node is in a subgraph of degrees k and more.

    **Example**

        outercore run kcore papers
    """
    return {}


@_algorithm
def label_propagation(
    max_iterations: Annotated[int, typer.Option(help="Rounds at most.")] = 10,
) -> dict[str, Any]:
    """Communities: each node takes the most frequent label of its neighbours, again and again.

    **Example**

        outercore run label-propagation papers --max-iterations 10
    """
    return {"max_iterations": max_iterations}


@_algorithm
def louvain(
    resolution: Annotated[
        float, typer.Option(help="Above 1 for smaller communities, below 1 for larger ones.")
    ] = 1.0,
    weights: Annotated[str | None, typer.Option(help="Edge array by which edges count.")] = None,
) -> dict[str, Any]:
    """Communities of high modularity; all edges stay in memory.

    **Example**

        outercore run louvain papers --save community
    """
    return {"resolution": resolution, "weights": weights}


@_algorithm
def local_clustering() -> dict[str, Any]:
    """Of the possible arcs between a node's neighbours the share that is there.

    **Example**

        outercore run local-clustering papers
    """
    return {}


@_algorithm
def triangles() -> dict[str, Any]:
    """How many triangles every node is in.

    **Example**

        outercore run triangles papers
    """
    return {}


@_algorithm
def degrees(
    which: Annotated[str, typer.Option(help="`in`, `out` or `total`.")] = "in",
) -> dict[str, Any]:
    """How many arcs lead into a node, out of it, or both.

    **Example**

        outercore run degrees papers --which out
    """
    return {"which": which}
