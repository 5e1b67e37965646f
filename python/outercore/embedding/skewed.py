"""Partitions for triples as they lie in buckets, which is known once they are counted. Pure.

`planning` takes triples to be spread about evenly. Where a few entities have many of them, the
largest pool may have no room beside the partitions that were chosen; then others are looked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from outercore.config.sizes import format_size
from outercore.embedding.config import EmbedConfig
from outercore.embedding.order import PartitionOrder
from outercore.embedding.planning import (
    READ_TOGETHER,
    Placement,
    Pools,
    Size,
    fastest,
    filled,
    groups_of,
    hidden_sweeps,
    in_memory,
    in_turn,
    numbers_of_partitions,
    order_of,
    partitioned,
    seconds_with_pools,
    slots_of,
    swaps_of,
    sweeps_of,
    walks_of,
)
from outercore.errors import BudgetError


class BucketCounts:
    """How many triples every bucket of a table has."""

    def __init__(self, triples: NDArray[np.int64]) -> None:
        """`triples`: int64 [parts of the table, parts of the table], row by source."""
        self._triples = triples
        # By the parts into which a bucket is dealt.
        self._with_others: dict[int, NDArray[np.int64]] = {}

    def pools(self, config: EmbedConfig, placement: Placement) -> Pools:
        """Room for the pools of any epoch, as the core reckons it; where buckets are trained whole
        the core goes through the order instead, and may need less."""
        walks = walks_of(config, placement)
        there = (placement.slots - placement.spare) * walks.group
        most = self._most_among(there, walks.sweeps)
        if _keeps_buckets_whole(config, placement):
            return Pools(most)
        triples = self._triples
        return Pools(most, max(int(triples.max()), min(READ_TOGETHER, int(triples.sum()))))

    def pools_of_whole(self, order: PartitionOrder, placement: Placement) -> Pools:
        """The same where buckets are trained whole, as they are in the states of `order`."""
        most = 0
        for state in (*order.states, *order.reversed().states):
            steps = [state.buckets]
            if placement.swap == "in-place":
                steps = [state.before_swap, state.during_swap]
            most = max(
                most, *(sum(int(self._triples[bucket]) for bucket in step) for step in steps)
            )
        return Pools(most)

    def _most_among(self, resident: int, dealt: int) -> int:
        """Most triples between so many parts of the table, of one of `dealt` parts of each bucket:
        an upper bound."""
        if dealt not in self._with_others:
            self._with_others[dealt] = self._summed(dealt)
        # Each of two brings half of what they have with each other.
        with_others = np.sort(self._with_others[dealt][:, resident - 1])[::-1]
        return -(-int(with_others[:resident].sum()) // 2)

    def _summed(self, dealt: int) -> NDArray[np.int64]:
        """Twice what every part of the table has with itself, and what it has with the others that
        it has most with: by how many these are."""
        parts = -(-self._triples // dealt)
        between = parts + parts.T
        own = between.diagonal().copy()
        np.fill_diagonal(between, 0)
        others = np.cumsum(np.sort(between, axis=1)[:, ::-1], axis=1)
        return own[:, None] + np.pad(others, ((0, 0), (1, 0)))


Count = Callable[[int], BucketCounts]
"""Counts the triples in the buckets of a table of so many parts."""


@dataclass(frozen=True)
class _Fit:
    """A placement with pools as large as they are, and whether it can be had."""

    placement: Placement
    pools: Pools
    needed: int
    """Bytes with which a run starts and can be resumed, which `planning` has to let pass, too."""
    exact: bool
    """Whether it does not start with less."""


def place_counted(config: EmbedConfig, size: Size, first: Placement, count: Count) -> Placement:
    """`first`, which `place` has found, if there is room for its pools, else the best of the
    placements that `config` leaves open and that have it.

    Tables of as many parts as `first` has are gone through before triples are counted for others:
    more parts then, fewer at last. Among them are fewer slots, more partitions of fewer parts, and
    more walks, of which each has smaller pools.

    Cost: `count` once for each number of parts that is looked at.
    Errors: `BudgetError` says the least memory, or one that is enough where `exact` cannot be had.
    """
    parts = first.partitions * first.group
    own = _fit(config, size, first, count(parts), exact=True)
    if own.needed <= first.memory:
        return _as_planned(first, own)
    tried: list[_Fit] = []
    for number in _numbers_of_parts(config, size, parts):
        ways = list(_ways(config, size, first.memory, number))
        # Nothing of these can fit, nor need less than what was tried.
        most = max(first.memory, min((fit.needed - 1 for fit in tried), default=0))
        if all(one.needed > most for way in ways for one in way):
            continue
        counts = count(number)
        found = [fit for way in ways for fit in _fits(config, size, way, counts)]
        fitting = [fit.placement for fit in found if fit.needed <= first.memory]
        if fitting:
            seconds = [seconds_with_pools(config, size, one) for one in fitting]
            return _chosen(config, size, fastest(fitting, seconds), counts)
        tried += found
    raise _nothing_fits(config, size, own, min(tried, key=lambda fit: fit.needed))


def with_pools(config: EmbedConfig, size: Size, placement: Placement, pools: Pools) -> Placement:
    """The partitions of a run that goes on, with pools as large as the buckets make them: what
    these take more is taken from evaluation and from what was left.

    Errors: `BudgetError` says the least memory.
    """
    found = _partitioned(config, size, placement, pools)
    if found.needed > placement.memory:
        raise BudgetError(
            f"{placement.partitions} partitions within {format_size(placement.memory)}: some have "
            f"up to {pools.most:,} triples in one pool, which needs at least "
            f"{format_size(found.needed)}, which is {found.needed} bytes\n"
            "hint: give that `--memory`; partitions and slots of a run stay as they are",
            found.needed,
        )
    return filled(found)


def instead_of(found: Placement, planned: Placement) -> str | None:
    """What to say of another placement than was planned; `None` of the same."""
    names = {
        "partitions": "{} partitions",
        "slots": "{} slots",
        "swap": "swaps {}",
        "sweeps": "sweeps {}",
        "group": "groups of {}",
    }
    changed = [
        f"{text.format(getattr(found, name))} instead of {getattr(planned, name)}"
        for name, text in names.items()
        if getattr(found, name) != getattr(planned, name)
    ]
    return f"{', '.join(changed)}: some buckets are larger than most" if changed else None


def _keeps_buckets_whole(config: EmbedConfig, placement: Placement) -> bool:
    walks = walks_of(config, placement)
    return not (walks.spread or walks.rename or walks.sweeps > 1)


def _as(config: EmbedConfig, placement: Placement) -> EmbedConfig:
    """The configuration with the walks and groups of a placement."""
    budget = replace(config.budget, sweeps=placement.sweeps, group=placement.group)
    return replace(config, budget=budget)


def _partitioned(
    config: EmbedConfig, size: Size, placement: Placement, pools: Pools | None = None
) -> Placement:
    """The same partitions with other pools."""
    memory, partitions, slots = placement.memory, placement.partitions, placement.slots
    return partitioned(config, size, memory, partitions, slots, placement.swap, pools)


def _fit(
    config: EmbedConfig,
    size: Size,
    placement: Placement,
    counts: BucketCounts,
    *,
    exact: bool = False,
) -> _Fit:
    """What a placement needs as triples are counted. `exact`: where buckets are trained whole, go
    through its order, whose search may take seconds."""
    own = _as(config, placement)
    whole = _keeps_buckets_whole(own, placement)
    if whole and exact:
        pools = counts.pools_of_whole(order_of(own, placement), placement)
    else:
        pools = counts.pools(own, placement)
    found = _partitioned(own, size, placement, pools)
    # The choice is made, and made again when the run is resumed, for triples spread evenly.
    even = [_partitioned(one, size, placement).needed for one in (config, own)]
    return _Fit(found, pools, max(found.needed, *even), exact or not whole)


def _as_planned(planned: Placement, fit: _Fit) -> Placement:
    """What was planned where its room is enough, else the same with room for its pools."""
    names = ("triples of a state", "triples in training")
    if all(fit.placement.parts[name] <= planned.parts[name] for name in names):
        return planned
    return filled(fit.placement)


def _numbers_of_parts(config: EmbedConfig, size: Size, first: int) -> list[int]:
    """Of a table, `first` to begin with, then more, then fewer."""
    found = {
        partitions * group
        for partitions in numbers_of_partitions(config, size)
        for group in groups_of(config, size, partitions)
    }
    more = sorted(number for number in found if number > first)
    fewer = sorted((number for number in found if number < first), reverse=True)
    return [number for number in [first, *more, *fewer] if number in found]


def _ways(config: EmbedConfig, size: Size, memory: int, parts: int) -> Iterator[list[Placement]]:
    """Placements with a table of so many parts, which differ in slots alone, most first."""
    for partitions in numbers_of_partitions(config, size):
        for group in groups_of(config, size, partitions):
            if partitions * group != parts:
                continue
            for swap in swaps_of(config):
                choices = slots_of(config, partitions, swap)
                found = [
                    partitioned(config, size, memory, partitions, slots, way)
                    for slots, way in choices
                ]
                if found:
                    yield [replace(one, group=group) for one in found]


def _fits(
    config: EmbedConfig, size: Size, way: list[Placement], counts: BucketCounts
) -> Iterator[_Fit]:
    """For each number of walks the placements down to the one with the most slots that fit, which
    is the last; none where fewer walks have as many slots."""
    most, exact = 0, bool(config.budget.partitions and config.budget.slots)
    for sweeps in sweeps_of(config):
        for one in way:
            if one.slots <= most:
                break
            fit = _fit(config, size, replace(one, sweeps=sweeps), counts, exact=exact)
            yield fit
            if fit.needed <= one.memory:
                most = one.slots
                break


def _chosen(
    config: EmbedConfig, size: Size, placement: Placement, counts: BucketCounts
) -> Placement:
    """A placement that fits, with what `place` would choose besides where that fits, too."""

    def if_it_fits(other: Placement) -> Placement:
        fit = _fit(config, size, other, counts)
        return fit.placement if fit.needed <= placement.memory else placement

    turned = in_turn(_as(config, placement), size, placement)
    if turned is not None:
        placement = if_it_fits(turned)
    sweeps = config.budget.sweeps or hidden_sweeps(config, size, placement)
    if sweeps > placement.sweeps:
        placement = if_it_fits(replace(placement, sweeps=sweeps))
    return filled(placement)


def _nothing_fits(config: EmbedConfig, size: Size, first: _Fit, least: _Fit) -> BudgetError:
    """What `least` needs, which was tried, or everything in memory where that may be chosen."""
    asked, needed, place = config.budget, least.needed, least.placement
    what = f"{place.partitions} partitions in {place.slots} slots need"
    whole = in_memory(config, size, place.memory).needed
    exact = least.exact
    if asked.partitions == asked.slots == 0 and whole <= needed:
        needed, what, exact = whole, "everything in memory needs", True
    if not exact:
        what = f"for {place.partitions} partitions in {place.slots} slots"
    enough = f"{what} at least {{}}" if exact else f"{{}} is enough {what}"
    fixed = any((asked.partitions, asked.slots, asked.group, asked.sweeps, asked.swap != "auto"))
    other = "leave partitions, slots and walks open" if fixed else "choose a smaller `--dim`"
    return BudgetError(
        f"{first.placement.partitions} partitions within {format_size(place.memory)}: some have up "
        f"to {first.pools.most:,} triples in one pool; {enough.format(format_size(needed))}, which "
        f"is {needed} bytes\nhint: give that `--memory`, or {other}",
        needed,
    )
