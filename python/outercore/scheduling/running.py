"""Carrying a list of jobs out: starting what the controller lets start, noting how it ends."""

from __future__ import annotations

import selectors
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from outercore._native import Progress
from outercore.config.sizes import format_size
from outercore.errors import InterruptError, InvalidError, OutercoreError
from outercore.runs import record as records
from outercore.runs.lock import only_one
from outercore.scheduling.children import Child, stop_all, terminate_like_interrupt
from outercore.scheduling.decide import GraphShape, Job, Launch, Table, allocate
from outercore.scheduling.estimates import Estimate, estimate, far_arguments
from outercore.scheduling.machines import Machine
from outercore.scheduling.request import Request
from outercore.scheduling.states import STATE, JobState, is_done, load_states, peak_of, store_states

PATIENCE_S = 600.0
"""How long a job may wait for others' memory while nothing of ours runs."""

_LOOK_S = 1.0

Observer = Callable[[Sequence[JobState]], None]
"""Called whenever something has changed, and every second."""


def run_jobs(
    requests: Sequence[Request],
    table: Table,
    directory: Path,
    machine: Machine,
    *,
    patience_s: float = PATIENCE_S,
    observer: Observer | None = None,
    progress: Progress | None = None,
) -> list[JobState]:
    """Runs all requests, as many at once as there are cores and memory for; returns their ends.

    What `directory` says is done is not done again. A job that fails, or that the machine could
    never hold, does not keep the others from running.

    Errors: `InterruptError` after Ctrl-C or SIGTERM, with every process ended and the state kept.
    """
    with only_one(directory / STATE, "outercore jobs"), terminate_like_interrupt():
        running = _Running(requests, table, directory, machine, patience_s, observer)
        try:
            running.prepare(progress)
            running.run()
        except KeyboardInterrupt:
            running.stop()
            left = sum(not state.ended for state in running.states)
            raise InterruptError(
                f"{left} of {len(running.states)} jobs are left; the others are in `{directory}`"
                "\nhint: run the same command again: it goes on with those"
            ) from None
        except BaseException:
            running.stop()
            raise
        return running.states


