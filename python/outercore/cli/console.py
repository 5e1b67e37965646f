"""Output of the command line: data on stdout, everything else on stderr."""

from __future__ import annotations

import json
import math
import os
import re
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import groupby
from operator import itemgetter
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import Progress, ProgressColumn, SpinnerColumn, Task
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from outercore.base.display import value_of, words
from outercore.base.sizes import format_size
from outercore.files.atomic import device_errors

_WIDEST = 80
"""Columns of a line of sentences."""
_UNLIMITED = 1 << 20
"""Columns of output that does not go to a terminal."""
_WORDS = re.compile(r"(\s*)((?:`[^`]*`|[^\s`]|`)+)")
"""Words with the spaces before them; a command in backticks is one word."""
_PARTS = re.compile(r"(\s*)(\S+(?: \S+)*)")
"""Parts of a value, two spaces apart, with the spaces before them."""
_LEAST_BAR, _MOST_BAR = 8, 24
_LEAST_NAME = 8
_SPINNER = 2
"""Columns that the line leaves to the spinner before it."""
_GAP = "  "
"""Between parts of a line."""

_stdout = Console(highlight=False, soft_wrap=True)
_stderr = Console(stderr=True, highlight=False)


@contextmanager
def _flushed() -> Iterator[None]:
    """Flushes standard output at the end of the block.

    Without that a crash would lose the buffer, and a full device would be noticed too late for a
    message.

    Errors: `NoSpaceError`, `DeviceError`; `BrokenPipeError` if the reader has closed the output.
    """
    try:
        yield
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        _forget_output()
        with device_errors("standard output"):
            raise error


