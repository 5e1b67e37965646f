"""A trained model over a data set, ready to predict."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from outercore.base.shell import quoted
from outercore.data.directories import is_data_set, made_by
from outercore.data.far import FarOptions
from outercore.data.graph import Graph
from outercore.errors import InvalidError, NotFoundError
from outercore.files.atomic import scratch_directory
from outercore.runs.progress import Observer
from outercore.runs.record import Timeline
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.training.checkpoint import Position
from outercore.training.inference import Context
from outercore.training.links.work import LinkPlace
from outercore.training.loaders import LoaderFactory
from outercore.training.model_files import SavedModel
from outercore.training.open_work import open_work, require_model_fits
from outercore.training.run_directory import TrainDirectory
from outercore.training.work import Work

SCRATCH = "scratch"
"""The directory of layer states during predictions, next to the model."""


@contextmanager
def opened_work(
    saved: SavedModel,
    directory: Path,
    graph: Graph,
    memory: str | None,
    far: FarOptions | None = None,
    *,
    observer: Observer,
    open_loader: LoaderFactory,
) -> Iterator[tuple[Work, Callable[[], Context]]]:
    """The work of the model in `directory`, and a function that makes it ready to score.

    The function gives the whole budget to the scores: `memory`, or the budget of the training. A
    signal stops them.

    Errors: as `require_model_fits` and `open_work`; for a model of edges `InvalidError` where the
    data set is another one or changed since.
    """
    # The memory server of the training does not belong to the model.
    budget = replace(saved.config.budget, far=far)
    if memory is not None:
        budget = replace(budget, memory=memory)
    config = replace(saved.config, budget=budget)
    require_model_fits(graph, config)
    stop, scratch = StopRequest(), directory / SCRATCH
    place = None
    if config.of_links:
        run = _run_of(directory, graph)
        run.require_same(graph)
        place = LinkPlace(run.links, Position, stop)
    options: dict[str, Any] = {"open_loader": open_loader, "note": observer.note}
    work = open_work(graph, config, place=place, saved=saved, **options)

    def ready() -> Context:
        own = scratch
        if place is not None:
            scratch.mkdir(exist_ok=True)
            # Another process may use the same model, so each has a separate directory.
            own = stack.enter_context(scratch_directory(scratch, "links-"))
        work.loaders.release_training()
        work.prepare(Timeline([]))
        return Context(own, torch.device("cpu"), observer, stop)

    with ExitStack() as stack:
        stack.callback(_remove_empty, scratch)
        stack.callback(work.loaders.close)
        stack.enter_context(stop_on_signals(stop))
        yield work, ready


def _run_of(model: Path, graph: Graph) -> TrainDirectory:
    """The run of a model of edges.

    Errors: `InvalidError` for a model outside of a run, and for another data set.
    """
    if not (model.parent / "config.json").exists():
        raise InvalidError(
            f"model `{model}`: a model of edges needs the edges of its run\n"
            "hint: give the run directory"
        )
    run = TrainDirectory.open(model.parent)
    if run.data_set != Path(graph.root).resolve():
        raise InvalidError(
            f"data set `{graph.root}`: a model of edges scores those of its run's data set, "
            f"`{run.data_set}`\nhint: give that one"
        )
    return run


def model_directory(given: str | Path) -> Path:
    """The path `given`, or the model in the run there.

    Errors: `NotFoundError`, `InvalidError`.
    """
    if not isinstance(given, (str, os.PathLike)):
        raise InvalidError(
            f"model: expected the directory of a run, found {type(given).__name__}\n"
            "hint: give the run that `oc.train` has written, and a network of your own as "
            "`network=...`"
        )
    path = Path(given)
    for directory in (path / "model", path):
        if (directory / "model.json").exists():
            return directory
    give = "give a run directory of `outercore train`, or its `model`"
    if not path.exists():
        raise NotFoundError(f"model `{path}`: no such directory\nhint: {give}")
    verb = made_by(path)
    if verb == "embed":
        raise InvalidError(
            f"model `{path}`: this is a run of `outercore embed`\n"
            f"hint: score it by `outercore embedding evaluate {quoted(path)}`"
        )
    if verb == "train":
        raise NotFoundError(
            f"model `{path}`: the run has no model yet, because no epoch was scored\n"
            f"hint: go on with it by `outercore train --resume {quoted(path)}`"
        )
    if is_data_set(path):
        raise InvalidError(
            f"model `{path}`: this is a data set\n"
            f"hint: {give}; `outercore train {quoted(path)}` trains a model"
        )
    raise NotFoundError(f"model `{path}`: no `model.json` there\nhint: {give}")


def _remove_empty(directory: Path) -> None:
    """Removes an unused directory."""
    # Another evaluation of the same model may be using it.
    with suppress(OSError):
        directory.rmdir()
