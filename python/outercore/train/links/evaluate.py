"""Scores a trained model again on the held-out edges of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import torch

from outercore.errors import InvalidError, NotFoundError
from outercore.graph import Graph
from outercore.split_names import normal_split
from outercore.train.checkpoint import Position
from outercore.train.config import LinkMetric, TrainConfig
from outercore.train.degrees import in_degrees
from outercore.train.inference import Inference
from outercore.train.links.data import LinkData, open_links
from outercore.train.links.loaders import LinkLoaders
from outercore.train.links.model import LinkModel
from outercore.train.links.scoring import LinkScoring
from outercore.train.links.trainer import inference_sampling
from outercore.train.loaders import LoaderFactory
from outercore.train.models import Network
from outercore.train.observe import Observer
from outercore.train.run_directory import RunDirectory
from outercore.train.saved import SavedModel
from outercore.train.stopping import StopRequest, stop_on_signals


def evaluate_links(
    saved: SavedModel,
    run: RunDirectory,
    graph: Graph,
    config: TrainConfig,
    *,
    part: str,
    sampled: bool,
    scratch: Path,
    observer: Observer,
    open_loader: LoaderFactory,
) -> dict[str, Any]:
    """All metrics of `valid` or `test`, by message passing over the training edges.

    `graph` is the data set that the run was started with.

    Errors: `InvalidError` where the data set changed since; `NotFoundError` for a part that the run
    does not have.
    """
    run.require_same(graph)
    links = open_links(run.links, graph, run.config())
    part = normal_split(part)
    if part not in links.parts:
        raise NotFoundError(
            f"run `{run.path}`: no held-out edges `{part}`; it has "
            f"{', '.join(f'`{name}`' for name in links.parts) or 'none'}\n"
            "hint: `--split` takes `valid` or `test`"
        )
    model = saved.model
    if not isinstance(model, LinkModel):
        raise InvalidError(f"model of run `{run.path}`: expected one of edges")
    loaders = LinkLoaders(
        links,
        config,
        Position,
        degrees=model.needs_degrees,
        open_loader=open_loader,
        note=observer.note,
    )
    loaders.release_training()
    stop = StopRequest()
    try:
        with stop_on_signals(stop):
            inference = _inference(links, model, config, loaders, scratch, observer, stop)
            metric = cast("LinkMetric", saved.task.metric_name)
            device = torch.device("cpu")
            scoring = LinkScoring(links, config, model, metric, inference, scratch, device)
            scores = scoring.scores(part, sampled=sampled)
    finally:
        loaders.close()
        for file in scratch.glob("*.npy"):
            file.unlink()
    pairs = links.part(part)
    return {
        "split": part,
        "edges": len(pairs.edges),
        "negatives": len(pairs.negatives),
        "neighbours": "sampled" if sampled else "all",
        "metric": scores.name,
        "score": scores.value(),
        **scores.values(),
    }


def _inference(
    links: LinkData,
    model: LinkModel,
    config: TrainConfig,
    loaders: LinkLoaders,
    scratch: Path,
    observer: Observer,
    stop: StopRequest,
) -> Inference:
    degrees, encoder = None, model.encoder
    if isinstance(encoder, Network) and encoder.needs_degrees:
        table = in_degrees(links.graph, count_loops=encoder.counts_loops)
        degrees = torch.from_numpy(table)
    return Inference(
        links.graph,
        encoder,
        inference_sampling(links, config, scratch),
        loaders,
        degrees=degrees,
        scratch=scratch,
        device=torch.device("cpu"),
        observer=observer,
        stop=stop,
    )
