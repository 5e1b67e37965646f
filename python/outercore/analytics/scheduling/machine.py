"""Free resources of this machine: cores by NUMA node, and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from outercore.runs import record as records

_NODES = Path("/sys/devices/system/node")
_GROUPS = Path("/sys/fs/cgroup")
_SAMPLE_S = 0.2
_UNLIMITED = 1 << 60
"""A control group with a larger limit has no limit: version 1 writes a huge number for it."""


@dataclass(frozen=True)
class Ticks:
    """The clock ticks of a core since the machine started: busy ticks, and all ticks."""

    busy: int
    total: int


class Machine:
    """The cores and memory of this machine, and how much of them other programs leave free."""

    def __init__(self, memory: int | None = None) -> None:
        """Lets jobs use at most `memory` bytes; by default as many as the control groups allow."""
        installed = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        limits = [limit for limit, _ in _group_memory()]
        self.memory = min(memory or installed, installed, *limits)
        self.nodes = numa_nodes(os.sched_getaffinity(0))
        self._before = _ticks()
        self._taken_at = time.monotonic()
        # Cores that ran our own jobs during the sample: other programs do not cause their load.
        self._ours: set[int] = set()

    @property
    def cores(self) -> int:
        """Number of cores that this process may use."""
        return sum(len(node) for node in self.nodes)

    def free_memory(self) -> int:
        """Bytes that can be allocated now without swapping, within the limits of control groups."""
        lines = Path("/proc/meminfo").read_text().splitlines()
        line = next(line for line in lines if line.startswith("MemAvailable:"))
        available = int(line.split()[1]) * 1024
        return max(min([available, *(limit - used for limit, used in _group_memory())]), 0)

    def free_cores(self, held: Iterable[int]) -> list[list[int]]:
        """Cores by NUMA node that neither our jobs (`held`) nor other programs use.

        If `held` is empty, at least one core is returned. So the jobs also make progress on a busy
        machine, at the speed that the system gives them.
        """
        held = set(held)
        waited = time.monotonic() - self._taken_at
        if waited < _SAMPLE_S:
            time.sleep(_SAMPLE_S - waited)
        now = _ticks()
        shares = busy_shares(self._before, now, without=self._ours | held)
        free = idlest_cores(self.nodes, held, shares)
        self._before, self._taken_at, self._ours = now, time.monotonic(), held
        return free


def described() -> dict[str, Any]:
    """The properties of a machine that determine measured times."""
    return {"processor": records.machine()["processor"], "cores": os.cpu_count()}


def busy_shares(
    before: Mapping[int, Ticks], after: Mapping[int, Ticks], without: set[int]
) -> dict[int, float]:
    """The share of time that each core was busy, for all cores that are not in `without`."""
    shares = {}
    for core, now in after.items():
        then = before.get(core)
        if core in without or then is None or now.total <= then.total:
            continue
        shares[core] = (now.busy - then.busy) / (now.total - then.total)
    return shares


def idlest_cores(
    nodes: Sequence[Sequence[int]], held: set[int], shares: Mapping[int, float]
) -> list[list[int]]:
    """The idlest of the cores that are not `held`. Their number is the sum of the idle shares.

    Threads of other programs move from core to core, so only the sum over all cores is reliable.
    """
    open_ = sorted((shares.get(core, 0.0), core) for node in nodes for core in node)
    open_ = [(share, core) for share, core in open_ if core not in held]
    idle = round(sum(1 - share for share, _ in open_))
    if not held:
        idle = max(idle, 1)
    chosen = {core for _, core in open_[:idle]}
    return [[core for core in node if core in chosen] for node in nodes]


def numa_nodes(cores: Iterable[int], root: Path = _NODES) -> list[list[int]]:
    """`cores` by NUMA node; cores without a node in the system's files form one group."""
    nodes: dict[str, list[int]] = {}
    for core in sorted(cores):
        node = next(root.glob(f"node[0-9]*/cpu{core}"), None)
        nodes.setdefault("" if node is None else node.parent.name, []).append(core)
    return list(nodes.values())


def _group_memory() -> list[tuple[int, int]]:
    """Limit and use, without droppable pages, of each limited control group of this process."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    limits = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            root, files = _GROUPS, ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            root = _GROUPS / "memory"
            files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        limits += group_limits(root, path, files)
    return limits


def group_limits(root: Path, path: str, files: tuple[str, str, str]) -> list[tuple[int, int]]:
    """Limit and use, in bytes, of the control group `path` and of its ancestors."""
    limit_file, usage_file, droppable = files
    limits = []
    group = root / path.strip("/")
    for directory in (group, *(above for above in group.parents if above.is_relative_to(root))):
        try:
            limit = int((directory / limit_file).read_text())
            used = int((directory / usage_file).read_text())
            stat = (directory / "memory.stat").read_text().split()
        except (OSError, ValueError):
            # The group does not exist, as in a container that sees another tree, or its limit is
            # `max`.
            continue
        pairs = dict(zip(stat[::2], stat[1::2], strict=False))
        if limit < _UNLIMITED:
            limits.append((limit, max(used - int(pairs.get(droppable, 0)), 0)))
    return limits


def _ticks() -> dict[int, Ticks]:
    ticks = {}
    for line in Path("/proc/stat").read_text().splitlines():
        name, *fields = line.split()
        if not name.startswith("cpu") or name == "cpu":
            continue
        # user, nice, system, idle, iowait, irq, softirq, steal; guests are part of user.
        counted = [int(field) for field in fields[:8]]
        ticks[int(name[3:])] = Ticks(sum(counted) - counted[3] - counted[4], sum(counted))
    return ticks
