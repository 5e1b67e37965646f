"""`outercore run`: one command for each algorithm over the grid of a data set."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
import typer
from numpy.typing import NDArray

from outercore.analytics import ALGORITHMS, Node
from outercore.analytics.config import RunConfig
from outercore.analytics.recorded_run import AnalysisConfig, AnalysisDirectory, resume_run, start
from outercore.analytics.running import COMPONENTS, Run, plan_of
from outercore.base.display import flat
from outercore.base.durations import format_duration
from outercore.base.options import base_groups, fields, groups_of, merge
from outercore.base.sizes import format_size, parse_size
from outercore.cli import console, options
from outercore.cli.lazy_group import LazyGroup
from outercore.data.file_ids import FileIds, names_of_nodes
from outercore.data.graph import Graph
from outercore.data.node_numbers import NodeNumbers
from outercore.errors import InvalidError
from outercore.files import large_arrays
from outercore.files.npy import read_npy

_NO_RECORD = Path("none")
_NODES = "NODE,NODE"
_METAVARS = {
    **dict.fromkeys(("source", "nodes"), _NODES),
    "personalization": f"{_NODES}|.npy",
}
"""Placeholders in `--help` for options that name nodes."""
_LEAST_COUNTS = 1 << 20
"""Least bytes in which sizes of components are counted, even with a smaller budget."""
_EXAMPLES = {
    "pagerank": "papers --memory 128MiB --save rank",
    "bfs": "papers --source 3 --out levels.npy",
    "sssp": "roads --source 3 --weights length",
    "wcc": "papers --save component",
    "radii": "papers --sources 64 --seed 1",
    "betweenness": "papers --samples 32",
    "closeness": "papers --nodes 3,17",
    "hits": "papers --score hubs",
    "label_propagation": "papers --max-iterations 10",
    "louvain": "papers --save community",
    "degrees": "papers --which out",
}


@dataclass(frozen=True)
class _Shared:
    """Options of every algorithm in addition to `RunConfig`."""

    data_set: options.DataSet
    save: Annotated[
        str | None, typer.Option("--save", help="Keep the values as a node array of this name.")
    ] = None
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write the values to this `.npy`, `.parquet` or `.csv`."),
    ] = None
    overwrite: options.Overwrite = False
    top: Annotated[int, typer.Option("--top", help="How many of the largest to show.")] = 10
    plan: Annotated[
        bool, typer.Option("--plan", help="Show how the budget would be divided; run nothing.")
    ] = False
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            help="Directory of the run: its record, and checkpoints while it runs; by default "
            "`runs/DATASET-ALGORITHM-N`, or `none`.",
        ),
    ] = None
    json: options.Json = False


@dataclass(frozen=True, kw_only=True)
class Job(_Shared):
    """The request of a command."""

    algorithm: str
    options: dict[str, Any]
    """Of the algorithm, with nodes by their ids."""
    run: RunConfig
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Groups of `run` that the command line and its file set; the rest are defaults."""

    @property
    def keeps_record(self) -> bool:
        """Whether a run record is written."""
        return self.record != _NO_RECORD


def job_of(algorithm: str, arguments: dict[str, Any]) -> Job:
    """The job that the arguments of a command describe.

    Errors: `InvalidError` for a wrong option.
    """
    values = options.pop_values(RunConfig, arguments)
    with options.named(RunConfig, values):
        fixed = merge(base_groups(arguments.pop("config")), groups_of(RunConfig, values))
        config = RunConfig.from_dict(fixed)
    own = options.pop_values(ALGORITHMS[algorithm], arguments)
    own = _with_ids(algorithm, own, arguments["data_set"], config.relation)
    return Job(**arguments, algorithm=algorithm, options=own, run=config, fixed=fixed)


