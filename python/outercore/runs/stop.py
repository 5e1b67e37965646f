"""Ctrl-C and SIGTERM as a request, which training answers between two batches, a server at once."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType

from outercore.errors import InterruptError


class StopRequest:
    """Set once, by anyone; whoever works checks it between two pieces of work."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def requested(self) -> bool:
        """Whether somebody asked to stop."""
        return self._event.is_set()

    def request(self) -> None:
        """Asks to stop."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Waits so long for a request; whether there is one."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raises `InterruptError` if somebody asked to stop."""
        if self.requested:
            raise InterruptError("stopped on request")


@contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Within the block the first SIGINT or SIGTERM is a request, a second one ends at once.

    A signal that the process was started to ignore stays ignored, as a shell expects of commands in
    the background. Does nothing outside the main thread, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def handle(number: int, frame: FrameType | None) -> None:
        if stop.requested:
            raise KeyboardInterrupt
        stop.request()

    with handled(handle):
        yield


@contextmanager
def handled(handler: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    """Within the block `handler` gets SIGINT and SIGTERM, but not one that was ignored before."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)
