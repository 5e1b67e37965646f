"""The training loop: epochs, validation, early stopping, checkpoints, final scores."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from outercore.base.shell import quoted
from outercore.errors import BudgetError, InterruptError, InvalidError
from outercore.files.atomic import Storage
from outercore.runs import record as records
from outercore.runs.custom_code import CustomCode
from outercore.runs.progress import Observer
from outercore.runs.scalars import Scalars
from outercore.runs.stop import StopRequest
from outercore.training.checkpoint import Checkpoints, Position, Snapshot, pack, unpack
from outercore.training.config import RESUME, TrainConfig
from outercore.training.forecast import forecast
from outercore.training.inference import Context
from outercore.training.links.work import LinkPlace
from outercore.training.loaders import LoaderFactory, neighbor_loader
from outercore.training.metrics import Scoring
from outercore.training.model_files import save_model
from outercore.training.open_work import open_work
from outercore.training.record import EpochReport, describe, final_scalars
from outercore.training.run_directory import TrainDirectory

if TYPE_CHECKING:
    from outercore.data.graph import Graph


_REFRESH_S = 0.5
_MOST_SPANS = 1200


class Trainer:
    """Trains one run, from its first batch or its last checkpoint to its final scores.

    On the CPU, the result depends only on the data set and the configuration. Loaders guarantee
    equal batches. PyTorch's generator is seeded with (seed) for the initial weights, and with
    (seed, epoch, batch) for dropout.
    """

    def __init__(
        self,
        graph: Graph,
        config: TrainConfig,
        run: TrainDirectory,
        *,
        observer: Observer | None = None,
        stop: StopRequest | None = None,
        open_loader: LoaderFactory = neighbor_loader,
        storage: Storage | None = None,
        command: str = "",
        code: CustomCode | None = None,
    ) -> None:
        self._graph = graph
        self._config = config
        self._run = run
        self._observer = observer or Observer()
        self._stop = stop or StopRequest()
        self._storage = storage or Storage()
        self._command = command
        self._device = config.run.torch_device()
        torch.manual_seed(derived_seed(config.run.seed))
        self._position = Position()
        self._work = open_work(
            graph,
            config,
            open_loader=open_loader,
            note=self._observer.note,
            place=LinkPlace(run.links, lambda: self._position, self._stop, storage),
            code=code,
        )
        self._code = code
        self._task, self._model = self._work.task, self._work.model
        self._loaders = self._work.loaders
        self._model.to(self._device)
        self._adam = torch.optim.Adam(
            self._model.parameters(),
            lr=config.optimiser.learning_rate,
            weight_decay=config.optimiser.weight_decay,
        )
        self._best: dict[str, Tensor] = {}
        self._checkpoints = Checkpoints(run.state, self._storage)
        self._timeline = records.Timeline(self._position.timeline)
        self._plan: dict[str, Any] = {}
        self._forecast: dict[str, Any] = {}
        self._meter: Meter | None = None
        self._scoring: Scoring
        self._described: dict[str, Any] = {}

    def fit(self) -> dict[str, Any]:
        """Trains to the end and returns the run record.

        Errors: `InterruptError` after a stop request, when a checkpoint is on disk; errors of the
        loader and the device. The last checkpoint stays.
        """
        resumed = self._restore()
        self._run.remove_scratch()
        self._prepare()
        self._forecast = self._expected(resumed)
        scalars = Scalars(self._run.scalars, self._position.epoch, RESUME)
        self._observer.started(self._described["description"])
        if unused := self._described["data_set"]["unused_edge_arrays"]:
            self._observer.note(
                f"model `{self._config.model.kind}` does not use the data set's edge arrays: "
                f"{', '.join(unused)}"
            )
        # A run that was stopped during the final scores has finished its training.
        if resumed and not self._position.finished:
            self._observer.resumed(self._position.epoch, self._position.batch)
        try:
            while not self._position.finished:
                self._train_epoch()
                report = self._close_epoch()
                scalars.add(report.scalars(), report.epoch)
                self._write_record("running", {})
                self._observer.epoch_done(report)
            result = self._final_scores()
            record = self._write_record("finished", result)
            scalars.add(final_scalars(result), result["best_epoch"])
            self._observer.finished(result)
            return record
        except InterruptError as error:
            # It is only raised between two steps, so model and position fit together.
            raise self._interrupted() from error
        finally:
            scalars.close()
            self._loaders.close()
            self._run.remove_scratch()

    def _restore(self) -> bool:
        snapshot = self._checkpoints.load(self._observer.note)
        if snapshot is None:
            return False
        self._best = unpack(snapshot.tensors, self._model, self._adam)
        self._position = snapshot.position
        # The user may have changed the number of epochs or the patience.
        self._position.finished = self._is_over()
        self._timeline = records.Timeline(self._position.timeline)
        return True

    def _prepare(self) -> None:
        self._work.prepare(self._timeline)
        context = Context(self._run.scratch, self._device, self._observer, self._stop)
        self._scoring = self._work.scoring(context)
        self._described = describe(
            self._graph,
            self._config,
            self._work,
            run=str(self._run.path),
            device=str(self._device),
            validation=self._scoring.validation_kind(),
        )

    def _expected(self, resumed: bool) -> dict[str, Any]:
        """The forecast. A resumed run takes it from its record, if it has one."""
        if resumed:
            return dict(self._run.known_record().get("forecast", {}))
        with self._timeline.span("forecast"):
            return forecast(self._work, self._config, self._device)

    def _train_epoch(self) -> None:
        """Trains on the remaining batches of the epoch."""
        while True:
            try:
                return self._train_batches(self._loaders.training())
            except BudgetError:
                # A batch needs more than the plan's trial showed. Batches are a function of their
                # number, so the same one comes again from a loader with more memory.
                if not self._loaders.use_whole_budget():
                    raise

    def _train_batches(self, loader: Any) -> None:
        position = self._position
        self._plan = self._loaders.training_plan
        if position.batch >= len(loader):
            return
        loader.set_epoch(position.epoch)
        loader.seek(position.batch)
        self._observer.epoch_started(position.epoch, len(loader), position.batch)
        self._model.train()
        self._meter = Meter(loader, position.counters, self._timeline)
        try:
            with self._timeline.span("train", epoch=position.epoch):
                self._train_on(self._meter)
        finally:
            position.counters = self._meter.read()

    def _train_on(self, meter: Meter) -> None:
        position = self._position
        every = self._config.run.checkpoint_seconds
        started = kept = time.perf_counter()
        for batch in meter.batches():
            loss, seeds = self._step(batch)
            now = time.perf_counter()
            position.batch += 1
            position.loss_sum += loss * seeds
            position.seeds += seeds
            position.seconds += now - started
            started = now
            self._observer.batch_done(loss, seeds, meter.counters)
            self._stop.check()
            if every and now - kept >= every:
                position.counters = meter.read()
                self._checkpoint()
                kept = time.perf_counter()

    def _step(self, batch: Any) -> tuple[float, int]:
        position = self._position
        torch.manual_seed(derived_seed(self._config.run.seed, position.epoch, position.batch))
        self._adam.zero_grad(set_to_none=True)
        loss, seeds = self._work.loss(batch, self._device)
        value = float(loss.detach())
        if not (math.isfinite(value) and value >= 0):
            expected = "a finite loss" if value >= 0 or math.isnan(value) else "a loss of 0 or more"
            raise InvalidError(
                f"epoch {position.epoch + 1}, batch {position.batch + 1}: expected {expected}, "
                f"found {value}\nhint: lower `--learning-rate`, or check features and labels for "
                "infinite or huge values"
            )
        loss.backward()
        self._adam.step()
        return value, seeds

    def _close_epoch(self) -> EpochReport:
        """Validates, keeps the best model, and writes a checkpoint before the next epoch."""
        position = self._position
        started = time.perf_counter()
        with self._timeline.span("validate", epoch=position.epoch):
            score = self._scoring.validation()
        best = self._task.better(score, position.best_score)
        if best:
            position.best_score, position.best_epoch = score, position.epoch
            self._best = {
                name: value.detach().cpu().clone()
                for name, value in self._model.state_dict().items()
            }
        report = EpochReport(
            epoch=position.epoch,
            loss=position.loss_sum / max(position.seeds, 1),
            score=score,
            metric=self._task.metric_name,
            best=best,
            seconds=position.seconds,
            seeds=position.seeds,
            validation_seconds=time.perf_counter() - started,
            counters=position.counters,
        )
        position.epochs.append(vars(report).copy())
        position.epoch, position.batch = position.epoch + 1, 0
        position.loss_sum, position.seeds, position.seconds = 0.0, 0, 0.0
        position.counters = {}
        position.finished = self._is_over()
        self._checkpoint()
        if best:
            self._save_best({"valid": score, "epoch": report.epoch})
        return report

    def _is_over(self) -> bool:
        position, optimiser = self._position, self._config.optimiser
        return optimiser.is_over(position.epoch, position.stale_epochs())

    def _final_scores(self) -> dict[str, Any]:
        """The final scores of the best model on the validation and test splits."""
        self._model.load_state_dict(self._best)
        self._loaders.release_training()
        with self._timeline.span("final scores"):
            metrics = self._scoring.final()
        scores = {name: metric.value() for name, metric in metrics.items()}
        details = {name: metric.values() for name, metric in metrics.items()}
        kind = "links" if self._config.of_links else "errors"
        best_epoch = self._position.best_epoch
        self._save_best({**scores, "epoch": best_epoch})
        return {
            "metric": self._task.metric_name,
            "best_epoch": best_epoch,
            "scores": scores,
            **({kind: details} if any(details.values()) else {}),
        }

    def _checkpoint(self) -> None:
        with self._timeline.span("checkpoint"):
            tensors = pack(self._model, self._adam, self._best)
            self._checkpoints.save(Snapshot(self._position, tensors))
        self._observer.checkpointed()

    def _interrupted(self) -> InterruptError:
        self._checkpoint()
        self._write_record("interrupted", {})
        position = self._position
        return InterruptError(
            f"stopped in epoch {position.epoch + 1} after {position.batch} batches; "
            f"everything is in the checkpoint\n"
            f"hint: go on with `outercore train --resume {quoted(self._run.path)}`"
        )

    def _save_best(self, scores: dict[str, Any]) -> None:
        save_model(
            self._run.model,
            self._model,
            self._best,
            self._task,
            self._config,
            scores,
            self._storage,
            self._code,
        )

    def _write_record(self, status: str, result: dict[str, Any]) -> dict[str, Any]:
        record = {
            "version": 1,
            "status": status,
            "command": self._command,
            **self._described,
            "plan": self._plan,
            "forecast": self._forecast,
            "peak_memory_bytes": records.peak_memory(),
            "epochs": self._position.epochs,
            "timeline": self._timeline.spans,
            "pipeline": [] if self._meter is None else self._meter.spans,
            "result": result,
        }
        self._run.write_record(record)
        return record


class Meter:
    """Iterates over a loader and sums its counters. The training step is the stage `train`."""

    def __init__(self, loader: Any, earlier: Mapping[str, Any], timeline: records.Timeline) -> None:
        self._loader = loader
        self._timeline = timeline
        self._refreshed = time.monotonic()
        self.counters: dict[str, Any] = dict(earlier)
        """Counters of the epoch so far, with the counts from before an interruption."""
        self.spans: list[dict[str, Any]] = []
        """The first spans of the epoch: stage, item, start and end in seconds since the run began.
        """
        self._stage = _idle()
        self._since = time.perf_counter()

    def batches(self) -> Iterator[Any]:
        """Iterates over the loader's batches."""
        for item, batch in enumerate(self._loader):
            self._lap("starved_s")
            self._stage["items"] += 1
            start_s = self._timeline.now()
            yield batch
            self._lap("busy_s")
            self._span("train", item, start_s, self._timeline.now())
            if time.monotonic() - self._refreshed > _REFRESH_S:
                self._take()

    def read(self) -> dict[str, Any]:
        """The counters up to this moment, including the current batch."""
        self._lap("busy_s")
        self._take()
        return self.counters

    def _take(self) -> None:
        taken = self._loader.counters()
        spans = taken.get("timeline") or []
        # The loader has another clock. Its latest span ended at about this moment.
        shift = self._timeline.now() - max((span["end_s"] for span in spans), default=0.0)
        for span in spans:
            self._span(span["stage"], span["item"], span["start_s"] + shift, span["end_s"] + shift)
        self.counters = records.add(self.counters, taken["counters"])
        self.counters = records.add(self.counters, {"train": self._stage})
        self._stage = _idle()
        self._refreshed = time.monotonic()

    def _lap(self, spent: str) -> None:
        now = time.perf_counter()
        self._stage[spent] += now - self._since
        self._since = now

    def _span(self, stage: str, item: int, start_s: float, end_s: float) -> None:
        if len(self.spans) < _MOST_SPANS:
            self.spans.append({"stage": stage, "item": item, "start_s": start_s, "end_s": end_s})


def _idle() -> dict[str, float]:
    return {"items": 0, "busy_s": 0.0, "starved_s": 0.0, "blocked_s": 0.0}


def derived_seed(*parts: int) -> int:
    """A 63-bit seed that depends only on `parts`."""
    words = np.random.SeedSequence(parts).generate_state(1, np.uint64)
    return int(words[0]) >> 1
