"""Cache policies, compared on the rows that the sampler's batches need."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import svg
import traces
from measure import HERE, REPOSITORY, Result, Series, Settings, say
from numpy.typing import NDArray
from product import imported
from traces import CAPACITIES, Trace

import outercore as oc
from benches.inputs import workload

WHAT = (
    "Misses of eviction policies over those of Belady with the whole trace known, and accesses "
    "that a static cache absorbs over those of pre-sampling. Traces are the distinct nodes of each "
    "batch of the sampler, fan-out 10,5, from an empty cache. Two batches fit into 5 % of rows; "
    "the case `small batches` has a sixteenth of that."
)
BATCHES = 512
RMAT = "rmat18"
DEPTHS = (1, 4, 16, 64)
POLICIES = ("belady", "window-64", "heated-64", "lru", "sieve", "s3-fifo", "fifo", "random")
SHALLOW = tuple(f"{name}-{depth}" for name in ("window", "heated") for depth in DEPTHS[:-1])
DRAWN = ("belady", "heated-64", "window-64", "s3-fifo", "sieve", "lru", "random")
DRAWN_SHARES = (0.1, 0.5)
BUDGETS_MIB = (24, 32, 40, 56)
HOTNESS = ("presample", "visits", "in_degree", "none")
WANTED = 1.1
"""Largest ratio of the window policy's misses to Belady's."""
STATIC_WANTED = 0.95
STATIC_SHARES = (0.05, 0.1, 0.2, 0.5)


@dataclass(frozen=True)
class _Missed:
    distinct: int
    misses: int

    @property
    def hits(self) -> float:
        """Share of the distinct rows that were cached."""
        return 1 - self.misses / self.distinct


Found = dict[str, _Missed]
Heat = NDArray[np.float64]


def build() -> Path:
    """The program that runs policies over a trace, compiled by Cargo."""
    target = Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    command = ["cargo", "build", "--release", "--quiet", "-p", "outercore-cache"]
    command += ["--example", "policies", "--locked", "--target-dir", str(target)]
    subprocess.run(command, cwd=REPOSITORY, check=True)
    return target / "release" / "examples" / "policies"


def run(settings: Settings) -> Result:
    """Run every policy over the trace of every graph."""
    result, program = Result("policies", WHAT), build()
    panels: dict[str, list[svg.Panel]] = {"size": [], "depth": [], "static": []}
    with tempfile.TemporaryDirectory(dir=settings.work) as scratch:
        for case, trace in _traces(settings):
            say(f"{case}, batches of {trace.batch_size}")
            result.details[case] = {
                "nodes": trace.nodes,
                "batch_size": trace.batch_size,
                "rows_per_batch": float(np.mean([len(rows) for rows in trace.batches])),
            }
            rankings = traces.rankings(trace)
            missed = _simulated(program, trace, rankings["visits"], Path(scratch))
            _note(result, case, missed)
            panels["size"].append(_by_size(case, missed))
            panels["depth"].append(_by_depth(case, missed))
            panels["static"].append(_by_static_size(result, case, trace, rankings))
    panels["loader"] = _by_budget(result, settings)
    for name, drawn in panels.items():
        say(f"drawn: {svg.write(drawn, HERE / 'results' / f'caches-{name}.svg')}")
    return result


def _traces(settings: Settings) -> Iterator[tuple[str, Trace]]:
    batches = 96 if settings.quick else BATCHES
    trace = traces.recorded(settings, RMAT, batches)
    yield RMAT, trace
    small = max(trace.batch_size // 16, 1)
    yield f"{RMAT}, small batches", traces.recorded(settings, RMAT, batches, small)
    for name in traces.REAL if not settings.quick else ("cora",):
        try:
            yield name, traces.recorded(settings, name, batches)
        except FileNotFoundError as missing:
            say(f"{name} is left out: {missing}")


def _simulated(program: Path, trace: Trace, visits: Heat, scratch: Path) -> dict[float, Found]:
    """The results of each policy, by the share of the rows that fit in the cache."""
    path, heat = traces.write(trace.batches, scratch / "trace.u64"), scratch / "heat.f32"
    visits.astype("<f4").tofile(heat)
    missed = {}
    for share in CAPACITIES:
        policies = POLICIES + (SHALLOW if share in DRAWN_SHARES else ())
        command = [str(program), str(path), str(int(trace.nodes * share)), str(heat), *policies]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        missed[share] = {
            line["policy"]: _Missed(line["distinct"], line["misses"]) for line in lines
        }
    return missed


def _note(result: Result, case: str, by_share: dict[float, Found]) -> None:
    """Records misses, and the ratios of Belady's misses to each policy's, with their targets."""
    for share, missed in by_share.items():
        where = f"{case}, {share:.0%}"
        for name, counts in missed.items():
            note = f"hit ratio {counts.hits:.3f}"
            result.series.append(Series(name, where, "misses", [counts.misses], note))
        for name in missed:
            least = 1 / WANTED if name in ("window-64", "heated-64") else None
            result.compare(f"{where}: Belady over {name}", ("belady", where), (name, where), least)


def _by_size(case: str, by_share: dict[float, Found]) -> svg.Panel:
    """Hit ratios by the size of the cache (GIDS figure 12)."""
    lines = {
        name: [(100 * share, missed[name].hits) for share, missed in by_share.items()]
        for name in DRAWN
    }
    return svg.Panel(case, "rows cached, %", "hit ratio", lines)


def _by_depth(case: str, by_share: dict[float, Found]) -> svg.Panel:
    """Misses divided by Belady's, by the number of announced batches (GIDS figure 11)."""
    lines = {}
    for share in DRAWN_SHARES:
        least = by_share[share]["belady"].misses
        for name in ("window", "heated"):
            ratios = [by_share[share][f"{name}-{depth}"].misses / least for depth in DEPTHS]
            lines[f"{name}, {share:.0%} of rows"] = list(zip(DEPTHS, ratios, strict=True))
    return svg.Panel(case, "batches known ahead", "misses over Belady's", lines, least=1.0)


