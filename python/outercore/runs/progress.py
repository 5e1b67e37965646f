"""Events of a run, independent of their display."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from outercore.base.native import Progress
    from outercore.runs.stop import StopRequest


class Observer:
    """Receives the events of a run. By default every method does nothing.

    A training counts epochs in batches, and batches in seeds. An embedding counts both in triples.
    """

    def started(self, description: dict[str, Any]) -> None:
        """The run starts. `description` has its name, model, sizes and validation."""

    def preparing(self, what: str, done: int, total: int, unit: str) -> None:
        """Progress of the preparation step `what`, before the first batch."""

    def resumed(self, epoch: int, done: int) -> None:
        """Training resumes from a checkpoint, after `done` batches or triples of this epoch."""

    def epoch_started(self, epoch: int, total: int, done: int) -> None:
        """An epoch begins, or resumes after `done` of `total`."""

    def batch_done(self, loss: float, count: int, counters: dict[str, Any]) -> None:
        """A batch of `count` seeds or triples was trained, with mean loss `loss`.

        `counters` are the counters of this epoch, at most half a second old.
        """

    def evaluation_started(self, what: str, total: int, done: int) -> None:
        """The evaluation `what` begins, or resumes after `done` of `total`.

        `what` is a name such as `validation` or `layer 1 of 2`.
        """

    def evaluation_advanced(self, count: int) -> None:
        """The evaluation has done `count` more of its `total`."""

    def epoch_done(self, report: Any) -> None:
        """An epoch was trained, and validated if due. `report`: the `EpochReport` of the job."""

    def checkpointed(self) -> None:
        """A checkpoint is on disk."""

    def stopping(self, share: float) -> None:
        """A stop was requested. The run stops at the end of the current buffer state.

        `share` of the triples of this state is done.
        """

    def note(self, message: str) -> None:
        """A message for the user that is not an error."""

    def finished(self, result: dict[str, Any]) -> None:
        """The run has ended, with these metrics."""


def until_stopped(observer: Observer, stop: StopRequest) -> Progress:
    """A callback that reports to the observer and raises `InterruptError` after a stop request."""

    def report(what: str, done: int, total: int, unit: str) -> None:
        stop.check()
        observer.preparing(what, done, total, unit)

    return report
