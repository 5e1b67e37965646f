"""The definition of the sampler's results in plain Python: slow, obvious, and what counts.

Whatever samples a batch, from memory or from disk, with any number of threads, gives exactly what
:func:`sample_batch` gives. Nothing here is fast, and nothing but tests should call it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

Ids = NDArray[np.int64]
EdgeType = tuple[str, str, str]
Csc = tuple[NDArray[np.integer], NDArray[np.integer], NDArray[np.integer]]
"""Offsets, sources and edge ids."""

_U32 = 2**32 - 1
_U64 = 2**64 - 1


def philox(counter: Sequence[int], key: Sequence[int]) -> list[int]:
    """Four random 32-bit words: one block of Philox 4x32-10.

    **Source** Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11.
    """
    a, b, c, d = counter
    x, y = key
    for _ in range(10):
        low, high = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = (high >> 32) ^ b ^ x, high & _U32, (low >> 32) ^ d ^ y, low & _U32
        x, y = (x + 0x9E3779B9) & _U32, (y + 0xBB67AE85) & _U32
    return [a, b, c, d]


def _mix(x: int) -> int:
    """The 64-bit finaliser of SplitMix64."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _U64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _U64
    return x ^ (x >> 31)


def stream_key(seed: int, epoch: int) -> tuple[int, int]:
    """The Philox key of an epoch of a run."""
    key = _mix(_mix((seed + 0x9E3779B97F4A7C15) & _U64) ^ epoch)
    return key & _U32, key >> 32


def uniform(key: tuple[int, int], batch: int, hop: int, node: int) -> Iterator[int]:
    """The random 64-bit words that belong to a node in a hop of a batch."""
    block_number = (hop & 0xFF) << 24
    while True:
        block = philox([node & _U32, node >> 32, batch & _U32, block_number], key)
        yield block[0] | block[1] << 32
        yield block[2] | block[3] << 32
        block_number = (block_number + 1) & _U32


def below(word: int, bound: int) -> int:
    """A random 64-bit word as a number in ``range(bound)``."""
    return (word * bound) >> 64