class _Running:
    """One call of `run_jobs`."""

    def __init__(
        self,
        requests: Sequence[Request],
        table: Table,
        directory: Path,
        machine: Machine,
        patience_s: float,
        observer: Observer | None,
    ) -> None:
        self._requests = {request.name: request for request in requests}
        self._table = table
        self._directory = directory
        self._machine = machine
        self._patience_s = patience_s
        self._observer = observer or (lambda states: None)
        self._estimates: dict[str, Estimate] = {}
        self._children: dict[str, tuple[Child, Launch]] = {}
        self._idle_since = time.monotonic()
        known = {state.name: state for state in load_states(directory)}
        self.states = [
            known[request.name]
            if is_done(known.get(request.name), request)
            else JobState(request.name, list(request.words))
            for request in requests
        ]
        self._by_name = {state.name: state for state in self.states}

    def prepare(self, progress: Progress | None) -> None:
        """Estimates all; refuses those that can never run."""
        cores, memory = self._machine.most()
        shapes: dict[Path, GraphShape] = {}
        for state in self.states:
            if state.status != "waiting":
                continue
            try:
                estimated = estimate(
                    self._requests[state.name], self._table, memory, progress, shapes=shapes
                )
                _check(estimated.job, cores, memory)
            except InterruptError:
                raise KeyboardInterrupt from None
            except OutercoreError as error:
                self._refuse(state, str(error))
            else:
                self._estimates[state.name] = estimated
                state.notes = list(estimated.notes)
        self._keep()

    def run(self) -> None:
        """Until nothing waits and nothing runs."""
        while self._children or self._waiting():
            self._launch()
            self._give_up()
            self._observer(self.states)
            self._wait()

    def stop(self) -> None:
        """Ends what runs; it begins anew when the list is run again."""
        stop_all([child for child, _ in self._children.values()])
        self._reap(stopped=True)
        for state in self.states:
            if state.status == "running":
                # It was just about to be.
                state.status = "stopped"
        self._keep()
        self._observer(self.states)

    def _waiting(self) -> list[JobState]:
        return [state for state in self.states if state.status == "waiting"]

    def _launch(self) -> None:
        """Starts what the controller lets start."""
        waiting = self._startable()
        if not waiting:
            return
        held = [core for _, launch in self._children.values() for core in launch.cores]
        jobs = [self._estimates[state.name].job for state in waiting]
        launches = allocate(jobs, self._machine.cores(held), self._free_memory())
        for launch in launches:
            self._start(launch)
        if launches:
            self._keep()

    def _startable(self) -> list[JobState]:
        """Those that wait, of those that write to one data set only the first."""
        writing = {
            self._requests[name].data_set.resolve()
            for name in self._children
            if self._requests[name].saves
        }
        startable = []
        for state in self._waiting():
            request = self._requests[state.name]
            root = request.data_set.resolve()
            if request.saves:
                if root in writing:
                    continue
                writing.add(root)
            startable.append(state)
        return startable

    def _free_memory(self) -> int:
        """What is free, less what running jobs may still take, within what we may take at all."""
        promised = sum(launch.memory for _, launch in self._children.values())
        still = sum(
            max(launch.memory - child.resident, 0) for child, launch in self._children.values()
        )
        return min(self._machine.memory() - still, self._machine.most()[1] - promised)

    def _start(self, launch: Launch) -> None:
        name = launch.job.name
        state, request, estimated = self._by_name[name], self._requests[name], self._estimates[name]
        directory, record = self._places(request)
        budget = launch.memory - estimated.overhead
        state.status = "running"
        state.threads, state.cores = launch.threads, list(launch.cores)
        state.memory, state.far_ratio = budget, estimated.reached
        state.estimate = launch.job.seconds(launch.threads) if estimated.measured else None
        state.record = str(record)
        words = [*request.words, "--threads", str(launch.threads), "--memory", str(budget)]
        words += ["--record", str(record), *far_arguments(request, estimated)]
        words += [] if "--json" in words else ["--json"]
        self._children[name] = (Child(words, launch.cores, directory), launch)

    def _places(self, request: Request) -> tuple[Path, Path]:
        """Where the output of a job goes, and where its record; never where one is."""
        directory = self._directory / request.name
        number = 1
        while any((directory / name).exists() for name in (records.FILE, "config.json")):
            number += 1
            directory = self._directory / f"{request.name}-{number}"
        return directory, request.record or directory

    def _give_up(self) -> None:
        """Refuses what waits where nothing of ours runs and nothing gets free."""
        if self._children:
            self._idle_since = time.monotonic()
        elif time.monotonic() - self._idle_since > self._patience_s:
            for state in self._waiting():
                needed = self._estimates[state.name].job.memory
                self._refuse(
                    state,
                    f"waited {self._patience_s:g} s for {format_size(needed)} of memory, its "
                    f"turning point; {format_size(self._machine.memory())} are free",
                )
            self._keep()

    def _wait(self) -> None:
        """Until a process ends, or it is time to look at the machine again."""
        if not self._children and not self._waiting():
            return
        with selectors.DefaultSelector() as selector:
            for child, _ in self._children.values():
                selector.register(child, selectors.EVENT_READ)
            selector.select(_LOOK_S)
        self._reap()

    def _reap(self, *, stopped: bool = False) -> None:
        """Takes note of the processes that have ended."""
        for name, (child, _) in list(self._children.items()):
            if child.code is None:
                continue
            state = self._by_name[name]
            state.code = child.code
            state.seconds = time.monotonic() - child.started
            if child.code == 0:
                state.status = "done"
                state.peak_memory = peak_of(state)
            elif stopped:
                state.status, state.record = "stopped", None
            else:
                state.status, state.record = "failed", None
                state.error = child.last_error().removeprefix("error: ")
            child.close()
            del self._children[name]
            self._idle_since = time.monotonic()
            self._keep()

    def _refuse(self, state: JobState, reason: str) -> None:
        state.status = "refused"
        state.error = reason.partition("\nhint: ")[0]

    def _keep(self) -> None:
        store_states(self._directory, self.states)


def _check(job: Job, cores: int, memory: int) -> None:
    if job.least_threads > cores:
        raise InvalidError(f"{job.least_threads} threads, expected {cores} at most, the cores")
    if job.memory > memory:
        raise InvalidError(
            f"takes {format_size(job.memory)} of memory, expected {format_size(memory)} at most"
        )
