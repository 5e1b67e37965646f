"""Forecast of an epoch: reads from a simulation of the cache, times from a trial of each stage."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from threading import Thread
from typing import Any, Protocol

_STEPS_S = 1.0
"""Seconds for measuring training steps, after the first step."""
_FEWEST_STEPS, _MOST_STEPS = 3, 8
_SPIN_S = 0.05
"""Seconds for measuring how many cores are available to threads of this process."""
_FEWEST_CORES = 0.1
_PINNED_GROUPS = 2
"""Groups whose rows are in memory at the same time: one is consumed, one is fetched."""


class Core(Protocol):
    """The methods of the core's loader that a forecast needs."""

    def forecast(self) -> dict[str, Any]:
        """Simulates the cache and returns the expected reads of epochs."""

    def start_trial(self) -> None:
        """Starts a few batches, to measure the stages."""

    def advance(self) -> bool:
        """Moves to the next batch; false after the last one."""

    def stop(self) -> None:
        """Stops the trial or the epoch."""

    def take_counters(self) -> dict[str, Any]:
        """Counters since the last call."""


@dataclass(frozen=True)
class Cost:
    """Seconds of a stage per batch, without other load."""

    wall_s: float = 0.0
    processor_s: float = 0.0
    """Processor time, summed over all cores."""


@dataclass(frozen=True)
class Rates:
    """Measured costs of the stages."""

    sample: Cost
    fetch: Cost
    """Per second of device time in the cost model, not per batch."""
    assemble: Cost
    train: Cost
    cores: float
    """Cores that this process gets while other programs run."""


def forecast(
    core: Core, batch: Callable[[], Any], step: Callable[[Any], object] | None
) -> dict[str, Any]:
    """See `MiniBatches.forecast`. `batch` assembles the current batch of the core."""
    began, used = time.perf_counter(), time.process_time()
    counts = core.forecast()
    sampling = Cost(
        counts["sample_s_per_batch"], (time.process_time() - used) / max(counts["traced"], 1)
    )
    rates = _tried(core, batch, step, sampling, counts["cost"])
    epochs = {name: expected_epoch(counts, counts[name], rates) for name in ("first", "later")}
    fill = counts["fill"]
    fill_s = fill["device_s"] * rates.fetch.wall_s
    epochs["first"]["seconds"] += fill_s
    epochs["first"]["bytes"] += round(fill["bytes"])
    epochs["first"]["requests"] += round(fill["requests"])
    return {
        "batches": counts["batches"],
        "traced_batches": counts["traced"],
        "nodes_per_batch": counts["nodes_per_batch"],
        "edges_per_batch": counts["edges_per_batch"],
        "fill_s": fill_s,
        "first_epoch": epochs["first"],
        "later_epochs": epochs["later"],
        "took_s": time.perf_counter() - began,
    }


def _tried(
    core: Core,
    batch: Callable[[], Any],
    step: Callable[[Any], object] | None,
    sampling: Cost,
    cost: dict[str, float],
) -> Rates:
    """Measures the stages one after the other, on a few batches."""
    core.take_counters()
    used = time.process_time()
    core.start_trial()
    try:
        has_batch = core.advance()
        used = time.process_time() - used
        counted = core.take_counters()["counters"]
        batches = max(counted["fetch"]["items"], counted["sample"]["items"], 1)
        reads = counted["feature_reads"]
        device_s = (
            reads["requests"] * cost["seconds_per_request"]
            + reads["bytes"] * cost["seconds_per_byte"]
        )
        fetching = Cost(1.0, 0.0)
        if device_s > 0.0:
            own = max(used - batches * sampling.processor_s, 0.0)
            fetching = Cost(counted["fetch"]["busy_s"] / device_s, own / device_s)
        assembling, training = Cost(), Cost()
        if has_batch:
            assembling, training = _consumed(core, batch, step, batches)
    finally:
        core.stop()
        core.take_counters()
    return Rates(sampling, fetching, assembling, training, _cores())


def _cores() -> float:
    """Number of cores that the threads of this process get in total at the moment."""
    cores = len(os.sched_getaffinity(0))
    block, until = bytes(1 << 18), time.perf_counter() + _SPIN_S

    def spin() -> None:
        # Hashing releases the GIL, so that the threads run in parallel.
        while time.perf_counter() < until:
            sha256(block)

    # As many threads as sample, read and train at once. If other programs run, the share of a
    # process depends on its number of threads.
    threads = [Thread(target=spin) for _ in range(2 * cores + 1)]
    wall, used = time.perf_counter(), time.process_time()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    got = (time.process_time() - used) / max(time.perf_counter() - wall, 1e-9)
    return min(max(got, _FEWEST_CORES), cores)


