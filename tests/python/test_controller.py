"""The controller's decisions, against what they promise and against trying everything."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from outercore.analytics.scheduling.decide import (
    SLACK,
    GraphShape,
    Job,
    Launch,
    Measurement,
    Table,
    allocate,
    turning_point,
)
from outercore.analytics.scheduling.files import load_table, store
from outercore.errors import CorruptError, VersionError

GRAPH = GraphShape(nodes=200_000, arcs=3_200_000, skew=8.0)

times = st.floats(0.01, 1000.0)
curves = st.dictionaries(st.integers(0, 20).map(lambda part: part / 20), times, min_size=1).map(
    lambda curve: list(curve.items())
)


any_times = st.lists(times, min_size=1, max_size=6).map(tuple)


@st.composite
def jobs(draw: st.DrawFn, *, scaling: Any = any_times) -> list[Job]:
    made = []
    for number in range(draw(st.integers(0, 5))):
        least = draw(st.integers(1, 3))
        made.append(
            Job(
                name=f"job {number}",
                times=draw(scaling),
                memory=draw(st.integers(1, 100)),
                memory_per_thread=draw(st.integers(0, 5)),
                least_threads=least,
                most_threads=draw(st.none() | st.integers(least, 6)),
            )
        )
    return made


nodes = st.lists(st.integers(0, 6), min_size=1, max_size=3).map(
    lambda sizes: [
        list(range(first, first + size))
        for first, size in zip(itertools.accumulate([0, *sizes]), sizes, strict=False)
    ]
)


def extra(launched: list[Launch]) -> int:
    return sum(launch.memory - launch.job.memory for launch in launched)


@settings(deadline=None)
@given(jobs(), nodes, st.integers(0, 300))
def test_launches_share_out_no_more_than_is_free(
    waiting: list[Job], free: list[list[int]], memory: int
) -> None:
    launched = allocate(waiting, free, memory)
    dealt = [core for launch in launched for core in launch.cores]
    assert len(dealt) == len(set(dealt))
    assert set(dealt) <= set(itertools.chain(*free))
    assert sum(launch.memory for launch in launched) <= memory
    for launch in launched:
        most = launch.job.most_threads or max(len(launch.job.times), launch.job.least_threads)
        assert launch.job.least_threads <= launch.threads <= max(most, launch.job.least_threads)
        assert launch.memory == launch.job.memory_with(launch.threads) >= launch.job.memory


@settings(deadline=None)
@given(jobs(), nodes, st.integers(0, 300))
def test_a_job_waits_only_where_it_does_not_fit_beside_the_others(
    waiting: list[Job], free: list[list[int]], memory: int
) -> None:
    launched = [launch.job for launch in allocate(waiting, free, memory)]
    cores = sum(map(len, free)) - sum(job.least_threads for job in launched)
    rest = memory - sum(job.memory for job in launched)
    for job in waiting:
        if job not in launched:
            assert job.least_threads > cores or job.memory > rest


@settings(deadline=None)
@given(jobs(), nodes, st.integers(0, 300))
def test_no_core_is_left_that_would_help(
    waiting: list[Job], free: list[list[int]], memory: int
) -> None:
    launched = allocate(waiting, free, memory)
    cores = sum(map(len, free)) - sum(launch.threads for launch in launched)
    rest = memory - sum(launch.memory for launch in launched)
    for launch in launched:
        job, at = launch.job, launch.threads
        for more in range(1, cores + 1):
            grown = at + more
            if job.most_threads is not None and grown > job.most_threads:
                break
            if job.memory_with(grown) - launch.memory <= rest:
                assert job.seconds(grown) >= job.seconds(at)


@settings(deadline=None)
@given(jobs(), nodes, st.integers(0, 300))
def test_a_job_spans_numa_nodes_only_where_none_had_enough_cores(
    waiting: list[Job], free: list[list[int]], memory: int
) -> None:
    left = [set(node) for node in free]
    launched = allocate(waiting, free, memory)
    # As they were dealt: the most demanding first, then as they waited.
    for launch in sorted(launched, key=lambda one: (-one.threads, waiting.index(one.job))):
        cores = set(launch.cores)
        spanned = [node for node in left if node & cores]
        if len(spanned) > 1:
            assert max(map(len, left)) < launch.threads
        for node in left:
            node -= cores


@st.composite
def falling_ever_less(draw: st.DrawFn) -> tuple[float, ...]:
    gains = sorted(draw(st.lists(st.integers(0, 50), max_size=5)), reverse=True)
    ends = draw(st.integers(1, 100))
    return tuple(float(ends + sum(gains[at:])) for at in range(len(gains) + 1))


@settings(deadline=None, max_examples=50)
@given(jobs(scaling=falling_ever_less()), st.integers(0, 6))
def test_where_each_further_core_brings_less_no_other_division_is_faster(
    waiting: list[Job], cores: int
) -> None:
    launched = allocate(waiting, [list(range(cores))], 10_000)
    taken = sum(launch.job.seconds(launch.threads) for launch in launched)
    ranges = [range(one.job.least_threads, (one.job.most_threads or cores) + 1) for one in launched]
    for division in itertools.product(*ranges):
        if sum(division) <= cores:
            other = zip(launched, division, strict=True)
            assert taken <= sum(one.job.seconds(count) for one, count in other) + 1e-9


def test_cores_go_where_they_save_most_also_beyond_a_step_that_saves_nothing() -> None:
    steps = Job("steps", (10.0, 10.0, 10.0, 2.0), memory=1)
    even = Job("even", (4.0, 3.5), memory=1)
    launched = allocate([even, steps], [[0, 1, 2, 3, 4]], 10)
    assert [(one.job.name, one.threads) for one in launched] == [("even", 1), ("steps", 4)]
    assert allocate([steps], [[0, 1, 2]], 10)[0].threads == 1


def test_a_job_below_its_turning_point_waits_and_smaller_ones_go_ahead() -> None:
    large, small = Job("large", (1.0,), memory=100), Job("small", (1.0,), memory=10)
    assert [one.job for one in allocate([large, small], [[0, 1]], 99)] == [small]
    assert [one.job for one in allocate([large, small], [[0, 1]], 110)] == [large, small]
    assert allocate([small], [[], []], 99) == []


def test_jobs_are_bound_to_different_nodes() -> None:
    pair = [Job(name, (4.0, 2.0), memory=1) for name in "ab"]
    launched = allocate(pair, [[0, 1], [8, 9]], 10)
    assert [one.cores for one in launched] == [(0, 1), (8, 9)]


@settings(deadline=None)
@given(curves)
def test_the_turning_point_is_within_what_was_measured(curve: list[tuple[float, float]]) -> None:
    ratios = [ratio for ratio, _ in curve]
    assert min(ratios) <= turning_point(curve) <= max(ratios)


@settings(deadline=None)
@given(curves, st.floats(0.1, 10.0))
def test_the_turning_point_does_not_depend_on_the_unit_of_time(
    curve: list[tuple[float, float]], scale: float
) -> None:
    scaled = [(ratio, seconds * scale) for ratio, seconds in curve]
    assert turning_point(scaled) == pytest.approx(turning_point(curve), abs=2e-3)


@settings(deadline=None)
@given(curves, st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_who_accepts_more_goes_further(
    curve: list[tuple[float, float]], slack: float, more: float
) -> None:
    assert turning_point(curve, slack) <= turning_point(curve, slack + more)


@settings(deadline=None)
@given(st.lists(times, min_size=2, max_size=8).map(sorted))
def test_times_that_never_fall_stay_within_the_slack_up_to_the_turning_point(
    rising: list[float],
) -> None:
    curve = [(place / 10, seconds) for place, seconds in enumerate(rising)]
    turn = turning_point(curve)
    for (left, low), (right, high) in itertools.pairwise(curve):
        if turn >= right:
            assert high <= (1 + SLACK) * rising[0] * (1 + 1e-9)
        elif turn >= left:
            there = low + (high - low) * (turn - left) / (right - left)
            assert there <= (1 + SLACK) * rising[0] * (1 + 1e-9)


@pytest.mark.parametrize(
    ("curve", "expected"),
    [
        ([(0.5, 1.0)], 0.5),
        ([(0.0, 1.0), (0.5, 1.0), (1.0, 1.0)], 1.0),
        ([(0.0, 1.0), (0.6, 1.05), (0.7, 3.0), (1.0, 9.0)], 0.602),
        # Fargraph+ figure 4 (1): Quicksort slows down from the start.
        ([(0.0, 1.0), (0.5, 2.0), (1.0, 3.0)], 0.05),
        # One slow run between faster ones is noise.
        ([(0.0, 1.0), (0.2, 1.25), (0.4, 0.95), (0.6, 1.0), (1.0, 2.0)], 0.614),
        ([(1.0, 9.0), (0.0, 1.0), (0.6, 1.0)], 0.605),
    ],
)
def test_the_turning_point_of_known_curves(
    curve: list[tuple[float, float]], expected: float
) -> None:
    assert turning_point(curve) == expected


def test_no_measurements_have_no_turning_point() -> None:
    with pytest.raises(ValueError, match="no measurements"):
        turning_point([])


def point(threads: int, far_ratio: float, seconds: float, **other: Any) -> Measurement:
    given = {
        "algorithm": "bfs",
        "graph": GRAPH,
        "medium": "disk",
        "bytes_read": 1000,
        "memory": 1 << 24,
        "peak_memory": 1 << 25,
        **other,
    }
    return Measurement(threads=threads, far_ratio=far_ratio, seconds=seconds, **given)


def test_times_between_measured_threads_lie_on_a_line_and_below_the_least_divide_evenly() -> None:
    table = Table([point(2, 0.0, 6.0), point(4, 0.0, 4.0), point(4, 1.0, 8.0)])
    profile = table.profile("bfs", GRAPH, "disk")
    assert profile is not None
    assert profile.times(0.0) == (12.0, 6.0, 5.0, 4.0)
    assert profile.times(0.5)[3] == 6.0
    assert profile.turning_point == 0.0 or profile.turning_point == 0.1


def test_the_nearest_graph_of_the_class_is_taken_and_scaled_by_its_arcs() -> None:
    near = GraphShape(400_000, 6_400_000, 9.0)
    other = GraphShape(210_000, 3_300_000, 0.3)
    table = Table([point(1, 0.0, 8.0, graph=near), point(1, 0.0, 1.0, graph=other)])
    profile = table.profile("bfs", GRAPH, "disk")
    assert profile is not None
    assert profile.same_class
    assert profile.times(0.0) == (4.0,)
    assert near.graph_class == GRAPH.graph_class != other.graph_class
    profile = Table([point(1, 0.0, 1.0, graph=other)]).profile("bfs", GRAPH, "disk")
    assert profile is not None
    assert not profile.same_class
    assert table.profile("pagerank", GRAPH, "disk") is None


def test_far_memory_is_looked_up_apart_from_the_disk() -> None:
    table = Table([point(1, 0.0, 8.0), point(1, 0.0, 2.0, medium="unix")])
    for medium, seconds in (("disk", 8.0), ("unix", 2.0)):
        profile = table.profile("bfs", GRAPH, medium)  # type: ignore[arg-type]
        assert profile is not None
        assert profile.times(0.0) == (seconds,)
    assert table.profile("bfs", GRAPH, "fabric") is not None


@pytest.mark.parametrize(
    ("nodes", "arcs", "skew", "expected"),
    [
        (0, 0, 0.0, "up to 10^0 nodes, sparse, even"),
        (1, 5, 0.0, "up to 10^0 nodes, medium, even"),
        (100_000, 399_999, 1.0, "up to 10^5 nodes, sparse, uneven"),
        (100_001, 3_300_000, 4.0, "up to 10^6 nodes, dense, skewed"),
    ],
)
def test_classes_of_known_graphs(nodes: int, arcs: int, skew: float, expected: str) -> None:
    assert GraphShape(nodes, arcs, skew).graph_class == expected


shapes = st.builds(GraphShape, st.integers(0, 10**12), st.integers(0, 10**13), st.floats(0, 1000))


@settings(deadline=None)
@given(shapes, shapes)
def test_distance_is_symmetric_and_nothing_to_itself(one: GraphShape, other: GraphShape) -> None:
    assert one.distance(other) == pytest.approx(other.distance(one))
    assert one.distance(one) == 0


def test_a_table_is_read_as_it_was_written(tmp_path: Path) -> None:
    table = Table((point(1, 0.0, 1.0), point(2, 0.5, 2.0)), {"cores": 2})
    store(tmp_path / "new" / "t.json", table)
    assert load_table(tmp_path / "new" / "t.json") == table


@pytest.mark.parametrize(
    "wrong", [{"threads": 0}, {"threads": 1.5}, {"far_ratio": 2.0}, {"seconds": float("nan")}]
)
def test_measurements_that_cannot_be_are_refused(wrong: dict[str, Any], tmp_path: Path) -> None:
    value = {"version": 1, **asdict(Table((point(1, 0.0, 1.0),)))}
    value["measurements"][0].update(wrong)
    (tmp_path / "t.json").write_text(json.dumps(value))
    with pytest.raises(CorruptError, match="hint: measure again"):
        load_table(tmp_path / "t.json")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", CorruptError),
        ("[]", CorruptError),
        ("{}", CorruptError),
        ('{"version": 2}', VersionError),
        ('{"version": 1, "measurements": [3]}', CorruptError),
        ('{"version": 1, "measurements": [{"algorithm": "bfs"}]}', CorruptError),
        ('{"version": 1, "measurements": [{"graph": {}, "shape": 1}]}', CorruptError),
    ],
)
def test_what_is_no_table_is_named(content: str, error: type[Exception], tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(content)
    with pytest.raises(error, match=r"`.*t\.json`: .*\n.*measure again"):
        load_table(tmp_path / "t.json")
