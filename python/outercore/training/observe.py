"""How a training run tells what it is doing, without deciding how that is shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from outercore.runs import record as records


@dataclass(frozen=True)
class EpochReport:
    """What is known after an epoch's validation."""

    epoch: int
    """Counted from 0."""
    loss: float
    score: float | None
    metric: str
    best: bool
    """Whether the score is the best so far."""
    seconds: float
    """Training alone, without validation."""
    seeds: int
    validation_seconds: float
    counters: dict[str, Any]
    """What the training loader did in this epoch, and the stage `train`."""

    def scalars(self) -> dict[str, float | None]:
        """Loss, score, throughput, hits and bytes, as TensorBoard shows them."""
        return {
            "train/loss": self.loss,
            f"valid/{self.metric}": self.score,
            "train/seeds_per_second": self.seeds / self.seconds if self.seconds else None,
            "io/hit_ratio": records.hit_ratio(self.counters),
            "io/bytes_read": records.bytes_read(self.counters),
        }


def final_scalars(result: dict[str, Any]) -> dict[str, float | None]:
    """The last scores, as TensorBoard shows them."""
    points = {f"final/{split}": score for split, score in result["scores"].items()}
    for split, errors in result.get("errors", {}).items():
        points |= {f"final/{split}_{name}": value for name, value in errors.items()}
    return points


class Observer:
    """Receives a run's events; every method does nothing unless overridden."""

    def started(self, description: dict[str, Any]) -> None:
        """The run's name, model, sizes and how it will validate; once, before the first batch."""

    def resumed(self, epoch: int, batch: int) -> None:
        """Training goes on from the checkpoint taken before this batch."""

    def epoch_started(self, epoch: int, batches: int, done: int) -> None:
        """An epoch begins, or goes on after `done` batches."""

    def batch_done(self, loss: float, seeds: int, counters: dict[str, Any]) -> None:
        """A batch was trained on; `counters` of this epoch are at most half a second old."""

    def inference_started(self, what: str, batches: int, done: int) -> None:
        """An evaluation step (`validation`, `layer 1 of 2`) begins, or goes on after `done`."""

    def inference_batch(self) -> None:
        """One batch of the evaluation step is done."""

    def epoch_done(self, report: EpochReport) -> None:
        """An epoch was trained and validated."""

    def checkpointed(self, path: str) -> None:
        """A checkpoint is on disk."""

    def note(self, message: str) -> None:
        """Something the user may want to know that is no error."""

    def finished(self, result: dict[str, Any]) -> None:
        """The final scores."""
