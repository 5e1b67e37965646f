"""What an embedding run would cost, said before it begins: `outercore plan embed`."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from outercore.embed.config import EmbedConfig
from outercore.embed.data import data_of
from outercore.embed.order import ORDER_KINDS, partition_order
from outercore.embed.planning import (
    Placement,
    Size,
    in_memory,
    partition_bytes,
    place,
    row_bytes,
    walks_of,
)
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embed.models import ScoreFunction
    from outercore.graph import Graph


def forecast(
    graph: Graph,
    config: EmbedConfig,
    *,
    triples_per_second: float | None = None,
    read_bandwidth: float | None = None,
    write_bandwidth: float | None = None,
    score: ScoreFunction | None = None,
) -> dict[str, Any]:
    """What lives where, and what an epoch costs by every order of partitions.

    Rates that are not given are measured: training for a second (which needs PyTorch), the device
    by writing and reading 64 MiB beside the data set, unless `outercore probe` has measured how
    it reads. Triples are taken to be spread evenly over the buckets. `score` is the function of
    the model `custom`.

    Errors: `BudgetError` with the least that would do.
    """
    data = data_of(graph, config)
    ranked = data.ranked(config.evaluation)
    size = Size(data.entities, data.relations, data.triples, data.weighted, ranked)
    placement = place(config, size)
    rates: dict[str, Any] = {}
    if triples_per_second is None:
        from outercore.embed import rates as measured

        triples_per_second = measured.triples_per_second(config, size, score)
        rates["triples_measured"] = True
    rates["triples_per_second"] = triples_per_second
    planned: dict[str, Any] = {
        "entities": size.entities,
        "relations": size.relations,
        "triples": size.triples,
        "budget_memory": placement.memory,
        "needed_memory": placement.needed,
        "all_in_memory": placement.in_memory,
        "everything_memory": in_memory(config, size, placement.memory).needed,
        "parts_memory": dict(placement.parts),
        "rates": rates,
        "epoch_seconds": size.triples / triples_per_second,
    }
    if placement.in_memory:
        return planned
    read_bandwidth, write_bandwidth = _device(
        Path(graph.root), read_bandwidth, write_bandwidth, rates
    )
    orders = compare_orders(
        config, size, placement, triples_per_second, read_bandwidth, write_bandwidth
    )
    chosen = next(one for one in orders if one["chosen"])
    return {
        **planned,
        "epoch_seconds": chosen["epoch_seconds"],
        "partitions": placement.partitions,
        "slots": placement.slots,
        "swap": placement.swap,
        "order": config.budget.order,
        "walks": asdict(walks_of(config, placement)),
        "orders": orders,
        "no_orders": missing_orders(config, placement),
    }


def compare_orders(
    config: EmbedConfig,
    size: Size,
    placement: Placement,
    triples_per_second: float,
    read_bandwidth: float,
    write_bandwidth: float,
) -> list[dict[str, Any]]:
    """Every order that there is for these partitions and slots, with every way to swap.

    Rates in triples and bytes a second. An epoch takes at least as long as the device does for
    swaps and triples together.
    """
    found = []
    size_of_partition = partition_bytes(config, size, placement.partitions, placement.group)
    for kind in ORDER_KINDS:
        for spare in (False, True):
            if placement.slots < (3 if spare else 2):
                continue
            try:
                order = partition_order(
                    kind,
                    partitions=placement.partitions,
                    slots=placement.slots,
                    spare=spare,
                    seed=config.run.seed,
                )
            except InvalidError:
                # Legend's is for three slots, COVER's for powers.
                continue
            for swap in ("spare-slot",) if spare else ("in-place", "in-turn"):
                plan = order.plan(
                    nodes=size.entities,
                    row_bytes=row_bytes(config),
                    edges=size.triples,
                    seconds_per_edge=1.0 / triples_per_second,
                    read_bandwidth=read_bandwidth,
                    write_bandwidth=write_bandwidth,
                    walks=replace(walks_of(config, placement), in_turn=swap == "in-turn"),
                    partition_bytes=size_of_partition,
                )
                # Where not all triples stay in memory, those of the next state are read meanwhile.
                read = 0 if placement.keeps_triples(size) else size.triple_bytes * plan.triples_read
                device_seconds = plan.swap_seconds + read / read_bandwidth
                found.append(
                    {
                        **asdict(plan),
                        "swap": swap,
                        "bytes_of_triples": read,
                        "epoch_seconds": max(plan.epoch_seconds, device_seconds),
                        "chosen": kind == config.budget.order and swap == placement.swap,
                    }
                )
    return found


def missing_orders(config: EmbedConfig, placement: Placement) -> dict[str, str]:
    """Why there is no order of a kind for these partitions and slots, by kind."""
    found: dict[str, str] = {}
    for kind in ORDER_KINDS:
        try:
            partition_order(
                kind,
                partitions=placement.partitions,
                slots=placement.slots,
                seed=config.run.seed,
            )
        except InvalidError as reason:
            found[kind] = str(reason).partition("\nhint: ")[0]
    return found


def _device(
    directory: Path,
    read_bandwidth: float | None,
    write_bandwidth: float | None,
    rates: dict[str, Any],
) -> tuple[float, float]:
    """Bandwidths as given, as probed, or as measured now."""
    from outercore.embed import rates as measured

    if read_bandwidth is None:
        read_bandwidth = measured.read_rate(directory)
        rates["read_probed"] = read_bandwidth is not None
    if read_bandwidth is None or write_bandwidth is None:
        read, write = measured.measure_device(directory)
        read_bandwidth = read_bandwidth or read
        if write_bandwidth is None:
            write_bandwidth = write
            rates["write_measured"] = True
    rates["read_bandwidth"], rates["write_bandwidth"] = read_bandwidth, write_bandwidth
    return read_bandwidth, write_bandwidth
