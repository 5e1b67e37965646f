"""Progress of a training or an embedding on stderr: one bar, and one line an epoch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from outercore.base.sizes import format_size
from outercore.cli import console
from outercore.runs import record as records
from outercore.runs.progress import Observer

if TYPE_CHECKING:
    from typing_extensions import Self

_REFRESH_S = 0.2


class _Watch(Observer):
    """A bar for the current phase, and a line for each epoch; a context manager.

    Batches consist of a `unit`, and an epoch of `steps`. A `quiet` watch shows only warnings.
    """

    def __init__(self, unit: str, steps: str, *, quiet: bool = False) -> None:
        self._unit = unit
        self._steps = steps
        self._quiet = quiet
        self._stack = ExitStack()
        self._bars: console.Bars
        self._bar = ("", 0, "")
        self._shown = 0.0
        self._done = 0
        self._trained = 0
        self._loss = 0.0
        self._lost = False

    def __enter__(self) -> Self:
        self._bars = self._stack.enter_context(console.bars(quiet=self._quiet))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def preparing(self, what: str, done: int, total: int, unit: str) -> None:
        self._bars(what, done, total, unit)

    def resumed(self, epoch: int, done: int) -> None:
        self._say(f"resumed in epoch {epoch + 1} after {done:,} {self._steps}")

    def epoch_started(self, epoch: int, total: int, done: int) -> None:
        self._start(f"epoch {epoch + 1}", total, done, self._steps)
        self._trained, self._loss = 0, 0.0

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        """Updates the bar: batches, loss, and bytes of this epoch."""
        self._done += count if self._steps == self._unit else 1
        self._trained += count
        self._loss += loss * count
        # A bar is slow and there are many batches: both change only every 0.2 s.
        if self._is_due():
            self._move([f"loss {self._loss / self._trained:.4f}", *_moved(counters)])

    def epoch_done(self, report: Any) -> None:
        self._bars.clear()
        scalars = report.scalars()
        parts = [f"epoch {report.epoch + 1:>3}", f"loss {report.loss:.4f}"]
        took = f"{report.seconds:.1f} s"
        if report.score is not None:
            metric = next(name for name in scalars if name.startswith("valid/"))
            star = " *" if report.best else "  "
            parts.append(f"{metric.removeprefix('valid/')} {report.score:.4f}{star}")
            took = f"{report.seconds:.1f} + {report.validation_seconds:.1f} s"
        rate = scalars[f"train/{self._unit}_per_second"] or 0.0
        more = [f"{rate:>7,.0f} {self._unit}/s", *_moved(report.counters)]
        if not self._quiet:
            console.facts(parts, more, took)
        far = report.counters.get("far") or {}
        if far.get("lost") and not self._lost:
            self._lost = True
            self._say(f"warning: {console.lost(far)}")

    def evaluation_started(self, what: str, total: int, done: int) -> None:
        self._start(what, total, done)

    def evaluation_advanced(self, count: int) -> None:
        self._done += count
        self._move()

    def stopping(self, share: float) -> None:
        self._say(
            f"stopping at the end of this buffer state, of which {share:.0%} is done; once more "
            "stops at once, and the work since the last checkpoint is lost"
        )

    def note(self, message: str) -> None:
        """Prints a line; a quiet watch prints warnings only."""
        if message.startswith("warning: "):
            console.note(message)
        else:
            self._say(f"note: {message}")

    def finished(self, result: dict[str, Any]) -> None:
        self._bars.clear()

    def _start(self, title: str, total: int, done: int, unit: str = "") -> None:
        self._bars.clear()
        self._bar, self._done = (title, total, unit), done
        self._move()

    def _move(self, status: Sequence[str] = ()) -> None:
        title, total, unit = self._bar
        self._bars(title, self._done, total, unit, status)

    def _is_due(self) -> bool:
        """Whether the text of the bar is old enough for an update."""
        now = time.monotonic()
        if now - self._shown < _REFRESH_S:
            return False
        self._shown = now
        return True

    def _say(self, text: str) -> None:
        if not self._quiet:
            console.note(text)


class TrainWatch(_Watch):
    """Shows the events of a training; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("seeds", "batches", quiet=quiet)

    def started(self, description: dict[str, Any]) -> None:
        """Shows the model, the device, the task and the validation."""
        kind, metric = description["validation"], description["metric"]
        where = "" if description["of_graphs"] else f", {kind} neighbourhoods"
        guessed = ", guessed from the labels" if description["task_guessed"] else ""
        self._say(
            f"run {description['run']}: {description['model']}, "
            f"{description['parameters']:,} parameters, on {description['device']}\n"
            f"  task        {description['task']}{guessed}\n"
            f"  validation  {'none' if kind == 'none' else metric + where}"
        )


class EmbedWatch(_Watch):
    """Shows the events of an embedding run; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("triples", "triples", quiet=quiet)

    def started(self, description: dict[str, Any]) -> None:
        """Shows the model, the device, and how many partitions stay in memory."""
        where = "all partitions"
        if description["partitions"] > 1:
            where = f"{description['slots']} of {description['partitions']} partitions"
        self._say(
            f"run {description['run']}: {description['model']} of dimension {description['dim']}, "
            f"{description['parameters']:,} numbers, on {description['device']}\n"
            f"  in memory  {where}"
        )


def _moved(counters: dict[str, Any]) -> list[str]:
    """Cache hits, bytes and waits of an epoch."""
    hits, far = records.hit_ratio(counters), records.far_share(counters)
    moved = [] if hits is None else [f"hits {hits:.0%}"]
    if counters:
        read = counters.get("bytes_read", records.bytes_read(counters))
        moved.append(f"read {format_size(read)}")
    if far is not None:
        moved.append(f"far {far:.0%}")
    if "bytes_written" in counters:
        waited = counters.get("waited_s", 0.0) + counters.get("triples_waited_s", 0.0)
        moved.append(f"written {format_size(counters['bytes_written'])}")
        moved.append(f"waited {waited:.1f} s")
    return moved
