"""Signals that end a server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

from outercore.runs.stop import handled


@contextmanager
def stop_on_signals() -> Iterator[Event]:
    """An event that Ctrl-C and SIGTERM set while the block runs."""
    stop = Event()
    with handled(lambda _number, _frame: stop.set()):
        yield stop
