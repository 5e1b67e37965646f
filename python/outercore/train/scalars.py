"""Scalars of a run for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outercore import record as records
from outercore.train.observe import EpochReport


class Scalars:
    """Writes one point an epoch; points of epochs that are trained again are superseded."""

    def __init__(self, directory: Path, first_epoch: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(directory), purge_step=first_epoch or None)

    def epoch(self, report: EpochReport) -> None:
        """Loss, score, throughput, hits and bytes of one epoch."""
        points = {
            "train/loss": report.loss,
            f"valid/{report.metric}": report.score,
            "train/seeds_per_second": report.seeds / report.seconds if report.seconds else None,
            "io/hit_ratio": records.hit_ratio(report.counters),
            "io/bytes_read": records.bytes_read(report.counters),
        }
        for name, value in points.items():
            if value is not None:
                self._writer.add_scalar(name, value, report.epoch)
        self._writer.flush()

    def result(self, result: dict[str, Any]) -> None:
        """The final scores, at the best epoch."""
        for split, score in result["scores"].items():
            if score is not None:
                self._writer.add_scalar(f"final/{split}", score, result["best_epoch"])

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()
