"""Scalars of an embedding run for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outercore.embed.observe import EpochReport


class Scalars:
    """Writes one point an epoch; points of epochs that are trained again are superseded."""

    def __init__(self, directory: Path, first_epoch: int) -> None:
        from tensorboardX import SummaryWriter

        self._writer = SummaryWriter(str(directory), purge_step=first_epoch or None)

    def epoch(self, report: EpochReport) -> None:
        """Loss, validation, throughput and bytes of one epoch."""
        counters = report.counters
        points = {
            "train/loss": report.loss,
            "valid/mrr": report.score,
            "train/triples_per_second": report.triples / report.seconds if report.seconds else None,
            "io/bytes_read": counters.get("bytes_read"),
            "io/bytes_written": counters.get("bytes_written"),
            "io/waited_seconds": counters.get("waited_s"),
        }
        for name, value in points.items():
            if value is not None:
                self._writer.add_scalar(name, value, report.epoch)
        self._writer.flush()

    def result(self, result: dict[str, Any], epoch: int) -> None:
        """The figures at the end."""
        for one in result["metrics"]:
            name = f"final/{one['part']}_mrr_{one['candidates']}"
            self._writer.add_scalar(name, one["mrr"], epoch)

    def close(self) -> None:
        """Flushes and closes the event file."""
        self._writer.close()
