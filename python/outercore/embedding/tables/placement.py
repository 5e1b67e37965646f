"""The division of an embedding run's memory budget, and the cost of its rankings.

The core divides the budget (`outercore_embed::placement`). This module translates the configuration
for the core, and the result of the core. Does not need PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import exp
from typing import Any

from outercore import _core
from outercore.base.sizes import parse_size
from outercore.embedding.config import CandidateKind, EmbedConfig, OptimiserName, Swap
from outercore.embedding.tables.order import PartitionOrder, Walks, partition_order

FEW_COMPARED = 0.1
"""Metrics fall if triples are compared with a smaller share of the entities (design 0018)."""
_OF_PARTITIONS = ("slots", "triples of a state", "reads")
_ON_DEVICE = (
    "embeddings",
    "optimiser",
    "slots",
    "relations",
    "a batch",
    "score function",
    "known negatives",
)
_MOST_STAGING = 16 << 20
_FEW_ENTITIES = 1000
"""Metrics fall if triples are compared with fewer entities at a time, whatever their share is."""
_MOST_PRODUCTS = 1e13
"""Largest number of multiplications for which `auto` ranks among all entities. They take some
minutes on two cores."""
_LEAST_GROUP, _MOST_GROUP = 256, 1 << 18
"""Smallest and largest number of triples that are ranked in one pass over the table."""
_GAP = 64 << 10
"""Rows with a gap of fewer bytes between them are read together; see the core's `rows_of_nodes`."""


@dataclass(frozen=True)
class Size:
    """Sizes of the data of a run."""

    entities: int
    relations: int
    triples: int
    weighted: bool = False
    held_out: int = 0
    """Number of triples to rank, of all held-out parts."""
    answers: int | None = None
    """Number of true answers to both sides of ranked triples; `None` before they are counted."""
    first_rows: int = 0
    """Bytes of a warm start, which maps entities to rows of another run."""

    @property
    def triple_bytes(self) -> int:
        """Bytes of a triple on disk."""
        return 16 if self.weighted else 12


