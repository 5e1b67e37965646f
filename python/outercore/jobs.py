"""Several graph algorithms at once: which start when, on which cores, with how much memory.

The controller decides (`outercore.controller`); this module looks at the machine, starts and ends
the processes, and keeps a record of all.

**Source**: Fargraph+ 7, online resource allocation.
"""

from __future__ import annotations

import json
import selectors
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

from outercore import analytics
from outercore import record as records
from outercore._native import Progress
from outercore.children import Child, stop_all, terminate_like_interrupt
from outercore.controller import (
    ASSUMED_TURNING_POINT,
    GraphShape,
    Job,
    Launch,
    Profile,
    Settings,
    Table,
    allocate,
)
from outercore.errors import (
    CorruptError,
    InterruptError,
    InvalidError,
    NotFoundError,
    OutercoreError,
)
from outercore.far import FarOptions
from outercore.graph import Graph
from outercore.lock import only_one
from outercore.machine import Cores, available_memory, total_memory
from outercore.sizes import format_size
from outercore.tune import graph_shape, local_budget, medium_of

PATIENCE_S = 600.0
"""How long a job may wait for others' memory while nothing of ours runs."""

STATE = "jobs.json"
"""In the directory of the jobs: what became of each."""

_LOOK_S = 1.0
_ASSUMED_OVERHEAD = 128 << 20
"""Interpreter, libraries and stacks beside a budget, where nothing was measured."""
_VERSION = 1

Status = Literal["waiting", "running", "done", "failed", "refused", "stopped"]


@dataclass(frozen=True)
class Request:
    """One `outercore run` that somebody asked for."""

    name: str
    words: tuple[str, ...]
    """The command, from `run` on."""
    algorithm: str
    data_set: Path
    options: Mapping[str, Any] = field(default_factory=dict)
    """What the algorithm is told, as `outercore.analytics.run` takes it."""
    threads: int | None = None
    """As the command says, or for the controller to choose."""
    memory: int | None = None
    far: FarOptions | None = None
    far_ratio: float | None = None
    queue_length: int | None = None
    backend: str = "auto"
    record: Path | None = None
    """Where its record goes; into the directory of the jobs by default."""
    saves: bool = False
    """Whether it writes to its data set, which one at a time may do."""


@dataclass
class JobState:
    """What is known of a job; the whole list is the state file."""

    name: str
    words: list[str]
    status: Status = "waiting"
    threads: int | None = None
    cores: list[int] = field(default_factory=list)
    memory: int | None = None
    """The budget of the run."""
    far_ratio: float | None = None
    estimate: float | None = None
    """Seconds that the table lets expect; `None` where it knows nothing."""
    seconds: float | None = None
    """From its start to its end."""
    peak_memory: int | None = None
    code: int | None = None
    error: str | None = None
    record: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def ended(self) -> bool:
        """Whether running the list again leaves it alone."""
        return self.status == "done"


@dataclass(frozen=True)
class Estimate:
    """What the controller takes a request for."""

    job: Job
    far_ratio: float
    """That the run is asked for."""
    reached: float
    """That its budget comes to; a result needs memory that edges can have meanwhile."""
    overhead: int
    """Bytes of the process beside its budget."""
    settings: Settings
    measured: bool
    """Whether the table knows the algorithm; all else is an assumption."""
    notes: tuple[str, ...] = ()


class Machine(Protocol):
    """What is free."""

    def cores(self, held: Sequence[int]) -> list[list[int]]:
        """Free cores by NUMA node, those in `held` not counted."""

    def memory(self) -> int:
        """Bytes that are free now."""

    def most(self) -> tuple[int, int]:
        """Cores and bytes that there ever are."""


class ThisMachine:
    """The machine that we run on, with at most `memory` bytes of it."""

    def __init__(self, memory: int) -> None:
        self._memory = memory
        self._cores = Cores()

    def cores(self, held: Sequence[int]) -> list[list[int]]:
        """Free cores by NUMA node, those in `held` not counted."""
        return self._cores.free(held)

    def memory(self) -> int:
        """Bytes that are free now."""
        return available_memory()

    def most(self) -> tuple[int, int]:
        """Cores and bytes that there ever are."""
        return self._cores.count, min(self._memory, total_memory())


Observer = Callable[[Sequence[JobState]], None]
"""Called whenever something has changed, and every second."""


def estimate(
    request: Request,
    table: Table,
    most_memory: int,
    progress: Progress | None = None,
    *,
    shapes: dict[Path, GraphShape] | None = None,
) -> Estimate:
    """What a request needs at its turning point, and how its time depends on threads.

    Builds the grid where there is none. `shapes` keeps those of the data sets that were seen.

    Errors: `InvalidError` where not even all the memory is enough; what the memory plan raises.
    """
    graph = Graph(request.data_set)
    try:
        analytics.plan(request.algorithm, request.data_set, memory=1 << 50, **request.options)
    except NotFoundError:
        analytics.grid(request.data_set, memory=min(most_memory, 1 << 30), progress=progress)
    known = {} if shapes is None else shapes
    root = request.data_set.resolve()
    shape = known[root] = known.get(root) or graph_shape(graph)
    profile = table.profile(request.algorithm, shape, medium_of(request.far))
    ratio, notes = _wanted_ratio(request, profile)
    overhead = _overhead(profile)
    least = request.threads or 1
    if request.memory is None:
        first, reached = _budget(request, ratio, least, most_memory - overhead)
        second, _ = _budget(request, ratio, least + 1, 1 << 50)
        per_thread = max(second - first, 0)
    else:
        first, reached, per_thread = request.memory, ratio, 0
    times = _ideal(shape) if profile is None else profile.times(reached)
    return Estimate(
        job=Job(
            name=request.name,
            times=times,
            memory=first + overhead,
            memory_per_thread=per_thread,
            least_threads=least,
            most_threads=request.threads,
        ),
        far_ratio=ratio,
        reached=reached,
        overhead=overhead,
        settings=Settings() if profile is None else profile.settings,
        measured=profile is not None,
        notes=notes,
    )


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


