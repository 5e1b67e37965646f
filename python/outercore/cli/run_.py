"""`outercore run`: one command for each algorithm over the grid of a data set."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, get_args

import numpy as np
import typer
from numpy.typing import NDArray

from outercore.analytics import ALGORITHMS, Node
from outercore.analytics.config import AnalysisConfig, RunConfig
from outercore.analytics.recorded_run import AnalysisDirectory, resume_run, start
from outercore.analytics.running import COMPONENTS, Run, plan_of
from outercore.base.display import flat, format_duration
from outercore.base.options import Option, base_groups, fields, groups_of, merge
from outercore.base.sizes import format_size, parse_size
from outercore.cli import console, options
from outercore.cli.lazy_group import LazyGroup
from outercore.data.graph import Graph
from outercore.data.node_names import FileIds, names_of_nodes
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
_SECTION = re.compile("^(?:Args|Shapes|Cost):", re.MULTILINE)
"""The first section of a docstring, which follows the description."""
_LEAST_COUNTS = 1 << 20
"""Minimum memory in bytes for counting the sizes of components, even if the budget is smaller."""
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
class _Output:
    """Options of every algorithm in addition to `RunConfig`: its results, and their display."""

    save: Annotated[
        str | None, Option("Save the values in the data set, as a node array of this name.")
    ] = None
    out: Annotated[
        Path | None, Option("Write the values to this `.npy`, `.parquet` or `.csv`.")
    ] = None
    overwrite: options.Overwrite = False
    top: Annotated[
        int,
        Option(
            "Show this many nodes with the largest values, or this many of the largest components."
        ),
    ] = 10
    plan: Annotated[
        bool, Option("Show how the run would divide its memory, without running it.")
    ] = False
    record: Annotated[
        Path | None,
        Option(
            "Write the record and the checkpoints of the run to this directory. The default is "
            "`runs/DATASET-ALGORITHM-N`; `none` writes neither."
        ),
    ] = None
    json: options.Json = False

    @property
    def keeps_record(self) -> bool:
        """Whether a run record is written."""
        return self.record != _NO_RECORD


@dataclass(frozen=True)
class Job:
    """The request of a command."""

    data_set: Path
    config: AnalysisConfig
    output: _Output
    personalization: Any = None
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Groups of `config.run` that the command line and its file set; the rest are defaults."""


def job_of(
    algorithm: str,
    *,
    data_set: Path,
    own: options.Values,
    resources: options.Values,
    config: Path | None,
    output: _Output,
) -> Job:
    """The job that the arguments of a command describe.

    Errors: `InvalidError` for a wrong option.
    """
    with options.named(RunConfig, resources):
        fixed = merge(base_groups(config), groups_of(RunConfig, resources))
        run = RunConfig.from_dict(fixed)
    own = _with_ids(algorithm, own, data_set, run.relation)
    personalization = own.pop("personalization", None)
    out = None if output.out is None else str(output.out)
    analysis = AnalysisConfig(algorithm, own, run, output.save, out, output.overwrite)
    return Job(data_set, analysis, output, personalization, fixed)


def _start(job: Job) -> None:
    """Runs or plans an algorithm, writes its results, and prints them.

    Errors: as `outercore.analytics.start`, and `InterruptError` after Ctrl-C.
    """
    output = job.output
    if output.plan:
        planned = plan_of(
            job.config, job.data_set, job.personalization, checkpoints=output.keeps_record
        )
        title = f"plan of {job.config.algorithm} on {job.data_set}"
        console.result(planned, title, planned.rows(), as_json=output.json)
        return
    with console.bars(quiet=output.json) as progress:
        result = start(
            job.config,
            job.data_set,
            record=output.record,
            personalization=job.personalization,
            progress=progress,
            command=options.command_line(),
            recorded=output.keeps_record,
        )
    _print(result, job)