@dataclass(frozen=True)
class Placement:
    """A division of the memory budget."""

    memory: int
    """Bytes of the budget."""
    partitions: int
    """Number of partitions of the entities; 1: all tables are in memory."""
    slots: int
    """Number of partitions in memory."""
    swap: Swap = "in-place"
    """How partitions are swapped."""
    sweeps: int = 1
    """Number of walks through the order per epoch."""
    group: int = 1
    """Number of partitions of the table that form one partition of the order; see `Walks`."""
    partition_bytes: int = 0
    """Bytes of a partition: rows and optimiser state, in whole pages."""
    pool: int = 0
    """Number of triples of the largest pool that fits in the budget."""
    negative_sets: int = 1
    """Number of sets of negatives that the triples of a chunk need."""
    parts: dict[str, int] = field(default_factory=dict)
    """Bytes of the budget by purpose."""

    @property
    def in_memory(self) -> bool:
        """Whether all tables are in memory."""
        return self.partitions == 1

    @property
    def spare(self) -> bool:
        """Whether one slot stays free for the next partition."""
        return self.swap == "spare-slot"

    @property
    def compared(self) -> float:
        """Share of the entities that triples are compared with at a time: the entities in memory.

        A spare slot is empty, so it does not count. With swaps in place, it is one partition less:
        a step trains either with or without the leaving partition.
        """
        together = self.slots - (self.swap != "in-turn")
        return 1.0 if self.in_memory else max(together, 1) / self.partitions

    @property
    def needed(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def on_device(self) -> int:
        """Bytes that a GPU needs to hold the tables, or the partitions in memory."""
        # The memory of a batch stays allocated while questions are ranked.
        return sum(self.parts.get(name, 0) for name in _ON_DEVICE) + self.for_evaluation

    @property
    def for_evaluation(self) -> int:
        """Bytes for the triples that are ranked in one pass over the table.

        They include the bytes of a pool in training, which are free during a ranking.
        """
        return sum(self.parts.get(name, 0) for name in ("evaluation", "triples in training"))

    @property
    def for_partitions(self) -> int:
        """Bytes for the store in partitions: slots, reads and triples."""
        return self.memory - sum(
            size for name, size in self.parts.items() if name not in _OF_PARTITIONS
        )

    def keeps_triples(self, size: Size) -> bool:
        """Whether the rest of the budget can hold all triples of a run in partitions."""
        taken = sum(self.parts[name] for name in _OF_PARTITIONS) + _MOST_STAGING
        return self.for_partitions - taken >= size.triple_bytes * size.triples


@dataclass(frozen=True)
class Decision:
    """A placement, and further sizes for `outercore plan embed`."""

    placement: Placement
    everything: int
    """Bytes of a run with all tables in memory."""
    answers: int
    """Number of true answers to ranked triples, counted or estimated."""
    answer_bytes: int
    """Bytes of one answer."""


Count = Callable[[int], dict[str, Any]]
"""Counts triples by bucket for a number of partitions; returns what `_core.sort_triples` does."""


def decide(config: EmbedConfig, size: Size, count: Count | None = None) -> Decision:
    """Divides the budget: all tables in memory if they fit, otherwise the best partitions that fit.

    Without `count`, it assumes that triples are spread evenly over the buckets. With `count`, it
    chooses other partitions if a few entities have too many triples. It calls `count` once for each
    considered number of partitions.

    Errors: `BudgetError` with a sufficient budget, the smallest one if it is known; `InvalidError`
    for options that exclude each other; errors of `count`.
    """
    decision = _core.decide_placement(_request(config), asdict(size), count)
    return Decision(**{**decision, "placement": Placement(**decision["placement"])})


def with_pools(config: EmbedConfig, size: Size, pools: tuple[int, int]) -> Placement:
    """The placement of a resumed run, with memory for the real sizes of its pools.

    `config` must be a result of `resolved`. `pools` is the result of `PartitionStore.largest_pool`.

    Errors: `BudgetError` with the smallest sufficient budget.
    """
    return Placement(**_core.placement_with_pools(_request(config), asdict(size), *pools))


def placement_changes(chosen: Placement, planned: Placement) -> str | None:
    """A note on changes from the planned to the chosen placement; `None` without changes."""
    names = {
        "partitions": "{} partitions",
        "slots": "{} slots",
        "swap": "swaps {}",
        "sweeps": "sweeps {}",
        "group": "groups of {}",
    }
    changed = [
        f"{text.format(getattr(chosen, name))} instead of {getattr(planned, name)}"
        for name, text in names.items()
        if getattr(chosen, name) != getattr(planned, name)
    ]
    return f"{', '.join(changed)}: some buckets are larger than most" if changed else None


def resolved(config: EmbedConfig, placement: Placement) -> EmbedConfig:
    """The configuration with the values of the placement, so that a resumed run has the same."""
    budget = replace(
        config.budget,
        partitions=placement.partitions,
        slots=placement.slots,
        swap=config.budget.swap if placement.in_memory else placement.swap,
        sweeps=placement.sweeps,
        group=placement.group,
    )
    return replace(config, budget=budget)


def order_of(config: EmbedConfig, placement: Placement) -> PartitionOrder:
    """The order of partitions of a run."""
    return partition_order(
        config.budget.order,
        partitions=placement.partitions,
        slots=placement.slots,
        spare=placement.spare,
        seed=config.run.seed,
    )


def walks_of(config: EmbedConfig, placement: Placement) -> Walks:
    """How an epoch of a run passes through its order."""
    return Walks(
        placement.sweeps,
        # With the filter `known`, a pool needs whole buckets.
        spread=config.budget.spread and config.negatives.filter != "known",
        rename=config.budget.rename,
        in_turn=placement.swap == "in-turn",
        group=placement.group,
        seed=config.run.seed,
    )


def state_width(kind: OptimiserName, width: int) -> int:
    """Width of the optimiser state for a row with `width` values."""
    return {"adagrad": width, "row-adagrad": 1, "adam": 2 * width + 1}[kind]


def row_bytes(config: EmbedConfig) -> int:
    """Bytes of an entity: its row and its optimiser state."""
    dim = config.model.dim
    return 4 * (dim + state_width(config.optimiser.kind, dim))


def _request(config: EmbedConfig) -> dict[str, Any]:
    """The options that determine the needed memory, in the form of the core."""
    model, negatives, evaluation = config.model, config.negatives, config.evaluation
    width, kinds = model.relation_width, {evaluation.candidates, *evaluation.also}
    budget = asdict(config.budget)
    del budget["threads"]
    return {
        "budget": {
            **budget,
            "memory": parse_size(config.budget.memory),
            "swap": None if config.budget.swap == "auto" else config.budget.swap,
        },
        "model": {
            "dim": model.dim,
            "state_width": state_width(config.optimiser.kind, model.dim),
            "relation_width": width,
            "relation_state_width": state_width(config.optimiser.relations, width),
            "reciprocal": model.reciprocal,
            # Sums of absolute values are not matrix products.
            "scores": {"inner": "products", "euclidean": "products", None: "custom"}.get(
                model.similarity, "distances"
            ),
        },
        "batches": {"size": config.optimiser.batch_size, "chunk": config.optimiser.chunk_size},
        "negatives": {
            "count": None if negatives.kind == "all" else negatives.count,
            "by_degree": negatives.degree_share > 0,
            "known": negatives.filter == "known",
            "bias_weighs": config.bias_weighs,
        },
        "ranking": {
            "kinds": len(kinds),
            "drawn": len(kinds - {"all"}),
            "count": evaluation.count,
            "by_degree": "degree" in kinds,
            "filtered": evaluation.filtered,
        },
        "seed": config.run.seed,
    }


def quality_warning(size: Size, placement: Placement) -> str | None:
    """A warning for a run in partitions that is expected to rank worse than a run in memory.

    It is `None` for placements without a measured loss of quality.

    Example:
        >>> from outercore.embedding.tables.placement import Placement
        >>> size = Size(17_050, 51, 185_584)
        >>> print(quality_warning(size, Placement(1 << 30, 48, 3, "spare-slot")))
        warning: triples are compared with 4.2% of the entities at a time (710); below 10% MRR falls
        hint: more `--memory`, more `budget.slots`, fewer `budget.partitions`, `budget.swap=in-turn`
        >>> quality_warning(size, Placement(1 << 30, 8, 3, "in-turn"))
    """
    entities = int(placement.compared * size.entities)
    if placement.in_memory:
        return None
    if placement.compared < FEW_COMPARED:
        rule = f"{FEW_COMPARED:.0%}"
    elif entities < _FEW_ENTITIES:
        rule = f"{_FEW_ENTITIES:,} entities"
    else:
        return None
    in_turn = "" if placement.swap == "in-turn" else ", `budget.swap=in-turn`"
    return (
        f"warning: triples are compared with {placement.compared:.1%} of the entities at a time "
        f"({entities:,}); below {rule} MRR falls\n"
        f"hint: more `--memory`, more `budget.slots`, fewer `budget.partitions`{in_turn}"
    )


def kinds_of(config: EmbedConfig, triples: int, entities: int) -> list[CandidateKind]:
    """Kinds of candidates for `triples` ranked triples; validations use the first kind."""
    chosen = config.evaluation.candidates
    if chosen == "auto":
        products = 2 * triples * entities * config.model.dim
        chosen = "all" if products <= _MOST_PRODUCTS else "uniform"
    return list(dict.fromkeys([chosen, *config.evaluation.also]))


def group_size(config: EmbedConfig, memory: int) -> int:
    """Number of triples that are ranked in one pass over the table, with `memory` bytes."""
    return max(_LEAST_GROUP, min(_MOST_GROUP, memory // _core.question_bytes(_request(config))))


def rows_compared(config: EmbedConfig, kind: CandidateKind, entities: int) -> int:
    """Number of candidates of this kind per question."""
    return entities if kind == "all" else config.evaluation.count


@dataclass(frozen=True)
class RankingPlan:
    """The cost of a ranking."""

    triples: int
    passes: int
    """Passes over the whole table."""
    bytes_read: int
    """Bytes from partitions that are not in memory, including rows of questions."""
    seconds: float


def plan_ranking(
    config: EmbedConfig,
    size: Size,
    placement: Placement,
    parts: Sequence[tuple[int, Sequence[CandidateKind]]],
    *,
    triples_per_second: float,
    read_bandwidth: float,
) -> RankingPlan:
    """The cost of a ranking.

    `parts` has the number of ranked triples and the kinds of candidates of each part.
    `triples_per_second` is the speed of training; `read_bandwidth` is in bytes per second.
    """
    group = group_size(config, placement.for_evaluation)
    table = 4 * config.model.dim * size.entities
    passes = scores = read = 0
    for count, kind in ((count, kind) for count, kinds in parts for kind in kinds):
        rows, (full, rest) = rows_compared(config, kind, size.entities), divmod(count, group)
        read += full * _scattered(config, size, 2 * group) + _scattered(config, size, 2 * rest)
        scores += 2 * count * rows
        if kind == "all":
            passes += full + (rest > 0)
        else:
            read += _scattered(config, size, rows)
    away = 1.0 - (placement.slots - placement.spare) / placement.partitions
    bytes_read = int(away * (read + passes * table))
    of_score = _core.score_seconds(_request(config), asdict(size), triples_per_second)
    seconds = scores * of_score + bytes_read / read_bandwidth
    return RankingPlan(sum(count for count, _ in parts), passes, bytes_read, seconds)


def _scattered(config: EmbedConfig, size: Size, rows: int) -> int:
    """Bytes read for `rows` rows at random places of the table."""
    row_bytes = 4 * config.model.dim
    table = row_bytes * size.entities
    mean = table / max(rows, 1)
    # The mean bytes of read gaps per row. The lengths of gaps have an exponential distribution, and
    # gaps above `_GAP` are not read.
    between = mean * (1.0 - (1.0 + _GAP / mean) * exp(-_GAP / mean))
    return int(min(table, rows * (row_bytes + between)))
