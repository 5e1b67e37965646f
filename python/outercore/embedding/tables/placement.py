"""Where an embedding run keeps everything, said before it begins. Needs no PyTorch.

The core decides (`outercore_embed::placement`); this is how a run asks it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from outercore import _core
from outercore.base.sizes import parse_size
from outercore.embedding.config import EmbedConfig, ModelConfig, OptimiserName, Swap
from outercore.embedding.tables.order import PartitionOrder, Walks, partition_order

FEW_COMPARED = 0.1
"""Quality falls where triples are compared with a smaller share of the entities (design 0018)."""
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


@dataclass(frozen=True)
class Size:
    """What is embedded."""

    entities: int
    relations: int
    triples: int
    weighted: bool = False
    held_out: int = 0
    """Triples that are ranked, of all parts."""
    answers: int | None = None
    """True answers to both sides of these, `None` where nobody has counted them."""
    first_rows: int = 0
    """Bytes that say what another run's rows are, from which this one goes on."""

    @property
    def triple_bytes(self) -> int:
        """Of a triple as it lies on disk."""
        return 16 if self.weighted else 12


@dataclass(frozen=True)
class Placement:
    """Where everything is."""

    memory: int
    """Bytes of the budget."""
    partitions: int
    """1: all in memory."""
    slots: int
    """Partitions in memory."""
    swap: Swap = "in-place"
    """How partitions are swapped."""
    sweeps: int = 1
    """Walks through the order that make an epoch."""
    group: int = 1
    """Parts of a partition, put together anew from walk to walk."""
    partition_bytes: int = 0
    """Bytes of a partition: rows and what the optimiser keeps, in whole pages."""
    pool: int = 0
    """Triples of the largest pool that there is room for."""
    negative_sets: int = 1
    """Sets of negatives that the triples of a chunk need."""
    parts: dict[str, int] = field(default_factory=dict)
    """Bytes by purpose."""

    @property
    def in_memory(self) -> bool:
        """Whether there are no partitions."""
        return self.partitions == 1

    @property
    def spare(self) -> bool:
        """Whether one slot is kept free to load into."""
        return self.swap == "spare-slot"

    @property
    def compared(self) -> float:
        """The share of the entities, those in memory, that triples are compared with at a time.

        Swaps in place count one partition less: a step trains with or without the one that leaves.
        """
        together = self.slots - (self.swap != "in-turn")
        return 1.0 if self.in_memory else max(together, 1) / self.partitions

    @property
    def needed(self) -> int:
        """Bytes of all parts."""
        return sum(self.parts.values())

    @property
    def on_device(self) -> int:
        """Bytes that a GPU needs where the tables, or the partitions in memory, are on it."""
        # What a batch is computed in stays while questions are ranked.
        return sum(self.parts.get(name, 0) for name in _ON_DEVICE) + self.for_evaluation

    @property
    def for_evaluation(self) -> int:
        """Bytes for a group of questions: those kept for it, and those of a pool in training, none
        of which is there meanwhile."""
        return sum(self.parts.get(name, 0) for name in ("evaluation", "triples in training"))

    @property
    def for_partitions(self) -> int:
        """Bytes that are left to slots, reads and triples."""
        return self.memory - sum(
            size for name, size in self.parts.items() if name not in _OF_PARTITIONS
        )

    def keeps_triples(self, size: Size) -> bool:
        """Whether all triples stay in memory in partitions: what is left is enough."""
        taken = sum(self.parts[name] for name in _OF_PARTITIONS) + _MOST_STAGING
        return self.for_partitions - taken >= size.triple_bytes * size.triples

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class Decision:
    """A placement, and what people are told beside it."""

    placement: Placement
    everything: int
    """Bytes that everything in memory would need."""
    answers: int
    """True answers to what is ranked, counted or estimated."""
    answer_bytes: int
    """Bytes of each of these."""


Count = Callable[[int], dict[str, Any]]
"""Counts the triples in the buckets of a table of so many parts, as `_core.sort_triples` does."""


def decide(config: EmbedConfig, size: Size, count: Count | None = None) -> Decision:
    """Divides the budget: everything in memory if that fits, else the best partitions that do.

    Triples are taken to be spread about evenly. With `count` they are counted where there are
    partitions, and others are chosen where a few entities have so many of them that there is no
    room.

    Cost: `count` once for each number of parts that is looked at.

    Errors: `BudgetError` with the least that would do, or what is enough; `InvalidError` for
    options that exclude each other; what `count` raises.
    """
    found = _core.decide_placement(_request(config), asdict(size), count)
    return Decision(**{**found, "placement": Placement(**found["placement"])})


def with_pools(config: EmbedConfig, size: Size, pools: tuple[int, int]) -> Placement:
    """The partitions of a run that goes on, with pools as large as its buckets make them.

    `config` says all numbers; `pools` has the triples of the largest pool, and of buckets that are
    read whole beside it.

    Errors: `BudgetError` says the least memory.
    """
    return Placement(**_core.placement_with_pools(_request(config), asdict(size), *pools))


def question_bytes(config: EmbedConfig) -> int:
    """Memory for a triple that is ranked."""
    return _core.question_bytes(_request(config))


def score_seconds(config: EmbedConfig, size: Size, triples_per_second: float) -> float:
    """Seconds of a question and a candidate in ranking, where so many triples are trained a
    second."""
    return _core.score_seconds(_request(config), asdict(size), triples_per_second)


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


def resolved(config: EmbedConfig, placement: Placement) -> EmbedConfig:
    """The configuration with the numbers that were chosen, so that a run goes on with them."""
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
    """The order of partitions that a run takes."""
    return partition_order(
        config.budget.order,
        partitions=placement.partitions,
        slots=placement.slots,
        spare=placement.spare,
        seed=config.run.seed,
    )


def walks_of(config: EmbedConfig, placement: Placement) -> Walks:
    """How the epochs of a run go through its order."""
    return Walks(
        placement.sweeps,
        # With the filter `known` a pool needs whole buckets.
        spread=config.budget.spread and config.negatives.filter != "known",
        rename=config.budget.rename,
        in_turn=placement.swap == "in-turn",
        group=placement.group,
        seed=config.run.seed,
    )


def state_width(kind: OptimiserName, width: int) -> int:
    """Numbers of optimiser state beside a row of `width`."""
    return {"adagrad": width, "row-adagrad": 1, "adam": 2 * width + 1}[kind]


def row_bytes(config: EmbedConfig) -> int:
    """Bytes of an entity: its row and its optimiser state."""
    dim = config.model.dim
    return 4 * (dim + state_width(config.optimiser.kind, dim))


def _request(config: EmbedConfig) -> dict[str, Any]:
    """What memory depends on, for the core."""
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
            "scores": _scores(model),
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


def _scores(model: ModelConfig) -> str:
    """How scores are computed: distances of absolute values are no matrix product."""
    if model.kind == "custom":
        return "custom"
    distances = model.kind == "rotate" or (model.kind, model.norm) == ("transe", 1)
    return "distances" if distances else "products"
