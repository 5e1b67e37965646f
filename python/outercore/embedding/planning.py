"""What an embedding run keeps in memory, said before it begins. Pure; needs no PyTorch.

With everything in memory the tables, the triples and what is drawn each epoch must fit the
budget. Else the entities are divided into partitions, of which as many are in memory at a time as
fit beside the rest.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from outercore.config.sizes import format_size, parse_size
from outercore.embedding.config import EmbedConfig, ModelConfig, OptimiserName, Swap
from outercore.embedding.order import OrderPlan, PartitionOrder, Walks, partition_order
from outercore.embedding.pieces import count_pieces, largest_piece
from outercore.errors import BudgetError, InvalidError

_COUNTS = (4, 6, 8, 12, 16, 24, 32, 48, 64)
"""Numbers of partitions that are tried."""
_NEARLY = 1.05
"""Of two as fast, by this factor, the one with fewer partitions is taken: its pools are larger."""
_SWAPS: tuple[Swap, ...] = ("in-place", "spare-slot")
"""Ways to swap that are tried: those that hide it."""
_SWEEPS = (16, 8, 4, 2)
"""Numbers of walks an epoch that are tried."""
_GROUPS = (8, 4, 2)
"""Numbers of parts of a partition that are tried."""
_PARTS, _MOST_PARTS, _TRIPLES_OF_PARTS = 64, 128, 16
"""Most parts of all partitions; the larger number if this many triples lie between every two."""
_MOST_PARTITIONS = 512
"""Of a table, whether they are partitions or parts of them."""
_PADDED = 1.125
"""Parts take no more rows than a partition in one piece, by this factor: they are whole pages."""
_SMALL, _LEAST_PART = 1 << 20, 32
"""Partitions up to so many bytes may be padded more, where each part has so many entities."""
_HIDDEN = 1.1
"""I/O is hidden where an epoch takes no longer than computing by this factor."""
FEW_COMPARED = 0.1
"""Quality falls where triples are compared with a smaller share of the entities (design 0018)."""
_SOON = 0.5
"""Seconds that an epoch may take longer for larger pools or for more walks."""
_BATCH_PARTS = 4
"""A state's pool is at least such a part of a batch: smaller batches cost time."""
_SEARCH = 2_000_000
"""Swaps that the search for an order looks at while numbers are compared."""
_PAGE_NUMBERS = 1024
_DRAW = 24
"""Bytes a row to draw by degree: degrees as they are put together, their powers, running sums."""
_A_DRAW, _A_BIAS = 64, 4
"""Bytes of a negative besides its row: ids and what puts equal rows together; its bias for a kind
of anchors."""
_LEAST_GROUP, _GROUP_BYTES = 128, 64 << 20
"""Triples of a chunk that have gradients of candidates of their own where scores are distances that
no product computes, and what all of these may take."""
_SPREAD = 1.5
"""A state's pool is no larger than its even share by this factor: partitions are shuffled. Where
they say otherwise once they are counted, `skewed` finds room."""
_KNOWN = 96
"""Bytes that known targets of both ends take of a triple while the second of them are made: 64 to
80 of 10 M triples, and what is freed and not given back."""
_LOOKING_UP = 14 << 20
"""Bytes that known targets among a chunk's negatives take while they are looked for, however many
there are."""
_A_FLAG, _A_PAIR = 1, 32
"""Bytes of a triple and a negative: whether it counts; what says so where scores are distances that
no product computes, if all are known."""
_BUCKET_BYTES = 32
"""What the core knows of a bucket."""
READ_TOGETHER = 1 << 16
"""Triples of buckets that the core reads together where parts of them are wanted."""
_DEALING, _A_DEALT_BUCKET = 512 << 10, 72
"""Bytes to deal triples into buckets, and of each of these at least."""
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
_STAGING, _MOST_STAGING = 4 << 20, 16 << 20
_BLOCK = 16 << 20
_WORKING = 16 << 20
"""What a process takes besides: names, records, scores of an evaluation's block."""
_LEAST_EVALUATION, _EVALUATION = 4 << 20, 64 << 20
_SHARE_FOR_EVALUATION = 0.1
_SKEW = 2
"""Entities of triples have so many times the degree of entities, give or take."""
_HELD_OUT, _RANKS, _QUESTION = 40, 64, 16
"""Bytes of a triple that is ranked; of the ranks of both ends among candidates of one kind; of what
tells the answers of an end apart."""
_ASKED, _TALLY = 320, 96
"""Bytes of a triple in a group that is ranked besides its rows; of what is counted of both ends
among candidates of one kind."""
LEAST_QUESTIONS = 256
"""That are ranked in one pass over the table."""
_NOMINAL_RATE, _NOMINAL_TRIPLE, _NOMINAL_POOL = 1e11, 5e-7, 2e-3
"""FLOP/s of training, seconds of a triple and of a pool besides, and bytes a second of a device,
for the choice of partitions only: the choice should not depend on the machine."""
_NOMINAL_SCORE = 2e-9
"""Seconds of a score in ranking besides its product."""
_NOMINAL_BANDWIDTH = 1e9
_NOMINAL_MOVED = 6e9
"""Bytes of partitions a second that the cores copy and check, where they do nothing else."""


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
class Pools:
    """How many triples the largest pool has."""

    most: int
    beside: int = 0
    """Of buckets that are read whole where pools have parts of them."""


