"""One embedding run, from its arguments or its last checkpoint to its metrics and tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

import outercore
from outercore.base.display import html_table
from outercore.base.shell import quoted
from outercore.base.sizes import format_size
from outercore.embedding.config import CHANGEABLE, RESUME, EmbedConfig, RunConfig
from outercore.embedding.data.warm_start import warm_start
from outercore.embedding.epochs import LOWER, Epochs
from outercore.embedding.gradients.custom import require_same_score
from outercore.embedding.gradients.models import ScoreFunction, build_model
from outercore.embedding.gradients.trainer import (
    DivergedError,
    Trainer,
    table_layout,
    torch_threads,
)
from outercore.embedding.preparation import Inputs, plan_session
from outercore.embedding.ranking.scoring import Scoring
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.order import Walks
from outercore.embedding.tables.placement import Placement, order_of, quality_warning
from outercore.embedding.tables.store import EpochReport, Progress
from outercore.embedding.use.embedding import Embedding
from outercore.errors import BudgetError, InterruptError, InvalidError
from outercore.runs import record as records
from outercore.runs.places import new_run, only_run
from outercore.runs.progress import Observer, until_stopped
from outercore.runs.resume import Change
from outercore.runs.scalars import Scalars
from outercore.runs.stop import StopRequest, stop_on_signals

if TYPE_CHECKING:
    from outercore.data.graph import Source

_COMMAND = "outercore embed"


@dataclass(frozen=True)
class EmbedResult:
    """A finished run."""

    run: Path
    """The run directory."""
    record: dict[str, Any]
    """The run record, as in `record.json`."""

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The final metrics, each with its `part` and `protocol`."""
        metrics: list[dict[str, Any]] = self.record["result"]["metrics"]
        return metrics

    @property
    def mrr(self) -> float | None:
        """The mean reciprocal rank of the test triples, or else of the validation triples.

        It is filtered if the evaluation was filtered. It is `None` without held-out triples.
        """
        scores = {metrics["part"]: metrics["mrr"] for metrics in reversed(self.metrics)}
        return scores.get("test", scores.get("valid"))

    @property
    def entities(self) -> NDArray[np.float32]:
        """The rows of entities by id, mapped.

        Shapes: float32 [entities, width].
        """
        return self.embedding.entities

    @property
    def relations(self) -> NDArray[np.float32]:
        """The rows of relations. Reciprocal relations, if any, are the second half."""
        return self.embedding.relations

    @cached_property
    def embedding(self) -> Embedding:
        """The embedding, for names, neighbours and predictions."""
        return Embedding.open(self.run)

    def _repr_html_(self) -> str:
        rows, width = self.entities.shape
        figures = [
            (f"{metrics['part']} MRR, among {metrics['candidates']}", f"{metrics['mrr']:.4f}")
            for metrics in self.metrics
        ]
        table = f"{rows:,} rows of {width:,} numbers, {format_size(self.entities.nbytes)}"
        title = f"Embedding by {self.record['description']['model']}"
        return html_table(title, [*figures, ("entities", table), ("run", str(self.run))])

    def __repr__(self) -> str:
        rows, width = self.entities.shape
        score = "" if self.mrr is None else f", mrr={self.mrr:.4f}"
        size = format_size(self.entities.nbytes)
        return f"EmbedResult(run='{self.run}', entities=[{rows}, {width}] ({size}){score})"


