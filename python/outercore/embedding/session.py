"""One embedding run, from its first batch or its last checkpoint to its metrics and tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from outercore.base.shell import quoted
from outercore.embedding.config import RESUME, EmbedConfig, RunConfig
from outercore.embedding.epochs import LOWER, Epochs
from outercore.embedding.gradients.models import Model
from outercore.embedding.gradients.trainer import DivergedError, Trainer, table_layout
from outercore.embedding.preparation import open_tables, place_tables, plan_session
from outercore.embedding.ranking.scoring import Scoring
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.order import Walks
from outercore.embedding.tables.partitions import PartitionStore
from outercore.embedding.tables.placement import (
    Placement,
    order_of,
    quality_warning,
)
from outercore.embedding.tables.store import EpochReport, Progress
from outercore.errors import HINT, BudgetError, InterruptError, InvalidError
from outercore.runs import record as records
from outercore.runs.progress import Observer, until_stopped
from outercore.runs.scalars import Scalars
from outercore.runs.stop import StopRequest

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.data.parts import EmbedData
    from outercore.embedding.data.warm_start import WarmStart


def _describe(
    graph: Graph,
    config: EmbedConfig,
    data: EmbedData,
    placement: Placement,
    *,
    run: str,
    device: torch.device,
) -> dict[str, Any]:
    """The first part of the run record: job, data set and machine."""
    relations = data.relations * (2 if config.model.reciprocal else 1)
    numbers = data.entities * config.model.dim + relations * config.model.relation_width
    return records.opening(
        Path(graph.root),
        config.to_dict(),
        {
            "run": run,
            "model": config.model.kind,
            "dim": config.model.dim,
            "parameters": numbers,
            "partitions": placement.partitions,
            "slots": placement.slots,
            "metric": "MRR",
            "device": str(device),
        },
        {
            "entities": data.entities,
            "relations": data.relations,
            **{f"{part} triples": triples.count for part, triples in data.parts.items()},
        },
        str(device),
    )


def _final_scalars(result: dict[str, Any]) -> dict[str, float | None]:
    """The final metrics, for TensorBoard."""
    return {f"final/{one['part']}_mrr_{one['candidates']}": one["mrr"] for one in result["metrics"]}


@contextmanager
def _stopped_early(run: EmbedDirectory) -> Iterator[None]:
    """Adds a hint to the error of a stop before the first batch."""
    try:
        yield
    except InterruptError as error:
        again = f"go on with `outercore embed --resume {quoted(run.path)}`"
        raise InterruptError(
            f"{error} before the first batch\n"
            f"hint: {again if run.begun else 'run the same command again'}"
        ) from error


class Session:
    """One run. Its result depends only on the data set and the configuration."""

    def __init__(
        self,
        graph: Graph,
        config: EmbedConfig,
        model: Model,
        run: EmbedDirectory,
        warm: WarmStart | None,
        observer: Observer,
        stop: StopRequest,
        command: str = "",
    ) -> None:
        progress = until_stopped(observer, stop)
        with _stopped_early(run):
            planned = plan_session(graph, config, progress, warm)
            if not run.begun:
                planned = place_tables(planned, config, run, observer, progress)
        self._graph, self._run = graph, run
        self._config, self._data = planned.config, planned.data
        self._observer, self._stop, self._command = observer, stop, command
        self._model, self._size = model, planned.size
        self._device = choose_device(config.run, planned.placement)
        layout = table_layout(config, self._model, planned.size.relations)
        begun = run.begun
        with _stopped_early(run):
            self._store, self._placement = open_tables(
                run, planned, layout, self._device, warm, progress
            )
        with ExitStack() as stack:
            # The exception refers to this object, and so would keep the lock of the table.
            stack.callback(self._store.close)
            if warm is not None and not begun:
                # After this a restart does not need the other run.
                self._store.checkpoint(Progress())
            self._trainer = Trainer(
                self._store, self._config, self._model, undirected=self._data.undirected
            )
            with _stopped_early(run):
                self._scoring = Scoring(
                    self._config,
                    self._model,
                    self._store,
                    self._data,
                    planned.held_out,
                    planned.known,
                    memory=self._placement.for_evaluation,
                    observer=observer,
                    stop=stop,
                    progress=progress,
                )
            self._epochs = Epochs(
                self._trainer,
                validate=self._scoring.validate if self._scoring.has("valid") else None,
                after_epoch=self._after_epoch,
                observer=observer,
                stop=lambda: stop.requested,
                checkpoint_seconds=config.run.checkpoint_seconds,
                triples=planned.size.triples,
                counters=self._counters,
            )
            self._plan = self._planned()
            self._described = _describe(
                graph,
                self._config,
                self._data,
                self._placement,
                run=str(run.path),
                device=self._device,
            )
            stack.pop_all()

    def fit(self) -> dict[str, Any]:
        """Trains to the end and returns the run record.

        Errors: `InterruptError` after a stop request and its checkpoint; `DivergedError` for a loss
        or a score that is not finite. The run then has the best tables so far.
        """
        with self._writing_scalars():
            return self._fit()

    def _fit(self) -> dict[str, Any]:
        progress = self._epochs.progress
        self._observer.started(self._described["description"])
        if (note := self._unvalidated()) is not None:
            self._observer.note(note)
        if (warning := quality_warning(self._size, self._placement)) is not None:
            self._observer.note(warning)
        if self._store.progress is not None and not self._epochs.finished:
            self._observer.resumed(progress.epoch, progress.triples)
        try:
            self._epochs.run()
            return self._finish("finished")
        except InterruptError as error:
            self._write_record("interrupted", {})
            raise InterruptError(
                f"{error}; everything is in the checkpoint\n"
                f"hint: go on with `outercore embed --resume {quoted(self._run.path)}`"
            ) from error
        except DivergedError as error:
            raise self._diverged(error) from error

    @property
    def progress(self) -> Progress:
        """The progress of the run."""
        return self._epochs.progress

    def close(self) -> None:
        """Releases the table."""
        self._store.close()

    @contextmanager
    def _writing_scalars(self) -> Iterator[None]:
        self._scalars = Scalars(self._run.scalars, self.progress.epoch, RESUME)
        try:
            yield
        finally:
            self._scalars.close()

    def _after_epoch(self, report: EpochReport) -> None:
        self._scalars.add(report.scalars(), report.epoch)
        self._write_record("running", {})

    def _unvalidated(self) -> str | None:
        """Warning for a run without validation; for a plain graph only with `patience`."""
        data, patience = self._config.data, self._config.optimiser.patience
        if self._scoring.has("valid") or not (self._graph.schema.has_triples or patience):
            return None
        if not self._graph.schema.has_triples:
            why, instead = "no links are held out", "a larger `--held-out` holds some out"
        elif data.held_out_triples:
            why, instead = "no triples are held out", "a larger `--held-out` holds some out"
        else:
            why = f"the data set has no triples as `{data.valid}`"
            instead = "import it with `--valid`"
            if set(self._data.parts) == {"train"}:
                instead += ", or hold some out by `--held-out`"
        stops = "; `optimiser.patience` has no effect" if patience else ""
        return (
            f"{why}: nothing is validated, and the rows of the last epoch are kept{stops}; "
            f"{instead}"
        )

    def _finish(self, status: str, **more: str) -> dict[str, Any]:
        """Writes the metrics and tables of the best epoch. `more`: further values of the record."""
        with self._epochs.timeline.span("final figures"):
            metrics = self._figures(status)
        with self._epochs.timeline.span("write tables"):
            self._run.withdraw()
            checksums = {
                self._run.entities.name: self._store.write_entities(self._run.entities),
                self._run.relations.name: self._store.write_relations(self._run.relations),
            }
        best = self._best_epoch()
        result = {"metrics": metrics, "best_epoch": best, **more}
        config = self._config
        self._run.describe(
            {
                "model": config.to_dict()["model"],
                "score": self._run.code("score")[0],
                "score_digest": self._run.code("score")[1],
                "entities": self._data.entities,
                "relations": self._data.relations,
                "width": config.model.dim,
                "data_set": str(Path(self._graph.root).resolve()),
                "fingerprint": self._run.fingerprint,
                "best_epoch": best,
                "metrics": metrics,
                "checksums": checksums,
            }
        )
        record = self._write_record(status, result)
        self._scalars.add(_final_scalars(result), best or 0)
        self._observer.finished(result)
        return record

    def _figures(self, status: str) -> list[dict[str, Any]]:
        """The metrics of the current tables; empty if a failed run cannot be ranked."""
        try:
            return self._scoring.final()
        except (InvalidError, InterruptError) as error:
            if status == "failed":
                return []
            if isinstance(error, InterruptError):
                raise
            raise DivergedError(f"final figures: {error}\nhint: {LOWER}") from error

    def _diverged(self, error: DivergedError) -> DivergedError:
        """Saves the best tables so far, if there was a validation."""
        message, hint = error.message, str(error).partition(HINT)[2]
        run = self._run
        if run.begun or self.progress.reports:
            hint += (
                f"; `outercore embed --resume {quoted(run.path)} --learning-rate LOWER` continues "
                "from its last checkpoint, or anew where there is none"
            )
        if self.progress.best is None:
            self._write_record("failed", {"error": message})
            return DivergedError(f"{message}; no epoch was validated before\nhint: {hint}")
        self._store.restore()
        self._finish("failed", error=message)
        epoch = 1 + (self._best_epoch() or 0)
        return DivergedError(
            f"{message}; the best tables, of epoch {epoch}, are in `{run.path}`\nhint: {hint}"
        )

    def _best_epoch(self) -> int | None:
        """The epoch of the final tables, counted from 0: the best one, or the last complete one.

        The last complete epoch is for runs without validation. Tables of a failed run may include
        later batches.
        """
        reports = self._epochs.reports
        best = [report.epoch for report in reports if report.best]
        return best[-1] if best else (reports[-1].epoch if reports else None)

    def _counters(self) -> dict[str, Any]:
        """The cost of moving partitions since the store was opened."""
        return self._store.counters() if isinstance(self._store, PartitionStore) else {}

    def _planned(self) -> dict[str, Any]:
        """The plan, for the report."""
        plan = {"budget": self._placement.memory, **self._placement.to_dict()}
        if not isinstance(self._store, PartitionStore):
            return plan
        order = order_of(self._config, self._placement)
        walks = Walks(**self._store.shape["walks"])
        partition = self._store.shape["partition_bytes"] * walks.group
        # With a spare slot, the partition of the first swap of a walk is still in memory.
        moved = order.swaps - (order.spare and order.swaps > 0)
        return {
            **plan,
            "order": {
                "kind": order.kind,
                "states": [list(state.resident) for state in order.states],
                "swaps": order.swaps,
                "partition_bytes": partition,
                "bytes_between": moved * walks.sweeps * partition,
                "walks": asdict(walks),
            },
        }

    def _write_record(self, status: str, result: dict[str, Any]) -> dict[str, Any]:
        epochs = self._epochs
        record = {
            "version": 1,
            "job": records.EMBEDDING,
            "status": status,
            "command": self._command,
            **self._described,
            "changes": self._run.changes,
            "plan": self._plan,
            "peak_memory_bytes": records.peak_memory(),
            "epochs": epochs.progress.reports,
            "timeline": epochs.timeline.spans,
            "result": result,
        }
        self._run.write_record(record)
        return record


def choose_device(config: RunConfig, placement: Placement) -> torch.device:
    """The PyTorch device; `auto` is the GPU if it has enough memory for the tables.

    With partitions, the GPU holds the partitions in memory.

    Errors: `InvalidError` if PyTorch finds no GPU; `BudgetError` if its memory is too small.
    """
    device = config.torch_device()
    if device.type == "cpu":
        return device
    free, needed = torch.cuda.mem_get_info()[0], placement.on_device
    if needed <= free:
        return device
    if config.device == "auto":
        return torch.device("cpu")
    raise BudgetError(
        f"device `cuda`: expected {needed:,} bytes for tables and a batch, found {free:,} free\n"
        "hint: a smaller `--memory` puts the tables in partitions; or `--set run.device=cpu`"
    )
