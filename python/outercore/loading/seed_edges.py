"""Batches of links without the edges between the ends of these links."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from torch import Tensor

from outercore.data.edge_types import EdgeType
from outercore.data.graph import Graph
from outercore.loading.bidirectional import edge_fields, reverse_of


def leave_out_links(
    batch: Any,
    graph: Graph,
    edge_type: EdgeType,
    ends: tuple[Tensor, Tensor],
    of_nodes: Collection[str],
) -> None:
    """Takes the edges between the two nodes of each link out of a batch, with all copies.

    A network that sees the edge would learn to look it up. Edges of the type that leads back go,
    too: between nodes of one type this is the same type.

    Args:
        batch: a `Data` or a `HeteroData`.
        graph: the data set.
        edge_type: the edge type of the links.
        ends: places of sources and of targets among the nodes of the batch.
        of_nodes: arrays of nodes in a `Data`, which may be called ``edge_...``, too.
    """
    typed = graph.is_typed
    source, _, target = edge_type
    stores = (batch[source], batch[target]) if typed else (batch, batch)
    links = tuple(store.n_id[places] for store, places in zip(stores, ends, strict=True))
    back = reverse_of(edge_type, graph.edge_types) if typed else edge_type
    _without(batch, edge_type, links, typed, of_nodes)
    if isinstance(back, tuple):
        _without(batch, back, links[::-1], typed, of_nodes)


def _without(
    batch: Any, edge_type: EdgeType, pairs: Any, typed: bool, of_nodes: Collection[str]
) -> None:
    """Takes the edges of a type out that are among these pairs of ids."""
    store, source, target = batch, batch, batch
    if typed:
        store, source, target = batch[edge_type], batch[edge_type[0]], batch[edge_type[2]]
    if "edge_index" not in store:  # A type of links alone.
        return
    sources, targets = store.edge_index
    edges = torch.stack([source.n_id[sources], target.n_id[targets]], dim=1).numpy()
    # A pair as one value of 16 bytes: a product of ids could overflow.
    wanted, found = (
        np.ascontiguousarray(one, np.int64).view("V16").reshape(-1)
        for one in (torch.stack(pairs, dim=1).numpy(), edges)
    )
    _, numbers = np.unique(np.concatenate([wanted, found]), return_inverse=True)
    stays = ~np.isin(numbers[len(wanted) :], numbers[: len(wanted)])
    kept = torch.from_numpy(stays)
    store.edge_index = store.edge_index[:, kept]
    for name in set(edge_fields(store)).difference(of_nodes):
        store[name] = store[name][kept]
    if "num_sampled_edges" in store:
        hops = np.cumsum([0, *store.num_sampled_edges])
        store.num_sampled_edges = [
            int(stays[start:stop].sum()) for start, stop in itertools.pairwise(hops)
        ]