def _resume(directory: Path, changes: dict[str, Any], *, json: bool) -> None:
    """Resumes a run, and prints its result.

    Errors: as `outercore.analytics.resume`.
    """
    opened = AnalysisDirectory.open(directory)
    with console.bars(quiet=json) as progress:
        result = resume_run(directory, progress, changes)
    _print(result, Job(opened.data_set, opened.config(), _Output(json=json)))


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

        def start_job(**arguments: Any) -> None:
            _start(job_of(algorithm, **arguments))

        about = _SECTION.split(inspect.getdoc(function) or "", maxsplit=1)[0]
        example = f"    outercore run {name} {_EXAMPLES.get(algorithm, 'papers')}"
        parameters = [
            options.argument("data_set", options.DataSet),
            options.argument("own", Annotated[options.Values, function, _METAVARS]),
            options.argument("resources", Annotated[options.Values, RunConfig]),
            options.argument("config", options.ConfigFile, None),
            options.argument("output", _Output),
        ]
        command = options.with_parameters(start_job, parameters)
        command.algorithm = algorithm  # type: ignore[attr-defined]
        help = f"{about}**Example**\n\n{example}".replace("``", "`")
        group = typer.Typer(rich_markup_mode="markdown", add_completion=False)
        group.command(name, help=help, no_args_is_help=True)(command)
        return typer.main.get_command(group)


run_ = typer.Typer(
    cls=_Algorithms, invoke_without_command=True, no_args_is_help=True, rich_markup_mode="markdown"
)


@run_.callback()
@options.command
def run(
    *,
    context: typer.Context,
    resume: Annotated[
        Path | None,
        Option(
            "Continue the run in this directory from its checkpoint. `--memory`, `--threads`, "
            "`--far` and `--max-iterations` may change; the first three do not change the result."
        ),
    ] = None,
    values: Annotated[options.Values, RunConfig],
    max_iterations: Annotated[
        int | None,
        Option(
            "With `--resume`: maximum number of iterations, including the iterations that are "
            "already done."
        ),
    ] = None,
    json: options.Json = False,
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
    names = names_of_nodes(graph, relation)
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


def _print(result: Run, job: Job) -> None:
    if result.note:
        console.note(f"note: no run record was kept: {result.note}")
    far = result.counters.get("far") or {}
    lost = [console.lost(far)] if far.get("lost") else []
    for text in [*lost, *result.warnings]:
        console.note(f"warning: {text}")
    top = _top(result, job)
    if job.output.json:
        console.json_data(
            {
                "algorithm": result.algorithm,
                "facts": result.facts,
                "top": top,
                "plan": result.plan,
                "counters": result.counters,
                "record": None if result.record is None else str(result.record),
            }
        )
        return
    facts = [row for row in flat(result.facts) if row[1] != "none"]
    places = {
        "values in array": job.config.save,
        "values in file": job.config.out,
        "record": result.record,
    }
    written = [(name, str(place)) for name, place in places.items() if place is not None]
    title = f"{result.algorithm} of {job.data_set}"
    console.table(title, [*facts, *_costs(result.counters), *written])
    if top:
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


def _top(result: Run, job: Job) -> list[tuple[int | str, float]]:
    """The nodes or components with the largest values, and these.

    A node has its name, else its id in files, or its type and id.
    """
    # Predecessors are ids, not amounts: no node has the largest.
    top = 0 if result.options.get("result") == "predecessors" else job.output.top
    run = job.config.run
    pairs = largest(result.algorithm, result.values, top, parse_size(run.memory))
    graph = Graph(job.data_set)
    names = names_of_nodes(graph, run.relation)
    texts: Sequence[int | str] = names.names(np.array([node for node, _ in pairs], np.int64))
    return [(text, value) for text, (_, value) in zip(texts, pairs, strict=True)]


def largest(algorithm: str, values: NDArray[Any], top: int, memory: int) -> list[tuple[int, float]]:
    """The nodes with the largest finite values, or the components with the most nodes.

    Equal values are ordered by id. Works in blocks: `values` may be a mapped file that takes
    the whole budget of `memory` bytes.
    """
    if top <= 0:
        return []
    of_components = algorithm in COMPONENTS
    blocks = _component_sizes(values, memory) if of_components else large_arrays.blocks(values)
    ids, best = np.empty(0, np.int64), np.empty(0, np.uint32 if of_components else values.dtype)
    for first, block in blocks:
        counts = block > 0 if of_components else np.isfinite(block)
        if len(best) == top:
            # Of equal values the smaller ids win, and those came first.
            counts &= block > best[-1]
        places = np.flatnonzero(counts)
        ids = np.concatenate([ids, first + places])
        best = np.concatenate([best, block[places]])
        order = np.lexsort((ids, -best.astype(np.float64)))[:top]
        ids, best = ids[order], best[order]
    return [(int(node), value.item()) for node, value in zip(ids, best, strict=True)]


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
