"""Scalars of a run for TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outercore import record as records
from outercore.training.config import RESUME
from outercore.training.events import EventFile
from outercore.training.observe import EpochReport


class Scalars:
    """Writes one point an epoch; points of epochs that are trained again are superseded.

    Errors: `NoSpaceError`, `DeviceError`.
    """

    def __init__(self, directory: Path, first_epoch: int) -> None:
        self._file = EventFile(directory, first_epoch, RESUME)

    def epoch(self, report: EpochReport) -> None:
        """Loss, score, throughput, hits and bytes of one epoch."""
        points = {
            "train/loss": report.loss,
            f"valid/{report.metric}": report.score,
            "train/seeds_per_second": report.seeds / report.seconds if report.seconds else None,
            "io/hit_ratio": records.hit_ratio(report.counters),
            "io/bytes_read": records.bytes_read(report.counters),
        }
        self._file.add(points, report.epoch)

    def result(self, result: dict[str, Any]) -> None:
        """The final scores, at the best epoch."""
        points = {f"final/{split}": score for split, score in result["scores"].items()}
        for split, errors in result.get("errors", {}).items():
            points |= {f"final/{split}_{name}": value for name, value in errors.items()}
        self._file.add(points, result["best_epoch"])

    def close(self) -> None:
        """Closes the event file."""
        self._file.close()
