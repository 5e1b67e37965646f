"""Batches whose edges lead both ways, as PyG's ``subgraph_type="bidirectional"`` has them."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from outercore.data.edge_types import REVERSE, EdgeType


def reverse_types(edge_types: Sequence[EdgeType]) -> dict[EdgeType, EdgeType]:
    """The edge type that leads back, for each that has one.

    It is the one whose relation has the prefix ``rev_`` besides, or lacks it; else the same type,
    between nodes of one type; else the only one that leads back. A warning names a type that has
    none, unless it has that prefix itself.

    Source: ``HeteroSamplerOutput.to_bidirectional`` of PyG.
    """
    found: dict[EdgeType, EdgeType] = {}
    for edge_type in edge_types:
        back = reverse_of(edge_type, edge_types)
        if isinstance(back, tuple):
            found[edge_type] = back
        elif not edge_type[1].startswith(REVERSE):
            warnings.warn(
                f"edge type {edge_type} stays as it is: {back} edge types lead back, expected one",
                stacklevel=2,
            )
    return found


def reverse_of(edge_type: EdgeType, edge_types: Sequence[EdgeType]) -> EdgeType | int:
    """The edge type that leads back as `reverse_types` says, or how many lead back."""
    source, relation, target = edge_type
    named = (target, f"{REVERSE}{relation}", source)
    if is_reverse := relation.startswith(REVERSE):
        named = (target, relation.removeprefix(REVERSE), source)
    back = [one for one in edge_types if (one[0], one[2]) == (target, source)]
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
    """Adds the reverse of each sampled edge; of equal edges one is kept, the sampled before others.

    Edges are then in the order of target and source. ``e_id`` and edge arrays are those of the edge
    that was sampled. Where the reverse is of another edge type, rows are not the same: no ids and
    no arrays are left. Counts per hop are left out, too. ``of_nodes`` are the arrays of nodes in a
    `Data`, which may be called ``edge_...``, too.

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
    """Adds reverse edges of the same type, with ids and arrays."""
    edges = store.edge_index.shape[1]
    store.edge_index, places = _united(store.edge_index, store.edge_index)
    for name in set(edge_fields(store)).difference(of_nodes):
        store[name] = store[name][places % max(edges, 1)]
    del store.num_sampled_edges


def edge_fields(store: Any) -> list[str]:
    """What a batch has for each edge."""
    return [
        name
        for name in store.keys()  # noqa: SIM118  # An edge storage iterates over its values.
        if name == "e_id" or (name.startswith("edge_") and name != "edge_index")
    ]


def _united(edge_index: Tensor, of_reverse: Tensor) -> tuple[Tensor, Tensor]:
    """The edges and the reverse of others, each once; and the place of each among both."""
    both = torch.cat([edge_index, of_reverse.flip(0)], dim=1)
    if not both.shape[1]:
        return both, torch.empty(0, dtype=torch.int64)
    keys = both[1] * (both.max() + 1) + both[0]
    keys, order = torch.sort(keys, stable=True)
    is_first = torch.ones_like(keys, dtype=torch.bool)
    is_first[1:] = keys[1:] != keys[:-1]
    places = order[is_first]
    return both[:, places], places
