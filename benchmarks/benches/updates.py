"""Acknowledged edges a second, and what is left of them after a kill."""

from __future__ import annotations

import os
import random
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Result, Series, Settings, number, say
from peers.stores import NODES

from benches.stores import THREADS, WRITERS, System, UnavailableError, systems

BATCH = 1000
KILL_AFTER_S = (0.2, 1.5)
SEED = 1
WHAT = (
    f"Edges a second that were acknowledged, one a call and {BATCH:,} a call, into a graph of "
    f"{NODES:,} nodes. Outercore is a server: its clients are in another process and speak HTTP. "
    "The other stores are called in their own process. Each takes the best of "
    f"{', '.join(map(str, THREADS))} threads or connections; latencies are those of that run. In "
    f"a round a process that adds edges from {WRITERS} threads is killed with SIGKILL at a random "
    "moment. *Lost*: acknowledged edges that are missing afterwards. *Failed*: rounds after which "
    "the store did not open. SIGKILL leaves the system's cache alone: this is no power cut."
)


@dataclass
class Kills:
    """What rounds of killing and opening have come to."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    failed: int = 0
    reason: str = ""
    """The last failure to open."""


def run(settings: Settings) -> Result:
    """Rates and kills of all stores, on the disk of `settings.work`."""
    result = Result("updates", WHAT)
    root = settings.work / "updates-store"
    for case, at in (("append", None), ("overwrite", 0)):
        syncs = Series("disk", f"4 KiB {case} + fdatasync", "syncs/s")
        syncs.values = [sync_rate(settings.work / "syncs.bin", at) for _ in range(settings.repeats)]
        result.series.append(syncs)
    rows: list[list[str]] = []
    for system in systems(settings):
        try:
            rows.append(_measure(result, settings, system, root))
        except UnavailableError as reason:
            say(f"{system.name}: not available: {reason}")
            note = f"not available: {reason}"
            result.series.append(Series(system.name, system.setting, "edges/s", note=note))
        shutil.rmtree(root, ignore_errors=True)
    result.details["table"] = _table(rows)
    print(result.details["table"])
    for batch in (1, BATCH):
        for peer in [(one.name, one.setting) for one in systems(settings)[1:]]:
            result.compare(
                f"{batch} a call: outercore over {' '.join(peer)}",
                ("outercore", f"default, {batch} a call"),
                (peer[0], f"{peer[1]}, {batch} a call"),
            )
    return result


def sync_rate(path: Path, at: int | None, seconds: float = 2.0) -> float:
    """Writes of 4 KiB a second that are each made durable, at one place or one after the other."""
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


def kills(system: System, root: Path, rounds: int) -> Kills:
    """Kill a writer at random moments; the store is used again while it opens and loses nothing."""
    found, moments = Kills(), random.Random(SEED)
    acknowledged: set[int] = set()
    first = 0
    shutil.rmtree(root, ignore_errors=True)
    for _ in range(rounds):
        try:
            with system.written(root, first) as writer:
                time.sleep(moments.uniform(*KILL_AFTER_S))
                writer.kill()
            found.acknowledged += len(writer.acknowledged)
            acknowledged |= writer.acknowledged
            # Edges that were on their way may be there or not: their numbers are not used again.
            first = max(acknowledged, default=first) + 2 * WRITERS
            missing = len(acknowledged - system.edges(root))
        except UnavailableError:
            raise
        except RuntimeError as failure:
            found.failed += 1
            found.reason = str(failure)[-300:]
            missing = 0
            shutil.rmtree(root, ignore_errors=True)
            acknowledged = set()
        found.rounds += 1
        found.lost += missing
        if missing:
            shutil.rmtree(root, ignore_errors=True)
            acknowledged = set()
        say(f"{system.name} {system.setting} round {found.rounds}: lost {missing} {found.reason}")
    return found


def _measure(result: Result, settings: Settings, system: System, root: Path) -> list[str]:
    """Adds the series of one system; returns its row."""
    row = [system.name, system.setting, system.promise]
    for batch in (1, BATCH):
        series = Series(system.name, f"{system.setting}, {batch} a call", "edges/s")
        turns = []
        for _ in range(settings.repeats):
            try:
                rates = system.rates(root, batch)
            except (RuntimeError, OSError) as failure:
                series.note = f"not available: {failure}"
                break
            if not rates:
                series.note = "no run ended in time"
                break
            best = max(rates, key=lambda one: one.per_second)
            turns.append(rates)
            series.values.append(best.per_second)
            series.note = (
                f"{best.threads} threads, p50 {best.p50_ms:.3g} ms, p99 {best.p99_ms:.3g} ms"
            )
            say(f"{system.name} {series.case}: {best.per_second:.0f} edges/s, {series.note}")
        result.series.append(series)
        result.details[f"{system.name} {series.case}"] = [
            [asdict(one) for one in rates] for rates in turns
        ]
        if series.median is None:
            row += ["-"] * 4
            continue
        best = min(
            (max(rates, key=lambda one: one.per_second) for rates in turns),
            key=lambda one: abs(one.per_second - (series.median or 0)),
        )
        row += [number(series.median), str(best.threads)]
        row += [number(best.p50_ms), number(best.p99_ms)]
    if settings.rounds:
        killed = kills(system, root, settings.rounds)
        result.details[f"{system.name} {system.setting} kills"] = asdict(killed)
        lost = Series(system.name, f"{system.setting}, lost", "edges", [killed.lost])
        lost.note = f"of {killed.acknowledged}; {killed.failed} of {killed.rounds} did not open"
        result.series.append(lost)
        row += [str(killed.rounds), f"{killed.lost} of {killed.acknowledged}", str(killed.failed)]
    else:
        row += ["0", "-", "-"]
    return row


def _table(rows: list[list[str]]) -> str:
    head = [
        "system", "setting", "an acknowledgement says", "edges/s, one a call", "threads",
        "p50 ms", "p99 ms", f"edges/s, {BATCH} a call", "threads", "p50 ms", "p99 ms", "rounds",
        "lost", "failed",
    ]  # fmt: skip
    lines = [head, ["---"] * 3 + ["---:"] * (len(head) - 3), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"
