"""Scores a trained model again on the held-out edges of its run."""

from __future__ import annotations

import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.graph import Graph
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.split_names import normal_split
from outercore.training.checkpoint import Position
from outercore.training.config import TrainConfig
from outercore.training.links.work import LinkPlace, LinkWork
from outercore.training.loaders import LoaderFactory
from outercore.training.run_directory import TrainDirectory
from outercore.training.saved import SavedModel

_SCRATCH = "scratch"
"""Beside the model, where embeddings lie while it is scored."""


def evaluate_links(
    saved: SavedModel,
    directory: Path,
    graph: Graph,
    config: TrainConfig,
    *,
    part: str,
    sampled: bool,
    outputs: bool,
    observer: Observer,
    open_loader: LoaderFactory,
) -> dict[str, Any]:
    """All metrics of `valid` or `test`, by message passing over the training edges.

    The model lies in `directory`, in its run; `graph` is the data set that the run was started
    with; `outputs` whether the user wants predictions as files.

    Errors: `InvalidError` where the data set is another one or changed since; `NotFoundError` for a
    part that the run does not have; `UnsupportedError` for `outputs`.
    """
    refuse_outputs(outputs)
    run = run_of(directory, graph)
    run.require_same(graph)
    stop, scratch = StopRequest(), directory / _SCRATCH
    place = LinkPlace(run.links, Position, stop)
    work = LinkWork(graph, config, place, open_loader=open_loader, note=observer.note, saved=saved)
    part, links = normal_split(part), work.links
    if part not in links.parts:
        raise NotFoundError(
            f"run `{run.path}`: no held-out edges `{part}`; it has "
            f"{', '.join(f'`{name}`' for name in links.parts) or 'none'}\n"
            "hint: `--split` takes `valid` or `test`"
        )
    scratch.mkdir(exist_ok=True)
    try:
        # A directory of its own: another evaluation of the same model may be at work.
        with stop_on_signals(stop), tempfile.TemporaryDirectory(dir=scratch) as own:
            work.loaders.release_training()
            work.prepare()
            device = torch.device("cpu")
            scoring = work.scoring(scratch=Path(own), device=device, observer=observer, stop=stop)
            scores = scoring.scores(part, sampled=sampled)
    finally:
        work.loaders.close()
        with suppress(OSError):
            scratch.rmdir()
    pairs = links.part(part)
    return {
        "model": str(directory),
        "data_set": str(Path(graph.root).resolve()),
        "split": part,
        "edges": len(pairs.edges),
        "negatives": len(pairs.negatives),
        "neighbours": "sampled" if sampled else "all",
        "metric": scores.name,
        "score": scores.value(),
        **scores.values(),
    }


def refuse_outputs(outputs: bool) -> None:
    """Errors: `UnsupportedError` where the user wants predictions as files."""
    if outputs:
        raise UnsupportedError(
            "predictions: a model of edges has no predictions of nodes\n"
            "hint: leave `--predictions` and `--logits` out"
        )


def run_of(model: Path, graph: Graph) -> TrainDirectory:
    """The run that a model of edges lies in.

    Errors: `InvalidError` where it lies in none, or the data set is another one.
    """
    if not (model.parent / "config.json").exists():
        raise InvalidError(
            f"model `{model}`: a model of edges is scored on the held-out edges of its run\n"
            "hint: give the run directory"
        )
    run = TrainDirectory.open(model.parent)
    if run.data_set != Path(graph.root).resolve():
        raise InvalidError(
            f"data set `{graph.root}`: a model of edges is scored on those that its run held out "
            f"of `{run.data_set}`\nhint: leave `--data` out"
        )
    return run