def _start(job: Job) -> None:
    """Runs or plans an algorithm, writes its results, and prints them.

    Errors: as `outercore.analytics.start`, and `InterruptError` after Ctrl-C.
    """
    own = dict(job.options)
    personalization = own.pop("personalization", None)
    if job.plan:
        planned = plan_of(
            job.algorithm,
            job.data_set,
            job.run,
            own,
            personalization,
            checkpoints=job.keeps_record,
        )
        title = f"plan of {job.algorithm} on {job.data_set}"
        console.result(planned, title, planned.rows(), as_json=job.json)
        return
    out = None if job.out is None else str(job.out)
    config = AnalysisConfig(job.algorithm, own, job.run, job.save, out, job.overwrite)
    with console.bars(quiet=job.json) as progress:
        result, directory = start(
            config,
            job.data_set,
            record=job.record,
            personalization=personalization,
            progress=progress,
            command=options.command_line(),
            recorded=job.keeps_record,
        )
    _print(result, job, directory)


def _resume(directory: Path, changes: dict[str, Any], *, json: bool) -> None:
    """Resumes a run, and prints its result.

    Errors: as `outercore.analytics.resume`.
    """
    opened = AnalysisDirectory.open(directory)
    config = opened.config()
    with console.bars(quiet=json) as progress:
        result = resume_run(directory, progress, changes)
    job = Job(
        opened.data_set,
        config.save,
        None if config.out is None else Path(config.out),
        json=json,
        algorithm=config.algorithm,
        options=config.options,
        run=config.run,
    )
    _print(result, job, directory)


def _summary(algorithm: str) -> str:
    return (inspect.getdoc(ALGORITHMS[algorithm]) or "").partition("\n\n")[0].replace("``", "`")


class _Algorithms(LazyGroup):
    """A command for each algorithm."""

    summaries: ClassVar = {name.replace("_", "-"): _summary(name) for name in ALGORITHMS}

    @staticmethod
    def build(name: str) -> Any:
        """Builds the command of an algorithm, with the options and the help of its function."""
        algorithm = name.replace("-", "_")
        function = ALGORITHMS[algorithm]

        def command(**arguments: Any) -> None:
            _start(job_of(algorithm, arguments))

        about, _, _ = (inspect.getdoc(function) or "").partition("Args:")
        example = f"    outercore run {name} {_EXAMPLES.get(algorithm, 'papers')}"
        data_set, *shared = inspect.signature(_Shared, eval_str=True).parameters.values()
        config = data_set.replace(name="config", default=None, annotation=options.ConfigFile)
        own = options.flags(function, _METAVARS)
        parameters = [data_set, *own, *options.flags(RunConfig), config, *shared]
        options.set_parameters(command, parameters)
        command.configuration = RunConfig  # type: ignore[attr-defined]
        command.algorithm = algorithm  # type: ignore[attr-defined]
        help = f"{about}**Example**\n\n{example}".replace("``", "`")
        group = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        group.command(name, help=help, no_args_is_help=True)(command)
        return typer.main.get_command(group)


algorithms = typer.Typer(
    cls=_Algorithms, invoke_without_command=True, no_args_is_help=True, rich_markup_mode="markdown"
)


@algorithms.callback()
@options.takes(RunConfig, after="resume")
def run(
    context: typer.Context,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            help="Directory of a run to continue from its checkpoint. `--memory`, `--threads`, "
            "`--max-iterations` and where it reads from may change; the result is the same.",
        ),
    ] = None,
    max_iterations: Annotated[
        int | None, typer.Option(help="With `--resume`: passes at most, those done included.")
    ] = None,
    json: options.Json = False,
    *,
    values: dict[str, Any],
) -> None:
    """Run a graph algorithm out of core, or resume one.

    **Examples**

        outercore run pagerank papers --memory 128MiB --save rank

        outercore run --resume runs/papers-pagerank-1
    """
    changes = values | ({} if max_iterations is None else {"max_iterations": max_iterations})
    if context.invoked_subcommand is None:
        if resume is None:
            raise InvalidError("run: expected an algorithm, or `--resume RUN`")
        _resume(resume, changes, json=json)
    elif changes or json or resume is not None:
        raise InvalidError(f"run: expected the options after `{context.invoked_subcommand}`")


