"""Epochs with partitions on disk, compared with epochs with all data in memory."""

from __future__ import annotations

import json
import shutil
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from limits import drop_cached, run_limited
from measure import Result, Series, Settings, say
from product import command, imported, sets

from benches.inputs import beside, knowledge_set, workload

EPOCHS = 3
AT_MOST = 1.1
WHAT = (
    "Seconds of an epoch of `outercore embed` by where the entities are: all in memory, or in "
    "partitions on disk of which a part is in memory: those that the plan chooses where only less "
    "memory is given than everything takes, 3 of 8, swapped as the plan chooses or in place, 2 of "
    "8 in turn with training, or 4 of 16 with one slot to load into. Of three epochs the first "
    "does not count: it begins with nothing in memory. Checkpoints, which both need, are "
    "no part of it. Partitions are read with direct I/O and synced as they are written. Density is "
    "edges by nodes squared; the least at which computing hides the I/O is Legend's theorem 3 with "
    "the seconds of a triple in memory and the bytes a second of the swaps."
)


def _cut(partitions: int, slots: int, swap: str) -> tuple[object, ...]:
    chosen = {"partitions": partitions, "slots": slots, "swap": swap}
    return tuple(sets({f"budget.{name}": value for name, value in chosen.items()}))


PARTS = (
    ("8 partitions, 3 slots", _cut(8, 3, "auto")),
    ("8 partitions, 3 slots in place", _cut(8, 3, "in-place")),
    ("8 partitions, 2 slots", _cut(8, 2, "in-turn")),
    ("16 partitions, 4 slots", _cut(16, 4, "spare-slot")),
)
CHOSEN: tuple[str, tuple[object, ...]] = ("partitions that the plan chooses", ())


@dataclass(frozen=True)
class Case:
    """A graph, and the options of its embedding."""

    name: str
    data: Path
    options: tuple[object, ...]
    memory: str
    """Memory of a run with partitions."""
    scarce: bool = False
    """Whether not all data fits in this memory, so that the plan chooses partitions."""


def run(settings: Settings) -> Result:
    """Measure a knowledge graph, and an R-MAT graph that is large enough for partitions.

    Runs in memory and on disk take turns, so that other programs on the machine slow down both.
    """
    result = Result("embed_disk", WHAT)
    for case in _cases(settings):
        whole = Series("in memory", case.name, "s an epoch")
        divided = [
            _Divided(Series("on disk", f"{case.name}; {name}", "s an epoch"), options)
            for name, options in ((CHOSEN,) if case.scarce else ()) + PARTS
        ]
        for turn in range(settings.repeats):
            record = _trained(settings, case, "4GiB", ("--set", "budget.partitions=1"))
            _note(result, whole, turn, record)
            for runs in divided:
                record = _trained(settings, case, case.memory, runs.options)
                _note(result, runs.epoch, turn, record)
                runs.records.append(record)
        result.series.append(whole)
        for runs in divided:
            _compare(result, case, runs, whole)
    return result


def _cases(settings: Settings) -> list[Case]:
    facts = Case(
        "FB15k-237, ComplEx, d = 200, 1,000 negatives",
        knowledge_set(settings, "fb15k-237"),
        ("--model", "complex", "--dim", 200, "--negatives", 1000),
        "512MiB",
    )
    name = "rmat18" if settings.quick else "rmat20"
    work, folder = workload(settings, name)
    links = Case(
        f"R-MAT, {work.nodes:,} nodes, {work.edges:,} links, Dot, d = 64, 100 negatives",
        imported(folder, settings.work / f"{name}.links.outercore", topology_only=True),
        ("--model", "dot", "--dim", 64, "--negatives", 100, "--held-out", 0),
        "128MiB" if settings.quick else "384MiB",
        scarce=True,
    )
    return [links] if settings.quick else [facts, links]


@dataclass
class _Divided:
    """Runs with the same number of partitions."""

    epoch: Series
    options: tuple[object, ...]
    records: list[dict] = field(default_factory=list)


