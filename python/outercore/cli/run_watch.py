"""What everybody sees of a long run: one bar and lines on stderr."""

from __future__ import annotations

import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from rich.progress import Progress, ProgressColumn, TaskID, TextColumn

from outercore.cli import console

if TYPE_CHECKING:
    from typing_extensions import Self

_REFRESH_S = 0.2


class RunWatch:
    """A bar that comes and goes, and lines beside it; a context manager.

    `count` is the column that says how far the bar is. Quiet, nothing is shown.
    """

    def __init__(self, count: ProgressColumn, *, quiet: bool = False) -> None:
        self._count = count
        self._quiet = quiet
        self._stack = ExitStack()
        self._progress: Progress
        self._bar: TaskID | None = None
        self._title = ""
        self._shown = 0.0
        self._began = 0.0

    def __enter__(self) -> Self:
        columns = (self._count, TextColumn("{task.fields[status]}"))
        self._progress = self._stack.enter_context(console.progress(*columns, quiet=self._quiet))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def note(self, message: str) -> None:
        """A line of its own; a warning is shown also where nothing else is."""
        if message.startswith("warning: "):
            console.note(message)
        else:
            self._say(f"note: {message}")

    def finished(self, result: dict[str, Any]) -> None:
        """The bars are over."""
        self._clear()

    def _start(self, title: str, total: int, done: int) -> None:
        """A new bar instead of the one before."""
        self._clear()
        self._bar = self._progress.add_task(title, total=total, completed=done, status="")
        self._title = title
        self._began = time.monotonic()

    def _advance(self, count: int = 1) -> None:
        if self._bar is not None:
            self._progress.advance(self._bar, count)

    def _reach(self, title: str, done: int, total: int) -> None:
        """The bar of that title is so far; a new one if there is another, or none."""
        if self._bar is None or self._title != title:
            self._start(title, total, done)
        else:
            self._progress.update(self._bar, completed=done)

    def _due(self) -> bool:
        """Whether the bar's text is old enough to be written anew."""
        now = time.monotonic()
        if self._bar is None or now - self._shown < _REFRESH_S:
            return False
        self._shown = now
        return True

    def _status(self, parts: list[str]) -> None:
        if self._bar is not None:
            self._progress.update(self._bar, status="  ".join(parts))

    def _rate(self, count: int) -> float:
        """So many since the bar began, a second."""
        return count / max(time.monotonic() - self._began, 1e-9)

    def _clear(self) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
            self._bar = None

    def _say(self, text: str) -> None:
        if not self._quiet:
            console.note(text)