def _forget_output() -> None:
    """Keeps Python from writing the failed output again when it ends."""
    with suppress(OSError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


def data(text: str) -> None:
    """One line of output that a script may read."""
    with _flushed():
        _stdout.print(_broken(_stdout, text), markup=False)


def json_data(value: Any, *, indent: int | None = 1) -> None:
    """The output as JSON, for `--json`; without `indent` one line of an output that continues.

    A number that is not finite is `null`.
    """
    with _flushed():
        sys.stdout.write(json.dumps(_finite(value), indent=indent, allow_nan=False) + "\n")


def _finite(value: Any) -> Any:
    """The value with `None` for infinities and NaN, which JSON lacks."""
    match value:
        case float() if not math.isfinite(value):
            return None
        case Mapping():
            return {key: _finite(part) for key, part in value.items()}
        case list() | tuple():
            return [_finite(part) for part in value]
    return value


def table(title: str, rows: Sequence[tuple[str, str]]) -> None:
    """Names and values, aligned, one a line.

    On a narrow terminal the parts of a value, two spaces apart, continue below each other.
    """
    width = max((len(name) for name, _ in rows), default=0)
    indent = " " * (width + 4)
    with _flushed():
        _stdout.print(_broken(_stdout, title), style="bold", markup=False)
        for name, value in rows:
            lines = _broken(_stdout, indent + value, _PARTS)[len(indent) :]
            _stdout.print(Text.assemble(("  " + name.ljust(width + 2), "dim"), lines))


def result(
    value: Any, title: str, rows: Sequence[tuple[str, str]] | None = None, *, as_json: bool
) -> None:
    """The whole output of a command: `value` for `--json`, else a table, or a line without rows."""
    if as_json:
        json_data(value)
    elif rows is None:
        data(title)
    else:
        table(title, rows)


Cells = Mapping[str, Callable[[Any], str]]
"""Heads of columns, each with the function that formats a record."""


def cells_of(names: Iterable[str]) -> Cells:
    """Columns that show values of records by their names."""
    return {
        words(name): lambda record, name=name: value_of(name, record[name])  # type: ignore[misc]
        for name in names
    }


def columns(
    records: Iterable[Any],
    cells: Cells,
    *,
    by: Callable[[Any], Any] = lambda _: None,
    style: Callable[[Any], str] = lambda _: "",
) -> None:
    """Prints a row for each record; records with the same `by` form a section.

    A narrow terminal cuts values; a pipe does not.
    """
    grid = Table(*cells, box=box.SIMPLE_HEAD, padding=(0, 1), pad_edge=False)
    for column in grid.columns:
        column.no_wrap = True
        column.justify = "right"
    grid.columns[0].justify = "left"
    for _, section in groupby(records, key=by):
        for record in section:
            grid.add_row(*(cell(record) for cell in cells.values()), style=style(record))
        grid.add_section()
    data("")
    with _flushed():
        width = None if _stdout.is_terminal else _UNLIMITED
        Console(highlight=False, width=width).print(grid)


def points(
    measured: Sequence[Mapping[str, Any]],
    cells: Cells,
    *,
    by: str,
    best: str,
    mark: Callable[[Any], str] = lambda _: "peak",
) -> None:
    """Prints points in sections of the same `by`; the point with the highest `best` is marked."""
    sections = groupby(measured, key=itemgetter(by))
    peaks = [max(section, key=itemgetter(best)) for _, section in sections]
    marked = {**cells, "": lambda point: mark(point) if point in peaks else ""}
    style = lambda point: "bold" if point in peaks else ""  # noqa: E731
    columns(measured, marked, by=itemgetter(by), style=style)


def note(text: str) -> None:
    """Prints a note on stderr."""
    _stderr.print(_broken(_stderr, text), markup=False, soft_wrap=True)


def _broken(console: Console, text: str, words: re.Pattern[str] = _WORDS) -> str:
    """Breaks sentences into lines that fit the terminal; other output keeps one line each.

    A command in backticks stays whole, so that a user can copy it.
    """
    if not console.is_terminal:
        return text
    return "\n".join(_lines(text, min(console.width, _WIDEST), words))


def _lines(text: str, width: int, words: re.Pattern[str]) -> Iterator[str]:
    """The lines of a text: at most `width` columns, unless a word is longer."""
    for whole in text.split("\n"):
        line = ""
        for space, word in words.findall(whole):
            if line.strip() and len(line) + len(space) + len(word) > width:
                yield line
                space, line = whole[: len(whole) - len(whole.lstrip())], ""
            line += space + word
        yield line


def facts(needed: Sequence[str], more: Sequence[str], last: str) -> None:
    """Prints one line of parts; a terminal shows only as many of `more` as fit."""
    width = _stderr.width if _stderr.is_terminal else sys.maxsize
    parts = [*needed, *more]
    while len(parts) > len(needed) and len(_GAP.join([*parts, last])) > width:
        parts.pop()
    _stderr.print(_GAP.join([*parts, last]), markup=False, soft_wrap=True)


def error(message: str) -> None:
    """Prints an error and its next step, the line `hint: `."""
    _with_hint("error: ", "bold red", message)


def stopped(message: str) -> None:
    """Prints that a command stopped early, and how to continue."""
    _with_hint("stopped: ", "bold yellow", message.removeprefix("stopped "))


def _with_hint(label: str, style: str, message: str) -> None:
    first, _, hint = message.partition("\nhint: ")
    _labelled(label, style, first)
    if hint:
        _labelled("hint: ", "bold cyan", hint)


def _labelled(label: str, style: str, text: str) -> None:
    styled = Text(_broken(_stderr, label + text))
    styled.stylize(style, 0, len(label))
    _stderr.print(styled, soft_wrap=True)


def crash(problem: BaseException) -> None:
    """Prints a bug with its traceback."""
    lines = traceback.format_exception(problem)
    _stderr.print("".join(lines), markup=False, style="dim", soft_wrap=True)
    error(
        f"internal error: {type(problem).__name__}: {problem}\n"
        "hint: please report it with the lines above and the command"
    )


def lost(far: Mapping[str, Any]) -> str:
    """A sentence on the reads from a memory server that failed."""
    return (
        f"{far['lost']}; {far['failed_over']:,} reads were made again, and all later ones went to "
        "the disk"
    )


class ProgressLine(ProgressColumn):
    """The line of a task, with as many parts of its field `status` as fit."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def render(self, task: Task) -> Table:
        """The line, never wider than the terminal."""
        room = self._console.width - _SPINNER
        name, bar, counts = fitted(task.description, _counts(task), task.fields["status"], room)
        line = Table.grid(padding=(0, 1))
        # Without a known total a bar shows no more than the spinner.
        cells: list[RenderableType] = [Text(name), Text(counts)]
        if bar and task.total:
            drawn = ProgressBar(total=task.total, completed=task.completed, width=bar)
            cells.insert(1, drawn)
        for _ in cells:
            line.add_column(no_wrap=True)
        line.add_row(*cells)
        return line


def fitted(name: str, counts: str, status: Sequence[str], room: int) -> tuple[str, int, str]:
    """Name, width of the bar, and counts with as many parts of the status as fit into `room`.

    The counts always stay whole. A bar that does not fit has the width 0.

    Example:
        >>> fitted("epoch 1", "3 / 8 batches", ["loss 0.12"], 44)
        ('epoch 1', 11, '3 / 8 batches  loss 0.12')
        >>> fitted("a name of many words", "3 / 8 batches", ["loss 0.12"], 40)
        ('a name of many w…', 8, '3 / 8 batches')
    """
    left = room - cell_len(counts) - _LEAST_BAR - 2
    if cell_len(name) > left:
        cut = Text(name)
        cut.truncate(max(left, _LEAST_NAME), overflow="ellipsis")
        name = cut.plain
    left -= cell_len(name)
    for part in status:
        if (width := cell_len(_GAP + part)) > left:
            break
        counts, left = counts + _GAP + part, left - width
    return name, 0 if left < 0 else min(_LEAST_BAR + left, _MOST_BAR), counts


def _counts(task: Task) -> str:
    """The amount that is done, the rate, and the time left or taken."""
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
    return _GAP.join(parts)


def _amount(count: float, unit: str) -> str:
    return format_size(int(count)) if unit == "bytes" else f"{count:,.0f}"


def _rate(speed: float, unit: str) -> str:
    return f"{speed:.2g}" if speed < 10 and unit != "bytes" else _amount(speed, unit)


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


class Bars:
    """Progress bars on stderr, one for each phase of a long task."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._tasks: dict[str, Any] = {}

    def __call__(
        self, phase: str, done: int, total: int, unit: str, status: Sequence[str] = ()
    ) -> None:
        """Updates the bar of a phase; shows as many parts of `status` as fit."""
        if phase not in self._tasks:
            for task in self._tasks.values():
                self._progress.stop_task(task)
            self._tasks[phase] = self._progress.add_task(
                phase, total=total or None, completed=done, unit=unit, status=status
            )
        self._progress.update(
            self._tasks[phase], completed=done, total=total or None, unit=unit, status=status
        )

    def clear(self) -> None:
        """Removes all bars."""
        for task in self._tasks.values():
            self._progress.remove_task(task)
        self._tasks.clear()


@contextmanager
def bars(*, quiet: bool = False) -> Iterator[Bars]:
    """Progress bars while the block runs, if stderr is a terminal."""
    progress = Progress(
        SpinnerColumn(),
        ProgressLine(_stderr),
        console=_stderr,
        disable=quiet or not _stderr.is_terminal,
        # A faster display would take time from short batches.
        refresh_per_second=5,
    )
    with progress:
        yield Bars(progress)
