"""Executing a list of jobs: start jobs as the controller decides, and record how they end."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from outercore.analytics.recorded_run import AnalysisDirectory
from outercore.analytics.scheduling.children import Child, stop_all
from outercore.analytics.scheduling.decide import Launch, Table, allocate
from outercore.analytics.scheduling.files import load, store
from outercore.analytics.scheduling.machine import Machine
from outercore.analytics.scheduling.needs import Estimate, Request, estimate
from outercore.base.native import Progress
from outercore.base.sizes import format_size
from outercore.errors import InterruptError, InvalidError, OutercoreError
from outercore.runs import record as records
from outercore.runs.places import only_one
from outercore.runs.stop import terminate_like_interrupt

PATIENCE_S = 600.0
"""Seconds that a job may wait for memory of other programs while no job of the list runs."""

STATE = "jobs.json"
"""Name of the state file, in the directory of the jobs."""

_LOOK_S = 1.0


@dataclass
class JobState:
    """The state of a job. The state file has the states of all jobs in a list."""

    name: str
    words: tuple[str, ...]
    status: Literal["waiting", "running", "done", "failed", "refused", "stopped"] = "waiting"
    threads: int | None = None
    cores: tuple[int, ...] = ()
    memory: int | None = None
    """The budget of the run."""
    far_ratio: float | None = None
    estimate: float | None = None
    """Expected seconds by the table; `None` without measurements."""
    seconds: float | None = None
    """Seconds from the start of its process to the end."""
    peak_memory: int | None = None
    code: int | None = None
    error: str | None = None
    record: str | None = None
    """Directory of the run, if it has a record to read or a checkpoint to resume from."""
    notes: tuple[str, ...] = ()

    def run_of(self, request: Request) -> AnalysisDirectory | None:
        """The run of a request; `None` if the request has changed, or its run failed."""
        if self.record is None or self.words != request.words:
            return None
        return AnalysisDirectory(Path(self.record))


@dataclass(frozen=True)
class _States:
    """The content of the state file."""

    jobs: tuple[JobState, ...] = ()


Observer = Callable[[Sequence[JobState]], None]
"""Called with the states of all jobs after each change, and every second."""


def load_states(directory: Path) -> Sequence[JobState]:
    """The states of the jobs in a directory; empty if no jobs ran there.

    Errors: `CorruptError`, `VersionError` for an invalid state file.
    """
    return load(_States, directory / STATE, "choose another `--out`").jobs


def run_jobs(
    requests: Sequence[Request],
    table: Table,
    directory: Path,
    machine: Machine,
    *,
    patience_s: float = PATIENCE_S,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> Sequence[JobState]:
    """Runs all requests, as many at once as cores and memory allow; returns their states.

    Jobs that are done according to the state file in `directory` are skipped. Stopped jobs resume
    from their checkpoint. If a job fails, or needs more than the machine has, the others still run.

    Errors: `InterruptError` after Ctrl-C, SIGTERM or SIGHUP. All processes have then ended, and the
    state file is written.
    """
    with only_one(directory / STATE, "outercore jobs"), terminate_like_interrupt():
        by_name = {request.name: request for request in requests}
        tell = observer or (lambda states: None)
        running = _Running(by_name, table, directory, machine, patience_s, tell)
        try:
            running.prepare(progress)
            running.run()
        except KeyboardInterrupt:
            running.stop()
            left = sum(state.status != "done" for state in running.states)
            raise InterruptError(
                f"{left} of {len(running.states)} jobs are left; the others are in `{directory}`"
                "\nhint: run the same command again to resume the others"
            ) from None
        except BaseException:
            running.stop()
            raise
        return running.states


@dataclass
class _Running:
    """One call of `run_jobs`."""

    requests: Mapping[str, Request]
    table: Table
    directory: Path
    machine: Machine
    patience_s: float
    observer: Observer

    def __post_init__(self) -> None:
        self._estimates: dict[str, Estimate] = {}
        self._children: dict[str, tuple[Child, Launch]] = {}
        self._idle_since = time.monotonic()
        self._states: dict[str, JobState] = {}
        known = {state.name: state for state in load_states(self.directory)}
        for name, request in self.requests.items():
            state = known.get(name, JobState(name, request.words))
            run = state.run_of(request)
            has_record = run is not None and (run.path / records.FILE).exists()
            has_checkpoint = run is not None and run.begun
            # A run writes its record at the end, and then removes its checkpoint. It may have
            # ended after the `outercore jobs` that started it was killed.
            if state.status == "running" and has_record and not has_checkpoint:
                state.status = "done"
            if state.status != "done" or not has_record:
                resumable = state.record if has_checkpoint else None
                state = JobState(name, request.words, record=resumable)
            self._states[name] = state

    @property
    def states(self) -> Sequence[JobState]:
        """The states of all jobs."""
        return tuple(self._states.values())

    def prepare(self, progress: Progress | None) -> None:
        """Estimates all waiting jobs, and refuses those that can never run."""
        cores, memory = self.machine.cores, self.machine.memory
        for state in self._waiting():
            try:
                estimated = estimate(self.requests[state.name], self.table, memory, progress)
                job = estimated.job
                if job.least_threads > cores:
                    raise InvalidError(
                        f"{job.least_threads} threads, expected {cores} at most, the cores"
                    )
                if job.memory > memory:
                    raise InvalidError(
                        f"takes {format_size(job.memory)} of memory, expected "
                        f"{format_size(memory)} at most"
                    )
            except InterruptError:
                raise KeyboardInterrupt from None
            except OutercoreError as error:
                self._refuse(state, str(error))
            else:
                self._estimates[state.name] = estimated
                state.notes = estimated.notes
        self._write_states()

    def run(self) -> None:
        """Runs until no job waits or runs."""
        while self._children or self._waiting():
            self._launch()
            self.observer(self.states)
            self._wait()
            self._give_up()
        self.observer(self.states)

    def stop(self) -> None:
        """Ends all running jobs. Running the list again resumes them."""
        stop_all([child for child, _ in self._children.values()])
        self._reap(stopped=True)
        self._write_states()
        self.observer(self.states)

    def _waiting(self) -> list[JobState]:
        return [state for state in self.states if state.status == "waiting"]

    def _launch(self) -> None:
        waiting = self._startable()
        if not waiting:
            return
        held = [core for _, launch in self._children.values() for core in launch.cores]
        jobs = [self._estimates[state.name].job for state in waiting]
        launches = allocate(jobs, self.machine.free_cores(held), self._free_memory())
        for launch in launches:
            self._start(launch)
        if launches:
            self._write_states()

    def _startable(self) -> list[JobState]:
        """The waiting jobs that may start: of all that write to one data set, only the first."""
        writing = {
            self.requests[name].data_set.resolve()
            for name in self._children
            if self.requests[name].config.save is not None
        }
        startable = []
        for state in self._waiting():
            request = self.requests[state.name]
            root = request.data_set.resolve()
            saves = request.config.save is not None
            if not (saves and root in writing):
                startable.append(state)
            if saves:
                writing.add(root)
        return startable

    def _free_memory(self) -> int:
        """Bytes for new jobs: free memory minus the memory that running jobs may still allocate.

        It is at most the memory limit of this call minus the memory assigned to running jobs.
        """
        promised = sum(launch.memory for _, launch in self._children.values())
        still = sum(
            max(launch.memory - child.resident, 0) for child, launch in self._children.values()
        )
        return min(self.machine.free_memory() - still, self.machine.memory - promised)

    def _start(self, launch: Launch) -> None:
        name = launch.job.name
        state, estimated = self._states[name], self._estimates[name]
        directory, command = self._command(name)
        budget = launch.memory - estimated.overhead
        command += ["--threads", str(launch.threads), "--memory", str(budget), "--json"]
        self._children[name] = (Child(command, launch.cores, directory), launch)
        state.status = "running"
        state.threads, state.cores = launch.threads, launch.cores
        state.memory, state.far_ratio = budget, estimated.reached
        state.estimate = launch.job.seconds(launch.threads) if estimated.measured else None

    def _command(self, name: str) -> tuple[Path, list[str]]:
        """The directory for a job's output, and the command that begins or resumes its run."""
        state, request = self._states[name], self.requests[name]
        if state.record is not None:
            directory = Path(state.record) if request.record is None else self.directory / name
            return directory, ["run", "--resume", state.record]
        directory = self._free_directory(name)
        state.record = str(request.record or directory)
        far = _far_arguments(request, self._estimates[name])
        return directory, [*request.words, "--record", state.record, *far]

    def _free_directory(self, name: str) -> Path:
        directory = self.directory / name
        number = 1
        while any((directory / file).exists() for file in (records.FILE, "config.json")):
            number += 1
            directory = self.directory / f"{name}-{number}"
        return directory

    def _give_up(self) -> None:
        """Refuses the waiting jobs if no job runs and no memory becomes free for `patience_s`."""
        if self._children:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > self.patience_s:
            for state in self._waiting():
                needed = self._estimates[state.name].job.memory
                self._refuse(
                    state,
                    f"waited {self.patience_s:g} s for {format_size(needed)} of memory, its "
                    f"turning point; {format_size(self.machine.free_memory())} are free",
                )
            self._write_states()

    def _wait(self) -> None:
        with selectors.DefaultSelector() as selector:
            for child, _ in self._children.values():
                selector.register(child, selectors.EVENT_READ)
            selector.select(_LOOK_S)
        self._reap()

    def _reap(self, *, stopped: bool = False) -> None:
        for name, (child, _) in list(self._children.items()):
            if child.code is None:
                continue
            state = self._states[name]
            state.code = child.code
            state.seconds = time.monotonic() - child.started
            if child.code == 0:
                state.status = "done"
                record = AnalysisDirectory(Path(state.record or "")).record()
                state.peak_memory = record["peak_memory_bytes"]
            elif stopped:
                state.status = "stopped"
            else:
                state.status, state.record = "failed", None
                state.error = child.last_error()
            child.close()
            del self._children[name]
            self._write_states()

    def _refuse(self, state: JobState, reason: str) -> None:
        state.status = "refused"
        state.error = reason.partition("\nhint: ")[0]

    def _write_states(self) -> None:
        store(self.directory / STATE, _States(tuple(self._states.values())))


def _far_arguments(request: Request, estimated: Estimate) -> list[str]:
    """Options for the far ratio of a run with a memory server, if the command does not set it."""
    run = request.config.run
    if run.far is None or run.far_ratio is not None or request.memory is not None:
        return []
    return ["--set", f"far_ratio={estimated.far_ratio}"]
