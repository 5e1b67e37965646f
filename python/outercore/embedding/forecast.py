"""The cost of an embedding run, before it begins: `outercore plan embed`."""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from outercore.base.native import Progress
from outercore.base.plan_display import EmbedPlan
from outercore.embedding.config import EmbedConfig
from outercore.embedding.gradients.models import ScoreFunction, build_model
from outercore.embedding.gradients.trainer import Trainer, table_layout, torch_threads
from outercore.embedding.preparation import Inputs, Planned, plan_session
from outercore.embedding.tables.memory import MemoryStore
from outercore.embedding.tables.order import ORDER_KINDS, partition_order
from outercore.embedding.tables.placement import (
    Placement,
    Size,
    kinds_of,
    plan_ranking,
    quality_warning,
    row_bytes,
    walks_of,
)
from outercore.errors import DeviceError, InvalidError
from outercore.runs import record as records

if TYPE_CHECKING:
    from outercore.data.graph import Source

_FILE = 64 << 20
_PIECE = 4 << 20
_MOST_ENTITIES = 50_000
_LEAST_SECONDS = 1.0


def _triples_per_second(inputs: Inputs, size: Size) -> float:
    """Measures the speed of training, by random triples on a table in memory for a second.

    Cost: memory for the rows of the table, at most 50,000.
    """
    config, entities = inputs.config, min(size.entities, _MOST_ENTITIES)
    batch = config.optimiser.batch_size
    random = torch.Generator().manual_seed(0)
    columns = [
        torch.randint(count, (batch,), generator=random)
        for count in (entities, size.relations, entities)
    ]
    with torch_threads(config.budget.threads):
        model = build_model(config.model, inputs.score and inputs.score.value)
        layout = table_layout(config, model, size.relations)
        triples = torch.stack(columns, dim=1)
        store = MemoryStore.create(None, triples, entities, size.relations, layout)
        trainer = Trainer(store, config, model)
        [pool] = store.pools(0)
        trainer.train_pool(pool, 0)
        epoch, started = 0, time.perf_counter()
        while (seconds := time.perf_counter() - started) < _LEAST_SECONDS:
            epoch += 1
            trainer.train_pool(pool, epoch)
        return epoch * batch / seconds


def read_rate(directory: Path) -> float | None:
    """Bytes per second of large reads, measured by `outercore probe`; `None` before a probe."""
    profile = records.device_profile(directory)
    points = (profile or {}).get("points") or []
    return max((float(point["bytes_per_s"]) for point in points), default=None)


