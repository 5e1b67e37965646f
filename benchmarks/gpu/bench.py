"""Shared by the parts: sizes, the device, timing, and the file with their results."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

_LEAST_S = 0.01
"""Least seconds of a measurement: shorter work is repeated."""


@dataclass
class Bench:
    """The run of one part. Each result goes to disk at once, so it survives if the part is
    stopped."""

    work: Path
    """Where data sets and runs are."""
    result: Path
    small: bool
    values: dict[str, Any] = field(default_factory=dict)
    checks: list[dict[str, Any]] = field(default_factory=list)

    @property
    def device(self) -> str:
        """`cuda` if there is a GPU, otherwise `cpu`."""
        return "cuda" if torch.cuda.is_available() else "cpu"

    def pick(self, large: Any, small: Any) -> Any:
        """The size for this run."""
        return small if self.small else large

    def keep(self, name: str, value: Any) -> None:
        """Stores a value or a table under a name."""
        self.values[name] = value
        self._write()

    def check(self, what: str, right: bool, found: Any = None) -> None:
        """Stores whether a result is right. The part continues if it is not."""
        self.checks.append({"what": what, "right": bool(right), "found": found})
        self._write()

    def seconds(self, work: Callable[[], Any], repeats: int = 5) -> float:
        """Median seconds of `work`, including its work on the device."""
        if self.small:
            repeats = 1
        once = self._timed(work, 1)
        times = max(1, min(200, int(_LEAST_S / max(once, 1e-6))))
        return statistics.median(self._timed(work, times) for _ in range(repeats))

    def wait(self) -> None:
        """Waits for the device."""
        if self.device == "cuda":
            torch.cuda.synchronize()

    def _timed(self, work: Callable[[], Any], times: int) -> float:
        self.wait()
        started = time.perf_counter()
        for _ in range(times):
            work()
        self.wait()
        return (time.perf_counter() - started) / times

    def _write(self) -> None:
        whole = {"values": self.values, "checks": self.checks}
        partial = self.result.with_suffix(".partial")
        partial.write_text(json.dumps(whole))
        partial.replace(self.result)
