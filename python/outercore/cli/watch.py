"""A training run as people watch it: one bar, one line an epoch, on stderr."""

from __future__ import annotations

import time
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from rich.progress import MofNCompleteColumn, Progress, TaskID, TextColumn

from outercore import record as records
from outercore.cli import console
from outercore.sizes import format_size
from outercore.train.observe import EpochReport, Observer

_REFRESH_S = 0.2


class Watch(Observer):
    """Shows a run's events; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._stack = ExitStack()
        self._progress: Progress
        self._bar: TaskID | None = None
        self._shown = 0.0
        self._began = 0.0
        self._seeds = 0
        self._loss = 0.0
        self._lost = False

    def __enter__(self) -> Watch:
        columns = (MofNCompleteColumn(), TextColumn("{task.fields[status]}"))
        self._progress = self._stack.enter_context(console.progress(*columns, quiet=self._quiet))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()

    def started(self, description: dict[str, Any]) -> None:
        """One line on what runs."""
        self._say(
            f"run {description['run']}: {description['model']}, "
            f"{description['parameters']:,} parameters, on {description['device']}; "
            f"validates on {description['validation']} neighbourhoods by {description['metric']}"
        )

    def resumed(self, epoch: int, batch: int) -> None:
        """One line on where it goes on."""
        self._say(f"resumed at epoch {epoch + 1}, batch {batch + 1}")

    def epoch_started(self, epoch: int, batches: int, done: int) -> None:
        """A new bar."""
        self._start(f"epoch {epoch + 1}", batches, done)
        self._began, self._seeds, self._loss = time.monotonic(), 0, 0.0

    def batch_done(self, loss: float, seeds: int, counters: dict[str, Any]) -> None:
        """Loss, throughput, hits and bytes so far."""
        self._seeds += seeds
        self._loss += loss * seeds
        if self._bar is None:
            return
        self._progress.advance(self._bar)
        now = time.monotonic()
        if now - self._shown < _REFRESH_S:
            return
        self._shown = now
        rate = self._seeds / max(now - self._began, 1e-9)
        parts = [f"loss {self._loss / self._seeds:.4f}", f"{rate:,.0f} seeds/s"]
        hits = records.hit_ratio(counters)
        if hits is not None:
            parts.append(f"hits {hits:.0%}")
        parts.append(f"read {format_size(records.bytes_read(counters))}")
        self._progress.update(self._bar, status="  ".join(parts))

    def inference_started(self, what: str, batches: int, done: int) -> None:
        """A new bar."""
        self._start(what, batches, done)

    def inference_batch(self) -> None:
        """One step of the bar."""
        if self._bar is not None:
            self._progress.advance(self._bar)

    def epoch_done(self, report: EpochReport) -> None:
        """The epoch in one line."""
        self._clear()
        rate = report.seeds / report.seconds if report.seconds else 0.0
        score = "" if report.score is None else f"  {report.metric} {report.score:.4f}"
        hits = records.hit_ratio(report.counters)
        share = records.far_share(report.counters)
        self._say(
            f"epoch {report.epoch + 1:>3}  loss {report.loss:.4f}{score}"
            f"{' *' if report.best else '  '}  {rate:>8,.0f} seeds/s"
            f"  hits {0.0 if hits is None else hits:.0%}"
            f"  read {format_size(records.bytes_read(report.counters))}"
            f"{'' if share is None else f'  far {share:.0%}'}"
            f"  {report.seconds:.1f} s + {report.validation_seconds:.1f} s"
        )
        far = report.counters.get("far") or {}
        if far.get("lost") and not self._lost:
            self._lost = True
            self._say(f"warning: {console.lost(far)}")

    def note(self, message: str) -> None:
        """A line of its own."""
        self._say(f"note: {message}")

    def finished(self, result: dict[str, Any]) -> None:
        """The bars are over."""
        self._clear()

    def _start(self, title: str, batches: int, done: int) -> None:
        self._clear()
        self._bar = self._progress.add_task(title, total=batches, completed=done, status="")

    def _clear(self) -> None:
        if self._bar is not None:
            self._progress.remove_task(self._bar)
            self._bar = None

    def _say(self, text: str) -> None:
        if not self._quiet:
            console.note(text)