def _with_ids(
    algorithm: str, values: dict[str, Any], data_set: Path, relation: str | None
) -> dict[str, Any]:
    """The options of an algorithm, with the ids of the nodes that they name.

    In a graph with several types nodes are named like `author:17`, by key if the type has keys.

    Errors: `NotFoundError` for an unknown name; `InvalidError` for another mistake.
    """
    resolved = dict(values)
    for option in fields(ALGORITHMS[algorithm]):
        text = values.get(option.name)
        if text is None:
            continue
        if option.name == "personalization":
            resolved[option.name] = _teleport(option.flag, text, data_set, relation)
        elif Sequence[Node] in get_args(option.type):
            ids = _ids(option.flag, text, data_set, relation)
            may_be_single = int in get_args(option.type)
            resolved[option.name] = ids[0] if may_be_single and len(ids) == 1 else ids
    return resolved


def _ids(option: str, text: str, data_set: Path, relation: str | None) -> list[int]:
    """Ids of nodes from a text such as `3,17`.

    With several types a node is named by its type and id, else by its name or its id in files.
    """
    graph = Graph(data_set)
    parts = text.split(",")
    numbers = NodeNumbers.of_graph(graph, relation)
    if numbers is not None:
        number = numbers.find(text)
        return [numbers.parse(part, option) for part in parts] if number is None else [number]
    names = names_of_nodes(graph)
    # A name may have commas.
    whole = names.find(text)
    if whole is not None:
        return [whole]
    if isinstance(names, FileIds):
        parts = [part.strip() for part in parts]
        if not all(part.lstrip("-").isdigit() for part in parts):
            raise InvalidError(f"{option}: expected nodes such as `3,17`, found `{text}`")
    try:
        return [names.id(part) for part in parts]
    except InvalidError as error:
        raise InvalidError(f"{option}: ", *error.parts) from None


def _teleport(option: str, text: str, data_set: Path, relation: str | None) -> Any:
    """A teleport vector from a file, or nodes with equal weights."""
    if not text.endswith(".npy"):
        return dict.fromkeys(_ids(option, text, data_set, relation), 1.0)
    return read_npy(Path(text), f"{option}: array")


def _print(result: Run, job: Job, directory: Path | None) -> None:
    """Prints the result of a run, its cost and its warnings."""
    if job.options.get("result") == "predecessors":
        # They are ids, not amounts: no node has the largest.
        job = replace(job, top=0)
    if result.note:
        console.note(f"note: no run record was kept: {result.note}")
    far = result.counters.get("far") or {}
    lost = [console.lost(far)] if far.get("lost") else []
    for text in [*lost, *result.warnings]:
        console.note(f"warning: {text}")
    if job.json:
        console.json_data(
            {
                "algorithm": result.algorithm,
                "facts": result.facts,
                "top": [list(pair) for pair in _top(result, job)],
                "plan": result.plan,
                "counters": result.counters,
                **({} if result.profile is None else {"profile": result.profile}),
                "record": None if directory is None else str(directory),
            }
        )
        return
    facts = [row for row in flat(result.facts) if row[1] != "none"]
    record = [] if directory is None else [("record", str(directory))]
    title = f"{result.algorithm} of {job.data_set}"
    console.table(title, [*facts, *_costs(result.counters), *_outputs(job), *record])
    if result.profile is not None:
        console.data("")
        console.table("what the run held, by group", _profile_rows(result.profile))
    if top := _top(result, job):
        console.data("")
        of_components = result.algorithm in COMPONENTS
        unit = " nodes" if of_components else ""
        console.table(
            "largest, by smallest node" if of_components else "largest, by node",
            [
                (str(node), (f"{value:,}" if isinstance(value, int) else f"{value:.6g}") + unit)
                for node, value in top
            ],
        )


def _costs(counters: Mapping[str, Any]) -> list[tuple[str, str]]:
    reads, far, spilled = counters["reads"], counters.get("far"), counters.get("spill")
    fetched = reads["bytes"] + counters["pinned_bytes"]
    rows = [
        ("time", format_duration(counters["seconds"])),
        ("passes", f"{counters['passes']:,}"),
        ("read", format_size(reads["bytes"])),
        ("from memory", f"{counters['pinned_bytes'] / fetched:.0%}" if fetched else "-"),
    ]
    if far:
        rows += [
            ("prepared in", format_duration(counters["prepare_seconds"])),
            ("from far memory", format_size(far["far_bytes"])),
        ]
    if spilled:
        read, written = format_size(spilled["read"]), format_size(spilled["written"])
        rows.append(("state in scratch files", f"{read} read, {written} written"))
    if checkpoints := counters.get("checkpoints", 0):
        rows.append(("checkpoints", f"{checkpoints:,}"))
    return rows


