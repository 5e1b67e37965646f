"""Forecast of an epoch: the core simulates its reads, this module times each stage."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from threading import Thread
from typing import Any

from outercore import _core

_STEPS_S = 1.0
"""Seconds for measuring training steps, after the first step."""
_FEWEST_STEPS, _MOST_STEPS = 3, 8
_SPIN_S = 0.05
"""Seconds for measuring how many cores are available to threads of this process."""
_FEWEST_CORES = 0.1
Cost = dict[str, float]
"""Seconds of a stage per batch without other load: `wall_s`, and `processor_s` of all cores."""
Step = Callable[[Any], object]


def forecast(core: Any, batch: Callable[[], Any], step: Step | None) -> dict[str, Any]:
    """Makes the forecast of `MiniBatches.forecast`. `batch` assembles the core's current batch."""
    began, used = time.perf_counter(), time.process_time()
    reads = core.forecast()
    used = time.process_time() - used
    sample = _cost(reads["sample_s_per_batch"], used / max(reads["traced"], 1))
    expected = _core.expected_epochs(reads, _measured(core, batch, step, sample))
    return {**expected, "took_s": time.perf_counter() - began}


def _measured(
    core: Any, batch: Callable[[], Any], step: Step | None, sample: Cost
) -> dict[str, Any]:
    """Measures the stages one after the other, on a few batches."""
    core.take_counters()
    used = time.process_time()
    core.start_trial()
    try:
        has_batch = core.advance()
        used = time.process_time() - used
        counted = core.take_counters()["counters"]
        batches = max(counted["fetch"]["items"], counted["sample"]["items"], 1)
        assemble, train = _consumed(core, batch, step, batches) if has_batch else (_cost(), _cost())
    finally:
        core.stop()
        core.take_counters()
    fetching = max(used - batches * sample["processor_s"], 0.0)
    return {
        "sample": sample,
        "fetch": _cost(counted["fetch"]["busy_s"], fetching),
        "requests": counted["feature_reads"]["requests"],
        "bytes": counted["feature_reads"]["bytes"],
        "assemble": assemble,
        "train": train,
        "cores": _cores(),
    }


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
    core: Any, batch: Callable[[], Any], step: Step | None, batches: int
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


def _cost(wall_s: float = 0.0, processor_s: float = 0.0) -> Cost:
    return {"wall_s": wall_s, "processor_s": processor_s}


def _timed(work: Callable[[], Any]) -> tuple[Any, Cost]:
    wall, used = time.perf_counter(), time.process_time()
    done = work()
    return done, _cost(time.perf_counter() - wall, time.process_time() - used)


def _mean(costs: list[Cost]) -> Cost:
    return {name: sum(cost[name] for cost in costs) / max(len(costs), 1) for name in _cost()}
