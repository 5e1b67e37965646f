"""A trained model of edges with those of its run, ready to score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import torch

from outercore.data.graph import Graph
from outercore.errors import InvalidError
from outercore.files.atomic import scratch_directory
from outercore.runs.progress import Observer
from outercore.runs.stop import StopRequest, stop_on_signals
from outercore.training.checkpoint import Position
from outercore.training.config import TrainConfig
from outercore.training.links.scoring import LinkScoring
from outercore.training.links.work import LinkPlace, LinkWork
from outercore.training.loaders import LoaderFactory
from outercore.training.model_files import SavedModel
from outercore.training.run_directory import TrainDirectory
from outercore.training.temporal.scoring import TemporalScoring
from outercore.training.temporal.work import TemporalLinkWork
from outercore.training.trained_model import SCRATCH, remove_empty


@contextmanager
def opened_links(
    saved: SavedModel,
    directory: Path,
    graph: Graph,
    config: TrainConfig,
    *,
    observer: Observer,
    open_loader: LoaderFactory,
) -> Iterator[tuple[LinkWork | TemporalLinkWork, Callable[[], Any]]]:
    """The work of a saved model of edges, and what opens its scoring, until a signal stops it.

    With times it is a `TemporalLinkWork`, without a `LinkWork`.

    Errors: `InvalidError` where the data set is another one or changed since.
    """
    run = run_of(directory, graph)
    run.require_same(graph)
    stop, scratch = StopRequest(), directory / SCRATCH
    options: dict[str, Any] = {"open_loader": open_loader, "note": observer.note, "saved": saved}
    work: LinkWork | TemporalLinkWork
    if config.sampling.time is None:
        work = LinkWork(graph, config, LinkPlace(run.links, Position, stop), **options)
    else:
        work = TemporalLinkWork(graph, config, **options)

    def scoring() -> LinkScoring | TemporalScoring:
        scratch.mkdir(exist_ok=True)
        # A directory of its own: another process may use the same model.
        own = stack.enter_context(scratch_directory(scratch, "links-"))
        work.loaders.release_training()
        work.prepare()
        device = torch.device("cpu")
        return work.scoring(scratch=own, device=device, observer=observer, stop=stop)

    with ExitStack() as stack:
        stack.callback(remove_empty, scratch)
        stack.callback(work.loaders.close)
        stack.enter_context(stop_on_signals(stop))
        yield work, scoring


def run_of(model: Path, graph: Graph) -> TrainDirectory:
    """The run that a model of edges lies in.

    Errors: `InvalidError` where it lies in none, or the data set is another one.
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
