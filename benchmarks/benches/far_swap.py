"""Far memory, compared with swap of the operating system, in cgroups of the same size.

Measures Outercore, and libraries with their graph in memory.
"""

from __future__ import annotations

import json

from limits import parse_bytes, run_limited, swap_file
from measure import Result, Settings, python, say
from product import command, sets

from benches.far import BUDGET, ITERATIONS, Bench, opened

INTERPRETER = 64 << 20
"""Bytes for Python, its libraries and the command line under a memory limit."""
SWAP = "8GiB"
TIMEOUT_S = 30.0
"""Slower runs are stopped and reported as longer than this."""
CASES = ("bfs", "pagerank")
HALF = ", half its state"
LIBRARIES = ("networkit", "scipy", "igraph")
WHAT = (
    "R-MAT, both directions of every edge; seconds of the algorithm. Every program is in a cgroup "
    "of what far memory takes at far ratio 1 (the least budget with state and result in "
    f"memory, and {INTERPRETER >> 20} MiB for Python, its libraries and the command line; or half "
    "of the state, which far memory's runs then keep in scratch files), with a swap file on the "
    "disk, and beside it without a limit. `all local`: our own program, all edges in local "
    "memory. Libraries: NetworKit, igraph (its PageRank is PRPACK, to convergence), SciPy "
    "(`breadth_first_order`; matrix times vector). Each builds its graph and runs once without a "
    "limit, then the limit is set, the graph goes to swap, and it runs again; `with its build`: "
    f"limited from its beginning, BFS. Stopped after {TIMEOUT_S:.0f} s: at least so long."
)


def run(settings: Settings) -> Result:
    """Measure BFS and PageRank in all programs."""
    result = Result("far_swap", WHAT)
    if run_limited(["true"], 1 << 30).enforced == "none":
        say("no cgroup: this process may not limit memory")
        return result
    with opened(result, settings) as bench:
        limits = {case: _ours(bench, case) for case in CASES}
        if not settings.peers_python.exists():
            say(f"no libraries at {settings.peers_python}; see benchmarks/peers/graphs.txt")
        for library in LIBRARIES if settings.peers_python.exists() else ():
            for case, limit in limits.items():
                if limit is not None:
                    _library(bench, library, case, limit)
            if limits["bfs"] is not None:
                _built(bench, library, limits["bfs"])
        for case in CASES:
            _compare(bench, case, ("all local", *LIBRARIES))
            _compare(bench, case + HALF, ("all local",))
    return result


def _ours(bench: Bench, case: str) -> int | None:
    """Measures Outercore with far memory and in local memory, with all and half of the state.

    Returns the limit with the whole state in memory; None without swap.
    """
    far = ["--far", bench.servers["tcp"], *sets({"far.token_file": bench.token, "far_ratio": 1})]
    planned = run_limited(
        command(
            "run", case, bench.graph, *bench.options(case), "--memory", BUDGET, "--plan", "--json",
            *far,
        )
    )  # fmt: skip
    plan = json.loads(planned.check().stdout)
    local = command(
        "run",
        case,
        bench.graph,
        *bench.options(case),
        "--memory",
        BUDGET,
        "--json",
        "--record",
        "none",
    )
    bench.measure("all local", case, local)
    budgets = {
        case: plan["least_in_memory"],
        case + HALF: max(plan["least"], plan["state"] // 2),
    }
    for name, budget in budgets.items():
        limit = budget + INTERPRETER
        bench.result.details[f"limit {name}"] = limit
        for transport in bench.servers:
            call = bench.call(case, transport, "--set", "far_ratio=1", memory=f"{budget}")
            bench.measure(f"far, {transport}, limited", name, call, memory=limit)
        with swap_file(bench.settings.work / "swap", parse_bytes(SWAP)) as swapped:
            if not swapped:
                say("no swap: this process may not switch it on")
                return None
            bench.measure(
                "all local, swap", name, local, memory=limit, swap=True, timeout_s=TIMEOUT_S
            )
    return budgets[case] + INTERPRETER


def _library(bench: Bench, library: str, case: str, limit: int) -> None:
    """Measures a library in memory and on swap, with one run each."""
    settings = bench.settings
    ready = settings.work / "ready"
    ready.unlink(missing_ok=True)
    call = _call(bench, library, case)
    with swap_file(settings.work / "swap", parse_bytes(SWAP)):
        outcome = run_limited(
            [*call, "--ready", str(ready)], limit, swap=True, timeout_s=TIMEOUT_S, ready=ready
        )
        printed: dict[str, float] = {}
        for line in outcome.stdout.splitlines():
            printed |= json.loads(line)
        bench.add(library, case, printed.get("first_s"), outcome)
        if outcome.enforced == "none":
            say(f"{library} {case}: no limit could be set, so there is no figure on swap")
        else:
            bench.add(
                f"{library}, swap", case, printed.get("second_s"), outcome, at_least=TIMEOUT_S
            )
        bench.result.details[f"{library} {case}"] = {**printed, "peak": outcome.peak}


def _built(bench: Bench, library: str, limit: int) -> None:
    """Measures a library that is limited from its start: build and BFS."""
    with swap_file(bench.settings.work / "swap", parse_bytes(SWAP)):
        outcome = run_limited(_call(bench, library, "bfs"), limit, swap=True, timeout_s=TIMEOUT_S)
    seconds = outcome.wall_s if outcome.returncode == 0 else None
    bench.add(f"{library}, swap, with its build", "bfs", seconds, outcome, at_least=TIMEOUT_S)
    if "build_s" not in outcome.stdout:
        bench.result.series[-1].note += ", before the graph was there"


def _call(bench: Bench, library: str, case: str) -> list[str]:
    settings = bench.settings
    return python(
        "peers/in_memory.py", library, case, settings.work / settings.dense / "edges.npy",
        "--source", bench.source, "--iterations", ITERATIONS, "--threads", settings.threads,
        interpreter=settings.peers_python,
    )  # fmt: skip


def _compare(bench: Bench, case: str, others: tuple[str, ...]) -> None:
    for other in others:
        for transport in bench.servers:
            bench.result.compare(
                f"{case}: {other} on swap over far memory ({transport}), the same memory",
                (f"{other}, swap", case),
                (f"far, {transport}, limited", case),
                5,
            )
