"""Signals that end a server."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event
from types import FrameType

from outercore.runs.stop import heeded


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set while the block runs."""
    stop = Event()

    def request(_number: int, _frame: FrameType | None) -> None:
        stop.set()

    numbers = heeded(signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, request) for number in numbers}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
