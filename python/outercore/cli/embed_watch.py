"""An embedding run as people watch it."""

from __future__ import annotations

from typing import Any

from rich.progress import TaskProgressColumn

from outercore.cli.run_watch import RunWatch
from outercore.config.sizes import format_size
from outercore.embedding.observe import EpochReport


class EmbedWatch(RunWatch):
    """Shows a run's events; a context manager."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__(TaskProgressColumn(), "triples", quiet=quiet)
        self._done = 0
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

    def resumed(self, epoch: int, done: int) -> None:
        """One line on where it goes on."""
        self._say(f"resumed in epoch {epoch + 1} after {done:,} triples")

    def epoch_started(self, epoch: int, total: int, done: int) -> None:
        """A new bar."""
        super().epoch_started(epoch, total, done)
        self._done = done

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

    def _more(self, counters: dict[str, Any]) -> list[str]:
        # A bar is slow, batches are many: it moves on when its text does.
        self._update(completed=self._done + self._trained)
        return [] if self._score is None else [f"MRR {self._score:.4f}"]
