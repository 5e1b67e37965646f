"""Which entities a chunk's triples are compared with, and which of those do not count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from outercore import _core
from outercore.data.triples import ASKED
from outercore.embedding.config import NegativesConfig
from outercore.errors import InvalidError

_TOGETHER = 1 << 15
"""Pairs of a question and a known answer that are found together, some 100 bytes each."""


class Negatives(NamedTuple):
    """Candidates that a chunk's rows share."""

    rows: Tensor
    """int64 [negatives], ascending; a row drawn twice stands twice."""
    bias: Tensor | None
    """float32 [negatives], what is added to their scores."""


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
    """What negatives are drawn from, of the rows that are in memory, as the core takes it.

    `ranges` [(start, stop), ...] are the rows that hold entities; `degrees` [rows] counts the
    triples of each, and is needed for degree-weighted draws only. `shares` says how likely an
    entity of each range is drawn beside one of another, all alike without it.

    Returns: both, and for draws by degree what every row of the ranges counts, float64, with the
    sums of these; all rows alike where none has a triple.
    Errors: `InvalidError` where there is no row to draw, or the degrees are not known.
    """
    sizes = [stop - start for start, stop in ranges]
    if sum(sizes) < 1:
        raise InvalidError("negatives: expected at least one entity to draw, found none")
    if not draw_counts(config)[1]:
        return ranges, shares, None
    if degrees is None:
        raise InvalidError("negatives.degree_share: the store knows no degrees")
    kept = torch.cat([degrees[start:stop] for start, stop in ranges])
    weights = kept.to(torch.float64).pow_(config.degree_power)
    if not kept.any():
        # A partition may have entities of held-out triples only: buckets with it have nothing to
        # train, and stand in the pool nonetheless.
        weights.fill_(1.0)
    for some, share in zip(weights.split(sizes), shares or (), strict=False):
        some *= share
    return ranges, shares, (weights.numpy(), torch.cumsum(weights, 0).numpy())


COLUMNS = {side: ASKED[side] for side in ("tail", "head")}
"""Of a triple whose one end is asked for: anchor, relation and target."""


def known_answers(triples: Tensor) -> dict[str, _core.KnownAnswers]:
    """The true answers to triples among themselves, by the side that is asked for.

    Shapes: `triples` int64 [m, 3].
    Cost: 16 bytes a distinct question and 4 an answer, for each side.
    """
    rows = triples.numpy()
    entities, relations = (int(rows[:, some].max(initial=-1)) + 1 for some in ([0, 2], [1]))
    found = {}
    for side, columns in COLUMNS.items():
        known = _core.KnownAnswers(rows, columns, entities, relations)
        known.count(rows)
        known.add(rows)
        known.finish()
        found[side] = known
    return found


def known_among(known: _core.KnownAnswers, triples: Tensor, candidates: Tensor) -> Iterator[Pairs]:
    """Where the answers to each triple stand among `candidates`, which ascend, every time if
    several; some pairs at a time: all answers of all rows of a hub are as many as the square of its
    degree.

    Shapes: `triples` int64 [rows, 3], `candidates` int64 [candidates].
    """
    rows, among, row = triples.numpy(), candidates.contiguous().numpy(), 0
    while row < len(rows):
        (found, places), row = known.among(rows, among, row, _TOGETHER)
        if len(found):
            yield Pairs(torch.from_numpy(found), torch.from_numpy(places))


def occurrences(candidates: Tensor, rows: Tensor, targets: Tensor) -> Pairs:
    """Where each row's targets stand among `candidates`, every time if several.

    Shapes: `candidates` ascending; `rows` ascending and `targets`, one pair each.
    """
    targets = targets.contiguous()
    first = torch.searchsorted(candidates, targets)
    counts = torch.searchsorted(candidates, targets, right=True) - first
    pairs, offsets = repeat_ranges(counts)
    return Pairs(rows[pairs], first[pairs] + offsets)


def repeat_ranges(counts: Tensor) -> tuple[Tensor, Tensor]:
    """(0, 0), (0, 1), ... (1, 0), ...: `counts[i]` pairs that begin with i."""
    owners = torch.repeat_interleave(torch.arange(counts.numel()), counts)
    before = torch.cumsum(counts, 0) - counts
    return owners, torch.arange(owners.numel()) - before[owners]
