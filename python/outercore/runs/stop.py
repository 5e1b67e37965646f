"""Stop requests by Ctrl-C, SIGTERM and SIGHUP.

Training stops between two batches, a server immediately.
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
"""Further signals that end a process: from `kill`, and from a closed terminal."""
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
        """Requests a stop."""
        self._event.set()

    def wait(self, seconds: float) -> bool:
        """Waits for a request, at most `seconds`. Returns whether a stop was requested."""
        return self._event.wait(seconds)

    def check(self) -> None:
        """Raises `InterruptError` if a stop was requested."""
        if self.requested:
            raise InterruptError("stopped on request")


@contextmanager
def stop_on_signals(stop: StopRequest) -> Iterator[None]:
    """Context in which the first SIGINT, SIGTERM or SIGHUP requests a stop.

    A second signal raises `KeyboardInterrupt`. Signals that the process ignores from its start stay
    ignored, as shells expect of background commands. Does nothing outside the main thread, because
    Python delivers signals only there.
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
    """Context in which SIGTERM and SIGHUP raise `KeyboardInterrupt`, like Ctrl-C.

    So a stopped command removes its temporary files. Does nothing outside the main thread, because
    Python delivers signals only there.
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
    """Context in which `handler` receives these signals.

    Signals that were ignored before stay ignored: `nohup` ignores SIGHUP.
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
    """Redirects output to a closed terminal to nowhere.

    A failed write would end the command before it has saved its state.
    """
    for descriptor in _OUTPUTS:
        try:
            os.write(descriptor, b"")
        except OSError:
            with suppress(OSError):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
