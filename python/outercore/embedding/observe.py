"""What an epoch of an embedding and its end say of themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class EpochReport:
    """What an epoch did."""

    epoch: int
    """Counted from 0."""
    loss: float
    """Mean over triples and sides, regulariser included."""
    triples: int
    batches: int
    seconds: float
    """Training alone, without validation."""
    score: float | None = None
    """Of the validation after it."""
    best: bool = False
    """Whether the score is the best so far."""
    pools: int = 0
    validation_seconds: float = 0.0
    counters: dict[str, Any] = field(default_factory=dict)
    """What moving partitions has cost in this epoch; empty where all is in memory."""

    def scalars(self) -> dict[str, float | None]:
        """Loss, validation, throughput and bytes, as TensorBoard shows them."""
        return {
            "train/loss": self.loss,
            "valid/mrr": self.score,
            "train/triples_per_second": self.triples / self.seconds if self.seconds else None,
            "io/bytes_read": self.counters.get("bytes_read"),
            "io/bytes_written": self.counters.get("bytes_written"),
            "io/waited_seconds": self.counters.get("waited_s"),
            "io/waited_for_triples_seconds": self.counters.get("triples_waited_s"),
        }


def final_scalars(result: dict[str, Any]) -> dict[str, float | None]:
    """The figures at the end, as TensorBoard shows them."""
    return {f"final/{one['part']}_mrr_{one['candidates']}": one["mrr"] for one in result["metrics"]}
