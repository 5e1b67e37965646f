"""What people see of a long run: one bar, and one line an epoch, on stderr."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rich.progress import ProgressColumn, TaskID, TextColumn

from outercore.cli import console
from outercore.runs.progress import Observer

if TYPE_CHECKING:
    from rich.progress import Progress
    from typing_extensions import Self

_REFRESH_S = 0.2


class RunWatch(Observer):
    """A bar that comes and goes, and lines beside it; a context manager.

    `count` is the column that says how far the bar is, and `unit` what batches consist of. Quiet,
    nothing is shown.
    """

    def __init__(self, count: ProgressColumn, unit: str, *, quiet: bool = False) -> None:
        self._count = count
        self._unit = unit
        self._quiet = quiet
        self._stack = ExitStack()
        self._progress: Progress
        self._bar: TaskID | None = None
        self._title = ""
        self._shown = 0.0
        self._began = 0.0
        self._trained = 0
        self._loss = 0.0

    def __enter__(self) -> Self:
        columns = (self._count, TextColumn("{task.fields[status]}"))
        self._progress = self._stack.enter_context(console.progress(*columns, quiet=self._quiet))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def preparing(self, what: str, done: int, total: int, unit: str) -> None:
        """A bar of its own."""
        if self._bar is None or self._title != what:
            self._start(what, total, done)
        else:
            self._progress.update(self._bar, completed=done)

    def epoch_started(self, epoch: int, total: int, done: int) -> None:
        """A new bar."""
        self._start(f"epoch {epoch + 1}", total, done)
        self._trained, self._loss = 0, 0.0

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        """Loss, throughput and more about the epoch so far."""
        self._trained += count
        self._loss += loss * count
        if self._is_due():
            rate = self._trained / max(time.monotonic() - self._began, 1e-9)
            parts = [f"loss {self._loss / self._trained:.4f}", f"{rate:,.0f} {self._unit}/s"]
            self._update(status="  ".join([*parts, *self._more(counters)]))

    def evaluation_started(self, what: str, total: int, done: int) -> None:
        """A new bar."""
        self._start(what, total, done)

    def evaluation_advanced(self, count: int) -> None:
        """The bar moves on."""
        self._advance(count)

    def note(self, message: str) -> None:
        """A line of its own; a warning is shown also where nothing else is."""
        if message.startswith("warning: "):
            console.note(message)
        else:
            self._say(f"note: {message}")

    def finished(self, result: dict[str, Any]) -> None:
        """The bars are over."""
        self._clear()

    def _more(self, counters: dict[str, Any]) -> list[str]:
        """What else to say of an epoch under way."""
        return []

    def _start(self, title: str, total: int, done: int) -> None:
        """A new bar instead of the one before."""
        self._clear()
        self._bar = self._progress.add_task(title, total=total, completed=done, status="")
        self._title = title
        self._began = time.monotonic()

    def _advance(self, count: int = 1) -> None:
        if self._bar is not None:
            self._progress.advance(self._bar, count)

    def _update(self, **fields: Any) -> None:
        if self._bar is not None:
            self._progress.update(self._bar, **fields)

    def _is_due(self) -> bool:
        """Whether the bar's text is old enough to be written anew."""
        now = time.monotonic()
        if self._bar is None or now - self._shown < _REFRESH_S:
            return False
        self._shown = now
        return True

    def _clear(self) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
            self._bar = None

    def _say(self, text: str) -> None:
        if not self._quiet:
            console.note(text)
