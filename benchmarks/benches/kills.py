"""Acknowledged edges after a kill: which edges a store has kept."""

from __future__ import annotations

import random
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from measure import Result, Series, Settings, say

from benches.stores import WRITERS, System, UnavailableError, systems

KILL_AFTER_S = (0.2, 1.5)
SEED = 1
WHAT = (
    f"In a round a process that adds single edges from {WRITERS} threads or connections is killed "
    f"with SIGKILL at a random moment, {KILL_AFTER_S[0]} to {KILL_AFTER_S[1]} s after it began. "
    "The store is opened again and all its edges are read. *Lost* are acknowledged edges that are "
    "missing then. The next round uses the same store if it opens and has lost nothing. "
    "SIGKILL leaves the system's cache alone: this is no power cut."
)


@dataclass
class Kills:
    """Results of rounds of killing and opening a store."""

    rounds: int = 0
    acknowledged: int = 0
    lost: int = 0
    failed: int = 0
    reason: str = ""
    """The last failure to open."""


def run(settings: Settings) -> Result:
    """Test all stores, on the disk of `settings.work`."""
    result = Result("kills", WHAT)
    root = settings.work / "kills-store"
    for system in systems(settings):
        lost = Series(system.name, system.setting, "edges lost")
        result.series.append(lost)
        try:
            outcome = kills(system, root, settings.rounds)
            lost.values.append(outcome.lost)
            lost.note = (
                f"of {outcome.acknowledged}; {outcome.failed} of {outcome.rounds} did not open "
                f"{outcome.reason}"
            )
            result.details[f"{system.name} {system.setting}"] = asdict(outcome)
        except UnavailableError as reason:
            lost.note = f"not available: {reason}"
        say(f"{system.name} {system.setting}: lost {lost.values} {lost.note}")
        shutil.rmtree(root, ignore_errors=True)
    return result


def kills(system: System, root: Path, rounds: int) -> Kills:
    """Kill a writer at random moments; start a new store if one does not open or loses edges."""
    outcome, moments = Kills(), random.Random(SEED)
    acknowledged: set[int] = set()
    first = 0
    shutil.rmtree(root, ignore_errors=True)
    for _ in range(rounds):
        try:
            with system.written(root, first) as writer:
                time.sleep(moments.uniform(*KILL_AFTER_S))
                writer.kill()
            outcome.acknowledged += len(writer.acknowledged)
            acknowledged |= writer.acknowledged
            # Edges in flight may be stored or not, so their numbers are not used again.
            first = max(acknowledged, default=first) + 2 * WRITERS
            missing = len(acknowledged - system.edges(root))
        except UnavailableError:
            raise
        except RuntimeError as failure:
            outcome.failed += 1
            outcome.reason = str(failure)[-300:]
            missing = 0
            shutil.rmtree(root, ignore_errors=True)
            acknowledged = set()
        outcome.rounds += 1
        outcome.lost += missing
        if missing:
            shutil.rmtree(root, ignore_errors=True)
            acknowledged = set()
        say(
            f"{system.name} {system.setting} round {outcome.rounds}: "
            f"lost {missing} {outcome.reason}"
        )
    return outcome
