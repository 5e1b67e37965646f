"""`outercore run`: one command an algorithm over the grid of a data set."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_type_hints

import typer

from outercore.analytics.by_name import ALGORITHMS
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


_HELP = {
    "source": "The node to begin at; the nearest of `NODE,NODE`.",
    "direction": "Follow arcs `out` of nodes, `in` to them, or `both`.",
    "result": "`distances`, or `predecessors`: the node before each one.",
    "seed": "Everything random is a function of it.",
}
"""Options that mean the same for every algorithm that has them."""
_FLAGS = {
    "reverse": "--reverse",
    "normalized": "--normalized/--counts",
    "improved": "--improved/--plain",
}
"""How options that are on or off are called."""


def _algorithm(**helps: str) -> Callable[[Callable[[], None]], None]:
    """Adds a command for the algorithm that a function is named after; its docstring is the help.

    Which options the algorithm has, their types and defaults say its parameters in
    `outercore.analytics`; `helps` says what they mean. Those of `Job` and `RunConfig` come after.
    """

    def decorate(described: Callable[[], None]) -> None:
        name = described.__name__
        taken = _parameters(ALGORITHMS[name])

        def chosen(**values: Any) -> dict[str, Any]:
            return {one.name: _read(one, values[one.name]) for one in taken}

        chosen.__name__, chosen.__doc__ = name, described.__doc__

        @functools.wraps(chosen)
        def command(**values: Any) -> None:
            job = job_of(values)
            carry_out(name, job, chosen(**values))

        data_set, *shared = SHARED.values()
        own = [_option(one, {**_HELP, **helps}[one.name]) for one in taken]
        given = inspect.Parameter("given", inspect.Parameter.KEYWORD_ONLY)
        config = given.replace(name="config", default=None, annotation=config_options.ConfigFile)
        options.set_parameters(command, [data_set, *own, config, *shared, given])
        # The core's options come after those of the algorithm.
        complete = config_options.takes(RunConfig, after=[data_set, *own][-1].name)(command)
        algorithms.command(name.replace("_", "-"), no_args_is_help=True)(complete)

    return decorate


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    """The options of an algorithm, with their types."""
    # `Unpack` is there for type checkers alone; what it stands at is no option.
    hints = get_type_hints(function, localns={"Unpack": list})
    found = inspect.signature(function).parameters.values()
    own = [one for one in found if one.name not in ("graph", "resources")]
    return [one.replace(annotation=hints[one.name]) for one in own]


def _option(parameter: inspect.Parameter, text: str) -> inspect.Parameter:
    """The option of the command line for a parameter; what is no number or flag is text."""
    kind: Any = parameter.annotation
    if not {int, float, bool} & {kind, *get_args(kind)} or _names_nodes(kind):
        kind = str if parameter.default is not None else str | None
    flags = [_FLAGS[parameter.name]] if parameter.name in _FLAGS else []
    return parameter.replace(annotation=Annotated[kind, typer.Option(*flags, help=text)])


def _read(parameter: inspect.Parameter, value: Any) -> Any:
    """The value of an option as `outercore.analytics.run` takes it, but for names of nodes."""
    if parameter.name == "personalization":
        return teleport(value)
    is_nodes = value is not None and _names_nodes(parameter.annotation)
    return Nodes(f"--{parameter.name}", value) if is_nodes else value


def _names_nodes(kind: Any) -> bool:
    return Sequence[int] in get_args(kind)


@_algorithm(
    damping="Chance to follow an arc, below 1.",
    max_iterations="Passes at most.",
    tolerance="End when the ranks change by less; 0 never does.",
    personalization="Where jumps lead: `.npy` with a weight a node, or `NODE,NODE`.",
    weights="Edge array by which an arc is chosen.",
    reverse="Follow arcs from target to source.",
)
def pagerank() -> None:
    """PageRank: how often a walker who follows arcs, and jumps now and then, is at a node.

    **Examples**

        outercore run pagerank papers --memory 128MiB --save rank

        outercore run pagerank papers --max-iterations 20 --tolerance 0 --top 5
    """


@_algorithm(cutoff="The most hops.")
def bfs() -> None:
    """Breadth-first search: hops from a node to every other, -1 where none lead.

    **Example**

        outercore run bfs papers --source 3 --out levels.npy
    """


@_algorithm(weights="Edge array with the lengths; 1 each by default.", cutoff="The longest path.")
def sssp() -> None:
    """Shortest paths: the length of the way from a node to every other, infinity where none leads.

    **Example**

        outercore run sssp roads --source 3 --weights length
    """


@_algorithm()
def wcc() -> None:
    """Weakly connected components, named by their smallest node; one pass where they fit in memory.

    **Example**

        outercore run wcc papers --save component
    """


@_algorithm()
def scc() -> None:
    """Strongly connected components, named by their smallest node.

    **Example**

        outercore run scc papers
    """


@_algorithm(sources="Nodes to begin at.")
def radii() -> None:
    """How far the farthest of some sampled nodes is; the largest bounds the diameter from below.

    **Example**

        outercore run radii papers --sources 64 --seed 1
    """


@_algorithm(
    sources="Only paths from `NODE,NODE`; from all nodes by default.",
    samples="Estimate from this many drawn sources instead.",
    weights="Edge array with the lengths; 1 each by default.",
    normalized="Divide by the number of pairs.",
)
def betweenness() -> None:
    """Betweenness: how many shortest paths lead through a node.

    **Example**

        outercore run betweenness papers --samples 32
    """


@_algorithm(
    nodes="Only of `NODE,NODE`; of all nodes by default.",
    improved="Times the share of nodes within reach.",
)
def closeness() -> None:
    """Closeness: one over the mean distance to a node.

    **Example**

        outercore run closeness papers --nodes 3,17
    """


@_algorithm(
    max_iterations="Two passes each, at most.",
    tolerance="End when the hubs change by less; 0 never does.",
    weights="Edge array by which arcs count.",
    score="`authorities` or `hubs`.",
)
def hits() -> None:
    """HITS: hubs point at authorities, and authorities are what hubs point at.

    **Example**

        outercore run hits papers --score hubs
    """


@_algorithm()
def kcore() -> None:
    """Core numbers: the largest k such that a node is in a subgraph of degrees k and more.

    **Example**

        outercore run kcore papers
    """


@_algorithm(max_iterations="Rounds at most.")
def label_propagation() -> None:
    """Communities: each node takes the most frequent label of its neighbours, again and again.

    **Example**

        outercore run label-propagation papers --max-iterations 10
    """


@_algorithm(
    resolution="Above 1 for smaller communities, below 1 for larger ones.",
    weights="Edge array by which edges count.",
)
def louvain() -> None:
    """Communities of high modularity; all edges stay in memory.

    **Example**

        outercore run louvain papers --save community
    """


@_algorithm()
def local_clustering() -> None:
    """Of the possible arcs between a node's neighbours the share that is there.

    **Example**

        outercore run local-clustering papers
    """


@_algorithm()
def triangles() -> None:
    """How many triangles every node is in.

    **Example**

        outercore run triangles papers
    """


@_algorithm(which="`in`, `out` or `total`.")
def degrees() -> None:
    """How many arcs lead into a node, out of it, or both.

    **Example**

        outercore run degrees papers --which out
    """
