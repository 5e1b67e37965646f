"""What an epoch of training and its end say of themselves."""

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
