"""Which entities a chunk's triples are compared with, and which of those do not count."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from outercore import _core
from outercore.embedding.config import NegativesConfig
from outercore.embedding.gradients.kernels import Masked
from outercore.errors import InvalidError

_TOGETHER = 1 << 15
"""Pairs of a question and a known target that are looked for together, some 100 bytes each, give
or take: those of a question that begins a piece, and as many again."""


class Negatives(NamedTuple):
    """Candidates that a chunk's rows share."""

    rows: Tensor
    """int64 [negatives], ascending; a row drawn twice stands twice."""
    bias: Tensor | None
    """float32 [negatives], what is added to their scores."""


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


class KnownTargets:
    """The entities that complete each (anchor, relation) to a triple of a set, each once.

    Cost: 8 bytes a triple and 16 a distinct pair, for one side; some times that while it is made.
    """

    def __init__(self, anchors: Tensor, relations: Tensor, targets: Tensor) -> None:
        self._relations = int(relations.max()) + 1 if relations.numel() else 1
        highest = int(anchors.max()) if anchors.numel() else 0
        if highest > (2**63 - 1) // self._relations - 1:
            raise InvalidError(
                f"known triples: {highest + 1} entities times {self._relations} relations is "
                "more than 64 bits hold"
            )
        keys = (anchors * self._relations).add_(relations)
        # By target first, then stably by key: each key's targets ascend. What is used up goes at
        # once: the plan counts the most that is there at a time.
        order = torch.argsort(targets, stable=True)
        order = order[torch.argsort(keys[order], stable=True)]
        keys, targets = keys[order], targets[order]
        del order
        # A triple that stands twice, in two splits for instance, is one answer.
        first = torch.ones(len(keys), dtype=torch.bool)
        first[1:] = (keys[1:] != keys[:-1]).logical_or_(targets[1:] != targets[:-1])
        if not bool(first.all()):
            keys, targets = keys[first], targets[first]
        self._targets = targets
        self._keys, counts = torch.unique_consecutive(keys, return_counts=True)
        self._starts = torch.zeros(len(counts) + 1, dtype=torch.int64)
        torch.cumsum(counts, 0, out=self._starts[1:])

    @classmethod
    def in_order(
        cls, relation_count: int, keys: Tensor, starts: Tensor, targets: Tensor
    ) -> KnownTargets:
        """What is in order already, as it is: targets, each once and ascending, int32 or int64, of
        ascending keys, anchor x relations + relation.

        Cost: no more memory than the arguments have.
        """
        made = cls.__new__(cls)
        made._relations = relation_count
        made._keys, made._starts, made._targets = keys, starts, targets
        return made

    def among(self, anchors: Tensor, relations: Tensor, candidates: Tensor) -> Iterator[Masked]:
        """Where the known targets of each row stand among `candidates`, which ascend, every time
        if several; some pairs at a time.

        All targets of all rows of a hub are as many as the square of its degree: so they are made
        anew for few rows and few candidates.

        Shapes: int64 [rows], [rows], [candidates].
        Cost: memory for some times `_TOGETHER` pairs, and some numbers for each row; rows with the
        same anchor and relation that are looked up together are looked up once.
        """
        if not (self._keys.numel() and anchors.numel()):
            return
        for first in range(0, len(candidates), _TOGETHER):
            some = candidates[first : first + _TOGETHER]
            starts, stops = self._within(anchors, relations, some)
            often = int(some.unique_consecutive(return_counts=True)[1].max())
            most = (stops - starts).mul_(often).clamp_max_(len(some))
            row = 0
            pieces = (most.cumsum(0) // _TOGETHER).unique_consecutive(return_counts=True)[1]
            for count in pieces.tolist():
                rows = slice(row, row + count)
                found = self._among(starts[rows], stops[rows], some)
                yield Masked(found.rows + row, found.columns + first)
                row += count

    def _within(
        self, anchors: Tensor, relations: Tensor, candidates: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Where each row's targets begin and end that are not below or above all `candidates`."""
        starts, stops = self._ranges(anchors, relations)
        first, last = candidates[[0, -1]]
        starts = self._lower_bounds(starts, stops, first)
        return starts, self._lower_bounds(starts, stops, last + 1)

    def _among(self, starts: Tensor, stops: Tensor, candidates: Tensor) -> Masked:
        """The same as `among` of rows' targets by where they begin and end, all at once."""
        starts, of_row = torch.where(starts < stops, starts, -1).unique(return_inverse=True)
        # Rows of one key end alike; of those without a target nothing is looked up.
        stops = starts.scatter(0, of_row, stops).where(starts >= 0, -1)
        # What is fewer is looked up in the other: a key's targets or the candidates.
        few = stops - starts <= len(candidates)
        found = occurrences(candidates, *self._pairs(starts, torch.where(few, stops, starts)))
        hits = [found, *self._hits(starts, stops, (~few).nonzero().squeeze(1), candidates)]
        owners, order = torch.cat([some.rows for some in hits]).sort(stable=True)
        columns = torch.cat([some.columns for some in hits])[order]
        counts = torch.bincount(owners, minlength=len(starts))
        before = torch.cumsum(counts, 0) - counts
        rows, offsets = repeat_ranges(counts[of_row])
        return Masked(rows, columns[before[of_row[rows]] + offsets])

    def _hits(
        self, starts: Tensor, stops: Tensor, some: Tensor, candidates: Tensor
    ) -> Iterator[Masked]:
        """Which candidates are targets of some keys, one key after the other."""
        targets = self._targets.numpy()
        # Of one type: else all of a hub's targets were copied into the other.
        wanted = candidates.numpy().astype(targets.dtype)
        for key, start, stop in zip(
            some.tolist(), starts[some].tolist(), stops[some].tolist(), strict=True
        ):
            own = targets[start:stop]
            places = np.searchsorted(own, wanted)
            # One above all is not the first either.
            places[places == len(own)] = 0
            columns = torch.from_numpy(np.flatnonzero(own[places] == wanted))
            yield Masked(torch.full_like(columns, key), columns)

    def _ranges(self, anchors: Tensor, relations: Tensor) -> tuple[Tensor, Tensor]:
        """Where each row's targets begin and end."""
        if self._keys.numel() == 0:
            nowhere = torch.zeros_like(anchors)
            return nowhere, nowhere
        keys = anchors * self._relations + relations
        place = torch.searchsorted(self._keys, keys).clamp_(max=self._keys.numel() - 1)
        found = (self._keys[place] == keys) & (relations < self._relations)
        starts = self._starts[place]
        return starts, torch.where(found, self._starts[place + 1], starts)

    def _lower_bounds(self, starts: Tensor, stops: Tensor, targets: Tensor) -> Tensor:
        """Within each range of ascending targets, the first place of one not below `targets`."""
        low, high = starts, stops
        while bool((unsure := low < high).any()):
            middle = torch.where(unsure, (low + high) // 2, 0)
            below = unsure & (self._targets[middle] < targets)
            low = torch.where(below, middle + 1, low)
            high = torch.where(unsure & ~below, middle, high)
        return low

    def _pairs(self, starts: Tensor, stops: Tensor) -> tuple[Tensor, Tensor]:
        rows, offsets = repeat_ranges(stops - starts)
        return rows, self._targets[starts[rows] + offsets].long()


def occurrences(candidates: Tensor, rows: Tensor, targets: Tensor) -> Masked:
    """Where each row's targets stand among `candidates`, every time if several.

    Shapes: `candidates` ascending; `rows` ascending and `targets`, one pair each.
    """
    targets = targets.contiguous()
    first = torch.searchsorted(candidates, targets)
    counts = torch.searchsorted(candidates, targets, right=True) - first
    pairs, offsets = repeat_ranges(counts)
    return Masked(rows[pairs], first[pairs] + offsets)


def repeat_ranges(counts: Tensor) -> tuple[Tensor, Tensor]:
    """(0, 0), (0, 1), ... (1, 0), ...: `counts[i]` pairs that begin with i."""
    owners = torch.repeat_interleave(torch.arange(counts.numel()), counts)
    before = torch.cumsum(counts, 0) - counts
    return owners, torch.arange(owners.numel()) - before[owners]
