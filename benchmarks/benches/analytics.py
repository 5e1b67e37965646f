"""Graph algorithms: Outercore in 128 MiB from a cold disk, peers with all data in memory."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from limits import drop_cached, parse_bytes, run_limited
from measure import Result, Series, Settings, python, say
from product import command, imported

from benches.inputs import workload

LIMIT = "128MiB"
"""Limit of the whole process, including the page cache."""
BUDGET = "64MiB"
"""Budget of Outercore; the rest is for Python, its libraries and the command line."""
ITERATIONS = 20
WHAT = (
    "BFS from the node of the largest degree, weakly connected components, and 20 iterations of "
    "PageRank on the R-MAT graph, both directions of every edge. Outercore within "
    f"`--memory {BUDGET}`, the whole process in a cgroup of {LIMIT}, page cache included; the "
    "data set's cached pages dropped before every run: seconds from the opened grid to the "
    "result, and bytes read. NetworKit and igraph each in one process without a limit, seconds of "
    "the algorithm alone, the graph built before. A third of NetworKit's PageRank stands for GAP, "
    "which takes about that long on the same machine."
)
CASES = ("bfs", "wcc", "pagerank")
PEERS = {
    "NetworKit": ("peers/networkit_run.py", ("threads", "iterations")),
    "igraph": ("peers/igraph_run.py", ()),
}


def run(settings: Settings) -> Result:
    """Build the grid, run the algorithms, run the peer."""
    result = Result("analytics", WHAT)
    work, folder = workload(settings, settings.dense)
    graph = imported(
        folder,
        settings.work / f"{settings.dense}.undirected.outercore",
        undirected=True,
        topology_only=True,
    )
    source = busiest(folder / "edges.npy", work.nodes)
    _grid(result, settings, graph, 2 * work.edges)
    for case in CASES:
        _outercore(result, settings, graph, case, source)
    _peer(result, settings, folder, source, "NetworKit")
    _peer(result, settings, folder, source, "igraph")
    if (whole := result.median("NetworKit", "pagerank")) is not None:
        result.series.append(Series("NetworKit / 3", "pagerank", "seconds", [whole / 3]))
    for peer in PEERS:
        for case in CASES:
            result.compare(
                f"{case}: {peer}'s seconds over Outercore's", (peer, case), ("Outercore", case)
            )
    result.compare(
        "pagerank: a third of NetworKit's seconds over Outercore's",
        ("NetworKit / 3", "pagerank"),
        ("Outercore", "pagerank"),
        1,
    )
    for case, seconds, read in (("bfs", 1.5, 1e9), ("wcc", 1.5, 1e9), ("pagerank", None, 8e9)):
        for unit, goal in (("", seconds), (" bytes", read)):
            if goal is not None:
                result.series.append(Series("goal", case + unit, "at most", [goal]))
                result.compare(
                    f"{case}{unit or ' seconds'}: goal over found",
                    ("goal", case + unit),
                    ("Outercore", case + unit),
                    1,
                )
    return result


def busiest(edges: Path, nodes: int) -> int:
    """The node of the largest degree, with in- and out-edges."""
    pairs = np.load(edges, mmap_mode="r")
    degrees = np.zeros(nodes, np.int64)
    for begin in range(0, len(pairs), 1 << 22):
        degrees += np.bincount(pairs[begin : begin + (1 << 22)].ravel(), minlength=nodes)
    return int(degrees.argmax())


def _grid(result: Result, settings: Settings, graph: Path, arcs: int) -> None:
    """Measures the grid: time of the build, size, bytes written."""
    seconds = Series("Outercore", "grid", "seconds")
    size = Series("Outercore", "grid size", "bytes an arc")
    for _turn in range(settings.repeats):
        drop_cached(_files(graph))
        build = command("grid", graph, "--memory", BUDGET, "--overwrite", "--json")
        outcome = run_limited(build)
        if outcome.returncode:
            raise RuntimeError(f"`outercore grid` failed: {outcome.stderr[-1500:]}")
        summary = json.loads(outcome.stdout[outcome.stdout.index("{") :])
        say(f"grid: {summary['seconds']:.1f} s, {summary['bytes_per_arc']:.2f} bytes an arc")
        seconds.values.append(summary["seconds"])
        size.values.append(summary["bytes_per_arc"])
        result.details["grid"] = {**summary, "peak_resident": outcome.peak_resident}
    written = Series("Outercore", "grid written", "of its input")
    summary = result.details["grid"]
    written.values = [summary["written"] / summary["input"]]
    result.series += [seconds, size, written]
    result.series += [Series("goal", "grid size", "at most", [3.0])]
    result.series += [Series("goal", "grid written", "at most", [2.0])]
    for case in ("grid size", "grid written"):
        result.compare(f"{case}: goal over found", ("goal", case), ("Outercore", case), 1)


def _outercore(result: Result, settings: Settings, graph: Path, case: str, source: int) -> None:
    options: dict[str, tuple[object, ...]] = {
        "bfs": ("--source", source),
        "wcc": (),
        "pagerank": ("--max-iterations", ITERATIONS, "--tolerance", 0),
    }
    seconds, read = (
        Series("Outercore", case, "seconds"),
        Series("Outercore", f"{case} bytes", "read"),
    )
    runs = []
    for turn in range(settings.repeats):
        drop_cached(_files(graph))
        call = command(
            "run", case, graph, *options[case], "--memory", BUDGET, "--threads",
            settings.threads, "--json", "--record", "none",
        )  # fmt: skip
        outcome = run_limited(call, parse_bytes(LIMIT))
        if outcome.returncode:
            seconds.note = outcome.stderr[-400:]
            break
        record = json.loads(outcome.stdout[outcome.stdout.index("{") :])
        counters = record["counters"]
        say(f"{case} run {turn + 1}: {counters['seconds']:.2f} s of {outcome.wall_s:.1f} s")
        seconds.values.append(counters["seconds"])
        read.values.append(counters["reads"]["bytes"])
        used = {"peak": outcome.peak, "enforced": outcome.enforced, "limit": outcome.limit}
        runs.append({**counters, "wall_s": outcome.wall_s, **used, "busy": _busy(counters)})
    result.details[case] = runs
    result.series += [seconds, read]


def _peer(result: Result, settings: Settings, folder: Path, source: int, name: str) -> None:
    interpreter = settings.peers_python
    if not interpreter.exists():
        say(f"no {name} at {interpreter}; see benchmarks/peers/graphs.txt")
        return
    script, options = PEERS[name]
    values = {"threads": settings.threads, "iterations": ITERATIONS}
    more = [part for option in options for part in (f"--{option}", values[option])]
    peer = python(
        script, folder / "edges.npy", "--source", source, "--repeats", settings.repeats, *more,
        interpreter=interpreter,
    )  # fmt: skip
    printed = run_limited(peer).last_json()
    result.series += [Series(name, case, "seconds", printed[case]) for case in CASES]
    result.details[name] = printed


def _busy(counters: dict) -> dict[str, float]:
    """Share of the run in which the device had reads, and in which a core computed."""
    io, compute, seconds = counters["io"], counters["compute"], counters["seconds"]
    working = compute["busy_s"] + compute["starved_s"] + compute["blocked_s"]
    return {
        "device": io["starved_s"] / seconds,
        "cores": compute["busy_s"] / working if working else 0.0,
        "bytes_a_second": counters["reads"]["bytes"] / seconds,
    }


def _files(graph: Path) -> list[Path]:
    return [path for path in graph.rglob("*.npy") if path.is_file()]
