"""Which triples of a pool share their negatives, and how these count for each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.embed.config import NegativesConfig
from outercore.embed.negatives import Draws, Negatives, NegativeSampler

if TYPE_CHECKING:
    from outercore.embed.models import Side
    from outercore.embed.store import Pool


class Comparison(NamedTuple):
    """Triples, and the negatives that they share."""

    places: Tensor
    """int64 [triples], in their pool."""
    rows: Tensor
    """int64 [negatives], ascending."""
    bias: Tensor | None
    """float32 [kinds, negatives], what is added to scores for a triple of each kind."""
    kinds: Tensor | None
    """int64 [triples], the kind of each; `None`: the first."""

    @property
    def sizes(self) -> tuple[int, int, int]:
        """Triples, negatives and kinds."""
        return len(self.places), len(self.rows), 1 if self.bias is None else len(self.bias)

    def apart(self) -> Iterator[tuple[Tensor, Negatives]]:
        """Places of the triples of each kind, and the negatives as these see them."""
        if self.bias is None or self.kinds is None or len(self.bias) == 1:
            yield self.places, Negatives(self.rows, None if self.bias is None else self.bias[0])
            return
        for kind, bias in enumerate(self.bias):
            places = self.places[self.kinds == kind]
            if len(places):
                yield places, Negatives(self.rows, bias)


class _Answers(NamedTuple):
    """In which ranges the answers of some anchors are."""

    ranges: tuple[int, ...]
    """Numbers of ranges."""
    shares: tuple[float, ...]
    """How likely an entity of each is the answer, by that of the likeliest."""


class _Shared:
    """Negatives of anchors whose answers are in the same ranges, if not as likely in each."""

    def __init__(self, config: NegativesConfig, pool: Pool, kinds: tuple[_Answers, ...]) -> None:
        ranges = [pool.ranges[number] for number in kinds[0].ranges]
        shares = np.array([one.shares for one in kinds])
        # What is likely for one kind is drawn for all.
        drawn = shares.mean(0)
        weighed = pool.shares is not None
        self._sampler = NegativeSampler(
            config, ranges, pool.degrees, drawn.tolist() if weighed else None
        )
        self.kinds = len(kinds)
        self._logs: NDArray[np.float32] | None = None
        if weighed:
            # Corrected scores are those of all entities; others are as many as are drawn, whatever
            # the kind.
            if config.kind != "all" and config.correction == "none":
                sizes = np.array([stop - start for start, stop in ranges])
                shares = (shares / (shares @ sizes)[:, None]) / (drawn / (drawn @ sizes))
            self._logs = np.log(shares).astype(np.float32)

    def draw(self, draws: Draws, places: Tensor, kinds: Tensor | None) -> Comparison:
        """What triples, of which `kinds` says the kind, are compared with."""
        # Of all comparisons in a pool, or of none: some with a bias and some without are none.
        rows, bias = self._sampler.draw_for_kinds(draws, self._logs)
        return Comparison(places, rows, bias, kinds)


class PoolNegatives:
    """Draws negatives for the triples of a pool: entities that the pool could have as answers.

    With partitions, a pool has the triples of some buckets only, and an entity in memory whose
    partition is in no bucket with the anchor's is never the answer there. As a negative it would
    teach the model which buckets are being trained, again with every pool, and nothing else. For
    the same reason, where a pool has a larger part of one bucket than of another, the entities of
    the one count for more. Where a bias of their scores can say so (`weighs`), one draw serves
    anchors that differ in this; else each has its own.
    """

    def __init__(self, config: NegativesConfig, pool: Pool, *, weighs: bool) -> None:
        self._pool = pool
        order = sorted(range(len(pool.ranges)), key=lambda number: pool.ranges[number])
        self._starts = np.array([pool.ranges[number][0] for number in order], np.int64)
        self._shared: dict[Side, list[_Shared]] = {}
        self._owners: dict[Side, NDArray[np.int64]] = {}
        made: dict[tuple[_Answers, ...], _Shared] = {}
        for side in ("tail", "head"):
            answers = self._answers(side)
            alike = _alike(answers, weighs=weighs)
            for kinds in alike:
                if kinds not in made:
                    made[kinds] = _Shared(config, pool, kinds)
            self._shared[side] = [made[kinds] for kinds in alike]
            places = {
                one: (number, kind)
                for number, kinds in enumerate(alike)
                for kind, one in enumerate(kinds)
            }
            # Anchors without answers are those of no triple.
            by_range = [places.get(answers[number], (0, 0)) for number in order]
            self._owners[side] = np.array(by_range, np.int64).T.copy()

    def _answers(self, side: Side) -> list[_Answers]:
        """By range of the anchor: the ranges in which answers for `side` are."""
        every = range(len(self._pool.ranges))
        if self._pool.pairs is None:
            return [_Answers(tuple(every), tuple(1.0 for _ in every))] * len(every)
        asked = 0 if side == "tail" else 1
        shares = self._pool.shares or [1.0] * len(self._pool.pairs)
        found: list[list[tuple[int, float]]] = [[] for _ in every]
        for pair, share in zip(self._pool.pairs, shares, strict=True):
            found[pair[asked]].append((pair[1 - asked], share))
        largest = [max((share for _, share in answers), default=1.0) for answers in found]
        for answers in found:
            answers.sort()
        return [
            _Answers(
                tuple(number for number, _ in answers), tuple(share / most for _, share in answers)
            )
            for answers, most in zip(found, largest, strict=True)
        ]

    def ask(self, places: Tensor, side: Side, size: int, draws: Draws) -> Iterator[Comparison]:
        """Chunks of at most `size` triples at `places`, with their negatives for `side`."""
        for negatives, some, kinds in self._divided(places, side):
            for start in range(0, len(some), size):
                piece = slice(start, start + size)
                yield negatives.draw(draws, some[piece], None if kinds is None else kinds[piece])

    def _divided(
        self, places: Tensor, side: Side
    ) -> Iterator[tuple[_Shared, Tensor, Tensor | None]]:
        """`places` by what their negatives are drawn from, with the kinds of their anchors."""
        shared = self._shared[side]
        if len(shared) == 1 and shared[0].kinds == 1:
            yield shared[0], places, None
            return
        found = _core.divide_triples(
            self._pool.triples.numpy(),
            0 if side == "tail" else 2,
            places.numpy(),
            self._starts,
            self._owners[side],
            len(shared),
        )
        for negatives, (some, kinds) in zip(shared, found, strict=True):
            yield negatives, torch.from_numpy(some), torch.from_numpy(kinds)


def _alike(answers: list[_Answers], *, weighs: bool) -> list[tuple[_Answers, ...]]:
    """Distinct answers, together where one draw serves them."""
    sets: dict[object, list[_Answers]] = {}
    for one in sorted(set(answers)):
        if one.ranges:
            sets.setdefault(one.ranges if weighs else one, []).append(one)
    return [tuple(kinds) for kinds in sets.values()]
