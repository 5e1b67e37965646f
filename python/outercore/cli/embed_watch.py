"""An embedding run as people watch it: one bar, one line an epoch, on stderr."""

from __future__ import annotations

from typing import Any

from rich.progress import TaskProgressColumn

from outercore.cli.run_watch import RunWatch
from outercore.config.sizes import format_size
from outercore.embedding.observe import EpochReport, Observer


class EmbedWatch(RunWatch, Observer):
    """Shows a run's events; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(TaskProgressColumn(), quiet=quiet)
        self._waiting = 0
        self._triples = 0
        self._loss = 0.0
        self._score: float | None = None

    def started(self, description: dict[str, Any]) -> None:
        """One line on what runs."""
        where = "all in memory"
        if description["partitions"] > 1:
            where = f"{description['slots']} of {description['partitions']} partitions in memory"
        self._say(
            f"run {description['run']}: {description['model']} of dimension {description['dim']}, "
            f"{description['parameters']:,} numbers, on {description['device']}; {where}"
        )

    def preparing(self, what: str, done: int, total: int, unit: str) -> None:
        """A bar of its own."""
        self._reach(what, done, total)

    def resumed(self, epoch: int, triples: int) -> None:
        """One line on where it goes on."""
        self._say(f"resumed in epoch {epoch + 1} after {triples:,} triples")

    def epoch_started(self, epoch: int, triples: int, done: int) -> None:
        """A new bar."""
        self._start(f"epoch {epoch + 1}", triples, done)
        self._triples, self._loss, self._waiting = 0, 0.0, 0

    def batch_done(self, loss: float, triples: int) -> None:
        """Throughput, loss and the last validation so far."""
        self._triples += triples
        self._waiting += triples
        self._loss += loss * triples
        if not self._due():
            return
        parts = [
            f"{self._rate(self._triples):,.0f} triples/s",
            f"loss {self._loss / self._triples:.4f}",
        ]
        if self._score is not None:
            parts.append(f"MRR {self._score:.4f}")
        self._status(parts)
        # A bar is slow, batches are many.
        self._advance(self._waiting)
        self._waiting = 0

    def evaluation_started(self, what: str, rows: int) -> None:
        """A new bar."""
        self._start(what, rows, 0)

    def evaluation_rows(self, rows: int) -> None:
        """The bar moves on."""
        self._advance(rows)

    def epoch_done(self, report: EpochReport) -> None:
        """The epoch in one line."""
        self._clear()
        rate = report.triples / report.seconds if report.seconds else 0.0
        score = ""
        if report.score is not None:
            self._score = report.score
            score = f"  MRR {report.score:.4f}{' *' if report.best else '  '}"
        counters, moved = report.counters, ""
        if counters:
            waited = counters.get("waited_s", 0.0) + counters.get("triples_waited_s", 0.0)
            moved = (
                f"  read {format_size(counters.get('bytes_read', 0))}"
                f"  written {format_size(counters.get('bytes_written', 0))}"
                f"  waited {waited:.1f} s"
            )
        validation = f" + {report.validation_seconds:.1f} s" if report.score is not None else ""
        self._say(
            f"epoch {report.epoch + 1:>3}  {rate:>9,.0f} triples/s  loss {report.loss:.4f}{score}"
            f"{moved}  {report.seconds:.1f} s{validation}"
        )

    def stopping(self, share: float) -> None:
        """How long it takes, and how to stop at once."""
        self._say(
            f"stopping at the end of this buffer state, of which {share:.0%} is done; once more "
            "stops at once, and the work since the last checkpoint is lost"
        )
