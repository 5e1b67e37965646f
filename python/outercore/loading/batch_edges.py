"""Edges added to batches and removed from them: reverse edges, and edges between seed nodes."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from outercore.data.batch_arrays import EDGE_ROWS
from outercore.data.csc import among
from outercore.data.edge_types import REVERSE, EdgeType


def reverse_types(edge_types: Sequence[EdgeType]) -> dict[EdgeType, EdgeType]:
    """The reverse type of each edge type that has one.

    The rules, in this order:

    1. The type between the same nodes whose relation has an additional prefix ``rev_``, or lacks
       this prefix.
    2. The edge type itself, if it connects nodes of one type.
    3. The only edge type from its target type to its source type.

    Rules 2 and 3 apply only to relations without the prefix. A warning names edge types without a
    reverse type and without the prefix.

    Source: ``HeteroSamplerOutput.to_bidirectional`` of PyG.
    """
    reverse: dict[EdgeType, EdgeType] = {}
    for edge_type in edge_types:
        back = reverse_of(edge_type, edge_types)
        if isinstance(back, tuple):
            reverse[edge_type] = back
        elif not edge_type[1].startswith(REVERSE):
            warnings.warn(
                f"edge type {edge_type} stays as it is: {back} edge types lead back, expected one",
                stacklevel=2,
            )
    return reverse


def reverse_of(edge_type: EdgeType, edge_types: Sequence[EdgeType]) -> EdgeType | int:
    """The reverse type by the rules of `reverse_types`; the number of candidates if none fits."""
    source, relation, target = edge_type
    named = (target, f"{REVERSE}{relation}", source)
    if is_reverse := relation.startswith(REVERSE):
        named = (target, relation.removeprefix(REVERSE), source)
    back = [other for other in edge_types if (other[0], other[2]) == (target, source)]
    if named in edge_types:
        return named
    if source == target and not is_reverse:
        return edge_type
    return back[0] if len(back) == 1 and not is_reverse else len(back)


def lead_both_ways(
    batch: Data | HeteroData,
    reverse: dict[EdgeType, EdgeType],
    edge_rows: Collection[str] = EDGE_ROWS,
) -> None:
    """Adds the reverse of each sampled edge and removes duplicates; sampled edges take precedence.

    Edges are then sorted by target and source. A reverse edge has the ``e_id`` and the array rows
    of its sampled edge. If the reverse edges have another edge type, the batch loses ids and edge
    arrays of these types, because the rows differ. It always loses the counts per hop.

    Args:
        batch: the batch; it is changed in place.
        reverse: the reverse types, from `reverse_types`.
        edge_rows: names of the values with a row for each edge.

    Source: ``SamplerOutput.to_bidirectional`` of PyG.
    """
    if isinstance(batch, Data):
        _reverse_one(batch, edge_rows)
        del batch.num_sampled_nodes
        return
    indexes = {edge_type: batch[edge_type].edge_index for edge_type in batch.edge_types}
    for edge_type, back in reverse.items():
        store = batch[edge_type]
        if back == edge_type:
            _reverse_one(store, edge_rows)
            continue
        store.edge_index, _ = _united(indexes[edge_type], indexes[back])
        for name in edge_rows:
            store.pop(name, None)
        del store.num_sampled_edges
    for node_type in batch.node_types:
        del batch[node_type].num_sampled_nodes
    for edge_type in set(indexes) - set(reverse):
        del batch[edge_type].num_sampled_edges


def _reverse_one(store: Any, edge_rows: Collection[str]) -> None:
    """Adds the reverse edges to an edge type that is its own reverse, with ids and arrays."""
    edges = store.edge_index.shape[1]
    store.edge_index, places = _united(store.edge_index, store.edge_index)
    take_edges(store, edge_rows, places % max(edges, 1))
    del store.num_sampled_edges


def take_edges(store: Any, edge_rows: Collection[str], edges: Tensor) -> None:
    """Keeps the rows of `edges` (positions or a mask) in all values with a row for each edge."""
    for name in edge_rows:
        if name in store:
            store[name] = store[name][edges]


def _united(edge_index: Tensor, of_reverse: Tensor) -> tuple[Tensor, Tensor]:
    """Union of `edge_index` and the reversed edges of `of_reverse`, without duplicates.

    Also returns the position of each edge in the concatenation of the two inputs.
    """
    both = torch.cat([edge_index, of_reverse.flip(0)], dim=1)
    if not both.shape[1]:
        return both, torch.empty(0, dtype=torch.int64)
    keys = both[1] * (both.max() + 1) + both[0]
    keys, order = torch.sort(keys, stable=True)
    is_first = torch.ones_like(keys, dtype=torch.bool)
    is_first[1:] = keys[1:] != keys[:-1]
    places = order[is_first]
    return both[:, places], places


def leave_out_links(
    batch: Any,
    edge_type: EdgeType,
    edge_types: Sequence[EdgeType],
    ends: tuple[Tensor, Tensor],
    edge_rows: Collection[str] = EDGE_ROWS,
) -> None:
    """Removes the edges between the two nodes of each link from a batch, with all copies.

    A model that sees these edges would learn to look them up. Edges of the reverse type are also
    removed. Between nodes of one type, this is usually the same edge type.

    Args:
        batch: a `Data` or a `HeteroData`; it is changed in place.
        edge_type: the edge type of the links.
        edge_types: all edge types of the graph.
        ends: local ids of the sources and of the targets.
        edge_rows: names of the values with a row for each edge.
    """
    sources, targets = (
        _ids(batch, end)[places.numpy()]
        for end, places in zip((edge_type[0], edge_type[2]), ends, strict=True)
    )
    back = reverse_of(edge_type, edge_types)
    if back == edge_type:
        both = np.concatenate([sources, targets]), np.concatenate([targets, sources])
        _leave_out(batch, edge_type, *both, edge_rows)
        return
    _leave_out(batch, edge_type, sources, targets, edge_rows)
    if isinstance(back, tuple):
        _leave_out(batch, back, targets, sources, edge_rows)


def _store(batch: Data | HeteroData, of_type: str | EdgeType) -> Any:
    return batch[of_type] if isinstance(batch, HeteroData) else batch


def _ids(batch: Any, node_type: str) -> NDArray[np.int64]:
    ids: NDArray[np.int64] = _store(batch, node_type).n_id.numpy()
    return ids


def _leave_out(
    batch: Any,
    edge_type: EdgeType,
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    edge_rows: Collection[str],
) -> None:
    """Removes the edges of a type from `sources` to `targets`, node ids [links]."""
    store = _store(batch, edge_type)
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
    take_edges(store, edge_rows, mask)
    if "num_sampled_edges" in store:
        hops = np.cumsum([0, *store.num_sampled_edges])
        store.num_sampled_edges = [
            int(stays[start:stop].sum()) for start, stop in itertools.pairwise(hops)
        ]
