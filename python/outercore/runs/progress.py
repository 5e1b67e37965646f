"""Events of a run, apart from how they are shown."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sized
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from outercore.base.native import Progress
    from outercore.runs.stop import StopRequest

_Chunk = TypeVar("_Chunk", bound=Sized)


class Observer:
    """Receives a run's events; every method does nothing unless overridden.

    A training counts its epochs in batches and its batches in seeds, an embedding both in triples.
    """

    def started(self, description: dict[str, Any]) -> None:
        """The run's name, model, sizes and how it will validate; once, before the first batch."""

    def preparing(self, what: str, done: int, total: int, unit: str) -> None:
        """Of the work `what`, which comes before the first batch, so much is done."""

    def resumed(self, epoch: int, done: int) -> None:
        """Training resumes from the checkpoint after `done` batches or triples of this epoch."""

    def epoch_started(self, epoch: int, total: int, done: int) -> None:
        """An epoch begins, or resumes after `done` of its `total`."""

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        """A batch of so many seeds or triples was trained, with this mean loss.

        `counters` of this epoch are at most half a second old.
        """

    def evaluation_started(self, what: str, total: int, done: int) -> None:
        """An evaluation (`validation`, `layer 1 of 2`) begins, or resumes after `done`."""

    def evaluation_advanced(self, count: int) -> None:
        """So much more of the evaluation is done."""

    def epoch_done(self, report: Any) -> None:
        """An epoch was trained, and validated where it was due: an `EpochReport` of the job."""

    def checkpointed(self) -> None:
        """A checkpoint is on disk."""

    def stopping(self, share: float) -> None:
        """Somebody asked to stop, which waits until the state of the partitions in memory ends.

        `share` of its triples is done.
        """

    def note(self, message: str) -> None:
        """A message for the user that is not an error."""

    def finished(self, result: dict[str, Any]) -> None:
        """The metrics at the end."""


def until_stopped(observer: Observer, stop: StopRequest) -> Progress:
    """Tells the observer what is prepared; raises `InterruptError` once a stop is requested."""

    def told(what: str, done: int, total: int, unit: str) -> None:
        stop.check()
        observer.preparing(what, done, total, unit)

    return told


def watched(
    chunks: Iterable[_Chunk], what: str, total: int, progress: Progress | None
) -> Iterator[_Chunk]:
    """The same chunks of triples; `progress` gets the number of triples so far."""
    done = 0
    for chunk in chunks:
        if progress is not None:
            progress(what, done, total, "triples")
        yield chunk
        done += len(chunk)
    if progress is not None:
        progress(what, done, total, "triples")
