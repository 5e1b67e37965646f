"""`outercore run`: one command an algorithm over the grid of a data set."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray

from outercore import record as records
from outercore.analytics.config import RunConfig
from outercore.cli import config_options, console, options
from outercore.cli.run_largest import COMPONENTS
from outercore.cli.run_output import described, plan_rows, show, warn
from outercore.config.options import configuration
from outercore.errors import DeviceError, InterruptError, InvalidError
from outercore.graph import Graph
from outercore.outputs import VALUES, check_output, names_of_nodes, write_node_values
from outercore.storage import missing_file

algorithms = typer.Typer(
    help="Run a graph algorithm out of core.", no_args_is_help=True, rich_markup_mode="markdown"
)

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


_NO_RECORD = Path("none")


@dataclass(frozen=True)
class Job:
    """What every algorithm takes beside the fields of `RunConfig`."""

    data_set: options.DataSet
    save: Annotated[
        str | None, typer.Option("--save", help="Keep the values as a node array of this name.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write the values to this `.npy`, `.parquet` or `.csv`."),
    ] = None
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Let `--save` and `--out` replace what is there.")
    ] = False
    top: Annotated[int, typer.Option("--top", help="How many of the largest to show.")] = 10
    plan: Annotated[
        bool, typer.Option("--plan", help="Show how the budget would be divided; run nothing.")
    ] = False
    resume: Annotated[
        bool,
        typer.Option(
            "--resume",
            help="Continue from the checkpoint, to the same bits; memory and threads may change.",
        ),
    ] = False
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            help="Directory of the run record; `runs/DATASET-ALGORITHM-N` by default, or `none`.",
        ),
    ] = None
    json: options.Json = False
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def keeps_record(self) -> bool:
        """Whether a run record is written."""
        return self.record != _NO_RECORD

    def checkpoint_directory(self, algorithm: str) -> Path | None:
        """Where checkpoints go, if any are left."""
        wanted = self.run.checkpoint
        if wanted is None:
            if self.resume:
                raise InvalidError(
                    "--resume without a checkpoint\n"
                    "hint: say where it is: `--checkpoint DIR`, or `--checkpoint auto`"
                )
            return None
        if wanted != "auto":
            return Path(wanted)
        return Path("runs") / f"{self.data_set.resolve().name}-{algorithm}-checkpoint"


def job_of(values: dict[str, Any]) -> Job:
    """Takes a job out of the values of a command line.

    Errors: `InvalidError` for a wrong option.
    """
    given = values.pop("given")
    with config_options.named(RunConfig, given):
        run = configuration(RunConfig, values.pop("config"), given)
    return Job(**{name: values.pop(name) for name in _SHARED}, run=run)


_SHARED = {
    name: parameter
    for name, parameter in inspect.signature(Job, eval_str=True).parameters.items()
    if name != "run"
}


def _algorithm(function: Callable[..., dict[str, Any]]) -> Callable[..., None]:
    """A command that takes the data set, the function's own options and those of `Job`.

    The function turns its own options into what `outercore.analytics.run` takes.
    """
    own = list(inspect.signature(function, eval_str=True).parameters.values())
    data_set, *shared = _SHARED.values()
    # The core's options come after those of the algorithm.
    after = own[-1].name if own else data_set.name

    @functools.wraps(function)
    def command(**values: Any) -> None:
        job = job_of(values)
        _carry_out(function.__name__, job, function(**values))

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
        "personalization": _teleport(personalization),
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
        "source": _Nodes("--source", source),
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
        "source": _Nodes("--source", source),
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
        "sources": None if sources is None else _Nodes("--sources", sources),
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
        "nodes": None if nodes is None else _Nodes("--nodes", nodes),
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


def _carry_out(algorithm: str, job: Job, chosen: dict[str, Any]) -> None:
    from outercore import analytics

    chosen = with_ids(chosen, job.data_set)
    config = job.run
    shared: dict[str, Any] = {
        "memory": config.memory,
        "threads": config.threads,
        "backend": config.backend,
        "far": config.far,
        "far_ratio": config.far_ratio,
    }
    checkpoint = job.checkpoint_directory(algorithm)
    profile = None if config.profile is None else Path(config.profile)
    used = {
        **shared,
        "buffering": config.buffering,
        "profile": profile is not None,
        "reads_by_segment": None if config.by_profile is None else _reads(Path(config.by_profile)),
        "scratch": config.scratch,
        "checkpoint": checkpoint,
        "checkpoint_every": config.checkpoint_every,
        "resume": job.resume,
    }
    if job.plan:
        planned = analytics.plan(algorithm, job.data_set, **used, **chosen)
        if job.json:
            console.json_data(planned)
        else:
            console.table(f"plan of {algorithm} on {job.data_set}", plan_rows(planned))
        return
    if job.out is not None:
        check_output(job.out, VALUES, option="--out", overwrite=job.overwrite)
    if profile is not None:
        check_output(profile, (".json",), option="profile", overwrite=True)
    before_each = chosen.get("result") == "predecessors"
    if before_each:
        # Predecessors are ids, not amounts: no node has the largest.
        job = replace(job, top=0)
    told = {**shared, "buffering": config.buffering}
    with _record_directory(algorithm, job) as directory:
        with _going_on(checkpoint), console.bars(quiet=job.json) as progress:
            done = analytics.run(
                algorithm,
                job.data_set,
                save=job.save,
                overwrite=job.overwrite,
                keep_checkpoint=True,
                progress=progress,
                **used,
                **chosen,
            )
        warn(done)
        if job.out is not None:
            of_nodes = algorithm in COMPONENTS or before_each
            write_node_values(job.out, Graph(job.data_set), done.values, of_nodes=of_nodes)
        if checkpoint is not None:
            # Not before the values are where they were wanted.
            analytics.forget_checkpoint(checkpoint)
        if profile is not None and done.profile is not None:
            _write(profile, done.profile)
        kept = None if directory is None else _keep(directory, done, job, told, chosen)
    if job.json:
        console.json_data(described(done, job, kept))
    else:
        show(done, job, kept)


@contextmanager
def _record_directory(algorithm: str, job: Job) -> Iterator[Path | None]:
    """Where the run's record goes, if one is kept."""
    with ExitStack() as stack:
        directory = None
        if job.keeps_record:
            wanted = records.run_directory(job.data_set, algorithm, job.record)
            try:
                directory = stack.enter_context(wanted)
            except DeviceError as error:
                if job.record is not None:
                    raise
                _tell_unrecorded(error)
        yield directory


