"""Ctrl-C, SIGTERM and SIGHUP as a request to stop.

Training answers it between two batches, a server at once.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from outercore.errors import InterruptError

Handler = Callable[[int, FrameType | None], None]

_ENDING = (signal.SIGTERM, signal.SIGHUP)
"""What else than Ctrl-C asks a process to end: `kill`, and a terminal that is closed."""
_OUTPUTS = (1, 2)


class StopRequest:
    """Stop flag. Any thread may set it; the worker checks it between steps."""

    def __init__(self) -> None:
        self._event = threading.Event()

    @property
    def requested(self) -> bool:
        """Whether a stop was requested."""
        return self._event.is_set()

    def request(self) -> None:
        """Asks to stop."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Waits so long for a request; whether there is one."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raises `InterruptError` if a stop was requested."""
        if self.requested:
            raise InterruptError("stopped on request")


@contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Within the block the first SIGINT, SIGTERM or SIGHUP is a request, a second one ends at once.

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
def terminate_like_interrupt() -> Iterator[None]:
    """Within the block SIGTERM and SIGHUP raise `KeyboardInterrupt` as Ctrl-C does.

    So a stopped command removes its temporary files. Does nothing outside the main
    thread, where Python delivers no signals.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    with handled(signal.default_int_handler, _ENDING):
        yield


@contextmanager
def handled(
    handler: Handler, numbers: tuple[signal.Signals, ...] = (signal.SIGINT, *_ENDING)
) -> Iterator[None]:
    """Within the block `handler` gets these signals, but not one that was ignored before.

    `nohup` ignores SIGHUP.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGHUP:
            _leave_terminal()
        handler(number, frame)

    heeded = [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, handle) for number in heeded}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


def _leave_terminal() -> None:
    """Lets outputs to a closed terminal go nowhere.

    A line that cannot be written would end the command before its state is saved.
    """
    for descriptor in _OUTPUTS:
        try:
            os.write(descriptor, b"")
        except OSError:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
