"""What every `outercore run` command does: the job, its run, its record, what it writes."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.analytics.config import RunConfig
from outercore.analytics.recorded_run import AnalysisConfig, AnalysisDirectory, continued, start
from outercore.analytics.running import ALGORITHMS, Run, plan_of
from outercore.base.options import base_groups, groups_of, merge
from outercore.base.plan_display import run_rows
from outercore.cli import config_options, console, options
from outercore.cli.run_nodes import METAVARS, with_ids
from outercore.cli.run_output import described, show, warn

_NO_RECORD = Path("none")


@dataclass(frozen=True)
class Shared:
    """What every algorithm takes beside the fields of `RunConfig`."""

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
class Job(Shared):
    """What a command asks for."""

    algorithm: str
    options: dict[str, Any]
    """Of the algorithm, with nodes by their ids."""
    run: RunConfig
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """What the command line and its file say of `run`; the rest are defaults."""

    @property
    def keeps_record(self) -> bool:
        """Whether a run record is written."""
        return self.record != _NO_RECORD


def parameters_of(algorithm: str) -> list[inspect.Parameter]:
    """All options of the command of an algorithm."""
    data_set, *shared = inspect.signature(Shared, eval_str=True).parameters.values()
    config = data_set.replace(name="config", default=None, annotation=config_options.ConfigFile)
    own = config_options.flags(ALGORITHMS[algorithm], METAVARS)
    return [data_set, *own, *config_options.flags(RunConfig), config, *shared]


def job_of(algorithm: str, values: dict[str, Any]) -> Job:
    """The job that the values of a command line ask for.

    Errors: `InvalidError` for a wrong option.
    """
    given = config_options.taken(RunConfig, values)
    with config_options.named(RunConfig, given):
        fixed = merge(base_groups(values.pop("config")), groups_of(RunConfig, given))
        run = RunConfig.from_dict(fixed)
    chosen = config_options.taken(ALGORITHMS[algorithm], values)
    own = with_ids(algorithm, chosen, values["data_set"], run.relation)
    return Job(**values, algorithm=algorithm, options=own, run=run, fixed=fixed)


def carry_out(job: Job) -> None:
    """Runs or plans an algorithm, writes what the job wants, and prints it.

    Errors: those of `outercore.analytics.start`, and `InterruptError` after Ctrl-C.
    """
    chosen = dict(job.options)
    personalization = chosen.pop("personalization", None)
    if job.plan:
        planned = plan_of(
            job.algorithm,
            job.data_set,
            job.run,
            chosen,
            personalization,
            checkpoints=job.keeps_record,
        )
        title = f"plan of {job.algorithm} on {job.data_set}"
        console.result(planned, title, run_rows(planned), as_json=job.json)
        return
    out = None if job.out is None else str(job.out)
    config = AnalysisConfig(job.algorithm, chosen, job.run, job.save, out, job.overwrite)
    with console.bars(quiet=job.json) as progress:
        done, directory = start(
            config,
            job.data_set,
            record=job.record,
            personalization=personalization,
            progress=progress,
            command=options.command_line(),
            recorded=job.keeps_record,
        )
    tell(done, job, directory)


def carry_on(run: Path, changed: dict[str, Any], *, json: bool) -> None:
    """Resumes a run, and prints what it has come to.

    Errors: those of `outercore.analytics.resume`.
    """
    directory = AnalysisDirectory.open(run)
    config = directory.config()
    with console.bars(quiet=json) as progress:
        done = continued(run, progress, changed)
    job = Job(
        directory.data_set,
        config.save,
        None if config.out is None else Path(config.out),
        json=json,
        algorithm=config.algorithm,
        options=config.options,
        run=config.run,
    )
    tell(done, job, run)


def tell(done: Run, job: Job, directory: Path | None) -> None:
    """Prints a finished run."""
    if job.options.get("result") == "predecessors":
        # They are ids, not amounts: no node has the largest.
        job = replace(job, top=0)
    if done.note:
        console.note(f"note: no run record was kept: {done.note}")
    warn(done)
    if job.json:
        console.json_data(described(done, job, directory))
    else:
        show(done, job, directory)
