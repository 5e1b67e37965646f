"""Whole runs: embed a data set, resume a run."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, closing
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
from outercore.embedding.config import CHANGEABLE, EmbedConfig, configuration
from outercore.embedding.data.parts import is_plain
from outercore.embedding.data.warm_start import require_its_run, warm_start
from outercore.embedding.gradients.custom import (
    check_score,
    own_score,
    require_same_score,
)
from outercore.embedding.gradients.models import ScoreFunction, build_model
from outercore.embedding.gradients.trainer import threads_of
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.use.embedding import Embedding
from outercore.errors import InvalidError
from outercore.runs.custom_code import CustomCode
from outercore.runs.places import new_run, only_run
from outercore.runs.progress import Observer
from outercore.runs.resume import Change
from outercore.runs.stop import StopRequest, stop_on_signals

if TYPE_CHECKING:
    from outercore.data.graph import Graph
    from outercore.embedding.data.warm_start import WarmStart

_COMMAND = "outercore embed"


@dataclass(frozen=True)
class EmbedResult:
    """A finished run."""

    run: Path
    """Its directory."""
    record: dict[str, Any]
    """What happened, as in `record.json`."""

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """The metrics at the end, each with its `part` and `protocol`."""
        found: list[dict[str, Any]] = self.record["result"]["metrics"]
        return found

    @property
    def mrr(self) -> float | None:
        """The mean reciprocal rank of the test triples, else of the validation triples.

        Filtered where it was filtered; `None` where nothing was held out.
        """
        for part in ("test", "valid"):
            for one in self.metrics:
                if one["part"] == part:
                    return float(one["mrr"])
        return None

    @property
    def entities(self) -> NDArray[np.float32]:
        """The entities' rows by id, mapped: float32 [entities, width]."""
        return self.embedding.entities

    @property
    def relations(self) -> NDArray[np.float32]:
        """The relations' rows; the second half are the reciprocal ones, if there are."""
        return self.embedding.relations

    @cached_property
    def embedding(self) -> Embedding:
        """The same with names, neighbours and predictions."""
        return Embedding.open(self.run)

    def _repr_html_(self) -> str:
        rows, width = self.entities.shape
        figures = [
            (f"{one['part']} MRR, among {one['candidates']}", f"{one['mrr']:.4f}")
            for one in self.metrics
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
    data_set: str | Path,
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
        data_set: a data set; its triples, or without triples the links of its topology.
        config: a configuration, its groups, or a JSON file of them.
        recipe: a measured configuration by name, on which `config` and `options` are laid.
        out: the run's directory, by default `runs/DATA_SET-MODEL-NUMBER`.
        start_from: a run whose rows are the first ones, where both have the entity.
        from_data: the data set of that run, if it was moved.
        score: your own score function, or where it is; see
            `outercore.embedding.gradients.custom.own_score`.
        observer: is called with batches, epochs and rankings.
        command: for the record.
        options: single values by the names in `docs/options.md`, such as `dim=64`.

    Raises:
        BudgetError: less than the least memory; the message says how much that is.
        InterruptError: after Ctrl-C, SIGTERM or SIGHUP, with everything in a checkpoint.
        InvalidError: a wrong option, or a loss that is not finite.
        NotFoundError: no data set, no triples.

    Example:
        >>> import outercore as oc
        >>> result = oc.embed(tiny_dataset, dim=8, epochs=2, threads=1, out=tmp_path / "run")
        >>> result.entities.shape, result.metrics[0]["part"]
        ((200, 8), 'valid')
    """
    require_its_run(start_from, from_data)
    graph = outercore.open(data_set)
    own = None if score is None else own_score(score)
    chosen = configuration(
        config,
        recipe=recipe,
        plain_graph=is_plain(graph),
        has_score=own is not None,
        **options,
    )
    name = f"{Path(graph.root).resolve().name}-{chosen.model.kind}"
    with new_run(None if out is None else Path(out), name, _COMMAND) as path:
        warm = None
        if start_from is not None:
            warm = warm_start(start_from, graph, chosen.model, data_set=from_data)
        if own is not None:
            check_score(own, chosen.model.dim, chosen.model.relation_width)
        more = {} if start_from is None else {"started_from": str(Path(start_from).resolve())}
        if from_data is not None:
            more["started_from_data"] = str(Path(from_data).resolve())
        if own is not None:
            more |= {"score": own.place, "score_digest": own.digest}
        run = EmbedDirectory.create(path, graph, chosen, more=more)
        with run.training(new=True):
            return _run(graph, run, warm, own, observer, command)


def resume(
    run: str | Path,
    *,
    memory: str | int | None = None,
    score: ScoreFunction | str | None = None,
    observer: Observer | None = None,
    command: str = "",
    **options: Any,
) -> EmbedResult:
    """Goes on with a run from its last checkpoint, to the bits it would have had uninterrupted.

    A finished run continues with more epochs or more patience. A diverged run continues with
    another learning rate or weight of the regulariser.

    Args:
        run: its directory.
        memory: another budget than the run had; partitions and slots stay as they are once there is
            a table.
        score: the run's custom score function, if any.
        observer: told what happens.
        command: for the record.
        options: new values from here on; `outercore.embedding.config.CHANGEABLE` has the names.

    Raises:
        InvalidError: the data set or the score function changed since; an option that may not
            change, or with which nothing is left to train. The others as `embed`.
        NotFoundError: no such run.

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
            # Somebody has deleted what training needed.
            if change.values:
                raise _no_table(directory)
            return EmbedResult(directory.path, directory.record())
        own = require_same_score(f"run `{directory.path}`", directory.code("score"), score)
        graph = outercore.open(directory.data_set)
        directory.require_same(graph)
        # Without a checkpoint the run begins anew, with the same first rows.
        warm = None
        other, old_data = directory.started_from
        if other is not None and not directory.begun:
            warm = warm_start(other, graph, directory.config().model, data_set=old_data)
        return _run(graph, directory, warm, own, observer, command, memory, change=change)


def _run(
    graph: Graph,
    run: EmbedDirectory,
    warm: WarmStart | None,
    own: CustomCode | None,
    observer: Observer | None,
    command: str,
    memory: str | int | None = None,
    change: Change[EmbedConfig] | None = None,
) -> EmbedResult:
    from outercore.embedding.session import Session

    config = run.config() if change is None else change.after
    if memory is not None:
        config = replace(config, budget=replace(config.budget, memory=str(memory)))
    stop = StopRequest()
    with ExitStack() as stack:
        stack.enter_context(threads_of(config.budget.threads))
        stack.enter_context(stop_on_signals(stop))
        model = build_model(config.model, own and own.value)
        watch = observer or Observer()
        session = Session(graph, config, model, run, warm, watch, stop, command)
        stack.enter_context(closing(session))
        if change is not None and change.values:
            progress = session.progress
            change.require_more(progress.epoch, progress.stale)
            run.change(change.values, epoch=progress.epoch, triples=progress.triples)
            for name, (before, after) in change.values.items():
                watch.note(f"{name} is {after} from here on, {before} before")
        return EmbedResult(run.path, session.fit())


def _change(config: EmbedConfig, options: Mapping[str, Any]) -> Change[EmbedConfig]:
    """The change of a configuration by options.

    Errors: as `Change.of`; `InvalidError` for the weight of a regulariser without any.
    """
    change = Change.of(config, options, CHANGEABLE)
    weight = next((path for path in change.values if path.startswith("regulariser.")), None)
    if weight is not None and config.regulariser.kind == "none":
        raise InvalidError(
            f"{weight}: the run has no regulariser, so that nothing would change\n"
            "hint: leave it out, or start another run"
        )
    return change


def _no_table(run: EmbedDirectory) -> InvalidError:
    return InvalidError(
        f"run `{run.path}`: `{run.state.name}` is not there any more, from which it would go on\n"
        f"hint: `outercore embed {quoted(run.data_set)} --from {quoted(run.path)}` with the "
        "run's other options begins with its rows"
    )