def _consumed(
    core: Core, batch: Callable[[], Any], step: Callable[[Any], object] | None, batches: int
) -> tuple[Cost, Cost]:
    """Mean cost of assembling a batch, and of a training step; the first of each is a warm-up."""
    assembled, trained, current = [], [], None
    until = math.inf
    for turn in range(min(batches, _MOST_STEPS)):
        if turn and not core.advance():
            break
        current, took = _timed(batch)
        assembled.append(took)
        if step is not None:
            trained.append(_timed(partial(step, current))[1])
        now = time.perf_counter()
        until = min(until, now + _STEPS_S)
        if turn > 1 and now > until:
            break
    # If batches are large, a trial has only one batch: repeat the step on it.
    while step is not None and len(trained) < _FEWEST_STEPS:
        trained.append(_timed(partial(step, current))[1])
    return _mean(assembled[1:] or assembled), _mean(trained[1:])


def _timed(work: Callable[[], Any]) -> tuple[Any, Cost]:
    wall, used = time.perf_counter(), time.process_time()
    done = work()
    return done, Cost(time.perf_counter() - wall, time.process_time() - used)


def _mean(costs: list[Cost]) -> Cost:
    count = max(len(costs), 1)
    return Cost(
        sum(cost.wall_s for cost in costs) / count,
        sum(cost.processor_s for cost in costs) / count,
    )


def expected_epoch(counts: dict[str, Any], epoch: dict[str, Any], rates: Rates) -> dict[str, Any]:
    """The forecast for one epoch."""
    batches, rows, cost = counts["batches"], epoch["rows"], counts["cost"]
    stages = {
        "sample_s": batches * rates.sample.wall_s,
        "fetch_s": rows["device_s"] * rates.fetch.wall_s,
        "assemble_s": batches * rates.assemble.wall_s,
        "train_s": batches * rates.train.wall_s,
        "processor_s": (
            batches
            * (rates.sample.processor_s + rates.assemble.processor_s + rates.train.processor_s)
            + rows["device_s"] * rates.fetch.processor_s
        )
        / rates.cores,
    }
    groups = max(math.ceil(batches / max(counts["group"], 1)), 1)
    waiting = pipeline_seconds(
        groups,
        stages["sample_s"] / groups,
        stages["fetch_s"] / groups,
        (stages["assemble_s"] + stages["train_s"]) / groups,
        counts["look_ahead"],
    )
    # A topology on disk is read from the same device as the features.
    topology_s = (
        epoch["topology_requests"] * cost["seconds_per_request"]
        + epoch["topology_bytes"] * cost["seconds_per_byte"]
    )
    stages["device_s"] = stages["fetch_s"] + min(topology_s, stages["sample_s"])
    return {
        "seconds": max(waiting, stages["processor_s"], stages["device_s"]),
        "bottleneck": _bottleneck(stages),
        "hit_ratio": epoch["hit_ratio"],
        "rows_read": round(rows["misses"]),
        "requests": round(rows["requests"] + epoch["topology_requests"]),
        "bytes": round(rows["bytes"] + epoch["topology_bytes"]),
        **stages,
    }


def _bottleneck(stages: dict[str, float]) -> str:
    """Name of the resource with the longest expected time."""
    names = {
        "sample_s": "sampling",
        "device_s": "device",
        "assemble_s": "assembling",
        "train_s": "model",
        "processor_s": "processor",
    }
    return names[max(names, key=lambda name: stages[name])]


def pipeline_seconds(
    groups: int, sample_s: float, fetch_s: float, consume_s: float, look_ahead: int
) -> float:
    """Seconds of an epoch with `groups` groups, from the seconds per group of each stage.

    The fetch of a group starts when three conditions hold: the previous group is fetched,
    `look_ahead` further groups are sampled, and at most one other group is being consumed. Groups
    are consumed in order.

    Example:
        >>> pipeline_seconds(4, 1.0, 2.0, 0.5, look_ahead=1)
        10.5
    """
    fetched = [0.0] * groups
    consumed = [0.0] * groups
    for group in range(groups):
        sampled = sample_s * min(group + 1 + look_ahead, groups)
        before = fetched[group - 1] if group else 0.0
        held = consumed[group - _PINNED_GROUPS] if group >= _PINNED_GROUPS else 0.0
        fetched[group] = max(sampled, before, held) + fetch_s
        consumed[group] = max(fetched[group], consumed[group - 1] if group else 0.0) + consume_s
    return consumed[-1]