def permutation_at(index: int, length: int, seed: int, epoch: int) -> int:
    """Element ``index`` of the order in which an epoch visits ``range(length)``."""
    half = max(1, ((length - 1).bit_length() + 1) // 2)
    mask = (1 << half) - 1
    key = stream_key(seed ^ 0x5EED0D0E5EED0D0E, epoch)
    value = index
    while True:
        left, right = value >> half, value & mask
        for number in range(6):
            block = philox([right & _U32, right >> 32, number, 0xFE157E10], key)
            left, right = right, left ^ ((block[0] | block[1] << 32) & mask)
        value = left << half | right
        if value < length:
            return value


def batch_places(
    length: int, batch: int, batch_size: int, *, rank: int = 0, world_size: int = 1
) -> list[int]:
    """Places of a batch's seeds in the order of an epoch, which the ranks share.

    In a round each rank takes a batch. What is left after the full rounds is cut into equal parts;
    where that is less than a seed for each, the last full round is cut with it, into two rounds.
    The random numbers of batch ``b`` of rank ``r`` are those of batch ``b * world_size + r``.
    """
    size = batch_size * world_size
    full, rest = divmod(length, size)
    full -= full > 0 and 0 < rest < world_size
    rounds = [np.arange(start, start + size) for start in range(0, full * size, size)]
    left = np.arange(full * size, length)
    rounds += np.array_split(left, max(1, -(-len(left) // size)))
    places: list[int] = np.array_split(rounds[batch], world_size)[rank].tolist()
    return places


def batch_seeds(
    input_nodes: Ids, batch: int, batch_size: int, *, shuffle: bool, seed: int, epoch: int
) -> Ids:
    """The seed nodes of a batch; the last batch of an epoch may be smaller."""
    length = len(input_nodes)
    places = batch_places(length, batch, batch_size)
    if shuffle:
        return input_nodes[[permutation_at(place, length, seed, epoch) for place in places]]
    return input_nodes[places]


def pick(draws: Iterator[int], degree: int, fan_out: int, *, replace: bool) -> list[int]:
    """Which of a node's in-edges are taken, as places in its column."""
    if fan_out == -1:
        return list(range(degree))
    if degree == 0:
        return []
    if replace:
        return [below(word, degree) for word in islice(draws, fan_out)]
    if fan_out >= degree:
        return list(range(degree))
    taken: set[int] = set()
    for last in range(degree - fan_out, degree):
        drawn = below(next(draws), last + 1)
        taken.add(last if drawn in taken else drawn)
    return sorted(taken)


@dataclass(frozen=True)
class ReferenceBatch:
    """A sampled batch, field by field what a PyTorch Geometric loader puts into ``Data``."""

    n_id: Ids
    row: Ids
    col: Ids
    e_id: Ids
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]


def sample_batch(
    offsets: NDArray[np.integer],
    sources: NDArray[np.integer],
    ids: NDArray[np.integer] | None,
    seeds: NDArray[np.integer],
    fan_outs: Sequence[int],
    *,
    replace: bool,
    seed: int,
    epoch: int,
    batch: int,
) -> ReferenceBatch:
    """Sample the in-neighbourhood of ``seeds`` from a graph in CSC form.

    **Shapes** ``offsets`` nodes + 1, ``sources`` edges, ``ids`` edges or ``None`` where an edge's
    id is its position; one fan-out per hop, -1 for all.
    """
    key = stream_key(seed, epoch)
    n_id = [int(node) for node in seeds]
    local: dict[int, int] = {}
    for place, node in enumerate(n_id):
        local.setdefault(node, place)
    row: list[int] = []
    col: list[int] = []
    e_id: list[int] = []
    num_nodes, num_edges = [len(n_id)], []
    frontier = range(len(n_id))
    for hop, fan_out in enumerate(fan_outs):
        edges_before = len(row)
        for destination in frontier:
            node = n_id[destination]
            start, end = int(offsets[node]), int(offsets[node + 1])
            draws = uniform(key, batch, hop, node)
            for place in pick(draws, end - start, fan_out, replace=replace):
                position = start + place
                source = int(sources[position])
                if source not in local:
                    local[source] = len(n_id)
                    n_id.append(source)
                row.append(local[source])
                col.append(destination)
                e_id.append(position if ids is None else int(ids[position]))
        frontier = range(frontier.stop, len(n_id))
        num_nodes.append(len(frontier))
        num_edges.append(len(row) - edges_before)
    return ReferenceBatch(
        n_id=np.array(n_id, dtype=np.int64),
        row=np.array(row, dtype=np.int64),
        col=np.array(col, dtype=np.int64),
        e_id=np.array(e_id, dtype=np.int64),
        num_sampled_nodes=num_nodes,
        num_sampled_edges=num_edges,
    )


@dataclass(frozen=True)
class TypedReferenceBatch:
    """A sampled batch of a graph with several types, field by field what `HeteroData` has.

    Ids and local numbers count within their type. Where no edge of a type was taken, its arrays are
    empty.
    """

    n_id: dict[str, Ids]
    row: dict[EdgeType, Ids]
    col: dict[EdgeType, Ids]
    e_id: dict[EdgeType, Ids]
    num_sampled_nodes: dict[str, list[int]]
    num_sampled_edges: dict[EdgeType, list[int]]


def sample_typed_batch(
    counts: Mapping[str, int],
    edges: Mapping[EdgeType, Csc],
    seed_type: str,
    seeds: NDArray[np.integer],
    fan_outs: Mapping[EdgeType, Sequence[int]],
    *,
    replace: bool,
    seed: int,
    epoch: int,
    batch: int,
) -> TypedReferenceBatch:
    """Sample the in-neighbourhood of ``seeds`` of one node type, through all edge types.

    In each hop, edge types come in the order of their keys. Each takes the nodes of its target type
    that the hop before has found. A draw depends on the column: on the edge type and the target.

    **Shapes** ``counts`` nodes of each type; ``edges`` a CSC of each edge type, whose sources,
    targets and ids count within their type; ``fan_outs`` as many hops for each edge type.
    """
    key = stream_key(seed, epoch)
    edge_types = sorted(edges, key="__".join)
    columns = np.cumsum([0, *(counts[target] for _, _, target in edge_types)])
    n_id: dict[str, list[int]] = {name: [] for name in counts}
    n_id[seed_type] = [int(node) for node in seeds]
    local: dict[tuple[str, int], int] = {}
    for place, node in enumerate(n_id[seed_type]):
        local.setdefault((seed_type, node), place)
    taken: dict[EdgeType, list[tuple[int, int, int]]] = {one: [] for one in edge_types}
    num_nodes = {name: [len(nodes)] for name, nodes in n_id.items()}
    num_edges: dict[EdgeType, list[int]] = {one: [] for one in edge_types}
    frontier = {name: range(len(nodes)) for name, nodes in n_id.items()}
    for hop in range(len(next(iter(fan_outs.values()), ()))):
        for edge_type, first_column in zip(edge_types, columns, strict=False):
            source_type, _, target_type = edge_type
            offsets, sources, ids = edges[edge_type]
            edges_before = len(taken[edge_type])
            for destination in frontier[target_type]:
                target = n_id[target_type][destination]
                start, end = int(offsets[target]), int(offsets[target + 1])
                draws = uniform(key, batch, hop, int(first_column) + target)
                fan_out = fan_outs[edge_type][hop]
                for place in pick(draws, end - start, fan_out, replace=replace):
                    source = int(sources[start + place])
                    if (source_type, source) not in local:
                        local[source_type, source] = len(n_id[source_type])
                        n_id[source_type].append(source)
                    row = local[source_type, source]
                    taken[edge_type].append((row, destination, int(ids[start + place])))
            num_edges[edge_type].append(len(taken[edge_type]) - edges_before)
        for name, nodes in n_id.items():
            frontier[name] = range(frontier[name].stop, len(nodes))
            num_nodes[name].append(len(frontier[name]))
    parts = {one: np.array(of, np.int64).reshape(-1, 3) for one, of in taken.items()}
    return TypedReferenceBatch(
        n_id={name: np.array(nodes, np.int64) for name, nodes in n_id.items()},
        row={one: of[:, 0] for one, of in parts.items()},
        col={one: of[:, 1] for one, of in parts.items()},
        e_id={one: of[:, 2] for one, of in parts.items()},
        num_sampled_nodes=num_nodes,
        num_sampled_edges=num_edges,
    )
