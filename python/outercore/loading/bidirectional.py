"""Batches with the reverse of each edge, as with ``subgraph_type="bidirectional"`` in PyG."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

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
    """The reverse type by the rules of `reverse_types`, or the number of candidates."""
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
    of_nodes: Collection[str] = (),
) -> None:
    """Adds the reverse of each sampled edge and removes duplicates; sampled edges take precedence.

    Edges are then sorted by target and source. A reverse edge has the ``e_id`` and the array rows
    of its sampled edge. If the reverse edges have another edge type, the batch loses ids and edge
    arrays of these types, because the rows differ. It always loses the counts per hop.

    Args:
        batch: the batch; it is changed in place.
        reverse: the reverse types, from `reverse_types`.
        of_nodes: arrays of nodes in a `Data`; their names may begin with ``edge_``, too.

    Source: ``SamplerOutput.to_bidirectional`` of PyG.
    """
    if isinstance(batch, Data):
        _reverse_one(batch, of_nodes)
        del batch.num_sampled_nodes
        return
    indexes = {edge_type: batch[edge_type].edge_index for edge_type in batch.edge_types}
    for edge_type, back in reverse.items():
        store = batch[edge_type]
        if back == edge_type:
            _reverse_one(store)
            continue
        store.edge_index, _ = _united(indexes[edge_type], indexes[back])
        for name in edge_fields(store):
            del store[name]
        del store.num_sampled_edges
    for node_type in batch.node_types:
        del batch[node_type].num_sampled_nodes
    for edge_type in set(indexes) - set(reverse):
        del batch[edge_type].num_sampled_edges


def _reverse_one(store: Any, of_nodes: Collection[str] = ()) -> None:
    """Adds reverse edges of the same edge type, with ids and arrays."""
    edges = store.edge_index.shape[1]
    store.edge_index, places = _united(store.edge_index, store.edge_index)
    for name in set(edge_fields(store)).difference(of_nodes):
        store[name] = store[name][places % max(edges, 1)]
    del store.num_sampled_edges


def edge_fields(store: Any) -> list[str]:
    """Names of the fields with one row per edge."""
    return [
        name
        for name in store.keys()  # noqa: SIM118  # An edge storage iterates over its values.
        if name == "e_id" or (name.startswith("edge_") and name != "edge_index")
    ]


def _united(edge_index: Tensor, of_reverse: Tensor) -> tuple[Tensor, Tensor]:
    """Union of `edge_index` and the reversed edges of `of_reverse`, without duplicates.

    Also returns the place of each edge in the concatenation of the two inputs.
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
