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
from outercore.errors import InvalidError, NotFoundError
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.training.config import TrainConfig
from outercore.training.inference import Predictor
from outercore.training.loaders import LoaderFactory
from outercore.training.model_files import SavedModel
from outercore.training.open_work import open_predicting
from outercore.training.typed.inputs import require_model_fits
from outercore.training.work import PredictingWork

SCRATCH = "scratch"
"""Beside a model, where layer states lie while it predicts."""


def open_graph(path: Path) -> Any:
    """`outercore.open`, imported at the first call."""
    import outercore

    return outercore.open(path)


def config_under(
    saved: SavedModel, graph: Any, memory: str | None, far: FarOptions | None = None
) -> TrainConfig:
    """The configuration of the training, within another budget where `memory` says one.

    Errors: `UnsupportedError`, `NotFoundError` where the model is not for such a data set.
    """
    # The memory server of the training is no part of the model.
    config = replace(saved.config, budget=replace(saved.config.budget, far=far))
    if memory is not None:
        config = replace(config, budget=replace(config.budget, memory=memory))
    require_model_fits(graph, config)
    return config


@contextmanager
def predicting(
    saved: SavedModel,
    directory: Path,
    graph: Any,
    config: TrainConfig,
    *,
    observer: Observer,
    open_loader: LoaderFactory,
) -> Iterator[tuple[PredictingWork, Callable[[], Predictor]]]:
    """The work of the model that lies in `directory`, and what opens its predictor.

    The predictor has all of the budget, until a signal stops it.

    Errors: as `open_predicting`.
    """
    work = open_predicting(graph, config, open_loader=open_loader, note=observer.note, saved=saved)
    with ExitStack() as stack:
        stack.callback(remove_empty, directory / SCRATCH)
        stack.callback(work.loaders.close)
        yield work, lambda: _predictor(stack, work, directory, observer)


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


def remove_empty(directory: Path) -> None:
    """Removes a directory that nobody uses any more."""
    # Another evaluation of the same model may be using it.
    with suppress(OSError):
        directory.rmdir()


def _predictor(
    stack: ExitStack, work: PredictingWork, directory: Path, observer: Observer
) -> Predictor:
    """What scores a saved model with all of the budget, until a signal stops it."""
    stop = StopRequest()
    work.loaders.release_training()
    work.prepare()
    stack.enter_context(stop_on_signals(stop))
    return work.predictor(
        scratch=directory / SCRATCH, device=torch.device("cpu"), observer=observer, stop=stop
    )