def measure_device(directory: Path) -> tuple[float, float]:
    """Measures the read and write bandwidth of the device of `directory`, in bytes per second.

    It writes 64 MiB, waits until they are on the device, reads them back and removes them. The read
    bypasses the page cache if the file system supports that.

    Errors: `DeviceError` if the directory is not writable.
    """
    path = directory / f".bandwidth-{os.getpid()}"
    piece = mmap.mmap(-1, _PIECE)
    piece.write(os.urandom(_PIECE))
    try:
        started = time.perf_counter()
        with path.open("wb", buffering=0) as file:
            for _ in range(_FILE // _PIECE):
                file.write(piece)
            os.fsync(file.fileno())
        written = time.perf_counter() - started
        started = time.perf_counter()
        _read_all(path, piece)
        return _FILE / (time.perf_counter() - started), _FILE / written
    except OSError as error:
        raise DeviceError(
            f"`{path}`: {error.strerror}\nhint: `--bandwidth READ,WRITE` says what the device does"
        ) from error
    finally:
        path.unlink(missing_ok=True)
        piece.close()


def _read_all(path: Path, piece: mmap.mmap) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    try:
        for place in range(0, _FILE, _PIECE):
            os.preadv(descriptor, [piece], place)
    finally:
        os.close(descriptor)


def plan(
    data_set: Source,
    config: EmbedConfig | Mapping[str, Any] | str | Path | None = None,
    *,
    recipe: str | None = None,
    start_from: str | Path | None = None,
    from_data: str | Path | None = None,
    score: ScoreFunction | str | None = None,
    triples_per_second: float | None = None,
    read_bandwidth: float | None = None,
    write_bandwidth: float | None = None,
    progress: Progress | None = None,
    **options: Any,
) -> EmbedPlan:
    """Plans an embedding: the use of its memory, and the cost of its steps.

    The steps are an epoch (in every order of partitions), a validation, and the final metrics. The
    plan assumes that triples are spread evenly over the buckets. It needs PyTorch.

    Cost: a pass over all triples, which counts the true answers to held-out triples, as a run does.
    Missing rates are measured: a second of training, and writing and reading 64 MiB next to the
    data set. Reads are not measured if `outercore probe` has measured them.

    Args:
        data_set, config, recipe, start_from, from_data, score, options: as for `oc.embed`.
        triples_per_second, read_bandwidth, write_bandwidth: speed of training, and bytes per second
            of the disk. Default: measured.
        progress: called during passes over triples.

    Raises:
        BudgetError: the budget is too small; the message has the smallest sufficient budget.
        InvalidError: an unknown or wrong option.
        NotFoundError: the data set or its triples do not exist.
    """
    inputs = Inputs.of(
        data_set,
        config,
        options,
        recipe=recipe,
        start_from=start_from,
        from_data=from_data,
        score=score,
    )
    planned = plan_session(inputs.graph, inputs.config, progress, inputs.warm)
    rates: dict[str, Any] = {"triples_per_second": triples_per_second}
    if triples_per_second is None:
        rates["triples_per_second"] = _triples_per_second(inputs, planned.size)
        rates["triples_measured"] = True
    if not planned.placement.in_memory:
        _add_bandwidths(Path(inputs.graph.root), read_bandwidth, write_bandwidth, rates)
    return EmbedPlan(_as_json(inputs.config, planned, rates))


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
    planned["ranking"] = _ranking(config, plan, rates)
    if placement.in_memory:
        return planned
    orders, missing = compare_orders(config, size, placement, rates)
    chosen = next(order for order in orders if order["chosen"])
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


def _ranking(config: EmbedConfig, plan: Planned, rates: dict[str, Any]) -> dict[str, Any]:
    """The cost of a validation and of the final metrics, if triples are held out.

    If all tables are in memory, ranking does not read from the device.
    """
    size = plan.size
    counts = plan.data.ranked_by_part(config.evaluation)
    parts = {part: (some, kinds_of(config, some, size.entities)) for part, some in counts.items()}
    rankings = {"final": [*parts.values()]} if parts else {}
    if "valid" in parts:
        count, kinds = parts["valid"]
        rankings["validation"] = [(count, kinds[:1])]
    speed = {
        "triples_per_second": rates["triples_per_second"],
        "read_bandwidth": rates.get("read_bandwidth", float("inf")),
    }
    return {
        name: asdict(plan_ranking(config, size, plan.placement, some, **speed))
        for name, some in rankings.items()
    }


def compare_orders(
    config: EmbedConfig, size: Size, placement: Placement, rates: Mapping[str, float]
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The cost of every order of partitions with every kind of swap, for this placement.

    The second result has the reason for each impossible order. An epoch takes at least the time
    that the device needs for swaps and triples together.
    """
    orders: list[dict[str, Any]] = []
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
                # The order of Legend needs three slots, COVER needs powers of the slots.
                if not spare:
                    missing[kind] = reason.message
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
                # Unless all triples stay in memory, the triples of the next state are read
                # at the same time.
                read = 0 if placement.keeps_triples(size) else size.triple_bytes * plan.triples_read
                device_seconds = plan.swap_seconds + read / rates["read_bandwidth"]
                orders.append(
                    {
                        **asdict(plan),
                        "swap": swap,
                        "bytes_of_triples": read,
                        "epoch_seconds": max(plan.epoch_seconds, device_seconds),
                        "chosen": kind == config.budget.order and swap == placement.swap,
                    }
                )
    return orders, missing


def _add_bandwidths(
    directory: Path,
    read_bandwidth: float | None,
    write_bandwidth: float | None,
    rates: dict[str, Any],
) -> None:
    """Adds bandwidths to the rates: from the caller, from a probe, or from a measurement."""
    if read_bandwidth is None:
        read_bandwidth = read_rate(directory)
        rates["read_probed"] = read_bandwidth is not None
    if read_bandwidth is None or write_bandwidth is None:
        read, write = measure_device(directory)
        read_bandwidth = read_bandwidth or read
        if write_bandwidth is None:
            write_bandwidth = write
            rates["write_measured"] = True
    rates["read_bandwidth"], rates["write_bandwidth"] = read_bandwidth, write_bandwidth
