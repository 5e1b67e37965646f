"""The epochs of a run: pools, validation, early stopping, checkpoints and stop requests."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from outercore.embedding.gradients.trainer import DivergedError
from outercore.embedding.tables.store import EpochReport, Pool, Progress
from outercore.errors import InterruptError, InvalidError
from outercore.runs.progress import Observer
from outercore.runs.record import Timeline

if TYPE_CHECKING:
    from outercore.embedding.gradients.trainer import Trainer

LOWER = "lower the learning rate, or strengthen the regulariser"
"""Hint for values that are not finite."""
_EPOCH_END_SHARE = 0.1
"""At the end of an epoch, a checkpoint is written after this share of the usual interval."""


class Epochs:
    """Trains from the store's progress to the last epoch, or until validations stop improving.

    The result does not depend on the times of checkpoints and stops: a resumed run is bit-identical
    to an uninterrupted run.

    Errors: `InterruptError` after `stop` returned `True`, with all progress in a checkpoint if
    checkpoints are enabled; `DivergedError`.
    """

    def __init__(
        self,
        trainer: Trainer,
        *,
        validate: Callable[[], float] | None = None,
        after_epoch: Callable[[EpochReport], None] | None = None,
        observer: Observer | None = None,
        stop: Callable[[], bool] = lambda: False,
        checkpoint_seconds: float | None = None,
        triples: int = 0,
    ) -> None:
        """Prepares the epochs of a run, from the progress of the trainer's store.

        `validate` returns the score of a validation; a higher score is better. `after_epoch`
        receives the report of each epoch. `stop` returns whether a stop is requested.
        `checkpoint_seconds` is as in the configuration; `None` disables checkpoints. `triples` is
        the number of triples of an epoch, for the observer.
        """
        self._trainer = trainer
        self._store = trainer.store
        self._options = trainer.config.optimiser
        self._validate = validate
        self._after_epoch = after_epoch
        self._observer = observer or Observer()
        self._stop = stop
        self._every = checkpoint_seconds
        self._triples = triples
        self._counted = self._store.counters()
        self.progress = self._store.progress or Progress()
        self.timeline = Timeline(list(self.progress.timeline))
        self._started: float | None = None
        self._since = time.monotonic()
        self._pool_triples = 0
        self._announced = False

    @property
    def reports(self) -> list[EpochReport]:
        """The reports of all finished epochs."""
        return [EpochReport(**report) for report in self.progress.reports]

    @property
    def finished(self) -> bool:
        """Whether training is over."""
        return self._options.is_over(self.progress.epoch, self.progress.stale)

    def run(self) -> list[EpochReport]:
        """Trains the remaining epochs. Afterwards the store has the best tables."""
        while not self.finished:
            self._train()
            self._close()
        if self._validate is not None:
            self._store.restore()
        return self.reports

    def _train(self) -> None:
        """Trains the remaining pools of the epoch."""
        progress = self.progress
        self._observer.epoch_started(progress.epoch, self._triples, progress.triples)
        with self.timeline.span("train", epoch=progress.epoch):
            self._started, self._counted = time.perf_counter(), self._store.counters()
            for pool in self._store.pools(progress.epoch):
                self._pool_triples = 0
                whole = self._trainer.train_pool(
                    pool,
                    progress.epoch,
                    first=self.progress.batch,
                    after_batch=partial(self._after_batch, pool),
                )
                if not whole:
                    self._interrupt()
                self._move(pools=self.progress.pools + 1, batch=0)
                if pool.ends_state and self._stop():
                    self._interrupt()
                if pool.ends_state and self._due():
                    self._checkpoint()
            self._lap()

    def _after_batch(self, pool: Pool, loss: float, triples: int) -> bool:
        progress = self.progress
        self._move(
            loss=progress.loss + loss * triples,
            triples=progress.triples + triples,
            batches=progress.batches + 1,
            batch=progress.batch + 1,
        )
        self._pool_triples += triples
        self._observer.batch_done(loss, triples, {})
        stop = self._stop()
        if pool.ends_batches:
            if not stop and self._due():
                self._checkpoint()
            return stop
        if stop and not self._announced:
            self._announced = True
            self._observer.stopping(self._pool_triples / max(len(pool.triples), 1))
        return False

    def _close(self) -> None:
        """Ends the epoch: validates if due, and starts the next epoch."""
        progress, options = self.progress, self._options
        score, best, stale = None, False, progress.stale
        started = time.perf_counter()
        done = progress.epoch + 1
        last = done == options.epochs
        if self._validate is not None and (last or done % options.validate_every == 0):
            with self.timeline.span("validate", epoch=progress.epoch):
                score = self._score(self._validate)
            best = progress.best is None or score > progress.best
            stale = 0 if best else stale + 1
            if best:
                with self.timeline.span("keep", epoch=progress.epoch):
                    self._store.keep()
        report = EpochReport(
            epoch=progress.epoch,
            loss=progress.loss / max(progress.triples, 1),
            triples=progress.triples,
            batches=progress.batches,
            seconds=progress.seconds,
            score=score,
            best=best,
            pools=progress.pools,
            validation_seconds=time.perf_counter() - started,
            counters=progress.counters,
        )
        self.progress = Progress(
            epoch=done,
            reports=[*progress.reports, asdict(report)],
            best=score if best else progress.best,
            stale=stale,
        )
        if self.finished or self._due(_EPOCH_END_SHARE):
            self._checkpoint()
        self._observer.epoch_done(report)
        if self._after_epoch is not None:
            self._after_epoch(report)

    def _score(self, validate: Callable[[], float]) -> float:
        try:
            return validate()
        except InterruptError:
            self._interrupt()
        except InvalidError as error:
            # The triples were checked before, so the error means a value that is not finite.
            raise DivergedError(
                f"validation after epoch {self.progress.epoch + 1}: {error}\nhint: {LOWER}"
            ) from error

    def _due(self, share: float = 1.0) -> bool:
        if self._every is None:
            return False
        if self._every == 0.0:
            return share < 1.0
        return time.monotonic() - self._since >= self._every * share

    def _checkpoint(self) -> None:
        if self._every is None:
            return
        training = self._started is not None
        self._lap()
        with self.timeline.span("checkpoint"):
            # The checkpoint is written before its span ends, so its timeline lacks only this span.
            self._store.checkpoint(replace(self.progress, timeline=list(self.timeline.spans)))
        self._started = time.perf_counter() if training else None
        self._since = time.monotonic()
        self._observer.checkpointed()

    def _interrupt(self) -> NoReturn:
        """Writes a checkpoint, and raises `InterruptError`."""
        self._checkpoint()
        progress = self.progress
        raise InterruptError(
            f"stopped in epoch {progress.epoch + 1} after {progress.triples:,} triples"
        )

    def _lap(self) -> None:
        """Adds the seconds and counters since its last call to the progress of the epoch."""
        progress, now = self.progress, time.perf_counter()
        counted = self._store.counters()
        counters = {
            name: progress.counters.get(name, 0) + value - self._counted.get(name, 0)
            for name, value in counted.items()
        }
        # Between epochs, no time counts as training.
        seconds = 0.0 if self._started is None else now - self._started
        self._move(seconds=progress.seconds + seconds, counters=counters)
        self._started, self._counted = None, counted

    def _move(self, **changes: Any) -> None:
        self.progress = replace(self.progress, **changes)