def _compare(result: Result, case: Case, divided: _Divided, whole: Series) -> None:
    """Compares runs with partitions with runs with all data in memory."""
    place, records, epoch = divided.epoch.case, divided.records, divided.epoch
    waited = Series("on disk", f"{place}: waits", "s an epoch")
    moved = Series("on disk", f"{place}: read", "bytes an epoch")
    for record in records:
        counted = [counters["counters"] for counters in record["epochs"][1:]]
        waited.values.append(
            statistics.mean(
                counters["waited_s"] + counters["triples_waited_s"] for counters in counted
            )
        )
        moved.values.append(statistics.mean(counters["bytes_read"] for counters in counted))
    order = records[0]["plan"]["order"]
    planned = Series("plan", f"{place}: read", "bytes an epoch", [order["bytes_between"]])
    result.series += [epoch, waited, moved, planned]
    result.compare(
        f"{place}: seconds in memory over seconds on disk",
        ("in memory", whole.case),
        ("on disk", epoch.case),
        1 / AT_MOST,
    )
    result.compare(
        f"{place}: bytes read over the plan's", ("on disk", moved.case), ("plan", planned.case)
    )
    first = Series("on disk", f"{place}: read by the first epoch", "bytes")
    first.values = [record["epochs"][0]["counters"]["bytes_read"] for record in records]
    result.series.append(first)
    _theorem(result, place, case, records, whole)


def _theorem(result: Result, place: str, case: Case, records: list[dict], whole: Series) -> None:
    """Records whether the graph is dense enough for the computation to hide the I/O."""
    from outercore.embedding.tables.order import Walks, partition_order

    plan, data = records[0]["plan"], records[0]["data_set"]
    counted = [counters["counters"] for record in records for counters in record["epochs"]]
    seconds = sum(counters["swap_s"] for counters in counted)
    if not seconds or whole.median is None:
        return
    bandwidth = (
        sum(counters["bytes_read"] + counters["bytes_written"] for counters in counted) / seconds
    )
    triples = records[0]["epochs"][0]["triples"]
    config = records[0]["config"]
    expected = partition_order(
        config["budget"]["order"],
        partitions=plan["partitions"],
        slots=plan["slots"],
        spare=plan["swap"] == "spare-slot",
        seed=config["run"]["seed"],
    ).plan(
        nodes=data["entities"],
        row_bytes=8 * config["model"]["dim"],
        edges=triples,
        seconds_per_edge=whole.median / triples,
        read_bandwidth=bandwidth,
        write_bandwidth=bandwidth,
        walks=Walks(**plan["order"]["walks"]),
        partition_bytes=plan["order"]["partition_bytes"],
    )
    result.details[place] = {
        "bandwidth": bandwidth,
        "seconds_per_triple": whole.median / triples,
        "swaps": expected.swaps,
        "prefetchable": expected.prefetchable,
        "density": expected.density,
        "least_density": expected.least_density,
        "expected_epoch_s": expected.epoch_seconds,
        "peak_memory": max(record["peak_memory_bytes"] for record in records),
    }
    result.series += [
        Series("device", f"{place}: swaps", "bytes/s", [bandwidth]),
        Series("graph", f"{place}: density", "", [expected.density]),
        Series("plan", f"{place}: seconds", "s an epoch", [expected.epoch_seconds]),
        Series("plan", f"{place}: read by the first epoch", "bytes", [expected.bytes_read]),
    ]
    result.compare(
        f"{place}: bytes read by the first epoch over the plan's",
        ("on disk", f"{place}: read by the first epoch"),
        ("plan", f"{place}: read by the first epoch"),
    )
    if expected.least_density:
        least = Series("theorem 3", f"{place}: least density", "", [expected.least_density])
        result.series.append(least)
        result.compare(
            f"{place}: density over the least of theorem 3",
            ("graph", f"{place}: density"),
            ("theorem 3", least.case),
        )


def _trained(settings: Settings, case: Case, memory: str, options: tuple[object, ...]) -> dict:
    """The record of a run; its directory is removed."""
    out = settings.work / "embed_disk.run"
    shutil.rmtree(out, ignore_errors=True)
    drop_cached([case.data])
    outcome = run_limited(
        command(
            "embed", case.data, "--out", out, "--json", "--memory", memory, *case.options,
            *options, "--epochs", EPOCHS, *sets(beside(EPOCHS, settings.threads)),
        ),
        env={"OMP_NUM_THREADS": str(settings.threads)},
    )  # fmt: skip
    outcome.check()
    shutil.rmtree(out)
    return json.loads(outcome.stdout[outcome.stdout.index("{") :])


def _note(result: Result, series: Series, turn: int, record: dict) -> None:
    value = statistics.mean(epoch["seconds"] for epoch in record["epochs"][1:])
    say(f"{series.program}, {series.case}, run {turn + 1}: {value:.2f} s an epoch")
    series.values.append(value)
    details = {name: record[name] for name in ("epochs", "timeline", "plan", "peak_memory_bytes")}
    result.details.setdefault(f"{series.program}, {series.case}", []).append(details)
