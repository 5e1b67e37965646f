"""The functions `embed` and `resume`, which run a whole embedding."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

import outercore
from outercore.base.display import html_table
from outercore.base.shell import quoted
from outercore.base.sizes import format_size
from outercore.embedding.config import CHANGEABLE, EmbedConfig
from outercore.embedding.data.warm_start import warm_start
from outercore.embedding.gradients.custom import require_same_score
from outercore.embedding.gradients.models import ScoreFunction
from outercore.embedding.gradients.trainer import torch_threads
from outercore.embedding.preparation import Inputs
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.session import Session
from outercore.embedding.use.embedding import Embedding
from outercore.errors import InvalidError
from outercore.runs.places import new_run, only_run
from outercore.runs.progress import Observer
from outercore.runs.resume import Change
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
        """The mean reciprocal rank of the test triples; without any, of the validation triples.

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
        """The rows of relations. The second half are the reciprocal relations, if any."""
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
        data_set: the directory of a data set, or an open graph. Without triples, the links of its
            topology are embedded.
        config: a configuration, its groups, or a JSON file of them.
        recipe: name of a measured configuration; `config` and `options` override it.
        out: the run directory. Default: `runs/DATA_SET-MODEL-NUMBER`.
        start_from: a run that provides initial rows for all entities that it shares.
        from_data: the new directory of that run's data set, if it was moved.
        score: a custom score function, or its place; see
            `outercore.embedding.gradients.custom.load_score`.
        observer: called with batches, epochs and rankings.
        command: the command line, for the record.
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
    """Continues a run from its last checkpoint. The result equals an uninterrupted run, bit by bit.

    A finished run continues with more epochs or more patience. A diverged run continues with
    another learning rate or another weight of the regulariser.

    Args:
        run: the run directory.
        memory: a new budget. Partitions and slots do not change once the run has a table.
        score: the custom score function of the run, if any.
        observer: called with batches, epochs and rankings.
        command: the command line, for the record.
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
            # The user has deleted the files for training.
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

    Errors: as `Change.of`; `InvalidError` for a weight of the regulariser if the run lacks one.
    """
    change = Change.of(config, options, CHANGEABLE)
    weight = next((path for path in change.values if path.startswith("regulariser.")), None)
    if weight is not None and config.regulariser.kind == "none":
        raise InvalidError(
            f"{weight}: the run has no regulariser, so that nothing would change\n"
            "hint: leave it out, or start another run"
        )
    return change
