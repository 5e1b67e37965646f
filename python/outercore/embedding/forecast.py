"""What an embedding run would cost, said before it begins: `outercore plan embed`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import outercore
from outercore.base.native import Progress
from outercore.base.plan_display import EmbedPlan
from outercore.embedding import rates as measured
from outercore.embedding.config import EmbedConfig
from outercore.embedding.data.parts import is_plain
from outercore.embedding.data.warm_start import require_its_run, warm_start
from outercore.embedding.gradients.custom import own_score
from outercore.embedding.options import configuration
from outercore.embedding.quality import quality_warning
from outercore.embedding.ranking.passes import kinds_of, plan_ranking
from outercore.embedding.tables.order import ORDER_KINDS, partition_order
from outercore.embedding.tables.placement import (
    Placement,
    Size,
    row_bytes,
    walks_of,
)
from outercore.errors import InvalidError

if TYPE_CHECKING:
    from outercore.embedding.data.parts import EmbedData
    from outercore.embedding.gradients.models import ScoreFunction
    from outercore.embedding.preparation import Planned


def plan(
    data_set: str | Path,
    config: EmbedConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    recipe: str | None = None,
    start_from: str | Path | None = None,
    from_data: str | Path | None = None,
    score: ScoreFunction | str | None = None,
    triples_per_second: float | None = None,
    read_bandwidth: float | None = None,
    write_bandwidth: float | None = None,
    told: Progress | None = None,
    **options: Any,
) -> EmbedPlan:
    """How an embedding would use its memory, and what an epoch, a validation and the final figures
    cost, the epoch by every order of partitions.

    True answers to held-out triples are counted, as a run does, by a pass over all triples. Rates
    that are not given are measured: training for a second, the device by writing and reading 64 MiB
    beside the data set, unless `outercore probe` has measured how it reads. Triples are taken to be
    spread evenly over the buckets. Needs PyTorch.

    Args:
        data_set, config, recipe, start_from, from_data, score, options: as for `oc.embed`.
        triples_per_second, read_bandwidth, write_bandwidth: rates of the machine, the last two in
            bytes a second.
        told: is called with the progress of passes over triples.

    Raises:
        BudgetError: the budget is too small; the message has the least that works.
        InvalidError: an unknown or wrong option.
        NotFoundError: no data set, no triples.
    """
    require_its_run(start_from, from_data)
    graph = outercore.open(data_set)
    own = None if score is None else own_score(score).function
    chosen = configuration(
        config,
        recipe=recipe,
        plain_graph=is_plain(graph),
        has_score=own is not None,
        **options,
    )
    warm = None
    if start_from is not None:
        warm = warm_start(start_from, graph, chosen.model, data_set=from_data)
    from outercore.embedding.preparation import plan_session

    planned = plan_session(graph, chosen, told, warm)
    size = planned.size
    rates: dict[str, Any] = {"triples_per_second": triples_per_second}
    if triples_per_second is None:
        rates["triples_per_second"] = measured.triples_per_second(chosen, size, own)
        rates["triples_measured"] = True
    if not planned.placement.in_memory:
        _measure_device(Path(graph.root), read_bandwidth, write_bandwidth, rates)
    return EmbedPlan(_as_json(chosen, planned, rates))


def _as_json(config: EmbedConfig, plan: Planned, rates: dict[str, Any]) -> dict[str, Any]:
    """The plan as plain JSON values."""
    size, decision, placement = plan.size, plan.decision, plan.placement
    planned: dict[str, Any] = {
        "entities": size.entities,
        "relations": size.relations,
        "triples": size.triples,
        "budget_memory": placement.memory,
        "needed_memory": placement.needed,
        "all_in_memory": placement.in_memory,
        "everything_memory": decision.everything,
        "parts_memory": dict(placement.parts),
        "rates": rates,
        "epoch_seconds": size.triples / rates["triples_per_second"],
    }
    if size.held_out and config.evaluation.filtered:
        planned["answers"] = {
            "count": decision.answers,
            "memory": decision.answer_bytes * decision.answers,
        }
    planned["ranking"] = _ranking(config, plan.data, size, placement, rates)
    if placement.in_memory:
        return planned
    orders, missing = compare_orders(config, size, placement, rates)
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
        "no_orders": missing,
        "warning": quality_warning(size, placement),
    }


def _ranking(
    config: EmbedConfig,
    data: EmbedData,
    size: Size,
    placement: Placement,
    rates: dict[str, Any],
) -> dict[str, Any]:
    """What one validation costs, and what the final figures do, where there is something to rank.

    By the rates, of which nothing is read from a device where all is in memory.
    """
    counts = data.ranked_by_part(config.evaluation)
    parts = {part: (some, kinds_of(config, some, size.entities)) for part, some in counts.items()}
    asked = {"final": list(parts.values())}
    if "valid" in parts:
        count, kinds = parts["valid"]
        asked["validation"] = [(count, kinds[:1])]
    return {
        name: asdict(
            plan_ranking(
                config,
                size,
                placement,
                some,
                triples_per_second=rates["triples_per_second"],
                read_bandwidth=rates.get("read_bandwidth", float("inf")),
            )
        )
        for name, some in asked.items()
        if some
    }


def compare_orders(
    config: EmbedConfig, size: Size, placement: Placement, rates: Mapping[str, float]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Every order that there is for these partitions and slots, with every way to swap; and of the
    other kinds, why there is none.

    An epoch takes at least as long as the device does for swaps and triples together.
    """
    found: list[dict[str, Any]] = []
    missing: dict[str, str] = {}
    for kind in ORDER_KINDS:
        for spare in (False, True) if placement.slots > 2 else (False,):
            try:
                order = partition_order(
                    kind,
                    partitions=placement.partitions,
                    slots=placement.slots,
                    spare=spare,
                    seed=config.run.seed,
                )
            except InvalidError as reason:
                # Legend's is for three slots, COVER's for powers.
                if not spare:
                    missing[kind] = str(reason).partition("\nhint: ")[0]
                continue
            for swap in ("spare-slot",) if spare else ("in-place", "in-turn"):
                plan = order.plan(
                    nodes=size.entities,
                    row_bytes=row_bytes(config),
                    edges=size.triples,
                    seconds_per_edge=1.0 / rates["triples_per_second"],
                    read_bandwidth=rates["read_bandwidth"],
                    write_bandwidth=rates["write_bandwidth"],
                    walks=replace(walks_of(config, placement), in_turn=swap == "in-turn"),
                    partition_bytes=placement.partition_bytes,
                )
                # Where not all triples stay in memory, those of the next state are read meanwhile.
                read = 0 if placement.keeps_triples(size) else size.triple_bytes * plan.triples_read
                device_seconds = plan.swap_seconds + read / rates["read_bandwidth"]
                found.append(
                    {
                        **asdict(plan),
                        "swap": swap,
                        "bytes_of_triples": read,
                        "epoch_seconds": max(plan.epoch_seconds, device_seconds),
                        "chosen": kind == config.budget.order and swap == placement.swap,
                    }
                )
    return found, missing


def _measure_device(
    directory: Path,
    read_bandwidth: float | None,
    write_bandwidth: float | None,
    rates: dict[str, Any],
) -> None:
    """Adds bandwidths to the rates as given, as probed, or as measured now."""
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
