"""Observers of runs, for tests."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from outercore.runs.progress import Observer


class StopAfter(Observer):
    """Calls `act` once after a number of batches, for example to stop or to kill the run."""

    def __init__(self, batches: int, act: Callable[[], object]) -> None:
        self.left, self.act = batches, act

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


def terminate() -> None:
    """Sends SIGTERM to this process."""
    os.kill(os.getpid(), signal.SIGTERM)