def load_states(directory: Path) -> list[JobState]:
    """What became of the jobs in a directory, nothing where none ran there.

    Errors: `CorruptError` for a file that is no state.
    """
    path = directory / STATE
    try:
        value = json.loads(path.read_text())
        if value["version"] != _VERSION:
            raise CorruptError(f"`{path}`: version {value['version']}, expected {_VERSION}")
        return [JobState(**state) for state in value["jobs"]]
    except FileNotFoundError:
        return []
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptError(
            f"`{path}`: {type(error).__name__}: {error}\nhint: choose another `--out`"
        ) from None


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
            if _is_done(known.get(request.name), request)
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
        while (directory / records.FILE).exists():
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
                state.peak_memory = _peak(state)
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
        """Writes the state file, whole or not at all."""
        from outercore.storage import Storage, device_errors, replace_file

        storage = Storage()
        with device_errors(f"`{self._directory / STATE}`"):
            storage.make_directory(self._directory)
            value = {"version": _VERSION, "jobs": [asdict(state) for state in self.states]}
            text = json.dumps(value, indent=1) + "\n"
            replace_file(storage, self._directory / STATE, text.encode())


def _wanted_ratio(request: Request, profile: Profile | None) -> tuple[float, tuple[str, ...]]:
    """The far ratio to run at, and what to say about it."""
    if request.memory is not None:
        planned = analytics.plan(
            request.algorithm,
            request.data_set,
            memory=request.memory,
            threads=request.threads or 1,
            **request.options,
        )
        total = planned["bytes_first_pass"]
        return (planned["bytes_per_pass"] / total if total else 0.0), ()
    if request.far_ratio is not None:
        return request.far_ratio, ()
    if profile is None:
        return ASSUMED_TURNING_POINT, (
            f"nothing was measured for {request.algorithm}: a turning point of "
            f"{ASSUMED_TURNING_POINT:g} is assumed, and that threads share its work evenly; "
            "`outercore tune` measures",
        )
    notes = []
    if not profile.same_class:
        notes.append("measured on a graph of another class")
    measured = profile.measured[0].medium
    if measured != medium_of(request.far):
        notes.append(f"measured with edges from {measured}")
    partition = profile.settings.partition_log2
    if partition is not None:
        notes.append(f"fastest with `outercore grid --partition-log2 {partition}`")
    return profile.turning_point, tuple(notes)


def _budget(request: Request, ratio: float, threads: int, most: int) -> tuple[int, float]:
    found = local_budget(
        request.algorithm,
        request.data_set,
        ratio,
        most=max(most, 1),
        far=request.far,
        threads=threads,
        backend=request.backend,
        options=dict(request.options),
    )
    if found is None:
        raise InvalidError(
            f"its turning point, far ratio {ratio:g}, takes more memory than the "
            f"{format_size(max(most, 0))} there are"
        )
    return found


def _check(job: Job, cores: int, memory: int) -> None:
    if job.least_threads > cores:
        raise InvalidError(f"{job.least_threads} threads, expected {cores} at most, the cores")
    if job.memory > memory:
        raise InvalidError(
            f"takes {format_size(job.memory)} of memory, expected {format_size(memory)} at most"
        )


def _overhead(profile: Profile | None) -> int:
    """Bytes of a process beside its budget."""
    if profile is None:
        return _ASSUMED_OVERHEAD
    return max(max(one.peak_memory - one.memory, 0) for one in profile.measured)


def _ideal(graph: GraphShape) -> tuple[float, ...]:
    """Times of an algorithm that nobody measured: longer on more arcs, evenly shared."""
    return tuple(max(graph.arcs, 1) * 1e-8 / threads for threads in range(1, 65))


def far_arguments(request: Request, estimated: Estimate) -> list[str]:
    """How a run uses its memory server, where the command leaves that open."""
    if request.far is None:
        return []
    arguments = []
    if request.far_ratio is None and request.memory is None:
        arguments += ["--far-ratio", str(estimated.far_ratio)]
    length = estimated.settings.queue_length
    if request.queue_length is None and length is not None:
        arguments += ["--far-queue-length", str(length)]
    return arguments


def _is_done(state: JobState | None, request: Request) -> bool:
    """Whether the request was carried out before, as it is, and its record is there."""
    if state is None or state.status != "done" or state.words != list(request.words):
        return False
    return state.record is not None and (Path(state.record) / records.FILE).exists()


def _peak(state: JobState) -> int | None:
    try:
        record = json.loads((Path(state.record or "") / records.FILE).read_text())
        return record["peak_memory_bytes"]
    except (OSError, ValueError, KeyError):
        return None
