"""Chooses the work that a configuration describes: on nodes, edges or whole graphs.

Also checks whether a data set allows this work.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from outercore.base.shell import quoted
from outercore.data.data_set import require_edges
from outercore.data.how_to_add import how_to_add
from outercore.data.schema import NODE
from outercore.data.time_arrays import time_arrays
from outercore.errors import InvalidError, NotFoundError, UnsupportedError
from outercore.runs.custom_code import CustomCode
from outercore.training.config import TrainConfig
from outercore.training.links.work import OF_EDGES_BY_TIME, LinkPlace, LinkWork, TemporalLinkWork
from outercore.training.loaders import LoaderFactory
from outercore.training.model_files import SavedModel
from outercore.training.typed_network import TypedNetwork
from outercore.training.work import GraphWork, NodeWork, Work

if TYPE_CHECKING:
    from outercore.data.graph import Graph

_ONLY_TYPED = ("rgcn", "hgt")
"""Models that need several node types or edge types."""
_TYPED = ("rgcn", "sage", "gat", "hgt")
"""Models for graphs with several types."""
_BY_DEGREE = ("gcn", "gin")
"""Models that weigh arcs by in-degrees in the whole graph."""


def require_model_fits(graph: Graph, config: TrainConfig) -> None:
    """Checks that the model and the task fit the types of a graph.

    Errors: `UnsupportedError` if they do not; `NotFoundError` for a typed graph without labels, or
    labelled nodes without the times of `--time`.
    """
    kind, of_nodes = config.model.kind, not (config.of_links or config.of_graphs)
    if config.sampling.precision != "exact" and not of_nodes:
        raise UnsupportedError(
            "sampling.precision: rows of int8 are for labels of nodes\nhint: leave it out"
        )
    if config.of_links and config.budget.far is not None:
        raise UnsupportedError("--far: edges are learnt only from the disk\nhint: leave it out")
    if config.model.is_custom and (graph.is_typed or not of_nodes):
        raise UnsupportedError(
            f"model `{kind}`: a network of your own learns labels of nodes of one type alone\n"
            "hint: take batches from `oc.NeighborLoader` in a loop of your own"
        )
    if graph.is_typed:
        _require_typed(graph, config)
    elif kind in _ONLY_TYPED:
        raise UnsupportedError(
            f"model `{kind}`: needs several node types or edge types, and data set `{graph.root}` "
            "has one of each\nhint: use `--model sage`, `gcn`, `gat`, `gin` or `mlp`"
        )
    attribute = config.sampling.time
    if attribute is None or not of_nodes:
        return
    node_type = graph.schema.labelled_type or NODE
    if f"nodes/{node_type}/{attribute}" not in graph.arrays:
        raise NotFoundError(
            f"--time {attribute}: nodes of type `{node_type}` have no array `{attribute}`, which "
            "says when each asks\nhint: import it, or add `--task link` to learn edges by time"
        )
    if kind in _BY_DEGREE:
        raise UnsupportedError(
            f"model `{kind}`: it weighs by the in-degrees of the whole graph, which tell of later "
            "edges\nhint: use `--model sage` or `gat`"
        )


def _require_typed(graph: Graph, config: TrainConfig) -> None:
    """Does the checks of `require_model_fits` for a graph with several types."""
    if config.of_graphs or (config.of_links and config.sampling.time is None):
        raise UnsupportedError(
            f"task `{config.run.task}`: data set `{graph.root}` has several types of nodes or "
            "edges, where labels of nodes can be learnt, and edges with times\n"
            "hint: leave `--task` out, or name the times of the edges by `--time`"
        )
    if config.model.kind not in _TYPED:
        known = ", ".join(f"`{name}`" for name in _TYPED[:-1])
        raise UnsupportedError(
            f"model `{config.model.kind}`: data set `{graph.root}` has several types of nodes or "
            f"edges\nhint: use `--model` {known} or `{_TYPED[-1]}`"
        )
    if not config.of_links and graph.labelled_type is None:
        raise NotFoundError(
            f"data set `{graph.root}`: no node type has labels, expected one that has\n"
            "hint: import the data set again with labels and splits of a node type"
        )


def unused_times(graph: Graph, config: TrainConfig) -> str | None:
    """A warning that a run without `--time` may see the future; it names the option to pass.

    It is `None` for a data set without times, and for a model that uses no neighbours.
    """
    kind, sampling = config.model.kind, config.sampling
    if sampling.time is not None or config.of_graphs or kind == "mlp":
        return None
    learnt = (sampling.labels, sampling.features)
    times = [(of, name) for of, name in time_arrays(graph) if name not in learnt]
    if not times:
        return None
    names = list(dict.fromkeys(name for _, name in times))
    listed = ", ".join(f"`{name}`" for name in names[:3]) + (", ..." if len(names) > 3 else "")
    if config.of_links:
        of_edges = [edges.key for edges in graph.schema.edges.values()]
        what, seeds, models = "edges", of_edges, OF_EDGES_BY_TIME
    else:
        labelled = graph.labelled_type or "node"
        what, seeds, models = f"nodes of type `{labelled}`", [labelled], None
    said = (
        f"the data set has times ({listed}); without `--time` {what} are predicted from what "
        "comes after them as well"
    )
    usable = [name for of, name in times if of in seeds]
    if usable:
        fits = kind in models if models is not None else kind not in _BY_DEGREE
        model = "" if fits else " --model sage"
        name = usable[0]
        return f"{said}: pass `--time {quoted(name)}{model}`, in Python `time={name!r}`"
    name = names[0]
    option, of_type = ("--edge-array", None) if config.of_links else ("--array", labelled)
    adds = how_to_add(graph.root, option, f"{name}=FILE", of_type)
    return f"{said}: with times of their own ({adds}), pass `--time {quoted(name)}`"


def open_work(
    graph: Graph,
    config: TrainConfig,
    *,
    open_loader: LoaderFactory,
    note: Callable[[str], None],
    place: LinkPlace | None = None,
    saved: SavedModel | None = None,
    code: CustomCode | None = None,
) -> Work:
    """Makes the work (task, network and loaders) that `config` describes.

    Args:
        graph: the graph of the data set.
        config: the configuration of the run.
        open_loader: makes the loaders.
        note: called with messages for the user.
        place: directory and progress of the run; required for edges without times.
        saved: a trained model to score, instead of a new network.
        code: custom code that makes the network.

    Errors: as `NodeWork`, `GraphWork`, `LinkWork` and `TemporalLinkWork`; `InvalidError` for
    triples, or if only one of `saved` and the graph has several types.
    """
    if config.of_links and config.sampling.time is not None:
        return TemporalLinkWork(graph, config, open_loader=open_loader, note=note, saved=saved)
    if config.of_links:
        assert place is not None
        return LinkWork(graph, config, place, open_loader=open_loader, note=note, saved=saved)
    require_edges(graph)
    if config.of_graphs:
        return GraphWork(graph, config, saved=saved)
    if saved is not None and isinstance(saved.model, TypedNetwork) != graph.is_typed:
        expected, found = ("one", "several") if graph.is_typed else ("several", "one")
        raise InvalidError(
            f"data set `{graph.root}`: expected {expected} of each of node types and edge types, "
            f"as the model was trained with, found {found}"
        )
    return NodeWork(graph, config, open_loader=open_loader, note=note, saved=saved, code=code)
