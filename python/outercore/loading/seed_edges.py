"""Removes the edges between the ends of the seed links from a batch."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
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
    """Removes the edges between the two nodes of each link from a batch, with all copies.

    A model that sees these edges would learn to look them up. Edges of the reverse type are also
    removed. Between nodes of one type, this is usually the same edge type.

    Args:
        batch: a `Data` or a `HeteroData`; it is changed in place.
        edge_type: the edge type of the links.
        edge_types: all edge types of the graph.
        ends: local ids of the sources and of the targets.
        of_nodes: arrays of nodes in a `Data`; their names may begin with ``edge_``, too.
    """
    sources, targets = (
        _ids(batch, end)[places.numpy()]
        for end, places in zip((edge_type[0], edge_type[2]), ends, strict=True)
    )
    back = reverse_of(edge_type, edge_types)
    if back == edge_type:
        both = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        _leave_out(batch, edge_type, *both, of_nodes)
        return
    _leave_out(batch, edge_type, sources, targets, of_nodes)
    if isinstance(back, tuple):
        _leave_out(batch, back, targets, sources, of_nodes)


def _ids(batch: Any, node_type: str) -> NDArray[np.int64]:
    store = batch[node_type] if hasattr(batch, "node_types") else batch
    ids: NDArray[np.int64] = store.n_id.numpy()
    return ids


def _leave_out(
    batch: Any,
    edge_type: EdgeType,
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    of_nodes: Collection[str],
) -> None:
    """Removes the edges of a type from `sources` to `targets`, node ids [links]."""
    store = batch[edge_type] if hasattr(batch, "node_types") else batch
    if "edge_index" not in store:  # An edge type without edges.
        return
    # The keys use numbers of distinct targets, because a product of two ids could overflow.
    known, of_links = np.unique(targets, return_inverse=True)
    links = np.unique(sources * len(known) + of_links)
    from_ids, to_ids = (
        _ids(batch, end)[places.numpy()]
        for end, places in zip((edge_type[0], edge_type[2]), store.edge_index, strict=True)
    )
    numbers = np.searchsorted(known, to_ids)
    numbers[numbers == len(known)] = 0
    places = np.flatnonzero(known[numbers] == to_ids) if len(known) else np.empty(0, np.int64)
    stays = np.ones(len(to_ids), bool)
    stays[places] = ~among(from_ids[places] * len(known) + numbers[places], links)
    mask = torch.from_numpy(stays)
    store.edge_index = store.edge_index[:, mask]
    for name in set(edge_fields(store)).difference(of_nodes):
        store[name] = store[name][mask]
    if "num_sampled_edges" in store:
        hops = np.cumsum([0, *store.num_sampled_edges])
        store.num_sampled_edges = [
            int(stays[start:stop].sum()) for start, stop in itertools.pairwise(hops)
        ]
