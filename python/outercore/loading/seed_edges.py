"""Batches of links without the edges between the ends of these links."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outercore.data.csc import among
from outercore.data.edge_types import EdgeType
from outercore.loading.bidirectional import edge_fields, reverse_of


def leave_out_links(
    batch: Any,
    edge_type: EdgeType,
    edge_types: Sequence[EdgeType],
    ends: tuple[Tensor, Tensor],
    of_nodes: Collection[str] = (),
) -> None:
    """Takes the edges between the two nodes of each link out of a batch, with all copies.

    A network that sees the edge would learn to look it up. Edges of the type that leads back go,
    too: between nodes of one type this is the same type.

    Args:
        batch: a `Data` or a `HeteroData`.
        edge_type: the edge type of the links.
        edge_types: all edge types of the graph.
        ends: places of sources and of targets among the nodes of the batch.
        of_nodes: arrays of nodes in a `Data`, which may be called ``edge_...``, too.
    """
    back = reverse_of(edge_type, edge_types)
    for one, links in ((edge_type, ends), (back, ends[::-1])):
        if isinstance(one, tuple):
            _leave_out(batch, one, links, of_nodes)


def _leave_out(
    batch: Any, edge_type: EdgeType, ends: Sequence[Tensor], of_nodes: Collection[str]
) -> None:
    """Takes the edges of a type out whose ends are the nodes of a link."""
    store, source, target = batch, batch, batch
    if hasattr(batch, "node_types"):
        store, source, target = batch[edge_type], batch[edge_type[0]], batch[edge_type[2]]
    if "edge_index" not in store:  # An edge type without edges.
        return
    # A node may be in a batch twice. Its number is smaller than its id: no product overflows.
    ids = torch.cat([source.n_id, target.n_id]).numpy()
    distinct, numbers = np.unique(ids, return_inverse=True)
    of_sources, of_targets = numbers[: len(source.n_id)], numbers[len(source.n_id) :]
    links, edges = (
        of_sources[index[0].numpy()] * len(distinct) + of_targets[index[1].numpy()]
        for index in (ends, store.edge_index)
    )
    stays = ~among(edges, np.unique(links))
    kept = torch.from_numpy(stays)
    store.edge_index = store.edge_index[:, kept]
    for name in set(edge_fields(store)).difference(of_nodes):
        store[name] = store[name][kept]
    if "num_sampled_edges" in store:
        hops = np.cumsum([0, *store.num_sampled_edges])
        store.num_sampled_edges = [
            int(stays[start:stop].sum()) for start, stop in itertools.pairwise(hops)
        ]