def embed(
    data_set: Source,
    config: EmbedConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    recipe: str | None = None,
    out: str | Path | None = None,
    start_from: str | Path | None = None,
    from_data: str | Path | None = None,
    score: ScoreFunction | str | None = None,
    observer: Observer | None = None,
    command: str = "",
    **options: Any,
) -> EmbedResult:
    """Embeds the entities of a knowledge graph, or the nodes of a graph.

    Args:
        data_set: the directory of a data set, or an open graph. If it has no triples, the run
            trains on the links of its topology.
        config: a configuration, its groups, or a JSON file of them.
        recipe: name of a measured configuration; `config` and `options` override it.
        out: the run directory. Default: `runs/DATA_SET-MODEL-NUMBER`.
        start_from: a run that provides initial rows for all entities that it shares.
        from_data: the new directory of that run's data set, if it was moved.
        score: a custom score function, or its place `FILE.py:NAME`; see
            `outercore.embedding.gradients.custom.load_score`.
        observer: called with batches, epochs and rankings.
        command: the command line, for the run record.
        options: single values by the names in `docs/options.md`, such as `dim=64`.

    Raises:
        BudgetError: the memory is too small; the message has the smallest sufficient budget.
        InterruptError: Ctrl-C, SIGTERM or SIGHUP. A checkpoint has all progress.
        InvalidError: a wrong option, or a loss that is not finite.
        NotFoundError: the data set or its triples do not exist.

    Example:
        >>> import outercore as oc
        >>> result = oc.embed(tiny_dataset, dim=8, epochs=2, threads=1, out=tmp_path / "run")
        >>> result.entities.shape, result.metrics[0]["part"]
        ((200, 8), 'valid')
    """
    inputs = Inputs.of(
        data_set,
        config,
        options,
        recipe=recipe,
        start_from=start_from,
        from_data=from_data,
        score=score,
    )
    name = f"{Path(inputs.graph.root).resolve().name}-{inputs.config.model.kind}"
    more: dict[str, Any] = {}
    if start_from is not None:
        more["started_from"] = str(Path(start_from).resolve())
    if from_data is not None:
        more["started_from_data"] = str(Path(from_data).resolve())
    if inputs.score is not None:
        more |= {"score": inputs.score.place, "score_digest": inputs.score.digest}
    with new_run(None if out is None else Path(out), name, _COMMAND) as path:
        run = EmbedDirectory.create(path, inputs.graph, inputs.config, more=more)
        with run.training(new=True):
            return _run(inputs, run, observer, command)


def resume(
    run: str | Path,
    *,
    memory: str | int | None = None,
    score: ScoreFunction | str | None = None,
    observer: Observer | None = None,
    command: str = "",
    **options: Any,
) -> EmbedResult:
    """Continues a run from its last checkpoint.

    The result is bit-identical to an uninterrupted run.

    A finished run continues with more epochs or more patience. A diverged run continues with
    another learning rate or another weight of the regulariser.

    Args:
        run: the run directory.
        memory: a new budget. If the run already has a table, its partitions and slots do not
            change.
        score: the custom score function of the run, if any.
        observer: called with batches, epochs and rankings.
        command: the command line, for the run record.
        options: new values for the rest of the run; `outercore.embedding.config.CHANGEABLE` has
            their names.

    Raises:
        InvalidError: the data set or the score function changed, an option must not change, or
            nothing is left to train. Further errors as for `embed`.
        NotFoundError: the directory is not a run.

    Example:
        >>> import outercore as oc
        >>> options = {"dim": 8, "epochs": 2, "threads": 1}
        >>> result = oc.embed(tiny_dataset, out=tmp_path / "run", **options)
        >>> len(oc.resume(tmp_path / "run", epochs=3).record["epochs"])
        3
    """
    directory = EmbedDirectory.open(Path(run))
    with only_run(directory.path, _COMMAND), directory.training(new=False):
        change = _change(directory.config(), options)
        if directory.finished and not directory.begun:
            # The user has deleted the directory with the files for training.
            if not change.values:
                return EmbedResult(directory.path, directory.record())
            raise InvalidError(
                f"run `{directory.path}`: `{directory.state.name}` is not there any more, from "
                f"which it would go on\nhint: `outercore embed {quoted(directory.data_set)} --from "
                f"{quoted(directory.path)}` with the run's other options begins with its rows"
            )
        code = require_same_score(f"run `{directory.path}`", directory.code("score"), score)
        graph = outercore.open(directory.data_set)
        directory.require_same(graph)
        config = change.after
        if memory is not None:
            config = replace(config, budget=replace(config.budget, memory=str(memory)))
        # Without a checkpoint the run starts again, from the same initial rows.
        warm = None
        other, old_data = directory.started_from
        if other is not None and not directory.begun:
            warm = warm_start(other, graph, config.model, data_set=old_data)
        return _run(Inputs(graph, config, code, warm), directory, observer, command, change)


