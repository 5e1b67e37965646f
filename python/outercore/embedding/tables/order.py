"""Orders of partitions: which partitions of nodes are in memory when, and at what cost.

Needs no PyTorch. `partition_order` is also ``outercore.partition_order``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from outercore import _core
from outercore.base.fields import whole
from outercore.errors import InvalidError

OrderKind = Literal["optimal", "legend", "beta", "cover"]
ORDER_KINDS: tuple[OrderKind, ...] = ("optimal", "legend", "beta", "cover")
"""All orders, as they are listed to people."""


@dataclass(frozen=True)
class Walks:
    """How an epoch goes through an order: what a state trains mixes the more by each."""

    sweeps: int = 1
    """Walks through the order that make an epoch; each trains another part of every bucket."""
    spread: bool = False
    """Whether a bucket is trained in every state that holds its partitions, not in the first."""
    rename: bool = False
    """Whether partitions change their places at random from walk to walk."""
    in_turn: bool = False
    """Whether swaps in place wait until the whole state is trained."""
    group: int = 1
    """Partitions of the table that one of the order consists of: which ones is drawn anew for
    every walk, but for those that are in memory when it begins."""
    seed: int = 0
    """Of places, groups and parts."""


Bucket = tuple[int, int]
"""The edges from one partition to another: (source, target)."""


@dataclass(frozen=True)
class BufferState:
    """The partitions in memory at one time, and the buckets that are trained then."""

    resident: tuple[int, ...]
    """The partitions, by slot: the loaded one takes the slot of the evicted one."""
    loaded: int | None
    """The partition that came last, ``None`` in the first state."""
    evicted: int | None
    """The partition that left for it."""
    before_swap: tuple[Bucket, ...]
    """Buckets trained here that need the partition evicted next; in the last state, all. In turn
    (`Walks`) the others are trained with them."""
    during_swap: tuple[Bucket, ...]
    """Buckets trained here that need it not: in place, work for the time of the next swap."""

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All buckets trained in this state: each for the first and only time in a walk, or with
        `spread` a part of every bucket whose partitions are here."""
        return self.before_swap + self.during_swap


@dataclass(frozen=True)
class OrderPlan:
    """The cost of an epoch in an order."""

    kind: str
    """How the order was made."""
    partitions: int
    """Number of partitions."""
    slots: int
    """Places for partitions in memory."""
    mode: str
    """``in_place`` or ``spare_slot``."""
    walks: Walks
    """How an epoch goes through it."""
    states: int
    """Buffer states of an epoch."""
    least_states: int
    """The fewest that an epoch by any order can have."""
    swaps: int
    """States but the first of every walk."""
    prefetchable: int
    """Swaps with a bucket to train meanwhile."""
    hidden: int
    """Swaps that by the model are over before what can be trained meanwhile."""
    partition_bytes: int
    """Size of a partition."""
    memory: int
    """Bytes of all slots."""
    bytes_read: int
    """Read by an epoch that begins with nothing in memory."""
    bytes_written: int
    """Written by an epoch that leaves nothing in memory."""
    bytes_between: int
    """Read, and written as well, by an epoch between two others, which begins with the partitions
    that the previous epoch left in memory."""
    triples_read: int
    """Triples that an epoch reads where they are not kept in memory: every bucket as often as a
    part of it is trained."""
    compute_seconds: float
    """Seconds of computing."""
    swap_seconds: float
    """Seconds of the device for all swaps."""
    stall_seconds: float
    """Seconds during which computing waits for swaps."""
    epoch_seconds: float
    """Expected seconds of an epoch between two others."""
    ends_seconds: float
    """Seconds of first loads and last stores, which a single epoch takes in addition."""
    density: float
    """Edges by the square of the nodes."""
    least_density: float | None
    """The least density at which computing hides the I/O (Legend 4, theorem 3)."""
    hides: bool
    """Whether the graph is dense enough."""


