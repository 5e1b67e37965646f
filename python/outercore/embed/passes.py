"""How ranking goes through the table: among what, in how many groups. Pure; needs no PyTorch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from outercore.embed.config import CandidateKind, EmbedConfig
from outercore.embed.planning import LEAST_QUESTIONS, question_bytes

_MOST_PRODUCTS = 1e13
"""Of numbers, for `auto` to rank among all: some minutes of two cores."""
_MOST_GROUP = 1 << 18


def kinds_of(config: EmbedConfig, triples: int, entities: int) -> list[CandidateKind]:
    """Among which entities so many triples are ranked: first what validation takes."""
    chosen = config.evaluation.candidates
    if chosen == "auto":
        products = 2 * triples * entities * config.model.dim
        chosen = "all" if products <= _MOST_PRODUCTS else "uniform"
    return list(dict.fromkeys([chosen, *config.evaluation.also]))


def group_size(config: EmbedConfig, memory: int) -> int:
    """How many triples can be ranked in one pass over the table."""
    return max(LEAST_QUESTIONS, min(_MOST_GROUP, memory // question_bytes(config)))


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
