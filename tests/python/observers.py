"""What tests watch runs by."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

from outercore.runs.progress import Observer


class StopAfter(Observer):
    """Does something once, after so many batches: asks to stop, or kills."""

    def __init__(self, batches: int, act: Callable[[], object]) -> None:
        self.left, self.act = batches, act

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        self.left -= 1
        if self.left == 0:
            self.act()


def terminate() -> None:
    """Sends this process the signal by which it is asked to end."""
    os.kill(os.getpid(), signal.SIGTERM)
