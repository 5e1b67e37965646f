"""How ranking goes through the table: among what, in how many groups. Pure; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

from outercore.embedding.config import CandidateKind, EmbedConfig
from outercore.embedding.tables.placement import (
    Placement,
    Size,
    question_bytes,
    score_seconds,
)

_MOST_PRODUCTS = 1e13
"""Of numbers, for `auto` to rank among all: some minutes of two cores."""
_LEAST_GROUP, _MOST_GROUP = 256, 1 << 18
"""Triples that are ranked in one pass over the table."""
_GAP = 64 << 10
"""Rows closer than so many bytes are read together with what lies between, see the core's
`rows_of_nodes`."""


def kinds_of(config: EmbedConfig, triples: int, entities: int) -> list[CandidateKind]:
    """Among which entities so many triples are ranked: first what validation takes."""
    chosen = config.evaluation.candidates
    if chosen == "auto":
        products = 2 * triples * entities * config.model.dim
        chosen = "all" if products <= _MOST_PRODUCTS else "uniform"
    return list(dict.fromkeys([chosen, *config.evaluation.also]))


def group_size(config: EmbedConfig, memory: int) -> int:
    """How many triples can be ranked in one pass over the table."""
    return max(_LEAST_GROUP, min(_MOST_GROUP, memory // question_bytes(config)))


class Piece(NamedTuple):
    """Some triples of a part."""

    part: int
    place: slice


def groups_of(counts: Sequence[int], size: int) -> Iterator[list[Piece]]:
    """Parts of so many triples, one after the other, in groups of `size` triples.

    Example:
        >>> [[(one.part, one.place.start, one.place.stop) for one in group]
        ...  for group in groups_of([3, 4], 5)]
        [[(0, 0, 3), (1, 0, 2)], [(1, 2, 4)]]
    """
    group: list[Piece] = []
    room = size
    for part, count in enumerate(counts):
        first = 0
        while first < count:
            last = min(count, first + room)
            group.append(Piece(part, slice(first, last)))
            room -= last - first
            first = last
            if not room:
                yield group
                group, room = [], size
    if group:
        yield group


def rows_compared(
    config: EmbedConfig,
    counts: Sequence[int],
    kinds: Sequence[Sequence[CandidateKind]],
    entities: int,
    group: int,
) -> list[int]:
    """Rows that each group of some parts' triples is compared with, ranked among these kinds."""
    rows = {"all": entities, "uniform": config.evaluation.count, "degree": config.evaluation.count}
    return [
        sum(rows[kind] for kind in {kind for piece in pieces for kind in kinds[piece.part]})
        for pieces in groups_of(counts, group)
    ]


@dataclass(frozen=True)
class RankingPlan:
    """What a ranking costs."""

    triples: int
    passes: int
    """Over the whole table."""
    bytes_read: int
    """From partitions that are not in memory, rows of what is asked included."""
    seconds: float


def plan_ranking(
    config: EmbedConfig,
    size: Size,
    placement: Placement,
    counts: Sequence[int],
    kinds: Sequence[Sequence[CandidateKind]],
    *,
    triples_per_second: float,
    read_bandwidth: float,
) -> RankingPlan:
    """What it costs to rank parts of so many triples among these kinds of candidates.

    Rates in triples that are trained and in bytes a second.
    """
    group = group_size(config, placement.for_evaluation)
    count, table = config.evaluation.count, 4 * config.model.dim * size.entities
    rows = {"all": size.entities, "uniform": count, "degree": count}
    drawn = {kind for some in kinds for kind in some} - {"all"}
    passes = scores = 0
    read = sum(_scattered(config, size, count) for _ in drawn)
    for pieces in groups_of(counts, group):
        triples = [piece.place.stop - piece.place.start for piece in pieces]
        read += _scattered(config, size, 2 * sum(triples))
        passes += any("all" in kinds[piece.part] for piece in pieces)
        for piece, some in zip(pieces, triples, strict=True):
            scores += 2 * some * sum(rows[kind] for kind in kinds[piece.part])
    away = 1.0 - (placement.slots - placement.spare) / placement.partitions
    bytes_read = int(away * (read + passes * table))
    seconds = scores * score_seconds(config, size, triples_per_second) + bytes_read / read_bandwidth
    return RankingPlan(sum(counts), passes, bytes_read, seconds)


def _scattered(config: EmbedConfig, size: Size, rows: int) -> int:
    """Bytes that are read for so many rows that lie anywhere in the table."""
    row_bytes = 4 * config.model.dim
    table = row_bytes * size.entities
    mean = table / max(rows, 1)
    # Gaps are longer the rarer: what lies in those that are read, a row.
    between = mean * (1.0 - (1.0 + _GAP / mean) * exp(-_GAP / mean))
    return int(min(table, rows * (row_bytes + between)))
