"""Scores a trained model again on the held-out edges of its run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from outercore.data.graph import Graph
from outercore.data.split_names import normal_split
from outercore.errors import NotFoundError, UnsupportedError
from outercore.runs.progress import Observer
from outercore.training.config import TrainConfig
from outercore.training.links.trained_model import opened_links
from outercore.training.loaders import LoaderFactory
from outercore.training.model_files import SavedModel


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
    """All metrics of `valid` or `test`: by messages along the training edges, or along the past.

    The model lies in `directory`, in its run; `graph` is the data set that the run was started
    with; `outputs` whether the user wants predictions as files.

    Errors: `InvalidError` where the data set is another one or changed since; `NotFoundError` for a
    part that the run does not have; `UnsupportedError` for `outputs`.
    """
    if outputs:
        raise UnsupportedError(
            "predictions: a model of edges has no predictions of nodes\n"
            "hint: leave `--predictions` and `--logits` out"
        )
    with opened_links(
        saved, directory, graph, config, observer=observer, open_loader=open_loader
    ) as (work, open_scoring):
        part, links = normal_split(part), work.links
        if part not in links.parts:
            raise NotFoundError(
                f"run `{directory.parent}`: no held-out edges `{part}`; it has "
                f"{', '.join(f'`{name}`' for name in links.parts) or 'none'}\n"
                "hint: `--split` takes `valid` or `test`"
            )
        scores = open_scoring().scores(part, sampled=sampled)
        edges, negatives = links.sizes(part)
    return {
        "model": str(directory),
        "data_set": str(Path(graph.root).resolve()),
        "split": part,
        "edges": edges,
        "negatives": negatives,
        "neighbours": "sampled" if sampled else "all",
        "metric": scores.name,
        "score": scores.value(),
        **scores.values(),
    }
