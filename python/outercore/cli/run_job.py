"""What every `outercore run` command does: the job, its run, its record, what it writes."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.analytics.config import RunConfig
from outercore.analytics.directory import AnalysisConfig, AnalysisDirectory
from outercore.analytics.recorded import start, used_by
from outercore.analytics.running import Run
from outercore.cli import config_options, console, options
from outercore.cli.run_nodes import with_ids
from outercore.cli.run_output import described, plan_rows, show, warn
from outercore.config.options import configuration

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
    record: Annotated[
        Path | None,
        typer.Option(
            "--record",
            help="Directory of the run: its record, and checkpoints while it runs; by default "
            "`runs/DATASET-ALGORITHM-N`, or `none`.",
        ),
    ] = None
    json: options.Json = False
    run: RunConfig = field(default_factory=RunConfig)

    @property
    def keeps_record(self) -> bool:
        """Whether a run record is written."""
        return self.record != _NO_RECORD


def job_of(values: dict[str, Any]) -> Job:
    """Takes a job out of the values of a command line.

    Errors: `InvalidError` for a wrong option.
    """
    given = values.pop("given")
    with config_options.named(RunConfig, given):
        run = configuration(RunConfig, values.pop("config"), given)
    return Job(**{name: values.pop(name) for name in SHARED}, run=run)


SHARED = {
    name: parameter
    for name, parameter in inspect.signature(Job, eval_str=True).parameters.items()
    if name != "run"
}


def carry_out(algorithm: str, job: Job, chosen: dict[str, Any]) -> None:
    """Runs or plans an algorithm, writes what the job wants, and prints it.

    Errors: those of `outercore.analytics.start`, and `InterruptError` after Ctrl-C.
    """
    from outercore import analytics

    chosen = with_ids(chosen, job.data_set)
    personalization = chosen.pop("personalization", None)
    if job.plan:
        planned = analytics.plan(
            algorithm,
            job.data_set,
            personalization=personalization,
            checkpoint_every=job.run.checkpoint_every if job.keeps_record else None,
            **used_by(job.run),
            **chosen,
        )
        title = f"plan of {algorithm} on {job.data_set}"
        console.result(planned, title, plan_rows(planned), as_json=job.json)
        return
    out = None if job.out is None else str(job.out)
    config = AnalysisConfig(algorithm, chosen, job.run, job.save, out, job.overwrite)
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
    tell(done, config, job, directory)


def carry_on(run: Path, changed: dict[str, Any], *, json: bool) -> None:
    """Resumes a run, and prints what it has come to.

    Errors: those of `outercore.analytics.resume`.
    """
    from outercore import analytics

    directory = AnalysisDirectory.open(run)
    config, data_set = directory.config(), directory.data_set
    with console.bars(quiet=json) as progress:
        done = analytics.resume(run, progress=progress, **changed)
    out = None if config.out is None else Path(config.out)
    job = Job(data_set, config.save, out, json=json, run=config.run)
    tell(done, config, job, run)


def tell(done: Run, config: AnalysisConfig, job: Job, directory: Path | None) -> None:
    """Prints a finished run."""
    if config.options.get("result") == "predecessors":
        # They are ids, not amounts: no node has the largest.
        job = replace(job, top=0)
    if done.note:
        console.note(f"note: no run record was kept: {done.note}")
    warn(done)
    if job.json:
        console.json_data(described(done, job, directory))
    else:
        show(done, job, directory)
