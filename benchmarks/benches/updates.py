"""Acknowledged edges per second of durable stores."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import asdict
from pathlib import Path

from measure import Result, Series, Settings, number, say
from peers.stores import NODES

from benches.stores import THREADS, Rate, System, systems

BATCH = 1000
WHAT = (
    f"Edges a second that were acknowledged, one a call and {BATCH:,} a call, into a graph of "
    f"{NODES:,} nodes. Outercore is a server: its clients are in another process and speak HTTP. "
    "The other stores are called in their own process. Each takes the best of "
    f"{', '.join(map(str, THREADS))} threads or connections; latencies are those of that run."
)


class Case:
    """A store, and the number of edges per call."""

    def __init__(self, system: System, batch: int) -> None:
        self.system = system
        self.batch = batch
        self.series = Series(system.name, f"{system.setting}, {batch} a call", "edges/s")
        self.turns: list[list[Rate]] = []
        self.failed = False

    def measure(self, root: Path) -> None:
        """Measures one more turn, unless a turn has failed: a failure is a result, too."""
        if self.failed:
            return
        try:
            rates = self.system.rates(root, self.batch)
        except (RuntimeError, OSError) as failure:
            rates = []
            self.series.note = f"not available: {failure}"
        if not rates:
            self.failed = True
            self.series.note = self.series.note or "no run ended in time"
            return
        self.turns.append(rates)
        self.series.values.append(_best(rates).per_second)
        self.series.note = _told(self.middle())
        say(f"{self.system.name} {self.series.case}: {_best(rates)}")

    def middle(self) -> Rate:
        """The best run of the median turn."""
        best = sorted((_best(rates) for rates in self.turns), key=lambda rate: rate.per_second)
        return best[(len(best) - 1) // 2]


def run(settings: Settings) -> Result:
    """Measure all stores by turns on the disk of `settings.work`; sync rate before and after."""
    result = Result("updates", WHAT)
    root = settings.work / "updates-store"
    append = Series("disk", "4 KiB append + fdatasync", "syncs/s")
    overwrite = Series("disk", "4 KiB overwrite + fdatasync", "syncs/s")
    result.series += [append, overwrite]
    cases = [Case(system, batch) for system in systems(settings) for batch in (1, BATCH)]
    for _ in range(settings.repeats):
        append.values.append(sync_rate(settings.work / "syncs.bin", None))
        overwrite.values.append(sync_rate(settings.work / "syncs.bin", 0))
        for case in cases:
            case.measure(root)
            shutil.rmtree(root, ignore_errors=True)
    for case in cases:
        result.series.append(case.series)
        result.details[f"{case.system.name} {case.series.case}"] = [
            [asdict(rate) for rate in rates] for rates in case.turns
        ]
    result.details["table"] = _table(cases)
    say(_table(cases))
    for case in cases[2:]:
        ours = ("outercore", f"default, {case.batch} a call")
        theirs = (case.system.name, case.series.case)
        result.compare(f"{' '.join(ours)}, over {' '.join(theirs)}", ours, theirs)
    return result


def sync_rate(path: Path, at: int | None, seconds: float = 2.0) -> float:
    """Durable writes of 4 KiB per second, at the same place `at` or one after the other."""
    block, count = os.urandom(4096), 0
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY)
    try:
        os.pwrite(descriptor, block, 0)
        os.fsync(descriptor)
        begun = time.perf_counter()
        while (took := time.perf_counter() - begun) < seconds:
            os.pwrite(descriptor, block, count * len(block) if at is None else at)
            os.fdatasync(descriptor)
            count += 1
    finally:
        os.close(descriptor)
        path.unlink()
    return count / took


def _best(rates: list[Rate]) -> Rate:
    return max(rates, key=lambda rate: rate.per_second)


def _told(rate: Rate) -> str:
    return f"{rate.threads} threads, p50 {rate.p50_ms:.3g} ms, p99 {rate.p99_ms:.3g} ms"


def _table(cases: list[Case]) -> str:
    """A row for each store at each setting."""
    head = [
        "system", "setting", "an acknowledgement says", "edges/s, one a call", "threads",
        "p50 ms", "p99 ms", f"edges/s, {BATCH} a call", "threads", "p50 ms", "p99 ms",
    ]  # fmt: skip
    lines = [head, ["---"] * 3 + ["---:"] * (len(head) - 3)]
    for first, second in zip(cases[::2], cases[1::2], strict=True):
        system = first.system
        row = [system.name, system.setting, system.promise]
        for case in (first, second):
            if not case.turns:
                row += ["-"] * 4
                continue
            rate = case.middle()
            row += [number(rate.per_second), str(rate.threads)]
            row += [number(rate.p50_ms), number(rate.p99_ms)]
        lines.append(row)
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