def _by_static_size(
    result: Result, case: str, trace: Trace, rankings: dict[str, Heat]
) -> svg.Panel:
    """Share of accesses to the hottest rows, by the rule for hotness (GIDS figure 10)."""
    accesses = np.bincount(np.concatenate(trace.batches), minlength=trace.nodes)
    lines = {}
    for name, heat in rankings.items():
        order = np.argsort(-heat, kind="stable")
        lines[name] = [(100 * share, _absorbed(accesses, order, share)) for share in STATIC_SHARES]
        for share, absorbed in lines[name]:
            where = f"{case}, {share:g} % static"
            result.series.append(Series(name, where, "share of accesses", [absorbed]))
    for share in STATIC_SHARES:
        where = f"{case}, {100 * share:g} % static"
        for name in ("visits", "PageRank", "in_degree", "best"):
            least = STATIC_WANTED if name == "visits" else None
            result.compare(
                f"{where}: {name} over presample", (name, where), ("presample", where), least
            )
    return svg.Panel(case, "rows in the static cache, %", "accesses absorbed", lines)


def _by_budget(result: Result, settings: Settings) -> list[svg.Panel]:
    """Rows that the loader reads in a warm epoch, by budget and by the rule for hotness."""
    _, folder = workload(settings, RMAT)
    graph = imported(folder, settings.work / f"{RMAT}.outercore", in_place=True)
    lines: dict[str, list[tuple[float, float]]] = {}
    for budget in BUDGETS_MIB:
        for hotness in HOTNESS:
            say(f"loader, {budget} MiB, hotness {hotness}")
            sampler = oc.NeighborSampler(
                graph, (15, 10), "train", batch_size=64, shuffle=True, seed=1, features="x",
                memory=f"{budget}MiB", hotness=hotness, threads=settings.threads,
            )  # fmt: skip
            with sampler:
                for _epoch in range(2):
                    for _batch in sampler:
                        pass
                    read = sampler.counters()["counters"]["cache"]["misses"]
            lines.setdefault(hotness, []).append((budget, read))
            result.series.append(Series(hotness, f"loader, {budget} MiB", "rows read", [read]))
        where = f"loader, {budget} MiB"
        result.compare(f"{where}: presample over visits", ("presample", where), ("visits", where))
    return [svg.Panel(RMAT, "budget, MiB", "rows read in an epoch", lines)]


def _absorbed(accesses: NDArray[np.int64], order: NDArray[np.int64], share: float) -> float:
    held = order[: int(len(order) * share)]
    return float(accesses[held].sum() / accesses.sum())
