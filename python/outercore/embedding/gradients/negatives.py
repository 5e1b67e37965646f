"""Negatives: the entities that a batch's triples are compared with, and entities to ignore.

This module prepares the negatives of a pool. The core divides the triples of a batch and draws for
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
from outercore.data.triples import QUESTION_COLUMNS
from outercore.embedding.config import NegativesConfig
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.gradients.chunk import Side
    from outercore.embedding.tables.store import Pool

_TOGETHER = 1 << 15
"""Pairs of a question and a known answer per step; each takes about 100 bytes."""


def even_pieces(places: Tensor, size: int) -> tuple[Tensor, ...]:
    """Divides `places` into pieces of about `size`. Their lengths differ by at most one.

    A piece has 0.75 to 1.5 times `size`, unless there are too few places. Every batch makes a step
    of equal size, so a small last batch would have too much influence.

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
    """Pairs of a row and a place among candidates, rows ascending."""

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
    """Draws of a chunk in which rows count as their ranges do, and by degree."""
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

    Returns: ranges and shares. For draws by degree also the float64 weights of all rows of the
    ranges with their cumulative sums; weights are equal if no row has a triple.
    Errors: `InvalidError` without any row to draw, and for unknown degrees.
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
        # A partition may have only entities of held-out triples. Then its buckets are in the pool
        # without a triple.
        weights.fill_(1.0)
    for some, share in zip(weights.split(sizes), shares or (), strict=False):
        some *= share
    return ranges, shares, (weights.numpy(), torch.cumsum(weights, 0).numpy())


COLUMNS = {side: QUESTION_COLUMNS[side] for side in ("tail", "head")}
"""Columns of a triple with an open end: anchor, relation and target."""


def known_answers(triples: Tensor) -> dict[str, _core.KnownAnswers]:
    """The true answers to the triples that these triples contain, by the open side.

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
    """Places of the answers to each triple among `candidates`, including repetitions.

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
    """Places of each row's targets among `candidates`, including repetitions.

    Shapes: `candidates` ascending; `rows` ascending and `targets`, one pair each.
    """
    targets = targets.contiguous()
    first = torch.searchsorted(candidates, targets)
    counts = torch.searchsorted(candidates, targets, right=True) - first
    owners, offsets = repeat_ranges(counts)
    return Pairs(rows[owners], first[owners] + offsets)


def repeat_ranges(counts: Tensor) -> tuple[Tensor, Tensor]:
    """(0, 0), (0, 1), ... (1, 0), ...: `counts[i]` pairs that begin with i."""
    owners = torch.repeat_interleave(torch.arange(counts.numel()), counts)
    before = torch.cumsum(counts, 0) - counts
    return owners, torch.arange(owners.numel()) - before[owners]


class Comparison(NamedTuple):
    """Triples and their shared negatives."""

    places: Tensor
    """int64 [triples], in their pool."""
    rows: Tensor
    """int64 [negatives], ascending."""
    bias: Tensor | None
    """float32 [kinds, negatives]: bias of scores for triples of each kind."""
    kinds: Tensor | None
    """int64 [triples]: the kind of each triple; `None`: the first kind for all."""

    def apart(self) -> Iterator[tuple[Tensor, Negatives]]:
        """Places of the triples of each kind, and the negatives with the bias of this kind."""
        if self.bias is None or self.kinds is None or len(self.bias) == 1:
            yield self.places, Negatives(self.rows, None if self.bias is None else self.bias[0])
            return
        for kind, bias in enumerate(self.bias):
            places = self.places[self.kinds == kind]
            if len(places):
                yield places, Negatives(self.rows, bias)


class PoolNegatives:
    """Draws negatives for the triples of a pool: entities that the pool could have as answers.

    With partitions, a pool has only the triples of some buckets. An entity outside the buckets of
    the anchor would teach the model only which buckets are in training. For the same reason,
    entities have more weight if the pool has a larger part of their bucket. If a bias of scores can
    express these weights (`weighs`), different anchors share one draw.
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
        """The triples at `places` in chunks with negatives, by open side.

        `at` is seed, epoch, pool and number of the batch.
        """
        triples = self._pool.triples.numpy()
        tails, heads = self.core.ask(triples, places.numpy(), at, torch.get_num_threads())
        return {"tail": list(_comparisons(tails)), "head": list(_comparisons(heads))}


def _comparisons(joined: _core.Asked) -> Iterator[Comparison]:
    """The chunks, from their concatenation by the core."""
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
    """The population for these anchors, and additional bias of rows by kind and range.

    Answers are in the ranges `answers` [answers]. `shares` [kinds, answers] has the probability of
    an entity of each range, relative to the likeliest.
    """
    ranges = [pool.ranges[number] for number in answers.tolist()]
    if pool.shares is None:
        return (*population(config, ranges, pool.degrees), None)
    # One draw serves all kinds, by their mean probability.
    drawn = shares.mean(0)
    drawn_from = population(config, ranges, pool.degrees, drawn.tolist())
    # Corrected scores represent all entities; otherwise each kind represents the drawn ones.
    if config.kind != "all" and config.correction == "none":
        sizes = np.array([stop - start for start, stop in ranges])
        shares = (shares / (shares @ sizes)[:, None]) / (drawn / (drawn @ sizes))
    return (*drawn_from, np.log(shares).astype(np.float32))


def _likelihoods(pool: Pool) -> NDArray[np.float64]:
    """Relative probability, [ranges, ranges], of an entity as the tail of a triple.

    The first range holds the head, the second the entity. 0 means that it is never the tail.
    """
    count = len(pool.ranges)
    if pool.pairs is None:
        return np.ones((count, count))
    likely = np.zeros((count, count))
    heads, tails = np.array(pool.pairs, np.int64).reshape(-1, 2).T
    likely[heads, tails] = 1.0 if pool.shares is None else pool.shares
    return likely
