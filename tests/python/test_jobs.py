"""Several algorithms at once: what is asked for, what starts when, how it ends."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import naive
import outercore as oc
from outercore import analytics
from outercore.analytics.scheduling import machine
from outercore.analytics.scheduling.decide import ASSUMED_TURNING_POINT, Measurement, Table
from outercore.analytics.scheduling.launch import JobState, load_states, run_jobs
from outercore.analytics.scheduling.needs import Request, estimate, graph_shape
from outercore.cli.jobs import parse, read_requests
from outercore.data.graph import Graph
from outercore.errors import CorruptError, InterruptError, InvalidError, NotFoundError
from outercore.runs.places import only_one
from typed_fakes import planted_types

CORE = min(os.sched_getaffinity(0))
MIB = 1 << 20


class Lent(machine.Machine):
    """A machine of one core that can have two jobs on it, so that the tests need no other."""

    def __init__(self, memory: int = 1 << 30, *, total: int | None = None) -> None:
        self.free = memory
        self.memory = total or memory

    @property
    def cores(self) -> int:
        return 2

    def free_cores(self, held: Iterable[int]) -> list[list[int]]:
        return [[CORE] * (2 - len(list(held)))]

    def free_memory(self) -> int:
        return self.free


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory) -> Path:
    random = np.random.default_rng(7)
    root = tmp_path_factory.mktemp("jobs") / "graph"
    source, target = random.integers(0, 50_000, (2, 1_000_000))
    naive.write(root, 50_000, source, target)
    oc.grid(root)
    return root


def request(data_set: Path, command: str = "wcc", name: str = "job") -> Request:
    algorithm, *options = command.split()
    return parse(name, ["run", algorithm, str(data_set), *options])


def measured(data_set: Path, seconds: dict[tuple[int, float], float]) -> Table:
    graph = graph_shape(Graph(data_set))
    return Table(
        tuple(
            Measurement("wcc", graph, "disk", threads, ratio, taken, 0, MIB, 101 * MIB)
            for (threads, ratio), taken in seconds.items()
        )
    )


def statuses(states: Sequence[JobState]) -> dict[str, str]:
    return {state.name: state.status for state in states}


def test_a_job_needs_the_memory_of_its_turning_point_and_that_of_its_process(
    data_set: Path,
) -> None:
    seconds = {(1, 0.0): 4.0, (1, 0.5): 4.0, (1, 1.0): 8.0, (2, 0.0): 2.0, (2, 1.0): 2.0}
    found = estimate(request(data_set), measured(data_set, seconds), 1 << 30)
    assert found.measured
    assert found.far_ratio == 0.55
    assert found.overhead == 100 * MIB
    budget = found.job.memory - found.overhead
    planned = analytics.plan("wcc", data_set, memory=budget, threads=1)
    assert planned["bytes_per_pass"] / planned["bytes_first_pass"] <= 0.55
    assert found.job.times == pytest.approx((4.0 + 4.0 * (found.reached - 0.5) * 2, 2.0))
    two = analytics.plan("wcc", data_set, memory=budget + found.job.memory_per_thread, threads=2)
    assert two["bytes_per_pass"] / two["bytes_first_pass"] <= 0.55


def test_what_a_command_says_is_kept_to(data_set: Path) -> None:
    table = measured(data_set, {(1, 0.0): 4.0, (1, 1.0): 8.0})
    found = estimate(request(data_set, "wcc --threads 2 --memory 40MiB"), table, 1 << 30)
    assert found.job.memory == 40 * MIB + found.overhead
    assert (found.job.least_threads, found.job.most_threads) == (2, 2)
    assert found.job.memory_with(2) == found.job.memory


def test_an_algorithm_that_nobody_measured_runs_on_assumptions_that_are_told(
    data_set: Path,
) -> None:
    found = estimate(request(data_set), Table(), 1 << 30)
    assert not found.measured
    assert found.far_ratio == ASSUMED_TURNING_POINT
    assert "`outercore tune` measures" in found.notes[0]
    assert found.job.seconds(2) == found.job.seconds(1) / 2


def test_the_grid_is_built_where_there_is_none(tmp_path: Path) -> None:
    naive.write(tmp_path / "graph", 50, np.arange(49), np.arange(1, 50))
    phases: list[str] = []
    seen = lambda phase, done, total, unit: phases.append(phase)  # noqa: E731
    estimate(request(tmp_path / "graph"), Table(), 1 << 30, seen)
    assert phases
    assert analytics.plan("wcc", tmp_path / "graph", memory="64MiB")["budget"]


def test_the_grid_of_a_job_has_the_weights_and_the_relation_of_its_run(tmp_path: Path) -> None:
    weight = np.arange(1, 50) / 2
    weighted, _ = naive.write(
        tmp_path / "graph", 50, np.arange(49), np.arange(1, 50), weight=weight
    )
    typed = planted_types(tmp_path / "typed")
    requests = [
        request(weighted.root, "sssp --source 0 --weights weight", "weights"),
        request(typed, "wcc --relation paper,cites,paper", "relation"),
    ]
    states = run_jobs(requests, Table(), tmp_path / "jobs", Lent())
    assert statuses(states) == {"weights": "done", "relation": "done"}, states


def test_jobs_run_side_by_side_and_leave_their_records(data_set: Path, tmp_path: Path) -> None:
    lent = Lent()
    wanted = [request(data_set, "wcc", name) for name in ("a", "b", "c")]
    seen: list[dict[str, str]] = []
    states = run_jobs(
        wanted, Table(), tmp_path, lent, observer=lambda now: seen.append(statuses(now))
    )
    assert statuses(states) == {"a": "done", "b": "done", "c": "done"}
    assert seen[0] == {"a": "running", "b": "running", "c": "waiting"}
    for state in states:
        written = json.loads((tmp_path / state.name / "record.json").read_text())
        assert written["plan"]["budget"] == state.memory
        assert state.far_ratio is not None
        assert state.far_ratio <= ASSUMED_TURNING_POINT
        assert state.peak_memory == written["peak_memory_bytes"]
        assert state.cores == (CORE,) * (state.threads or 0)
        assert json.loads((tmp_path / state.name / "output.txt").read_text())["facts"]
    assert load_states(tmp_path) == states


def test_a_job_waits_until_the_memory_of_another_is_free(data_set: Path, tmp_path: Path) -> None:
    wanted = [request(data_set, "wcc", name) for name in "ab"]
    needed = estimate(wanted[0], Table(), 1 << 30).job.memory
    seen: list[dict[str, str]] = []
    states = run_jobs(
        wanted,
        Table(),
        tmp_path,
        Lent(1 << 40, total=2 * needed - 1),
        observer=lambda now: seen.append(statuses(now)),
    )
    assert statuses(states) == {"a": "done", "b": "done"}
    assert {"a": "running", "b": "waiting"} in seen
    assert {"a": "running", "b": "running"} not in seen


def test_a_job_that_could_never_run_is_refused_and_the_others_run(
    data_set: Path, tmp_path: Path
) -> None:
    wanted = [
        request(data_set, "wcc --memory 2GiB", "large"),
        request(data_set, "wcc --threads 3", "wide"),
        request(tmp_path / "nowhere", "wcc", "absent"),
        request(data_set, "wcc", "right"),
    ]
    states = run_jobs(wanted, Table(), tmp_path / "out", Lent())
    assert {state.name: state.error for state in states} == {
        "large": "takes 2.1 GiB of memory, expected 1.0 GiB at most",
        "wide": "3 threads, expected 2 at most, the cores",
        "absent": f"data set `{tmp_path / 'nowhere'}`: no such directory",
        "right": None,
    }
    assert statuses(states)["right"] == "done"


def test_a_job_with_a_node_that_is_not_there_is_refused_when_it_is_read(data_set: Path) -> None:
    with pytest.raises(InvalidError, match="--source: node `50000`: the graph has 50,000 nodes"):
        request(data_set, "bfs --source 50000", "wrong")


def test_a_turning_point_beyond_all_memory_is_refused(data_set: Path, tmp_path: Path) -> None:
    table = measured(data_set, {(1, 0.0): 1.0, (1, 1.0): 100.0})
    states = run_jobs([request(data_set)], table, tmp_path, Lent(102 * MIB))
    assert statuses(states) == {"job": "refused"}
    assert "far ratio 0.001 takes more memory than the 2.0 MiB" in str(states[0].error)


def test_waiting_for_memory_that_others_hold_has_an_end(data_set: Path, tmp_path: Path) -> None:
    lent = Lent(MIB, total=1 << 30)
    states = run_jobs([request(data_set)], Table(), tmp_path, lent, patience_s=0.0)
    assert statuses(states) == {"job": "refused"}
    assert "waited 0 s for" in str(states[0].error)
    assert "1.0 MiB are free" in str(states[0].error)


def test_a_job_that_fails_is_told_and_runs_again_with_the_list(
    data_set: Path, tmp_path: Path
) -> None:
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "record.json").write_text("{}")
    wanted = [request(data_set, f"wcc --record {taken}", "a"), request(data_set, "wcc", "b")]
    states = run_jobs(wanted, Table(), tmp_path / "out", Lent())
    assert statuses(states) == {"a": "failed", "b": "done"}
    assert states[0].error == (
        f"run `{taken}`: `record.json` is there already, expected an empty directory"
    )
    assert states[0].code == 1
    (taken / "record.json").unlink()
    before = (tmp_path / "out/b/record.json").read_bytes()
    states = run_jobs(wanted, Table(), tmp_path / "out", Lent())
    assert statuses(states) == {"a": "done", "b": "done"}
    assert (taken / "record.json").exists()
    assert (tmp_path / "out/b/record.json").read_bytes() == before


def test_a_command_that_changed_runs_again_and_both_records_stay(
    data_set: Path, tmp_path: Path
) -> None:
    for command in ("bfs --source 1", "bfs --source 2"):
        states = run_jobs([request(data_set, command)], Table(), tmp_path, Lent())
        assert statuses(states) == {"job": "done"}
    assert states[0].record == str(tmp_path / "job-2")
    assert (tmp_path / "job/record.json").exists()


def test_a_job_that_ended_while_no_one_looked_does_not_run_again(
    data_set: Path, tmp_path: Path
) -> None:
    run_jobs([request(data_set)], Table(), tmp_path, Lent())
    written = (tmp_path / "job/record.json").stat().st_mtime_ns
    file = tmp_path / "jobs.json"
    # As of a call that was killed while the job ran.
    file.write_text(file.read_text().replace('"done"', '"running"'))
    states = run_jobs([request(data_set)], Table(), tmp_path, Lent())
    assert statuses(states) == {"job": "done"}
    assert states[0].record == str(tmp_path / "job")
    assert (tmp_path / "job/record.json").stat().st_mtime_ns == written


def test_what_writes_to_one_data_set_runs_one_after_the_other(
    data_set: Path, tmp_path: Path
) -> None:
    wanted = [request(data_set, f"wcc --save {name}", name) for name in ("one", "two")]
    seen: list[dict[str, str]] = []
    run_jobs(wanted, Table(), tmp_path, Lent(), observer=lambda now: seen.append(statuses(now)))
    assert {"one": "running", "two": "running"} not in seen
    graph = oc.open(data_set)
    np.testing.assert_array_equal(graph.array("one"), graph.array("two"))


def test_an_interrupt_ends_all_and_the_next_call_goes_on(data_set: Path, tmp_path: Path) -> None:
    wanted = [
        request(data_set, "wcc", "short"),
        request(data_set, "betweenness", "long"),
        request(data_set, "wcc", "next"),
    ]

    def interrupt(states: Sequence[JobState]) -> None:
        if statuses(states) == {"short": "done", "long": "running", "next": "done"}:
            raise KeyboardInterrupt

    with pytest.raises(InterruptError, match=r"1 of 3 jobs are left.*\nhint: run the same"):
        run_jobs(wanted, Table(), tmp_path, Lent(), observer=interrupt)
    assert statuses(load_states(tmp_path)) == {"short": "done", "long": "stopped", "next": "done"}
    wanted[1] = request(data_set, "betweenness --samples 1", "long")
    states = run_jobs(wanted, Table(), tmp_path, Lent())
    assert statuses(states) == {"short": "done", "long": "done", "next": "done"}


def test_a_job_that_was_stopped_after_a_checkpoint_is_resumed_in_its_run(
    data_set: Path, tmp_path: Path
) -> None:
    options = "--max-iterations 300 --tolerance 0 --set checkpoint_every=0"
    wanted = [request(data_set, f"pagerank {options} --out {tmp_path / 'ranks.npy'}", "long")]
    checkpoint = tmp_path / "out/long/checkpoint/checkpoint.json"

    def interrupt(states: Sequence[JobState]) -> None:
        if statuses(states) == {"long": "running"}:
            while not checkpoint.exists():
                os.sched_yield()
            raise KeyboardInterrupt

    stopping = iter([KeyboardInterrupt])

    def stop(states: Sequence[JobState]) -> None:
        for error in stopping:
            raise error

    with pytest.raises(InterruptError, match="1 of 1 jobs are left"):
        run_jobs(wanted, Table(), tmp_path / "out", Lent(), observer=interrupt)
    assert checkpoint.exists()
    # Stopped again before anything was started.
    with pytest.raises(InterruptError):
        run_jobs(wanted, Table(), tmp_path / "out", Lent(MIB, total=1 << 30), observer=stop)
    [state] = run_jobs(wanted, Table(), tmp_path / "out", Lent())
    assert (state.status, state.error) == ("done", None)
    assert state.record == str(tmp_path / "out/long")
    assert not (tmp_path / "out/long-2").exists()
    ranks = oc.pagerank(data_set, max_iterations=300, tolerance=0.0)
    np.testing.assert_array_equal(np.load(tmp_path / "ranks.npy"), ranks)


def test_a_checkpoint_of_another_command_is_not_resumed(data_set: Path, tmp_path: Path) -> None:
    wanted = request(data_set, "wcc")
    state = JobState("job", wanted.words, "stopped", record=str(tmp_path))
    found = state.run_of(wanted)
    assert found is not None
    assert found.path == tmp_path
    assert state.run_of(request(data_set, "scc")) is None


def test_two_do_not_run_one_list(data_set: Path, tmp_path: Path) -> None:
    with (
        only_one(tmp_path / "jobs.json", "outercore jobs"),
        pytest.raises(InvalidError, match="another `outercore jobs` writes it"),
    ):
        run_jobs([request(data_set)], Table(), tmp_path, Lent())


@pytest.mark.parametrize("content", ["{", "[]", '{"version": 1, "jobs": [{"a": 1}]}'])
def test_a_state_that_is_none_is_named(content: str, tmp_path: Path) -> None:
    (tmp_path / "jobs.json").write_text(content)
    with pytest.raises(CorruptError, match=r"jobs\.json"):
        load_states(tmp_path)


def test_a_command_is_read_as_run_reads_it(data_set: Path) -> None:
    found = parse(
        "name",
        [
            *("run", "pagerank", str(data_set), "--damping", "0.5", "--threads", "2"),
            *("--memory", "1GiB", "--save", "rank", "--personalization", "3"),
        ],
    )
    config = found.config
    assert (config.algorithm, found.data_set, config.run.threads) == ("pagerank", data_set, 2)
    assert (found.memory, config.save, config.run.far) == (1 << 30, "rank", None)
    assert config.options["damping"] == 0.5
    assert "personalization" not in config.options
    assert parse("name", ["run", "label-propagation", "x"]).config.algorithm == "label_propagation"
    # Only what the command itself says binds the controller.
    assert parse("name", ["run", "wcc", "papers"]).memory is None


def test_what_a_file_of_options_says_is_kept_to(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    far = {"address": "127.0.0.1:7000", "queue_length": 3}
    file.write_text(json.dumps({"memory": "64MiB", "far": far}))
    words = ["run", "wcc", "papers", "--config", str(file)]
    found = parse("name", words)
    assert found.config.run.far is not None
    assert (found.memory, found.config.run.far.queue_length) == (64 << 20, 3)
    assert parse("name", [*words, "--memory", "32MiB"]).memory == 32 << 20


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("train papers", "expected `run ALGORITHM DATASET ...`, found `train papers`"),
        ("run walk papers", "algorithm `walk`: expected one of pagerank"),
        ("run wcc papers --plan", "--plan: expected a command that runs"),
        ("run wcc papers --record none", "--record none: expected a command that"),
        ("run wcc papers --help", "runs nothing"),
        ("run bfs papers", "'--source'"),
        ("run wcc 'papers", "No closing quotation"),
        (3, "expected a command, found 3"),
        ({"name": "a"}, 'expected `{"name": ..., "command": ...}`'),
        ({"name": "../a", "command": "run wcc x"}, "expected letters, digits"),
        (["run", 3], "expected a command, found"),
    ],
)
def test_what_is_no_job_is_refused_by_its_place(
    entry: Any, message: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(["run wcc papers", entry]))
    with pytest.raises(InvalidError) as error:
        read_requests(file)
    assert f"jobs `{file}`, entry 2: " in str(error.value)
    assert message in str(error.value)


def test_what_is_no_list_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    with pytest.raises(NotFoundError, match="no such file"):
        read_requests(file)
    file.write_text("{")
    with pytest.raises(CorruptError):
        read_requests(file)
    file.write_text("{}")
    with pytest.raises(InvalidError, match="expected a JSON list"):
        read_requests(file)
    twice = {"name": "a", "command": "run wcc x"}
    file.write_text(json.dumps([twice, twice]))
    with pytest.raises(InvalidError, match="entry 2: a second `a`"):
        read_requests(file)


def test_jobs_prints_a_table_on_stdout_and_the_rest_on_stderr(
    data_set: Path, outcome: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(Path.cwd()))
    file = Path("night.json")
    file.write_text(json.dumps([f"run wcc {data_set}", f"outercore run bfs {data_set} --source 3"]))
    code, out, err = outcome("jobs", file)
    assert code == 0, err
    assert [line.split()[:2] for line in out.splitlines() if " done " in line] == [
        ["01-wcc", "done"],
        ["02-bfs", "done"],
    ]
    assert "records in runs/night" in out
    assert "01-wcc: running, on cores" in err
    assert {"01-wcc: done", "02-bfs: done"} <= {line.split(",")[0] for line in err.splitlines()}
    code, out, err = outcome("jobs", file, "--json")
    assert (code, err) == (0, "")
    assert [state["status"] for state in json.loads(out)] == ["done", "done"]
    file.write_text('["run wcc nowhere"]')
    code, _, err = outcome("jobs", file, "--out", "other")
    assert code == 1
    assert "no such directory" in err
    assert outcome("jobs", file, "--table", "none.json")[0] == 1


def test_ctrl_c_ends_jobs_with_130_and_loses_nothing(data_set: Path, tmp_path: Path) -> None:
    file, out = tmp_path / "list.json", tmp_path / "out"
    file.write_text(json.dumps([f"run wcc {data_set}", f"run betweenness {data_set}"]))
    command = [sys.executable, "-m", "outercore", "jobs", str(file), "--out", str(out)]
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as running:
        assert running.stderr is not None
        for line in running.stderr:
            if line.startswith("02-betweenness: running"):
                running.send_signal(signal.SIGINT)
                break
        _, said = running.communicate(timeout=60)
    assert running.returncode == 130, said
    assert "hint: run the same command again" in said
    after = statuses(load_states(out))
    assert after["02-betweenness"] == "stopped"
    assert after["01-wcc"] in ("done", "stopped")


nodes = st.lists(st.integers(0, 4), min_size=1, max_size=3).map(
    lambda sizes: [[16 * node + core for core in range(size)] for node, size in enumerate(sizes)]
)


@settings(deadline=None)
@given(nodes, st.sets(st.integers(0, 40)), st.dictionaries(st.integers(0, 40), st.floats(0, 1)))
def test_free_cores_are_not_held_and_the_idlest_of_their_machine(
    cores: list[list[int]], held: set[int], shares: dict[int, float]
) -> None:
    free = machine.idlest_cores(cores, held, shares)
    chosen = {core for node in free for core in node}
    open_ = {core for node in cores for core in node} - held
    assert chosen <= open_
    assert [core for node in free for core in node] == sorted(chosen)
    busiest = max((shares.get(core, 0.0) for core in chosen), default=0.0)
    assert all(shares.get(core, 0.0) >= busiest for core in open_ - chosen)
    if open_ and not held:
        assert chosen
    idle = sum(1 - shares.get(core, 0.0) for core in open_)
    assert len(chosen) <= max(idle + 0.5, 0 if held else 1)


def test_a_core_of_ours_says_nothing_of_others() -> None:
    before = {0: machine.Ticks(0, 100), 1: machine.Ticks(0, 100), 2: machine.Ticks(9, 9)}
    after = {0: machine.Ticks(100, 200), 1: machine.Ticks(25, 200), 2: machine.Ticks(9, 9)}
    assert machine.busy_shares(before, after, without={0}) == {1: 0.25}


def test_cores_are_grouped_by_node(tmp_path: Path) -> None:
    for node, cores in ((0, (0, 1, 4)), (10, (5,)), (2, (2, 3))):
        for core in cores:
            (tmp_path / f"node{node}" / f"cpu{core}").mkdir(parents=True)
    assert machine.numa_nodes({0, 1, 3, 5, 7}, tmp_path) == [[0, 1], [3], [5], [7]]
    assert machine.numa_nodes({1, 0}, tmp_path / "none") == [[0, 1]]


@pytest.mark.parametrize(
    ("files", "drop"),
    [
        (("memory.max", "memory.current", "inactive_file"), "inactive_file"),
        (
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
            "total_inactive_file",
        ),
    ],
)
def test_limits_of_control_groups_above_count_too(
    files: tuple[str, str, str], drop: str, tmp_path: Path
) -> None:
    inner = tmp_path / "root" / "a" / "b"
    inner.mkdir(parents=True)
    for directory, limit in ((inner, "max"), (inner.parent, "1000"), (tmp_path / "root", "5000")):
        (directory / files[0]).write_text(limit)
        (directory / files[1]).write_text("700")
        (directory / "memory.stat").write_text(f"anon 1\n{drop} 200\n")
    (tmp_path / files[0]).write_text("1")
    found = machine.group_limits(tmp_path / "root", "/a/b", files)
    assert found == [(1000, 500), (5000, 500)]


def test_this_machine_has_cores_and_memory() -> None:
    mine = machine.Machine()
    assert {core for node in mine.nodes for core in node} == os.sched_getaffinity(0)
    assert 1 <= sum(map(len, mine.free_cores([]))) <= mine.cores
    assert mine.free_cores(os.sched_getaffinity(0)) == [[] for _ in mine.nodes]
    assert 0 < mine.free_memory() <= mine.memory
    assert machine.Machine(1 << 20).memory == 1 << 20
