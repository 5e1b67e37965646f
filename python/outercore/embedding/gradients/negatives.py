"""Negatives: the entities that the triples of a batch are compared with, and entities to ignore.

This module prepares the negatives of a pool. The core divides the triples of a batch into chunks
and draws their negatives (`crates/outercore-kernels/src/compare.rs`). A question is a triple with
one open end, and its answers are the entities that complete it to a known triple.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from outercore import _core
from outercore.data.triples import QUESTION_COLUMNS
from outercore.embedding.config import NegativesConfig
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.gradients.chunk import Side
    from outercore.embedding.tables.store import Pool

_TOGETHER = 1 << 15
"""Number of pairs (question, known answer) per step. Each pair takes about 100 bytes."""


def even_pieces(places: Tensor, size: int) -> tuple[Tensor, ...]:
    """Divides `places` (positions of triples) into pieces of about `size` for batches.

    The lengths differ by at most one, and are 0.75 to 1.5 times `size`, unless there are too few
    places. Every batch makes a step of equal size, so a small last batch would have too much
    influence.

    Example:
        >>> import torch
        >>> [len(piece) for piece in even_pieces(torch.arange(260), 100)]
        [87, 87, 86]
        >>> [len(piece) for piece in even_pieces(torch.arange(140), 100)]
        [140]
    """
    return places.tensor_split(_core.count_pieces(len(places), size)) if len(places) else ()


class Negatives(NamedTuple):
    """Negatives that the rows of a chunk share."""

    rows: Tensor
    """int64 [negatives], ascending. A row that is drawn twice occurs twice."""
    bias: Tensor | None
    """float32 [negatives]: bias of their scores."""


class Pairs(NamedTuple):
    """Pairs of a row (of a triple) and a column (of a candidate). Rows ascend."""

    rows: Tensor
    columns: Tensor

    def between(self, start: int, stop: int) -> Pairs:
        """The pairs of rows `start` to `stop`, with rows counted from `start`."""
        first, last = torch.searchsorted(self.rows, self.rows.new_tensor([start, stop])).tolist()
        return Pairs(self.rows[first:last] - start, self.columns[first:last])

    def to(self, device: torch.device) -> Pairs:
        """The same pairs on a device."""
        return Pairs(self.rows.to(device), self.columns.to(device))


def draw_counts(config: NegativesConfig) -> tuple[int, int]:
    """Numbers of negatives of a chunk that are drawn by the shares of ranges, and by degree."""
    by_degree = round(config.degree_share * config.count) if config.kind == "sampled" else 0
    return config.count - by_degree, by_degree


def population(
    config: NegativesConfig,
    ranges: list[tuple[int, int]],
    degrees: Tensor | None = None,
    shares: list[float] | None = None,
) -> _core.Population:
    """The rows in memory from which negatives are drawn, in the form of the core.

    `ranges` [(start, stop), ...] are the rows that hold entities. `degrees` [rows] has the number
    of triples of each row; only draws by degree need it. `shares` has the relative probability of
    an entity of each range; by default they are equal.

    Returns the ranges and shares. For draws by degree, it also returns the float64 weights of all
    rows of the ranges, with their cumulative sums. Weights are equal if no row has a triple.

    Errors: `InvalidError` if there is no row to draw, and for missing degrees.
    """
    sizes = [stop - start for start, stop in ranges]
    if sum(sizes) < 1:
        raise InvalidError("negatives: expected at least one entity to draw, found none")
    if not draw_counts(config)[1]:
        return ranges, shares, None
    if degrees is None:
        raise InvalidError("negatives.degree_share: the store knows no degrees")
    counts = torch.cat([degrees[start:stop] for start, stop in ranges])
    weights = counts.to(torch.float64).pow_(config.degree_power)
    if not counts.any():
        # A partition may have only entities of held-out triples. Its buckets in the pool are then
        # empty.
        weights.fill_(1.0)
    for some, share in zip(weights.split(sizes), shares or (), strict=False):
        some *= share
    return ranges, shares, (weights.numpy(), torch.cumsum(weights, 0).numpy())


COLUMNS = {side: QUESTION_COLUMNS[side] for side in ("tail", "head")}
"""The columns of anchor, relation and target in a triple, by the open end."""


def known_answers(triples: Tensor) -> dict[str, _core.KnownAnswers]:
    """The answers in `triples` to questions from the same triples, by the open side.

    Shapes: `triples` int64 [m, 3].
    Cost: for each side, 16 bytes per distinct question and 4 per answer.
    """
    rows = triples.numpy()
    entities, relations = (int(rows[:, some].max(initial=-1)) + 1 for some in ([0, 2], [1]))
    answers = {}
    for side, columns in COLUMNS.items():
        known = _core.KnownAnswers(rows, columns, entities, relations)
        known.count(rows)
        known.add(rows)
        known.finish()
        answers[side] = known
    return answers


def known_among(known: _core.KnownAnswers, triples: Tensor, candidates: Tensor) -> Iterator[Pairs]:
    """Finds the known answers of each triple's question among `candidates`, with repetitions.

    It yields the pairs in groups, because a hub can have as many pairs as the square of its degree.
    `candidates` must ascend.

    Shapes: `triples` int64 [rows, 3], `candidates` int64 [candidates].
    """
    rows, among, row = triples.numpy(), candidates.contiguous().numpy(), 0
    while row < len(rows):
        (found, places), row = known.among(rows, among, row, _TOGETHER)
        if len(found):
            yield Pairs(torch.from_numpy(found), torch.from_numpy(places))


def occurrences(candidates: Tensor, rows: Tensor, targets: Tensor) -> Pairs:
    """Finds the targets of rows among `candidates`, with repetitions.

    `rows[i]` is the row of `targets[i]`. `rows` and `candidates` must ascend.
    """
    targets = targets.contiguous()
    first = torch.searchsorted(candidates, targets)
    counts = torch.searchsorted(candidates, targets, right=True) - first
    owners, offsets = repeat_ranges(counts)
    return Pairs(rows[owners], first[owners] + offsets)


def repeat_ranges(counts: Tensor) -> tuple[Tensor, Tensor]:
    """The pairs (0, 0), (0, 1), ..., (1, 0), ...: `counts[i]` pairs begin with i."""
    owners = torch.repeat_interleave(torch.arange(counts.numel()), counts)
    before = torch.cumsum(counts, 0) - counts
    return owners, torch.arange(owners.numel()) - before[owners]


class Comparison(NamedTuple):
    """Triples and their shared negatives."""

    places: Tensor
    """int64 [triples]: the positions of the triples in their pool."""
    rows: Tensor
    """int64 [negatives], ascending."""
    bias: Tensor | None
    """float32 [kinds, negatives]: bias of scores for each kind of anchor. Anchors are of one kind
    if the same negatives have the same weight for them."""
    kinds: Tensor | None
    """int64 [triples]: the kind of each triple's anchor; `None`: the first kind for all."""

    def apart(self) -> Iterator[tuple[Tensor, Negatives]]:
        """For each kind, the positions of its triples, and the negatives with its bias."""
        if self.bias is None or self.kinds is None or len(self.bias) == 1:
            yield self.places, Negatives(self.rows, None if self.bias is None else self.bias[0])
            return
        for kind, bias in enumerate(self.bias):
            places = self.places[self.kinds == kind]
            if len(places):
                yield places, Negatives(self.rows, bias)


