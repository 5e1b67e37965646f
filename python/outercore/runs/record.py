"""Run records in plain JSON: job, machine, costs and times."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from outercore.files.checked_json import read_json

FILE = "record.json"
"""Name of the record in a run's directory."""

EMBEDDING = "embedding"
"""Value of `job` in the record of an embedding."""

ALGORITHM = "algorithm"
"""Value of `job` in the record of a graph algorithm. The record of a training has no `job`."""


def machine() -> dict[str, Any]:
    """The machine, on which the times of a run depend in addition to its configuration."""
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "python": platform.python_version(),
    }


def opening(
    root: Path,
    config: Mapping[str, Any],
    description: Mapping[str, Any],
    data_set: Mapping[str, Any],
    device: str = "",
) -> dict[str, Any]:
    """The part of a record that is known before the work: configuration, data set and machine.

    Args:
        root: directory of the data set.
        config: the effective configuration.
        description: name, model and sizes of the run.
        data_set: facts about the data set, in addition to its path.
        device: the PyTorch device, if PyTorch computes.
    """
    where = machine()
    if device:
        import torch

        threads = torch.get_num_threads()
        where |= {"torch": torch.__version__, "threads": threads, "device": device}
    return {
        "description": description,
        "config": config,
        "data_set": {"path": str(root.resolve()), **data_set},
        "machine": where,
        "device_profile": device_profile(root),
    }


def peak_memory() -> int:
    """Peak resident memory of this process, in bytes."""
    # `getrusage` is only the fallback: a child process inherits the peak of its parent.
    with contextlib.suppress(OSError, ValueError):
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def device_profile(root: Path) -> dict[str, Any] | None:
    """The profile that `outercore probe` wrote for the device of `root`; `None` before a probe.

    Errors: `CorruptError` for a damaged profile.
    """
    path = Path(root) / "device.json"
    if not path.exists():
        return None
    return read_json(path, "device profile", hint="`outercore probe` writes it again")


_HIGHEST = ("queue_bytes",)
"""Counters that are maxima, not sums."""


def add(total: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """The sums of two nested sets of counters. Other values are taken from `more`.

    Example:
        >>> add({"reads": {"bytes": 4}}, {"reads": {"bytes": 3}, "name": "uring"})
        {'reads': {'bytes': 7}, 'name': 'uring'}
    """
    combined = dict(total)
    for key, value in more.items():
        before = total.get(key)
        if isinstance(value, Mapping):
            combined[key] = add(before if isinstance(before, Mapping) else {}, value)
        elif _is_number(value):
            counted = before if _is_number(before) else 0
            combined[key] = max(value, counted) if key in _HIGHEST else value + counted
        else:
            combined[key] = value
    return combined


def hit_ratio(counters: Mapping[str, Any]) -> float | None:
    """Share of row accesses without a read; `None` without row accesses."""
    cache = counters.get("cache") or {}
    accesses = cache.get("accesses", 0)
    return 1 - cache.get("misses", 0) / accesses if accesses else None


def bytes_read(counters: Mapping[str, Any]) -> int:
    """Bytes read from the device, including gaps and alignment."""
    parts = ("feature_reads", "topology_reads")
    return sum(int((counters.get(part) or {}).get("bytes", 0)) for part in parts)


def bytes_by_tier(counters: Mapping[str, Any]) -> dict[str, int]:
    """Bytes of edges that an algorithm's passes took from `memory`, `disk` and (if any) `far`.

    Example:
        >>> bytes_by_tier({"reads": {"bytes": 7}, "pinned_bytes": 4, "far": {"far_bytes": 5}})
        {'memory': 4, 'disk': 2, 'far': 5}
    """
    far = counters.get("far") or {}
    arrived = int((counters.get("reads") or {}).get("bytes", 0))
    from_far = int(far.get("far_bytes", 0))
    sizes = {
        "memory": int(counters.get("pinned_bytes", 0)),
        "disk": max(arrived - from_far, 0),
    }
    return {**sizes, "far": from_far} if far else sizes


def far_share(counters: Mapping[str, Any]) -> float | None:
    """Share of the bytes read that came from far memory; `None` without far memory or reads."""
    far = counters.get("far") or {}
    near, distant = far.get("disk_bytes", 0), far.get("far_bytes", 0)
    return distant / (near + distant) if near + distant else None


def stages(counters: Mapping[str, Any]) -> dict[str, Mapping[str, float]]:
    """The counters of the pipeline's stages by name, in the order of the pipeline."""
    return {
        name: value
        for name, value in counters.items()
        if isinstance(value, Mapping) and "busy_s" in value
    }


class Timeline:
    """Spans of a run, in seconds since its start. An interrupted run continues its clock."""

    def __init__(self, spans: list[dict[str, Any]]) -> None:
        self.spans = spans
        elapsed = max((span["end_s"] for span in spans), default=0.0)
        self._zero = time.monotonic() - elapsed

    def now(self) -> float:
        """Seconds since the start of the run, without interruptions."""
        return time.monotonic() - self._zero

    @contextmanager
    def span(self, name: str, **details: Any) -> Iterator[None]:
        """Records the block as a span, even if it ends with an error."""
        start = self.now()
        try:
            yield
        finally:
            end = self.now()
            self.spans.append({"name": name, "start_s": start, "end_s": end, **details})


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())