def _tell_unrecorded(error: DeviceError) -> None:
    console.note(f"note: no run record was kept: {error}")


@contextmanager
def _going_on(checkpoint: Path | None) -> Iterator[None]:
    """Says how a run that was stopped goes on."""
    try:
        yield
    except KeyboardInterrupt:
        if checkpoint is None or not (checkpoint / "checkpoint.json").exists():
            raise
        command = options.command_line()
        again = command if "--resume" in command.split() else f"{command} --resume"
        raise InterruptError(f"a checkpoint is in `{checkpoint}`\nhint: resume: {again}") from None


def _keep(
    directory: Path, done: Any, job: Job, told: dict[str, Any], chosen: dict[str, Any]
) -> Path | None:
    """Writes the run record; a result is not lost over a record that nobody asked for."""
    command = options.command_line()
    try:
        records.write_run(
            directory, done, job.data_set, config=told, options=chosen, command=command
        )
    except DeviceError as error:
        if job.record is not None:
            raise
        _tell_unrecorded(error)
        return None
    return directory


def _write(path: Path, profile: dict[str, Any]) -> None:
    from outercore.storage import Storage, device_errors, replace_file

    with device_errors(f"profile `{path}`"):
        replace_file(Storage(), path, (json.dumps(profile, indent=1) + "\n").encode())


def _reads(path: Path) -> list[int]:
    """How often each segment is read, by the profile of an earlier run."""
    try:
        found = json.loads(path.read_text())
        return [int(reads) for reads in found["reads_by_segment"]]
    except FileNotFoundError:
        raise missing_file("profile", path) from None
    except (ValueError, KeyError, TypeError):
        raise InvalidError(
            f"profile `{path}` is none\n"
            f"hint: write one with `outercore run ... --set profile={path}`"
        ) from None


@dataclass(frozen=True)
class _Nodes:
    """Nodes as an option lists them: by name where the data set has names, else by id."""

    option: str
    text: str

    def ids(self, graph: Graph) -> list[int]:
        """Errors: `NotFoundError` for a name that is not there."""
        parts = self.text.split(",")
        names = names_of_nodes(graph)
        if names is not None:
            whole = names.find(self.text)
            return [names.id(part) for part in parts] if whole is None else [whole]
        try:
            return [int(part) for part in parts]
        except ValueError:
            raise InvalidError(
                f"{self.option}: expected nodes such as `3,17`, found `{self.text}`"
            ) from None


def with_ids(chosen: dict[str, Any], data_set: Path) -> dict[str, Any]:
    """What an algorithm takes, with the ids of the nodes that options name."""
    found = dict(chosen)
    for name, value in chosen.items():
        if isinstance(value, _Nodes):
            ids = value.ids(Graph(data_set))
            if name == "personalization":
                found[name] = dict.fromkeys(ids, 1.0)
            elif name == "source" and len(ids) == 1:
                found[name] = ids[0]
            else:
                found[name] = ids
    return found


def _teleport(text: str | None) -> NDArray[Any] | _Nodes | None:
    """A teleport vector from a file, or nodes that are all alike."""
    if text is None:
        return None
    if text.endswith(".npy"):
        try:
            weights: NDArray[Any] = np.load(text)
        except (OSError, ValueError) as error:
            raise InvalidError(f"--personalization: `{text}`: {error}") from None
        return weights
    return _Nodes("--personalization", text)
