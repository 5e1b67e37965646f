"""Orders of partitions: the partitions in memory at each time, and the cost of an epoch.

Does not need PyTorch. `partition_order` is also ``outercore.partition_order``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

import numpy as np

from outercore import _core
from outercore.base.fields import whole
from outercore.embedding.config import OrderName
from outercore.errors import InvalidError

ORDER_KINDS: tuple[OrderName, ...] = get_args(OrderName)
"""Names of all orders, for messages and help."""


@dataclass(frozen=True)
class Walks:
    """How an epoch passes through an order. Each option mixes the trained triples more."""

    sweeps: int = 1
    """Number of walks through the order per epoch. Each one trains another part of every bucket."""
    spread: bool = False
    """Whether a bucket is trained in every state with its partitions, not only in the first."""
    rename: bool = False
    """Whether each walk assigns partitions to the places of the order at random."""
    in_turn: bool = False
    """Whether swaps in place wait until the whole state is trained."""
    group: int = 1
    """Number of partitions of the table that form one partition of the order. Each walk draws these
    groups again, except for partitions that are in memory at its start.
    """
    seed: int = 0
    """Seed for the random choices of the other options."""


Bucket = tuple[int, int]
"""The edges from one partition to another: (source, target)."""


@dataclass(frozen=True)
class BufferState:
    """The partitions in memory at one time, and the buckets that are trained at this time."""

    resident: tuple[int, ...]
    """The partitions by slot. A loaded partition takes the slot of the evicted one."""
    loaded: int | None
    """The partition that was loaded last; ``None`` in the first state."""
    evicted: int | None
    """The partition that was evicted for the loaded one."""
    before_swap: tuple[Bucket, ...]
    """Buckets of this state with the partition that the next swap evicts; in the last state, all
    buckets. They are trained before the swap. With swaps in turn (`Walks`), the buckets of
    `during_swap` are trained before the swap, too.
    """
    during_swap: tuple[Bucket, ...]
    """Buckets of this state without the partition that the next swap evicts. With swaps in place,
    they are trained during the swap.
    """

    @property
    def buckets(self) -> tuple[Bucket, ...]:
        """All buckets that are trained in this state.

        Each is trained once per walk. With `spread`, the state trains a part of every bucket
        whose partitions are in memory.
        """
        return self.before_swap + self.during_swap


@dataclass(frozen=True)
class OrderPlan:
    """The cost of an epoch in an order."""

    kind: str
    """Kind of the order."""
    partitions: int
    """Number of partitions."""
    slots: int
    """Number of partitions in memory."""
    mode: str
    """``in_place`` or ``spare_slot``."""
    walks: Walks
    """How an epoch passes through the order."""
    states: int
    """Number of buffer states of an epoch."""
    least_states: int
    """Smallest possible number of states of an epoch, over all orders."""
    swaps: int
    """Number of swaps: all states except the first of every walk."""
    prefetchable: int
    """Number of swaps during which a bucket can be trained."""
    hidden: int
    """Number of swaps that, by the cost model, finish before the training at the same time."""
    partition_bytes: int
    """Size of a partition in bytes."""
    memory: int
    """Bytes of all slots."""
    bytes_read: int
    """Bytes read by an epoch that starts with empty memory."""
    bytes_written: int
    """Bytes written by an epoch that ends with empty memory."""
    bytes_between: int
    """Bytes read by an epoch between two epochs; it writes the same number. It begins with the
    partitions that the previous epoch left in memory.
    """
    triples_read: int
    """Number of triples that an epoch reads if they do not stay in memory. If a bucket is trained
    in several parts, the whole bucket is read for each part.
    """
    compute_seconds: float
    """Seconds of computing."""
    swap_seconds: float
    """Seconds that the device needs for all swaps."""
    stall_seconds: float
    """Seconds during which computing waits for swaps."""
    epoch_seconds: float
    """Expected seconds of an epoch between two epochs."""
    ends_seconds: float
    """Additional seconds of a single epoch for first loads and last stores."""
    density: float
    """Number of edges divided by the square of the number of nodes."""
    least_density: float | None
    """The least density at which computing hides the I/O (Legend paper, section 4, theorem 3)."""
    hides: bool
    """Whether the graph has at least this density."""


@dataclass(frozen=True)
class PartitionOrder:
    """Buffer states that together train every bucket once. `partition_order` creates it."""

    kind: str
    """Kind of the order."""
    partitions: int
    """Number of partitions."""
    slots: int
    """Number of partitions in memory, including the spare slot."""
    spare: bool
    """Whether one slot stays free for the next partition."""
    states: tuple[BufferState, ...]
    """The states, in order."""
    loads: int
    """Number of partitions that an epoch reads if it starts with empty memory. It writes the same
    number."""
    evicts_last_loaded: int
    """Number of swaps that evict the last loaded partition. They violate property 1 of the Legend
    paper, section 4.
    """
    nothing_new_stays: int
    """Number of other swaps without a new bucket to train at the same time. They violate property 2
    of the Legend paper, section 4.
    """
    prefetchable: int
    """Number of swaps during which a bucket can be trained."""
    _values: dict[str, Any] = field(repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.states)

    @property
    def swaps(self) -> int:
        """Number of states except the first."""
        return len(self.states) - 1

    def to_core(self) -> dict[str, Any]:
        """The order in the form of the core."""
        return self._values

    def reversed(self) -> PartitionOrder:
        """The same states from the last to the first.

        An epoch in reverse order begins with the partitions that the previous epoch left in memory.
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
            nodes: number of nodes of the graph, evenly divided into partitions.
            row_bytes: bytes per node for its vector and its optimiser state.
            edges: number of edges of the graph, evenly spread over the buckets.
            seconds_per_edge: seconds to train one edge with its negatives.
            read_bandwidth: bytes per second that the device reads.
            write_bandwidth: bytes per second that the device writes.
            walks: how an epoch passes through the order. Default: once.
            partition_bytes: bytes of a partition. Pass it for a table, whose partitions are whole
                pages.

        Raises:
            InvalidError: a rate or a number is not positive.

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
            # Check here: the core's message would not name the argument.
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
        plan = _core.plan_order(self._values, options)
        hiding = plan.pop("hiding")
        plan |= {"walks": Walks(**plan["walks"]), "hides": hiding.pop("holds"), **hiding}
        return OrderPlan(**plan)