def _outputs(job: Job) -> list[tuple[str, str]]:
    outputs = {"values in array": job.save, "values in file": job.out}
    return [(name, str(place)) for name, place in outputs.items() if place is not None]


def _profile_rows(profile: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Groups 1 to 4 of the memory of a run (Fargraph+ 5.1)."""
    rows = []
    for group in profile["classes"]:
        reads = "" if group["reads"] is None else f", wanted {group['reads']:,} times"
        local = f"{format_size(group['local'])} of it in memory"
        size = f"{format_size(group['bytes'])}, {local}{reads}"
        rows.append((f"{group['group']}  {group['what']}", size))
    return rows


def _top(result: Run, job: Job) -> list[tuple[int | str, float]]:
    """The nodes or components with the largest values, and these.

    A node has its name, else its id in files, or its type and id.
    """
    pairs = largest(result.algorithm, result.values, job.top, parse_size(job.run.memory))
    graph = Graph(job.data_set)
    names = NodeNumbers.of_graph(graph, job.run.relation) or names_of_nodes(graph)
    texts: Sequence[int | str] = names.names(np.array([node for node, _ in pairs], np.int64))
    return [(text, value) for text, (_, value) in zip(texts, pairs, strict=True)]


def largest(algorithm: str, values: NDArray[Any], top: int, memory: int) -> list[tuple[int, float]]:
    """The nodes with the largest finite values, or the components with the most nodes.

    Equal values are ordered by id. Works in blocks: `values` may be a mapped file that takes
    the whole budget of `memory` bytes.
    """
    if top <= 0:
        return []
    best = _Best(top)
    if algorithm in COMPONENTS:
        for first, sizes in _component_sizes(values, memory):
            best.offer(first, sizes, sizes > 0)
    else:
        for first, block in large_arrays.blocks(values):
            best.offer(first, block, np.isfinite(block))
    return best.pairs()


def _component_sizes(values: NDArray[Any], memory: int) -> Iterator[tuple[int, NDArray[np.uint32]]]:
    """The number of nodes of each component, in blocks with their first id.

    The counts take half of the memory that `values` leave. If they do not fit, components are
    counted in windows of ids, with a pass over `values` for each window.
    """
    resident = 0 if isinstance(values, np.memmap) else values.nbytes
    window = max(memory - resident, 2 * _LEAST_COUNTS) // 2 // 4
    for first in range(0, len(values), window):
        sizes = np.zeros(min(window, len(values) - first), np.uint32)
        for _, block in large_arrays.blocks(values):
            inside = block[(block >= first) & (block < first + len(sizes))]
            names, nodes = np.unique(inside, return_counts=True)
            sizes[names - first] += nodes.astype(np.uint32)
        for offset, block in large_arrays.blocks(sizes):
            yield first + offset, block


class _Best:
    """The largest of values that come in blocks, by ascending ids."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._ids = np.empty(0, np.int64)
        self._values: NDArray[Any] = np.empty(0)

    def offer(self, first: int, block: NDArray[Any], counts: NDArray[np.bool_]) -> None:
        """Adds the values of the ids from `first`; `counts` says which of them may win."""
        if len(self._values) == self._top:
            # Of equal values the smaller ids win, and those came first.
            counts &= block > self._values[-1]
        places = np.flatnonzero(counts)
        previous = self._values.astype(block.dtype)
        ids = np.concatenate([self._ids, first + places])
        values = np.concatenate([previous, block[places]])
        order = np.lexsort((ids, -values.astype(np.float64)))[: self._top]
        self._ids, self._values = ids[order], values[order]

    def pairs(self) -> list[tuple[int, float]]:
        """Ids and values, the largest first."""
        pairs = zip(self._ids, self._values, strict=True)
        return [(int(node), value.item()) for node, value in pairs]