@dataclass(frozen=True)
class PartitionOrder:
    """Buffer states that together train every bucket once; made by `partition_order`."""

    kind: str
    """How it was made."""
    partitions: int
    """Number of partitions."""
    slots: int
    """Places for partitions in memory, the spare one included."""
    spare: bool
    """Whether one slot is kept free to load into."""
    states: tuple[BufferState, ...]
    """The states, in order."""
    loads: int
    """Partitions read by an epoch that begins with nothing in memory; as many are written."""
    evicts_last_loaded: int
    """Swaps that evict what was loaded last (property 1 of Legend 4 broken)."""
    nothing_new_stays: int
    """Other swaps during which no new pair is there to be trained (property 2 broken)."""
    prefetchable: int
    """Swaps with a bucket to train meanwhile."""
    _values: dict[str, Any] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def swaps(self) -> int:
        """States but the first."""
        return len(self.states) - 1

    def to_core(self) -> dict[str, Any]:
        """The order as the core takes it."""
        return self._values

    def reversed(self) -> PartitionOrder:
        """The same states from the last to the first.

        An epoch that goes backwards begins with the partitions that the previous epoch left in
        memory.
        """
        return _from_core(_core.reverse_order(self._values))

    def plan(
        self,
        *,
        nodes: int,
        row_bytes: int,
        edges: int,
        seconds_per_edge: float,
        read_bandwidth: float,
        write_bandwidth: float,
        walks: Walks | None = None,
        partition_bytes: int | None = None,
    ) -> OrderPlan:
        """The cost of an epoch in this order.

        Args:
            nodes: of the graph, divided evenly into the partitions.
            row_bytes: of one node, its vector and its optimiser state.
            edges: of the graph, spread evenly over the buckets.
            seconds_per_edge: to train one edge with its negatives.
            read_bandwidth: bytes a second that the device reads.
            write_bandwidth: bytes a second that it writes.
            walks: how an epoch goes through the order; once and as it is by default.
            partition_bytes: of a partition where it has more than its nodes: a table's are whole
                pages.

        Raises:
            InvalidError: rates or numbers that are not positive.

        Example:
            >>> from outercore.embedding.tables.order import partition_order
            >>> plan = partition_order("optimal", partitions=12, slots=3).plan(
            ...     nodes=86_100_000, row_bytes=800, edges=304_700_000, seconds_per_edge=1e-7,
            ...     read_bandwidth=3e9, write_bandwidth=2e9)
            >>> plan.swaps, plan.hides
            (32, False)
        """
        for name, rate in (
            ("seconds per edge", seconds_per_edge),
            ("read bandwidth", read_bandwidth),
            ("write bandwidth", write_bandwidth),
        ):
            # The core would not say which one.
            if not np.isfinite(rate):
                raise InvalidError(
                    f"plan of an order: {name} is {rate}, expected a positive number"
                    "\nhint: `outercore probe` measures the device"
                )
        options = {
            "nodes": _count("nodes", nodes),
            "row_bytes": _count("bytes of a node", row_bytes),
            "partition_bytes": (
                None if partition_bytes is None else _count("bytes of a partition", partition_bytes)
            ),
            "edges": {"even": _count("edges", edges)},
            "seconds_per_edge": float(seconds_per_edge),
            "read_bandwidth": float(read_bandwidth),
            "write_bandwidth": float(write_bandwidth),
            "walks": asdict(walks or Walks()),
        }
        found = _core.plan_order(self._values, options)
        hiding = found.pop("hiding")
        return OrderPlan(
            **{**found, "walks": Walks(**found["walks"])},
            density=hiding["density"],
            least_density=hiding["least_density"],
            hides=hiding["holds"],
        )


def partition_order(
    kind: OrderKind = "optimal",
    *,
    partitions: int,
    slots: int,
    spare: bool = False,
    seed: int = 0,
    work: int | None = None,
) -> PartitionOrder:
    """An order of partitions, checked.

    Args:
        kind: ``optimal`` searches for the fewest states with something to train during every
            swap; ``legend`` (3 slots), ``beta`` and ``cover`` (as many partitions as a power of the
            slots) follow rules.
        partitions: of the nodes.
        slots: partitions that fit in memory, the spare one included.
        spare: whether one slot is kept free to load into; then everything can be trained during a
            swap, with one partition fewer in memory.
        seed: of the search.
        work: most swaps that the search looks at, 20 million by default: some two seconds, of
            which up to 20 partitions in 3 slots take a fraction.

    Raises:
        InvalidError: these numbers admit no such order.

    Example:
        >>> import outercore as oc
        >>> order = oc.partition_order("optimal", partitions=12, slots=3)
        >>> len(order), order.prefetchable, len(oc.partition_order("beta", partitions=12, slots=3))
        (33, 32, 35)
        >>> order.states[0].resident
        (0, 1, 2)
    """
    if kind not in ORDER_KINDS:
        names = ", ".join(f"`{name}`" for name in ORDER_KINDS)
        raise InvalidError(f"`{kind}` is not an order of partitions\nhint: choose one of {names}")
    config = {
        "kind": kind,
        "partitions": _count("partitions", partitions),
        "slots": _count("slots", slots),
        "mode": "spare_slot" if spare else "in_place",
        "seed": _count("seed", seed),
    }
    if work is not None:
        config["work"] = _count("work", work)
    return _from_core(_core.partition_order(config))


def _count(name: str, value: int) -> int:
    """A number from 0 on that fits the core's, of any integer type."""
    return whole(f"order of partitions: {name}", value, 0, 2**63 - 1)


def _from_core(found: dict[str, Any]) -> PartitionOrder:
    """The order that the core describes."""
    order, facts = found["order"], found["facts"]
    return PartitionOrder(
        kind=order["kind"],
        partitions=order["partitions"],
        slots=order["slots"],
        spare=order["mode"] == "spare_slot",
        states=tuple(_state(state) for state in order["states"]),
        loads=facts["loads"],
        evicts_last_loaded=facts["evicts_last_loaded"],
        nothing_new_stays=facts["nothing_new_stays"],
        prefetchable=facts["prefetchable"],
        _values=order,
    )


def _state(state: Mapping[str, Any]) -> BufferState:
    swap = state["swap"] or {}
    buckets = tuple(_bucket(bucket) for bucket in state["buckets"])
    return BufferState(
        resident=tuple(state["resident"]),
        loaded=swap.get("loaded"),
        evicted=swap.get("evicted"),
        before_swap=buckets[: state["held"]],
        during_swap=buckets[state["held"] :],
    )


def _bucket(bucket: Mapping[str, int]) -> Bucket:
    return bucket["source"], bucket["target"]
