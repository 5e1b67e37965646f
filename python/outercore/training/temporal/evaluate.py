"""Scores a trained model again on the edges that came after its training."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from outercore.errors import NotFoundError
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.split_names import normal_split
from outercore.training.config import TrainConfig
from outercore.training.links.evaluate import refuse_outputs
from outercore.training.links.opened import run_of
from outercore.training.loaders import LoaderFactory
from outercore.training.saved import SavedModel
from outercore.training.temporal.work import TemporalLinkWork

if TYPE_CHECKING:
    from outercore.graph import Graph


def evaluate_temporal(
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
    """All metrics of `valid` or `test`, by the neighbourhoods that the ends had at each time.

    Arguments and errors as those of `evaluate_links`; neighbours are sampled in any case.
    """
    del sampled
    refuse_outputs(outputs)
    run = run_of(directory, graph)
    run.require_same(graph)
    stop = StopRequest()
    work = TemporalLinkWork(graph, config, open_loader=open_loader, note=observer.note, saved=saved)
    part, links = normal_split(part), work.links
    if part not in links.parts:
        raise NotFoundError(
            f"run `{run.path}`: no held-out edges `{part}`; it has "
            f"{', '.join(f'`{name}`' for name in links.parts) or 'none'}\n"
            "hint: `--split` takes `valid` or `test`"
        )
    try:
        with stop_on_signals(stop):
            work.loaders.release_training()
            scoring = work.scoring(
                scratch=run.scratch, device=torch.device("cpu"), observer=observer, stop=stop
            )
            scores = scoring.scores(part)
    finally:
        work.loaders.close()
    return {
        "model": str(directory),
        "data_set": str(Path(graph.root).resolve()),
        "split": part,
        "edges": links.count(part),
        "negatives": links.count(part),
        "neighbours": "sampled",
        "metric": scores.name,
        "score": scores.value(),
        **scores.values(),
    }