class PoolNegatives:
    """Draws negatives for the triples of a pool: entities that can be answers in this pool.

    With partitions, a pool has only the triples of some buckets. From an entity outside the buckets
    of the anchor, the model would only learn which buckets are in training. For the same reason,
    entities have more weight if the pool has a larger part of their bucket. If a bias of scores can
    express these weights (`weighs`), anchors with different weights share one draw.
    """

    def __init__(
        self, config: NegativesConfig, pool: Pool, chunk_size: int, *, weighs: bool
    ) -> None:
        self._pool = pool
        order = sorted(range(len(pool.ranges)), key=lambda number: pool.ranges[number])
        starts = np.array([pool.ranges[number][0] for number in order], np.int64)
        likely = _likelihoods(pool)
        # Both sides share the weights of rows if possible, because these arrays are large.
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
        """The comparisons in the form of the core, for training."""

    def draw(self, places: Tensor, at: _core.At) -> dict[Side, list[Comparison]]:
        """Divides the triples at `places` of the pool into chunks with negatives, by open side.

        `at` is the seed, the epoch, the pool and the number of the batch.
        """
        triples = self._pool.triples.numpy()
        tails, heads = self.core.ask(triples, places.numpy(), at, torch.get_num_threads())
        return {"tail": list(_comparisons(tails)), "head": list(_comparisons(heads))}


def _comparisons(joined: _core.Asked) -> Iterator[Comparison]:
    """Splits the chunks that the core has concatenated."""
    places, sizes, rows, biases, kinds = joined
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
    """The population to draw from for some anchors, and an additional bias by kind and range.

    Answers are in the ranges with the numbers `answers` [answers]. `shares` [kinds, answers] has
    the probability of an entity of each range, relative to the most likely range.
    """
    ranges = [pool.ranges[number] for number in answers.tolist()]
    if pool.shares is None:
        return (*population(config, ranges, pool.degrees), None)
    # One draw serves all kinds, by their mean probability.
    drawn = shares.mean(0)
    drawn_from = population(config, ranges, pool.degrees, drawn.tolist())
    # With corrected scores, negatives stand for all entities; otherwise only for the drawn ones.
    if config.kind != "all" and config.correction == "none":
        sizes = np.array([stop - start for start, stop in ranges])
        shares = (shares / (shares @ sizes)[:, None]) / (drawn / (drawn @ sizes))
    return (*drawn_from, np.log(shares).astype(np.float32))


def _likelihoods(pool: Pool) -> NDArray[np.float64]:
    """The relative probability that an entity is the tail of a triple, [ranges, ranges].

    The first range holds the head, and the second range holds the entity. 0 means that it is never
    the tail.
    """
    count = len(pool.ranges)
    if pool.pairs is None:
        return np.ones((count, count))
    likely = np.zeros((count, count))
    heads, tails = np.array(pool.pairs, np.int64).reshape(-1, 2).T
    likely[heads, tails] = 1.0 if pool.shares is None else pool.shares
    return likely
