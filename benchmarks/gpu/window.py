"""Profile a few steps of a run: kernels, host waits, copies, busy time."""

from __future__ import annotations

import json
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from outercore.runs.progress import Observer

_WARM_UP = 3
"""Profiled steps that do not count, because the first ones are slow."""
_WAITS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")


class Window(Observer):
    """Profiles `steps` batches of a run from batch `first` on. The result is in `found`.

    In the same number of batches after them, PyTorch reports the lines of code that wait for the
    device.
    """

    def __init__(self, scratch: Path, first: int, steps: int) -> None:
        self._trace, self._first, self._steps = scratch / "trace.json", first, steps
        self._count = 0
        self._profiler: Any = None
        self._started = 0.0
        self._waits: Counter[str] = Counter()
        self.found: dict[str, Any] = {}

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        """As in `Observer`."""
        self._count += 1
        cuda = torch.cuda.is_available()
        begin, end = self._first + _WARM_UP, self._first + _WARM_UP + self._steps
        if self._count == self._first:
            kinds = [torch.profiler.ProfilerActivity.CPU]
            kinds += [torch.profiler.ProfilerActivity.CUDA] if cuda else []
            self._profiler = torch.profiler.profile(
                activities=kinds,
                schedule=torch.profiler.schedule(
                    wait=0, warmup=_WARM_UP, active=self._steps, repeat=1
                ),
                on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(self._trace)),
            )
            self._profiler.start()
        elif self._first < self._count <= end:
            if self._count in (begin, end) and cuda:
                torch.cuda.synchronize()
            now = time.perf_counter()
            if self._count == begin:
                self._started = now
            if self._count == end:
                self.found = {"seconds": (now - self._started) / self._steps}
            self._profiler.step()
            if self._count == end:
                self._profiler.stop()
                events = json.loads(self._trace.read_text())["traceEvents"]
                seconds = self.found["seconds"] * self._steps
                self.found |= per_step(events, self._steps, seconds)
                if cuda:
                    self._watch_waits()
        elif self._count == end + self._steps and cuda:
            torch.cuda.set_sync_debug_mode("default")
            warnings.showwarning = self._before
            lines = {line: count / self._steps for line, count in self._waits.most_common(30)}
            self.found["lines_that_wait"] = lines

    def _watch_waits(self) -> None:
        self._before = warnings.showwarning
        warnings.resetwarnings()
        warnings.simplefilter("always")

        def seen(message: Any, category: Any, filename: str, line: int, *_: Any) -> None:
            if "synchronizing" in str(message):
                self._waits["/".join(Path(filename).parts[-3:]) + f":{line}"] += 1

        warnings.showwarning = seen
        torch.cuda.set_sync_debug_mode("warn")


def per_step(events: list[dict[str, Any]], steps: int, seconds: float) -> dict[str, Any]:
    """Counts and seconds per step: means over a trace of `steps` steps and `seconds`."""
    complete = [event for event in events if event.get("ph") == "X"]
    kernels = [event for event in complete if event.get("cat") == "kernel"]
    copies = [event for event in complete if event.get("cat") == "gpu_memcpy"]
    calls = [event for event in complete if event.get("cat") in ("cuda_runtime", "cuda_driver")]
    waits = [event for event in calls if event["name"] in _WAITS]
    moved: Counter[str] = Counter()
    times: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    for event in copies:
        moved[event["name"]] += event["args"].get("bytes", 0)
        times[event["name"]] += event["dur"]
        counts[event["name"]] += 1
    return {
        "kernels": len(kernels) / steps,
        "operations": sum(event.get("cat") == "cpu_op" for event in complete) / steps,
        "host_waits": len(waits) / steps,
        "host_waits_s": sum(event["dur"] for event in waits) / 1e6 / steps,
        "copies": {
            name: {
                "count": counts[name] / steps,
                "bytes": moved[name] / steps,
                "seconds": times[name] / 1e6 / steps,
            }
            for name in moved
        },
        "kernels_share": _covered(kernels) / seconds if seconds else 0.0,
        "copies_share": _covered(copies) / seconds if seconds else 0.0,
        "longest_kernels_s": _longest(kernels, steps),
    }


def _covered(events: list[dict[str, Any]]) -> float:
    """Seconds in which at least one of the events is active."""
    total, until = 0.0, float("-inf")
    for start, stop in sorted((event["ts"], event["ts"] + event["dur"]) for event in events):
        total += max(0.0, stop - max(start, until))
        until = max(until, stop)
    return total / 1e6


def _longest(kernels: list[dict[str, Any]], steps: int) -> dict[str, float]:
    sums: Counter[str] = Counter()
    for event in kernels:
        sums[event["name"][:90]] += event["dur"]
    return {name: micros / 1e6 / steps for name, micros in sums.most_common(8)}