@dataclass(frozen=True)
class Placement:
    """Where everything is."""

    memory: int
    """Bytes of the budget."""
    partitions: int
    """1: all in memory."""
    slots: int
    """Partitions in memory."""
    spare: bool
    """Whether one slot is kept free to load into."""
    in_turn: bool = False
    """Whether swaps in place wait for training, and training for them."""
    sweeps: int = 1
    """Walks through the order that make an epoch."""
    group: int = 1
    """Parts of a partition, put together anew from walk to walk."""
    parts: dict[str, int] = field(default_factory=dict)
    """Bytes by purpose."""

    @property
    def in_memory(self) -> bool:
        """Whether there are no partitions."""
        return self.partitions == 1

    @property
    def swap(self) -> Swap:
        """How partitions are swapped."""
        if self.spare:
            return "spare-slot"
        return "in-turn" if self.in_turn else "in-place"

    @property
    def compared(self) -> float:
        """The share of the entities, those in memory, that triples are compared with at a time.

        Swaps in place count one partition less: a step trains with or without the one that leaves.
        """
        together = self.slots - self.spare - (self.swap == "in-place")
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


def state_width(kind: OptimiserName, width: int) -> int:
    """Numbers of optimiser state beside a row of `width`."""
    return {"adagrad": width, "row-adagrad": 1, "adam": 2 * width + 1}[kind]


