"""What every `outercore run` command does: the job, its run, its record, what it writes."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from outercore.analytics.config import RunConfig
from outercore.cli import config_options, console, options
from outercore.cli.run_largest import COMPONENTS
from outercore.cli.run_nodes import with_ids
from outercore.cli.run_output import described, plan_rows, show, warn
from outercore.config.options import configuration
from outercore.errors import DeviceError, InterruptError, InvalidError
from outercore.graph import Graph
from outercore.outputs import VALUES, check_output, write_node_values
from outercore.runs import record as records
from outercore.storage import missing_file

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
    return Job(**{name: values.pop(name) for name in SHARED}, run=run)


SHARED = {
    name: parameter
    for name, parameter in inspect.signature(Job, eval_str=True).parameters.items()
    if name != "run"
}


def carry_out(algorithm: str, job: Job, chosen: dict[str, Any]) -> None:
    """Runs or plans an algorithm, writes what the job wants, and prints it.

    Errors: those of `outercore.analytics.run`, of the files, and `InterruptError` after Ctrl-C.
    """
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
