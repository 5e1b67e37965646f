"""Which work a configuration describes: of nodes, of edges or of whole graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from outercore.data.data_set import require_edges
from outercore.errors import InvalidError
from outercore.training.config import TrainConfig
from outercore.training.custom_network import OwnCode
from outercore.training.graph_work import GraphWork
from outercore.training.links.work import LinkPlace, LinkWork
from outercore.training.loaders import LoaderFactory
from outercore.training.model_files import SavedModel
from outercore.training.temporal.work import TemporalLinkWork
from outercore.training.typed.models import TypedNetwork
from outercore.training.typed.work import TypedNodeWork
from outercore.training.work import NodeWork, PredictingWork, Work

if TYPE_CHECKING:
    from outercore.data.graph import Graph


def open_work(
    graph: Graph,
    config: TrainConfig,
    *,
    open_loader: LoaderFactory,
    note: Callable[[str], None],
    place: LinkPlace,
    own: OwnCode | None = None,
) -> Work:
    """The task, network and batches that `config` describes; `own` makes the network instead.

    Errors: as `NodeWork`, `TypedNodeWork`, `GraphWork`, `LinkWork` and `TemporalLinkWork`;
    `InvalidError` for triples.
    """
    if config.of_links and config.sampling.time is not None:
        return TemporalLinkWork(graph, config, open_loader=open_loader, note=note)
    if config.of_links:
        return LinkWork(graph, config, place, open_loader=open_loader, note=note)
    return open_predicting(graph, config, open_loader=open_loader, note=note, own=own)


def open_predicting(
    graph: Graph,
    config: TrainConfig,
    *,
    open_loader: LoaderFactory,
    note: Callable[[str], None],
    saved: SavedModel | None = None,
    own: OwnCode | None = None,
) -> PredictingWork:
    """As `open_work` for nodes and whole graphs; `saved` is a network to score.

    Errors: as `open_work`; `InvalidError` where `saved` is of one type and the graph of several, or
    the other way round, and for triples.
    """
    require_edges(graph)
    if config.of_graphs:
        return GraphWork(graph, config, saved=saved)
    if saved is not None and isinstance(saved.model, TypedNetwork) != graph.is_typed:
        expected, found = ("one", "several") if graph.is_typed else ("several", "one")
        raise InvalidError(
            f"data set `{graph.root}`: expected {expected} of each of node types and edge types, "
            f"as the model was trained with, found {found}"
        )
    if graph.is_typed:
        return TypedNodeWork(graph, config, open_loader=open_loader, note=note, saved=saved)
    return NodeWork(graph, config, open_loader=open_loader, note=note, saved=saved, own=own)