def _run(
    inputs: Inputs,
    run: EmbedDirectory,
    observer: Observer | None,
    command: str,
    change: Change[EmbedConfig] | None = None,
) -> EmbedResult:
    stop, watch = StopRequest(), observer or Observer()
    with (
        torch_threads(inputs.config.budget.threads),
        stop_on_signals(stop),
        closing(Session(inputs, run, watch, stop, command)) as session,
    ):
        if change is not None and change.values:
            progress = session.progress
            change.require_more(progress.epoch, progress.stale)
            run.change(change.values, epoch=progress.epoch, triples=progress.triples)
            for name, (before, after) in change.values.items():
                watch.note(f"{name} is {after} from here on, {before} before")
        return EmbedResult(run.path, session.fit())


def _change(config: EmbedConfig, options: Mapping[str, Any]) -> Change[EmbedConfig]:
    """The change of a configuration by options.

    Errors: as `Change.of`; `InvalidError` for a weight of the regulariser if the run has no
    regulariser.
    """
    change = Change.of(config, options, CHANGEABLE)
    weight = next((path for path in change.values if path.startswith("regulariser.")), None)
    if weight is not None and config.regulariser.kind == "none":
        raise InvalidError(
            f"{weight}: the run has no regulariser, so that nothing would change\n"
            "hint: leave it out, or start another run"
        )
    return change


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
        inputs: Inputs,
        run: EmbedDirectory,
        observer: Observer,
        stop: StopRequest,
        command: str = "",
    ) -> None:
        progress = until_stopped(observer, stop)
        graph, config, begun = inputs.graph, inputs.config, run.begun
        self._graph, self._run, self._observer, self._command = graph, run, observer, command
        model = build_model(config.model, inputs.score and inputs.score.value)
        with _stopped_early(run):
            planned = plan_session(graph, config, progress, inputs.warm)
            if not begun:
                planned = planned.placed(config, run, observer, progress)
        self._device = choose_device(config.run, planned.placement)
        layout = table_layout(config, model, planned.size.relations)
        with _stopped_early(run):
            self._store, planned = planned.open_tables(run, layout, self._device, progress)
        self._planned = planned
        with ExitStack() as stack:
            # The exception refers to this object, which would keep the table locked.
            stack.callback(self._store.close)
            if inputs.warm is not None and not begun:
                # With this checkpoint, a restart does not need the other run.
                self._store.checkpoint(Progress())
            trainer = Trainer(
                self._store, planned.config, model, undirected=planned.data.undirected
            )
            with _stopped_early(run):
                self._scoring = Scoring(
                    planned.config,
                    model,
                    self._store,
                    planned.data,
                    planned.held_out,
                    planned.known,
                    memory=planned.placement.for_evaluation,
                    observer=observer,
                    stop=stop,
                )
            self._epochs = Epochs(
                trainer,
                validate=self._scoring.validate if self._scoring.has("valid") else None,
                after_epoch=self._after_epoch,
                observer=observer,
                stop=lambda: stop.requested,
                checkpoint_seconds=config.run.checkpoint_seconds,
                triples=planned.size.triples,
            )
            self._described = self._describe()
            self._plan = self._describe_plan()
            stack.pop_all()

    def fit(self) -> dict[str, Any]:
        """Trains to the end and returns the run record.

        Errors: `InterruptError` after a stop request and its checkpoint; `DivergedError` for a loss
        or a score that is not finite. The run then has the best tables so far.
        """
        self._scalars = Scalars(self._run.scalars, self.progress.epoch, RESUME)
        with closing(self._scalars):
            return self._fit()

    def _fit(self) -> dict[str, Any]:
        progress = self._epochs.progress
        self._observer.started(self._described["description"])
        if (note := self._unvalidated()) is not None:
            self._observer.note(note)
        if (warning := quality_warning(self._planned.size, self._planned.placement)) is not None:
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

    def _after_epoch(self, report: EpochReport) -> None:
        self._scalars.add(report.scalars(), report.epoch)
        self._write_record("running", {})

    def _unvalidated(self) -> str | None:
        """A warning for a run without validation; for a plain graph, only with `patience`."""
        config = self._planned.config
        data, patience = config.data, config.optimiser.patience
        if self._scoring.has("valid") or not (self._graph.schema.has_triples or patience):
            return None
        if not self._graph.schema.has_triples:
            why, instead = "no links are held out", "a larger `--held-out` holds some out"
        elif data.held_out_triples:
            why, instead = "no triples are held out", "a larger `--held-out` holds some out"
        else:
            why = f"the data set has no triples as `{data.valid}`"
            instead = "import it with `--valid`"
            if set(self._planned.data.parts) == {"train"}:
                instead += ", or hold some out by `--held-out`"
        stops = "; `optimiser.patience` has no effect" if patience else ""
        return (
            f"{why}: nothing is validated, and the rows of the last epoch are kept{stops}; "
            f"{instead}"
        )

    def _finish(self, status: str, **more: str) -> dict[str, Any]:
        """Writes the metrics and tables of the best epoch. `more`: further values of the record."""
        run, store, data = self._run, self._store, self._planned.data
        with self._epochs.timeline.span("final figures"):
            metrics = self._metrics(status)
        with self._epochs.timeline.span("write tables"):
            run.withdraw()
            checksums = {
                run.entities.name: store.write_entities(run.entities),
                run.relations.name: store.write_relations(run.relations),
            }
        best = self._best_epoch()
        score, digest = run.code("score")
        run.describe(
            {
                "model": self._planned.config.to_dict()["model"],
                "score": score,
                "score_digest": digest,
                "entities": data.entities,
                "relations": data.relations,
                "width": self._planned.config.model.dim,
                "data_set": str(Path(self._graph.root).resolve()),
                "fingerprint": run.fingerprint,
                "best_epoch": best,
                "metrics": metrics,
                "checksums": checksums,
            }
        )
        result = {"metrics": metrics, "best_epoch": best, **more}
        record = self._write_record(status, result)
        final = {f"final/{each['part']}_mrr_{each['candidates']}": each["mrr"] for each in metrics}
        self._scalars.add(final, best or 0)
        self._observer.finished(result)
        return record

    def _metrics(self, status: str) -> list[dict[str, Any]]:
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
        """Saves the best tables so far, if there was a validation. Returns the error to raise."""
        message, _, hint = str(error).partition("\nhint: ")
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
        """The epoch of the final tables, counted from 0: the epoch with the best validation.

        Without validation, it is the last complete epoch. Tables of a failed run may include later
        batches.
        """
        reports = self._epochs.reports
        best = [report.epoch for report in reports if report.best]
        return best[-1] if best else (reports[-1].epoch if reports else None)

    def _describe(self) -> dict[str, Any]:
        """The first part of the run record: job, data set and machine."""
        config, data, placement = (
            self._planned.config,
            self._planned.data,
            self._planned.placement,
        )
        relations = data.relations * (2 if config.model.reciprocal else 1)
        return records.opening(
            Path(self._graph.root),
            config.to_dict(),
            {
                "run": str(self._run.path),
                "model": config.model.kind,
                "dim": config.model.dim,
                "parameters": data.entities * config.model.dim
                + relations * config.model.relation_width,
                "partitions": placement.partitions,
                "slots": placement.slots,
                "metric": "MRR",
                "device": str(self._device),
            },
            {
                "entities": data.entities,
                "relations": data.relations,
                **{f"{part} triples": triples.count for part, triples in data.parts.items()},
            },
            str(self._device),
        )

    def _describe_plan(self) -> dict[str, Any]:
        """The memory plan of the run, for the record and the report."""
        placement, shape = self._planned.placement, self._store.shape
        plan = {"budget": placement.memory, **asdict(placement)}
        if placement.in_memory:
            return plan
        order = order_of(self._planned.config, placement)
        walks = Walks(**shape["walks"])
        partition = shape["partition_bytes"] * walks.group
        # With a spare slot, the partition that the first swap of a walk loads is still in memory.
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
