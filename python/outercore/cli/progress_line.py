"""A progress bar as one line that fits the terminal: name, bar, count, rate, time left."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import ProgressColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outercore.base.sizes import format_size

_LEAST_BAR, _MOST_BAR = 8, 24
_LEAST_NAME = 8
_SPINNER = 2
"""Columns that the line leaves to the spinner before it."""
GAP = "  "
"""Between parts of a line."""


class ProgressLine(ProgressColumn):
    """The line of a task; what is in its field `status` is added as far as there is room."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def render(self, task: Task) -> Table:
        """The line, never wider than the terminal."""
        room = self._console.width - _SPINNER
        name, bar, figures = fitted(task.description, _figures(task), task.fields["status"], room)
        line = Table.grid(padding=(0, 1))
        # A bar that knows no end says nothing that the spinner does not.
        cells: list[RenderableType] = [Text(name), Text(figures)]
        if bar and task.total:
            drawn = ProgressBar(total=task.total, completed=task.completed, width=bar)
            cells.insert(1, drawn)
        for _ in cells:
            line.add_column(no_wrap=True)
        line.add_row(*cells)
        return line


def fitted(name: str, figures: str, status: Sequence[str], room: int) -> tuple[str, int, str]:
    """Name, width of the bar, and figures with as much of the status as fits into `room` columns.

    The figures always stay whole. A bar without room has the width 0.

    Example:
        >>> fitted("epoch 1", "3 / 8 batches", ["loss 0.12"], 44)
        ('epoch 1', 11, '3 / 8 batches  loss 0.12')
        >>> fitted("a name of many words", "3 / 8 batches", ["loss 0.12"], 40)
        ('a name of many w…', 8, '3 / 8 batches')
    """
    left = room - cell_len(figures) - _LEAST_BAR - 2
    if cell_len(name) > left:
        shown = Text(name)
        shown.truncate(max(left, _LEAST_NAME), overflow="ellipsis")
        name = shown.plain
    left -= cell_len(name)
    for part in status:
        if (width := cell_len(GAP + part)) > left:
            break
        figures, left = figures + GAP + part, left - width
    return name, 0 if left < 0 else min(_LEAST_BAR + left, _MOST_BAR), figures


def _figures(task: Task) -> str:
    """How much is done, how fast it goes, and how long it will take or has taken."""
    unit = task.fields["unit"]
    done = _amount(task.completed, unit)
    parts = [f"{done} / {_amount(task.total, unit)}" if task.total else done]
    parts[0] += "" if unit in ("bytes", "") else f" {unit}"
    speed = task.finished_speed or task.speed
    if speed:
        parts.append(f"{_rate(speed, unit)}/s")
    if task.finished or not task.total:
        parts.append(_clock(task.finished_time or task.elapsed or 0))
    elif task.time_remaining is not None:
        parts.append(f"{_clock(task.time_remaining)} left")
    return GAP.join(parts)


def _amount(count: float, unit: str) -> str:
    return format_size(int(count)) if unit == "bytes" else f"{count:,.0f}"


def _rate(speed: float, unit: str) -> str:
    return f"{speed:.2g}" if speed < 10 and unit != "bytes" else _amount(speed, unit)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
