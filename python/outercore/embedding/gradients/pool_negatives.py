"""Which triples of a pool share their negatives, and how these count for each.

What that is for a pool is said here; a batch's triples are divided by the core, which draws for
them (`crates/outercore-kernels/src/compare.rs`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.embedding.config import NegativesConfig
from outercore.embedding.gradients.negatives import Negatives, draw_counts, population

if TYPE_CHECKING:
    from outercore.embedding.gradients.models import Side
    from outercore.embedding.tables.protocol import Pool


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

    def apart(self) -> Iterator[tuple[Tensor, Negatives]]:
        """Places of the triples of each kind, and the negatives as these see them."""
        if self.bias is None or self.kinds is None or len(self.bias) == 1:
            yield self.places, Negatives(self.rows, None if self.bias is None else self.bias[0])
            return
        for kind, bias in enumerate(self.bias):
            places = self.places[self.kinds == kind]
            if len(places):
                yield places, Negatives(self.rows, bias)


Asked = dict["Side", list[Comparison]]
"""What a batch's triples are compared with, by side."""


class PoolNegatives:
    """Draws negatives for the triples of a pool: entities that the pool could have as answers.

    With partitions, a pool has the triples of some buckets only, and an entity in memory whose
    partition is in no bucket with the anchor's is never the answer there. As a negative it would
    teach the model which buckets are being trained, again with every pool, and nothing else. For
    the same reason, where a pool has a larger part of one bucket than of another, the entities of
    the one count for more. Where a bias of their scores can say so (`weighs`), one draw serves
    anchors that differ in this; else each has its own.
    """

    def __init__(
        self, config: NegativesConfig, pool: Pool, chunk_size: int, *, weighs: bool
    ) -> None:
        self._pool = pool
        order = sorted(range(len(pool.ranges)), key=lambda number: pool.ranges[number])
        starts = np.array([pool.ranges[number][0] for number in order], np.int64)
        likely = _likelihoods(pool)
        # The same for both sides, where their answers are alike: weights of rows are large.
        made: dict[tuple[bytes, bytes], _core.Shared] = {}

        def side(of_anchors: NDArray[np.float64]) -> _core.SideOf:
            owners, groups = _core.alike_anchors(of_anchors, weighs=weighs)
            shared = []
            for answers, shares in groups:
                key = (answers.tobytes(), shares.tobytes())
                if key not in made:
                    made[key] = _shared(config, pool, answers, shares)
                shared.append(made[key])
            return starts, owners[:, order], shared

        self.core = _core.PoolComparisons(
            side(likely),
            side(np.ascontiguousarray(likely.T)),
            chunk_size,
            draw_counts(config),
            every=config.kind == "all",
            biased=config.correction == "frequency",
        )
        """What the core asks in training."""

    def ask(self, places: Tensor, at: _core.At) -> Asked:
        """The triples at `places`, of the batch `at` (seed, epoch, pool, batch), in chunks."""
        triples = self._pool.triples.numpy()
        found = self.core.ask(triples, places.numpy(), at, torch.get_num_threads())
        tails, heads = (list(_comparisons(asked)) for asked in found)
        return {"tail": tails, "head": heads}


def _comparisons(asked: _core.Asked) -> Iterator[Comparison]:
    """The chunks that the core has put one after the other."""
    places, sizes, rows, biases, kinds = asked
    first, row, number = 0, 0, 0
    for triples, negatives, count in sizes:
        some = slice(first, first + triples)
        bias = None
        if biases is not None:
            bias = torch.from_numpy(biases[number : number + count * negatives])
        yield Comparison(
            torch.from_numpy(places[some]),
            torch.from_numpy(rows[row : row + negatives]),
            None if bias is None else bias.view(count, negatives),
            None if kinds is None else torch.from_numpy(kinds[some]),
        )
        first, row, number = first + triples, row + negatives, number + count * negatives


def _shared(
    config: NegativesConfig, pool: Pool, answers: NDArray[np.int64], shares: NDArray[np.float64]
) -> _core.Shared:
    """What anchors draw from, and what comes to the bias of rows by kind and range.

    Their answers are in the ranges `answers` [answers], where an entity of each is as likely as
    `shares` [kinds, answers] says, by the likeliest.
    """
    ranges = [pool.ranges[number] for number in answers.tolist()]
    if pool.shares is None:
        return (*population(config, ranges, pool.degrees), None)
    # What is likely for one kind is drawn for all.
    drawn = shares.mean(0)
    drawn_from = population(config, ranges, pool.degrees, drawn.tolist())
    # Corrected scores are those of all entities; others are as many as are drawn, whatever the
    # kind.
    if config.kind != "all" and config.correction == "none":
        sizes = np.array([stop - start for start, stop in ranges])
        shares = (shares / (shares @ sizes)[:, None]) / (drawn / (drawn @ sizes))
    return (*drawn_from, np.log(shares).astype(np.float32))


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
