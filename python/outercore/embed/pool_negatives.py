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
from outercore.embed.pieces import even_pieces

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


class _Anchors(NamedTuple):
    """Ranges whose anchors share one draw."""

    numbers: list[int]
    """Of the ranges."""
    kinds: list[int]
    """The kind of each."""
    answers: NDArray[np.int64]
    """[answers]: the ranges in which the answers of all of them are, ascending."""
    shares: NDArray[np.float64]
    """[kinds, answers]: how likely an entity of each is the answer, by that of the likeliest."""


class _Shared:
    """Negatives of anchors whose answers are in the same ranges, if not as likely in each."""

    def __init__(self, config: NegativesConfig, pool: Pool, anchors: _Anchors) -> None:
        ranges = [pool.ranges[number] for number in anchors.answers.tolist()]
        shares = anchors.shares
        # What is likely for one kind is drawn for all.
        drawn = shares.mean(0)
        weighed = pool.shares is not None
        self._sampler = NegativeSampler(
            config, ranges, pool.degrees, drawn.tolist() if weighed else None
        )
        self.kinds = len(shares)
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
        likely = _likelihoods(pool)
        sides: dict[Side, NDArray[np.float64]] = {"tail": likely, "head": likely.T}
        for side, of_anchors in sides.items():
            alike = _alike(of_anchors, weighs=weighs)
            self._shared[side] = [_Shared(config, pool, anchors) for anchors in alike]
            # Anchors without answers are those of no triple.
            owners = np.zeros((2, len(pool.ranges)), np.int64)
            for group, anchors in enumerate(alike):
                owners[0, anchors.numbers], owners[1, anchors.numbers] = group, anchors.kinds
            self._owners[side] = np.ascontiguousarray(owners[:, order])

    def ask(self, places: Tensor, side: Side, size: int, draws: Draws) -> Iterator[Comparison]:
        """Chunks of about `size` triples at `places`, with their negatives for `side`."""
        for negatives, some, kinds in self._divided(places, side):
            pieces = even_pieces(some, size)
            of_pieces = [None] * len(pieces) if kinds is None else even_pieces(kinds, size)
            for piece, of_piece in zip(pieces, of_pieces, strict=True):
                yield negatives.draw(draws, piece, of_piece)

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


def _likelihoods(pool: Pool) -> NDArray[np.float64]:
    """[ranges, ranges]: how likely the tail of a triple whose head is in one range is a given
    entity of another, beside other pairs of ranges; 0 if it never is."""
    count = len(pool.ranges)
    if pool.pairs is None:
        return np.ones((count, count))
    likely = np.zeros((count, count))
    heads, tails = np.array(pool.pairs, np.int64).reshape(-1, 2).T
    likely[heads, tails] = 1.0 if pool.shares is None else pool.shares
    return likely


def _alike(likely: NDArray[np.float64], *, weighs: bool) -> list[_Anchors]:
    """Ranges of anchors, the rows of `likely`, together where one draw serves them."""
    largest = likely.max(axis=1, keepdims=True, initial=0.0)
    shares = np.ascontiguousarray(likely / np.where(largest > 0.0, largest, 1.0))
    sets: dict[bytes, list[int]] = {}
    for number, row in enumerate(shares):
        if largest[number] > 0.0:
            sets.setdefault((row > 0.0 if weighs else row).tobytes(), []).append(number)
    found = []
    for _, numbers in sorted(sets.items()):
        answers = shares[numbers[0]].nonzero()[0]
        rows = [shares[number, answers].tobytes() for number in numbers]
        kinds = {row: kind for kind, row in enumerate(sorted(set(rows)))}
        of_kinds = np.frombuffer(b"".join(kinds)).reshape(len(kinds), -1)
        found.append(_Anchors(numbers, [kinds[row] for row in rows], answers, of_kinds))
    return found
