"""A training run as people watch it."""

from __future__ import annotations

from typing import Any

from rich.progress import MofNCompleteColumn

from outercore.cli import console
from outercore.cli.run_watch import RunWatch
from outercore.config.sizes import format_size
from outercore.runs import record as records
from outercore.training.observe import EpochReport


class Watch(RunWatch):
    """Shows a run's events; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(MofNCompleteColumn(), "seeds", quiet=quiet)
        self._lost = False

    def started(self, description: dict[str, Any]) -> None:
        """One line on what runs."""
        kind = description["validation"]
        where = "" if description["of_graphs"] else f" on {kind} neighbourhoods"
        validates = f"validates{where} by {description['metric']}"
        guessed = " (guessed from the labels)" if description["task_guessed"] else ""
        self._say(
            f"run {description['run']}: {description['model']}, {description['task']}{guessed}, "
            f"{description['parameters']:,} parameters, on {description['device']}; "
            f"{'validates nothing' if kind == 'none' else validates}"
        )

    def resumed(self, epoch: int, done: int) -> None:
        """One line on where it goes on."""
        self._say(f"resumed at epoch {epoch + 1}, batch {done + 1}")

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        """The bar moves on."""
        self._advance()
        super().batch_done(loss, count, counters)

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

    def _more(self, counters: dict[str, Any]) -> list[str]:
        hits = records.hit_ratio(counters)
        read = f"read {format_size(records.bytes_read(counters))}"
        return [read] if hits is None else [f"hits {hits:.0%}", read]
