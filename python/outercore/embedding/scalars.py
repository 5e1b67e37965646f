"""Scalars of an embedding run for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outercore.embedding.config import RESUME
from outercore.embedding.observe import EpochReport
from outercore.training.events import EventFile


class Scalars:
    """Writes one point an epoch; points of epochs that are trained again are superseded.

    Errors: `NoSpaceError`, `DeviceError`.
    """

    def __init__(self, directory: Path, first_epoch: int) -> None:
        self._file = EventFile(directory, first_epoch, RESUME)

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
            "io/waited_for_triples_seconds": counters.get("triples_waited_s"),
        }
        self._file.add(points, report.epoch)

    def result(self, result: dict[str, Any], epoch: int) -> None:
        """The figures at the end."""
        points = {
            f"final/{one['part']}_mrr_{one['candidates']}": one["mrr"] for one in result["metrics"]
        }
        self._file.add(points, epoch)

    def close(self) -> None:
        """Closes the event file."""
        self._file.close()