def relation_width(model: ModelConfig) -> int:
    """Numbers in a relation's row."""
    special = {"dot": 0, "rotate": model.dim // 2, "custom": model.relation_dim or model.dim}
    return special.get(model.kind, model.dim)


def row_bytes(config: EmbedConfig) -> int:
    """Bytes of an entity: its row and its optimiser state."""
    dim = config.model.dim
    return 4 * (dim + state_width(config.optimiser.kind, dim))


def place(config: EmbedConfig, size: Size) -> Placement:
    """Divides the budget: everything in memory if that fits, else the best partitions that do.

    Errors: `BudgetError` with the least that would do.
    """
    if config.budget.sweeps > 1 and _knows_triples(config):
        raise InvalidError(
            f"budget.sweeps: {config.budget.sweeps} with the filter `known`, which needs all of a "
            "bucket's triples at once\nhint: leave `sweeps` out, or filter `own`"
        )
    budget = parse_size(config.budget.memory)
    whole = in_memory(config, size, budget)
    asked = config.budget.partitions
    if asked == 1 or (asked == 0 and config.budget.slots == 0):
        if whole.needed <= budget:
            return filled(whole)
        if asked == 1:
            raise _too_small(budget, whole.needed, "everything in memory")
    _require_parts(config, size)
    possible = list(_partitioned(config, size, budget))
    if not possible and asked == 0 and config.budget.slots == 0:
        raise _too_small(budget, whole.needed, "everything in memory")
    if not possible:
        raise _no_order(config, size)
    fitting = [one for one in possible if one.needed <= budget]
    if not fitting:
        least = min(one.needed for one in possible)
        if asked == 0 and config.budget.slots == 0:
            # Only then everything in memory was tried.
            least = min(least, whole.needed)
        raise _too_small(budget, least, "the smallest partitions")
    # A state should train a batch at least; where that cannot be, the fewest partitions do.
    large = [one for one in fitting if _pool(size, one) >= config.optimiser.batch_size]
    if not large:
        fewest = min(one.partitions for one in fitting)
        large = [one for one in fitting if one.partitions == fewest]
    best = fastest(large, [_seconds(config, size, one) for one in large])
    best = in_turn(config, size, best) or best
    return filled(replace(best, sweeps=config.budget.sweeps or hidden_sweeps(config, size, best)))


def fastest(fitting: list[Placement], seconds: list[float]) -> Placement:
    """The one by which an epoch takes the fewest of `seconds`; of several about as fast those that
    compare triples with enough entities, and of these the one with the fewest partitions."""
    most = _NEARLY * min(seconds)
    fast = [one for one in zip(seconds, fitting, strict=True) if one[0] <= most]
    enough = [one for one in fast if one[1].compared >= FEW_COMPARED]
    return min(enough or fast, key=lambda one: (one[1].partitions, -one[1].group, one[0]))[1]


def _require_parts(config: EmbedConfig, size: Size) -> None:
    """Raises `InvalidError` where more parts of partitions are asked for than there can be."""
    partitions, group = config.budget.partitions, max(config.budget.group, 1)
    found, most = partitions * group, min(size.entities, _MOST_PARTITIONS)
    if found <= most:
        return
    options = f"{partitions} partitions" + (f" of {group} parts each" if group > 1 else "")
    raise InvalidError(
        f"{options}: expected at most {most} parts of {size.entities:,} entities, found {found:,}\n"
        "hint: every part needs an entity; choose fewer partitions"
        + (", or a smaller group" if group > 1 else "")
    )


def question_bytes(config: EmbedConfig) -> int:
    """Memory for a triple that is ranked: the rows of both ends and of its relation, or relations,
    which both sides share; ids, scores and counts."""
    relations = (2 if config.model.reciprocal else 1) * relation_width(config.model)
    return 4 * (2 * config.model.dim + relations) + _ASKED + _TALLY * _candidate_kinds(config)


def order_of(config: EmbedConfig, placement: Placement, work: int | None = None) -> PartitionOrder:
    """The order of partitions that a run takes."""
    return partition_order(
        config.budget.order,
        partitions=placement.partitions,
        slots=placement.slots,
        spare=placement.spare,
        seed=config.run.seed,
        work=work,
    )


def walks_of(config: EmbedConfig, placement: Placement) -> Walks:
    """How the epochs of a run go through its order."""
    return Walks(
        placement.sweeps,
        spread=_spreads(config),
        rename=config.budget.rename,
        in_turn=placement.in_turn,
        group=placement.group,
        seed=config.run.seed,
    )


def _spreads(config: EmbedConfig) -> bool:
    """Whether a bucket is trained in every state that holds its partitions."""
    return config.budget.spread and not _knows_triples(config)


def _knows_triples(config: EmbedConfig) -> bool:
    """Whether a pool's triples say which negatives are true: then it needs whole buckets."""
    return config.negatives.filter == "known"


def resolved(config: EmbedConfig, placement: Placement) -> EmbedConfig:
    """The configuration with the numbers that were chosen, so that a run goes on with them."""
    swap = config.budget.swap if placement.in_memory else placement.swap
    budget = replace(
        config.budget,
        partitions=placement.partitions,
        slots=placement.slots,
        swap=swap,
        sweeps=placement.sweeps,
        group=placement.group,
    )
    return replace(config, budget=budget)


def in_memory(config: EmbedConfig, size: Size, budget: int) -> Placement:
    """Everything in memory, whatever that takes."""
    dim, entities = config.model.dim, size.entities
    parts = {
        "embeddings": 4 * dim * entities,
        "optimiser": (row_bytes(config) - 4 * dim) * entities,
        "triples": trained_bytes(config, size) * size.triples,
        "degrees": (8 + (_DRAW if config.negatives.degree_share else 0)) * entities,
        **_shared(config, size, pool=size.triples),
    }
    return Placement(budget, 1, 1, False, parts=parts)


def partitioned(
    config: EmbedConfig,
    size: Size,
    budget: int,
    partitions: int,
    slots: int,
    swap: Swap,
    pools: Pools | None = None,
) -> Placement:
    """So many partitions in so many slots, whatever that takes.

    `pools` says how large they are; by default triples are taken to be spread about evenly.
    """
    spare = swap == "spare-slot"
    there = slots - 1 if spare else slots
    sweeps = max(1, config.budget.sweeps)
    group = _group(config, size, partitions)
    pools = pools or _even_pools(config, size, partitions, there, group)
    rows = _partition_rows(config, size, partitions, group)
    draws = draws_of(config, there * group, swap)
    kinds = there * group if _spreads(config) else 1
    sets = draws if trained_by_core(config) else max(draws, kinds)
    shared = _shared(config, size, pool=pools.most, sets=sets, kinds=kinds, rows=there * rows)
    of_slots = slots * partition_bytes(config, size, partitions, group)
    state = _state_bytes(size, pools, partitions * group)
    # What deals triples into buckets has the memory of all three.
    dealing = _DEALING + _A_DEALT_BUCKET * (partitions * group) ** 2
    parts = {
        "slots": of_slots,
        "triples of a state": state,
        "reads": max(_STAGING, dealing - of_slots - state),
        "triples in training": trained_bytes(config, size) * pools.most,
        "a block of the table": _BLOCK,
        **shared,
        # Relations and their state as the bytes that are written.
        "a commit": shared["relations"],
    }
    if config.negatives.degree_share:
        of_draws = _DRAW * draws * there * rows
        parts["degrees"] = 8 * size.entities + 4 * slots * rows + of_draws
    in_turn = swap == "in-turn"
    return Placement(budget, partitions, slots, spare, in_turn, sweeps, group, parts)


def _even_pools(config: EmbedConfig, size: Size, partitions: int, there: int, group: int) -> Pools:
    """Pools of triples that are spread about evenly, with so many partitions in memory."""
    # What a state enables: at most the buckets between what was loaded and what is there, both
    # ways, and its own; the first state enables all of its partitions'.
    buckets = max(there * there, 2 * there - 1)
    sweeps = max(1, config.budget.sweeps)
    most = int(_SPREAD * size.triples * buckets / partitions**2 / sweeps) + buckets * group**2
    # Where pools have parts of buckets, these are read whole, some together.
    if config.budget.sweeps != 1 or _spreads(config) or config.budget.rename:
        largest = int(_SPREAD * size.triples / (partitions * group) ** 2) + 1
        return Pools(most, max(largest, min(READ_TOGETHER, size.triples)))
    return Pools(most)


def _state_bytes(size: Size, pools: Pools, parts: int) -> int:
    """Of a pool as it is read, and of what is known of the buckets of so many parts."""
    return size.triple_bytes * (pools.most + pools.beside) + _BUCKET_BYTES * parts**2


def trained_bytes(config: EmbedConfig, size: Size) -> int:
    """Of a pool's triple as training takes it, with its place in the order of batches."""
    known = _KNOWN if config.negatives.filter == "known" else 0
    return 24 + 8 + (4 if size.weighted else 0) + known


def _partitioned(config: EmbedConfig, size: Size, budget: int) -> Iterator[Placement]:
    """For each number of partitions and way to swap the most slots that fit, or else the fewest."""
    for partitions in numbers_of_partitions(config, size):
        for swap in swaps_of(config):
            best = None
            for slots, way in slots_of(config, partitions, swap):
                best = partitioned(config, size, budget, partitions, slots, way)
                if best.needed <= budget:
                    break
            if best is not None:
                yield best


def numbers_of_partitions(config: EmbedConfig, size: Size) -> list[int]:
    """Those that may be chosen."""
    asked = config.budget
    counts = [asked.partitions] if asked.partitions else _COUNTS
    most = min(size.entities, _MOST_PARTITIONS)
    return [partitions for partitions in counts if partitions * max(asked.group, 1) <= most]


def swaps_of(config: EmbedConfig) -> tuple[Swap, ...]:
    """Ways to swap that may be chosen."""
    return _SWAPS if config.budget.swap == "auto" else (config.budget.swap,)


def groups_of(config: EmbedConfig, size: Size, partitions: int) -> list[int]:
    """Parts that a partition may have, most first."""
    most = _group(config, size, partitions)
    if config.budget.group:
        return [most]
    return [group for group in (*_GROUPS, 1) if group <= most]


def sweeps_of(config: EmbedConfig) -> list[int]:
    """Numbers of walks an epoch that may be chosen, fewest first."""
    if config.budget.sweeps or _knows_triples(config):
        return [config.budget.sweeps or 1]
    return [1, *reversed(_SWEEPS)]


def slots_of(config: EmbedConfig, partitions: int, swap: Swap) -> Iterator[tuple[int, Swap]]:
    """Numbers of slots that may be chosen, most first, each with the way to swap that it takes."""
    asked = config.budget
    spare = swap == "spare-slot"
    fewest = 3 if spare else 2
    if asked.slots and asked.slots < fewest:
        return
    for slots in [asked.slots] if asked.slots else range(partitions, fewest - 1, -1):
        if slots > partitions or not _exists(config, partitions, slots, spare=spare):
            continue
        # Of two slots little can be trained while one is exchanged, and that alone.
        turns = asked.swap == "auto" and not spare and slots == 2
        yield slots, "in-turn" if turns else swap


def in_turn(config: EmbedConfig, size: Size, placement: Placement) -> Placement | None:
    """The same placement with swaps in turn with training.

    Only where the choice is left open and it fits, and waiting costs little or few entities would
    be compared.

    Its pools have all pairs of a state, so that half the walks rank as well, and a chunk has one
    set of negatives.
    """
    few = placement.compared < FEW_COMPARED
    if config.budget.swap != "auto" or placement.in_turn or (placement.spare and not few):
        return None
    memory, partitions, slots = placement.memory, placement.partitions, placement.slots
    found = partitioned(config, size, memory, partitions, slots, "in-turn")
    if found.needed > memory:
        return None
    if few:
        return found
    order = order_of(config, found, work=_SEARCH)
    plan = _plan(config, size, order, walks_of(config, found))
    return found if plan.epoch_seconds <= _HIDDEN * plan.compute_seconds + _SOON else None


def hidden_sweeps(config: EmbedConfig, size: Size, placement: Placement) -> int:
    """Most walks an epoch that training hides, but for what they take of the cores themselves, by
    nominal rates."""
    if _knows_triples(config):
        return 1
    order = order_of(config, placement, work=_SEARCH)
    for sweeps in _SWEEPS:
        pool = size.triples / (len(order) * sweeps)
        plan = _plan(config, size, order, walks_of(config, replace(placement, sweeps=sweeps)))
        seconds = plan.epoch_seconds + size.triple_bytes * plan.triples_read / _NOMINAL_BANDWIDTH
        seconds += _NOMINAL_POOL * plan.states * (2 if placement.swap == "in-place" else 1)
        if not placement.in_turn:
            # In turn training waits for them anyway.
            seconds += 2 * plan.bytes_between / _NOMINAL_MOVED
        hides = seconds <= _HIDDEN * plan.compute_seconds + _SOON
        if hides and pool >= config.optimiser.batch_size / _BATCH_PARTS:
            return sweeps
    return 1


def _pool(size: Size, placement: Placement) -> float:
    """Triples that a buffer state trains: both ways between what came and what is there."""
    there = placement.slots - placement.spare
    return size.triples * (2 * there - 1) / placement.partitions**2


def _exists(config: EmbedConfig, partitions: int, slots: int, *, spare: bool) -> bool:
    """Whether the order is defined for these numbers; Legend's is for three slots only."""
    kind = config.budget.order
    if kind == "optimal":
        return True
    try:
        partition_order(kind, partitions=partitions, slots=slots, spare=spare)
    except InvalidError:
        return False
    return True


def _no_order(config: EmbedConfig, size: Size) -> InvalidError:
    """Why there is no order for the numbers that were asked for, by the first of those tried."""
    asked = config.budget
    parts = f", {asked.group} parts each," if asked.group > 1 else ""
    what = (
        f"budget: {asked.partitions or 'any number of'} partitions of {size.entities:,} entities"
        f"{parts} in {asked.slots or 'any number of'} slots: there is no such order"
    )
    spare = asked.swap == "spare-slot"
    slots = asked.slots or (3 if spare else 2)
    most = asked.partitions or max(_COUNTS)
    if slots > most:
        return InvalidError(f"{what}\nhint: choose {most} `slots` at most, or more `partitions`")
    partitions = asked.partitions or min(count for count in _COUNTS if count >= slots)
    try:
        partition_order(asked.order, partitions=partitions, slots=slots, spare=spare)
    except InvalidError as reason:
        return InvalidError(f"{what}: {reason}")
    return InvalidError(f"{what}\nhint: choose other `partitions`, `slots` or `group`")


def filled(placement: Placement) -> Placement:
    """Of what is left, some goes to larger groups of questions: fewer passes over the table."""
    parts = dict(placement.parts)
    most = max(_EVALUATION, int(placement.memory * _SHARE_FOR_EVALUATION))
    left = (placement.memory - placement.needed) // 2
    parts["evaluation"] += max(0, min(most - parts["evaluation"], left))
    return replace(placement, parts=parts)


def _shared(
    config: EmbedConfig,
    size: Size,
    *,
    pool: int,
    sets: int = 1,
    kinds: int = 1,
    rows: int | None = None,
) -> dict[str, int]:
    """What is in memory with and without partitions: pools have at most so many triples, and a
    chunk's need so many sets of negatives, which count differently for so many kinds of anchors
    and are drawn from so many rows, by default from all."""
    dim, options = config.model.dim, config.optimiser
    width = relation_width(config.model)
    relations = size.relations * (2 if config.model.reciprocal else 1)
    every = config.negatives.kind == "all"
    negatives = (size.entities if rows is None else rows) if every else config.negatives.count
    batch = min(pool, largest_piece(options.batch_size))
    chunk = min(largest_piece(options.chunk_size), batch)
    chunks = count_pieces(batch, options.chunk_size) + sets - 1
    # Of every side: gradients of anchors, relations, targets and candidates; then the rows that
    # they touch, their state and what is computed of them; scores twice. Sets beyond the first
    # need memory for their candidates alone.
    a_draw = _A_DRAW + _A_BIAS * kinds
    gradients = 2 * (3 * batch + chunks * negatives) * dim * 4
    groups = 2 * chunks * _group_bytes(config, chunk, negatives)
    return {
        "relations": 4 * relations * (width + state_width(options.relations, width)),
        "a batch": 3 * gradients + groups + 2 * negatives * (a_draw * chunks + 4 * chunk),
        "ranked triples": _ranked(config, size),
        "evaluation": max(_LEAST_EVALUATION, LEAST_QUESTIONS * question_bytes(config)),
        **_autograd(config, chunk, negatives),
        **_known_negatives(config, chunk, negatives),
        **_candidates(config, size),
        **({"another run's rows": size.first_rows} if size.first_rows else {}),
        "the process": _WORKING,
    }


def draws_of(config: EmbedConfig, there: int, swap: Swap) -> int:
    """Draws of negatives for a chunk, of which so many parts of the table are in memory: anchors
    share one if their answers are in the same partitions, and as likely in each or a bias says how
    likely."""
    if _spreads(config) and not config.bias_weighs:
        return there
    # In place the anchors in the partition that leaves have answers in all, others in that alone;
    # so have those in one that has come, where a bucket is trained at once.
    return 1 if _spreads(config) and swap != "in-place" else 2


def trained_by_core(config: EmbedConfig) -> bool:
    """Whether the core trains whole batches, in which kinds of anchors share their negatives."""
    return config.model.kind != "custom" and config.negatives.filter != "known"


def _group_bytes(config: EmbedConfig, chunk: int, negatives: int) -> int:
    """What groups of a chunk's triples need for gradients of candidates of their own, which they
    have where no matrix product makes these."""
    if not _loops(config):
        return 0
    model = config.model
    of_one = 4 * model.dim * negatives
    return min(max(chunk // _LEAST_GROUP, 1) * of_one, max(_GROUP_BYTES, of_one))


def _loops(config: EmbedConfig) -> bool:
    """Whether scores are distances that no matrix product computes."""
    return config.model.kind == "rotate" or (config.model.kind, config.model.norm) == ("transe", 1)


def _known_negatives(config: EmbedConfig, chunk: int, negatives: int) -> dict[str, int]:
    """Which negatives of a chunk's triples are known, if that is asked for: a hub's may be all."""
    if not _knows_triples(config):
        return {}
    of_pair = _A_FLAG + (_A_PAIR if _loops(config) else 0)
    return {"known negatives": _LOOKING_UP + of_pair * chunk * negatives}


def _autograd(config: EmbedConfig, chunk: int, negatives: int) -> dict[str, int]:
    """What a score function of one's own makes of a block of triples and negatives, if there is
    one: every operation keeps a number for each of theirs. Sixteen operations are counted."""
    if config.model.kind != "custom":
        return {}
    a_triple = negatives * config.model.dim
    return {"score function": 16 * 4 * max(a_triple, min(chunk * a_triple, 1 << 21))}


def _candidates(config: EmbedConfig, size: Size) -> dict[str, int]:
    """Candidates that are or may be drawn, and running sums of all degrees, where it is by them."""
    kinds = {config.evaluation.candidates, *config.evaluation.also}
    drawn = len(kinds - {"all"}) * config.evaluation.count * (4 * config.model.dim + 16)
    found = {"candidates": drawn} if drawn else {}
    return {**found, "degrees of candidates": 8 * size.entities} if "degree" in kinds else found


def _candidate_kinds(config: EmbedConfig) -> int:
    """Kinds of candidates that a triple is ranked among."""
    return len({config.evaluation.candidates, *config.evaluation.also})


def _ranked(config: EmbedConfig, size: Size) -> int:
    """Held-out triples, their ranks, the questions that they are, and true answers to these."""
    ranks = (_HELD_OUT + _RANKS * _candidate_kinds(config)) * size.held_out
    if not config.evaluation.filtered:
        return ranks
    answers = answer_bytes(size.entities) * answers_of(size)
    return ranks + 2 * _QUESTION * size.held_out + answers


def answers_of(size: Size) -> int:
    """True answers to what is ranked, as they were counted, or about as many as there may be."""
    if size.answers is not None:
        return size.answers
    degree = 2 * size.triples / max(size.entities, 1)
    return int(min(2 * size.held_out * _SKEW * degree, 2 * size.triples))


def answer_bytes(entities: int) -> int:
    """Of a true answer as it is kept for ranking."""
    return 4 if entities < 1 << 31 else 8


def _group(config: EmbedConfig, size: Size, partitions: int) -> int:
    """Parts of a partition: as asked, or as many as there are rows for.

    How often two parts meet differs, and so do the negatives of their anchors. Unless the core
    counts them by a bias, each part would have negatives of its own; then a partition is one.
    """
    asked = config.budget.group
    shared = config.bias_weighs and trained_by_core(config)
    if asked or not config.budget.rename or (_spreads(config) and not shared):
        return asked or 1
    for group in _GROUPS:
        parts = partitions * group
        filled = parts <= _MOST_PARTS and size.triples >= _TRIPLES_OF_PARTS * parts**2
        if (parts <= _PARTS or filled) and _roomy(config, size, partitions, group):
            return group
    return 1


def _roomy(config: EmbedConfig, size: Size, partitions: int, group: int) -> bool:
    """Whether parts of a partition are little more than their rows, or little at all."""
    most = _PADDED * _partition_rows(config, size, partitions, 1)
    if _partition_rows(config, size, partitions, group) <= most:
        return True
    small = partition_bytes(config, size, partitions, group) <= _SMALL
    return small and -(-size.entities // (partitions * group)) >= _LEAST_PART


def partition_bytes(config: EmbedConfig, size: Size, partitions: int, group: int) -> int:
    """Of a partition of so many parts, each of them whole pages, in memory and on disk."""
    return _partition_rows(config, size, partitions, group) * row_bytes(config)


def _partition_rows(config: EmbedConfig, size: Size, partitions: int, group: int) -> int:
    """Rows of memory that a partition of so many parts takes."""
    parts = partitions * group
    return group * _slot_rows(-(-size.entities // parts), config.model.dim, config)


def _slot_rows(rows: int, dim: int, config: EmbedConfig) -> int:
    """Rows of a part of the table in memory: whole pages of embeddings and of state."""

    def step(width: int) -> int:
        return _PAGE_NUMBERS // min(width & -width, _PAGE_NUMBERS)

    whole = max(step(dim), step(state_width(config.optimiser.kind, dim)))
    return -(-rows // whole) * whole


def _seconds(config: EmbedConfig, size: Size, placement: Placement) -> float:
    """Expected seconds of an epoch, by nominal rates."""
    order = order_of(config, placement, work=_SEARCH)
    plan = _plan(config, size, order, walks_of(config, placement))
    # Bytes cost something where they are hidden, too.
    return plan.epoch_seconds + 0.3 * plan.swap_seconds


def seconds_with_pools(config: EmbedConfig, size: Size, placement: Placement) -> float:
    """The same with what pools take, which are many where there are many walks."""
    order = order_of(config, placement, work=_SEARCH)
    steps = len(order) * placement.sweeps * (2 if placement.swap == "in-place" else 1)
    return _seconds(config, size, placement) + _NOMINAL_POOL * steps


def _triple_seconds(config: EmbedConfig, size: Size) -> float:
    """Of training: both sides' scores, and gradients of queries and of negatives."""
    negatives = size.entities if config.negatives.kind == "all" else config.negatives.count
    return 2 * 6 * config.model.dim * negatives / _NOMINAL_RATE + _NOMINAL_TRIPLE


def score_seconds(config: EmbedConfig, size: Size, triples_per_second: float) -> float:
    """Of a question and a candidate in ranking: nominal ones, as far off as those of training are
    where so many triples a second are trained."""
    nominal = 2 * config.model.dim / _NOMINAL_RATE + _NOMINAL_SCORE
    return nominal / (triples_per_second * _triple_seconds(config, size))


def _plan(config: EmbedConfig, size: Size, order: PartitionOrder, walks: Walks) -> OrderPlan:
    """What an epoch costs by nominal rates."""
    return order.plan(
        nodes=size.entities,
        row_bytes=row_bytes(config),
        edges=size.triples,
        seconds_per_edge=_triple_seconds(config, size),
        read_bandwidth=_NOMINAL_BANDWIDTH,
        write_bandwidth=_NOMINAL_BANDWIDTH,
        walks=walks,
        partition_bytes=partition_bytes(config, size, order.partitions, walks.group),
    )


def _too_small(budget: int, least: int, what: str) -> BudgetError:
    return BudgetError(
        f"{what} within {format_size(budget)}: needs at least {format_size(least)}, which is "
        f"{least} bytes\n"
        "hint: give more `--memory`, a smaller `--dim`, or `--set optimiser.kind=row-adagrad`",
        least,
    )
