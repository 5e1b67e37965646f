"""How an embedding run tells what it is doing, without deciding how that is shown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

if TYPE_CHECKING:
    from outercore.runs.stop import StopRequest

_Chunk = TypeVar("_Chunk", bound=Sized)
Preparing: TypeAlias = Callable[[str, int, int, str], None]
"""Told of work that comes before the first batch as `Observer.preparing` is. What it raises ends
the work."""


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


class Observer:
    """Receives a run's events; every method does nothing unless overridden."""

    def started(self, description: dict[str, Any]) -> None:
        """The run's name, model, sizes and plan; once, before the first batch."""

    def preparing(self, what: str, done: int, total: int, unit: str) -> None:
        """Of the work `what`, which comes before the first batch, so much is done."""

    def resumed(self, epoch: int, triples: int) -> None:
        """Training goes on from the checkpoint taken after so many triples of this epoch."""

    def epoch_started(self, epoch: int, triples: int, done: int) -> None:
        """An epoch begins, or goes on after `done` of its triples."""

    def batch_done(self, loss: float, triples: int) -> None:
        """A batch of `triples` was trained, with this mean loss."""

    def evaluation_started(self, what: str, rows: int) -> None:
        """The ranking `what` begins, which goes through the table: so many rows in all."""

    def evaluation_rows(self, rows: int) -> None:
        """So many rows more were compared."""

    def epoch_done(self, report: EpochReport) -> None:
        """An epoch was trained, and validated where it was due."""

    def checkpointed(self, seconds: float) -> None:
        """A checkpoint is on disk."""

    def stopping(self, share: float) -> None:
        """Somebody asked to stop, which waits for the end of a buffer state.

        `share` of its pool is done.
        """

    def note(self, message: str) -> None:
        """Something the user may want to know that is no error."""

    def finished(self, result: dict[str, Any]) -> None:
        """The figures at the end."""


def until_stopped(observer: Observer, stop: StopRequest) -> Preparing:
    """Tells the observer; raises `InterruptError` where somebody asked to stop."""

    def told(what: str, done: int, total: int, unit: str) -> None:
        stop.check()
        observer.preparing(what, done, total, unit)

    return told


def watched(
    chunks: Iterable[_Chunk], what: str, total: int, told: Preparing | None
) -> Iterator[_Chunk]:
    """The same chunks of triples, of which `told` hears how many have been taken."""
    done = 0
    for chunk in chunks:
        if told is not None:
            told(what, done, total, "triples")
        yield chunk
        done += len(chunk)
    if told is not None:
        told(what, done, total, "triples")
