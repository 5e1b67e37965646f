"""How ranking goes through the table: among what, in how many groups. Pure; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp

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


def rows_compared(config: EmbedConfig, kind: CandidateKind, entities: int) -> int:
    """Candidates of this kind that a question is compared with."""
    return entities if kind == "all" else config.evaluation.count


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
    asked: Sequence[tuple[int, Sequence[CandidateKind]]],
    *,
    triples_per_second: float,
    read_bandwidth: float,
) -> RankingPlan:
    """What it costs to rank parts of so many triples, each among these kinds of candidates.

    Rates in triples that are trained and in bytes a second.
    """
    group = group_size(config, placement.for_evaluation)
    table = 4 * config.model.dim * size.entities
    passes = scores = read = 0
    for count, kind in ((count, kind) for count, kinds in asked for kind in kinds):
        rows, (full, rest) = rows_compared(config, kind, size.entities), divmod(count, group)
        read += full * _scattered(config, size, 2 * group) + _scattered(config, size, 2 * rest)
        scores += 2 * count * rows
        if kind == "all":
            passes += full + (rest > 0)
        else:
            read += _scattered(config, size, rows)
    away = 1.0 - (placement.slots - placement.spare) / placement.partitions
    bytes_read = int(away * (read + passes * table))
    seconds = scores * score_seconds(config, size, triples_per_second) + bytes_read / read_bandwidth
    return RankingPlan(sum(count for count, _ in asked), passes, bytes_read, seconds)


def _scattered(config: EmbedConfig, size: Size, rows: int) -> int:
    """Bytes that are read for so many rows that lie anywhere in the table."""
    row_bytes = 4 * config.model.dim
    table = row_bytes * size.entities
    mean = table / max(rows, 1)
    # Gaps are longer the rarer: what lies in those that are read, a row.
    between = mean * (1.0 - (1.0 + _GAP / mean) * exp(-_GAP / mean))
    return int(min(table, rows * (row_bytes + between)))