def partition_order(
    kind: OrderName = "optimal",
    *,
    partitions: int,
    slots: int,
    spare: bool = False,
    seed: int = 0,
    work: int | None = None,
) -> PartitionOrder:
    """Creates an order of partitions and checks it.

    Args:
        kind: ``optimal`` searches for the smallest number of states with something to train during
            every swap. The other kinds follow rules: ``legend`` (3 slots), ``beta``, and ``cover``
            (the number of partitions is a power of the slots).
        partitions: number of partitions of the nodes.
        slots: number of partitions that fit in memory, including the spare slot.
        spare: whether one slot stays free for the next partition. Then all buckets of a state can
            be trained during a swap, but one partition less is in memory.
        seed: seed of the search.
        work: largest number of swaps in the search. The default of 20 million takes about two
            seconds; up to 20 partitions in 3 slots take a fraction of that.

    Raises:
        InvalidError: such an order does not exist for these numbers.

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
    """Converts an integer of any type. Errors: `InvalidError` outside 0 to the core's maximum."""
    return whole(f"order of partitions: {name}", value, 0, 2**63 - 1)


def _from_core(values: dict[str, Any]) -> PartitionOrder:
    order, facts = values["order"], values["facts"]
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
    buckets = tuple((bucket["source"], bucket["target"]) for bucket in state["buckets"])
    return BufferState(
        resident=tuple(state["resident"]),
        loaded=swap.get("loaded"),
        evicted=swap.get("evicted"),
        before_swap=buckets[: state["held"]],
        during_swap=buckets[state["held"] :],
    )
