"""A served graph under mixed load: no error, no lost update, flat memory, and folds that keep up.

A few seconds by default; `OUTERCORE_LOAD_SECONDS=300 pytest -s tests/python/test_mixed_load.py` is
what CI runs, and 3600 is an hour. From a minute on the use of memory, files and threads is compared
between the second fifth of the time and the last one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pytest

import outercore as oc
from mixed_load import WRITERS, Load, Sample, Share, log_bytes
from outercore.training import export_model
from test_live import COLUMNS, Model, outercore, random_model, trained

SECONDS = float(os.environ.get("OUTERCORE_LOAD_SECONDS", "6"))
NODES, EDGES = 4000, 20_000
MEMORY = "16MiB"
"""2 MiB of it are for changes: more than the writers need in the minute between two exchanges of
the arrays, and little enough for one in each minute."""
PERIODS = 5
GROWTH, NOISE = 0.02, 4 << 20
"""How much larger the median of resident memory may be: a share for the graph, which gets some new
nodes, and what the allocator keeps. In runs of 300 s it grew by 0.4 to 0.9 MiB. 6 MiB more would be
150 bytes for each request and update between the two medians."""


@contextmanager
def serving(root: Path, run: Path) -> Iterator[dict[str, Any]]:
    """A server in a process of its own, ended by the signal that an operator sends."""
    command = ["serve", root, "--model", run, "--updates", "--memory", MEMORY, "--json"]
    command += ["--port", 0, "--grpc-port", 0, "--deadline-ms", 20_000]
    process = subprocess.Popen(
        [sys.executable, "-m", "outercore", *map(str, command)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate()[1]
        yield json.loads(line)
        process.terminate()
        _, told = process.communicate(timeout=60)
        assert (process.returncode, told) == (0, "")
    finally:
        process.kill()
        process.communicate()


def shares_of(model: Model) -> list[Share]:
    """The graph divided among writers."""
    pairs: list[list[tuple[int, int]]] = [[] for _ in range(WRITERS)]
    for source, target in model.edges.values():
        first, second = min(source, target), max(source, target)
        pairs[first % WRITERS].append((first, second))
    return [
        Share(list(range(number, NODES, WRITERS)), own, number, COLUMNS)
        for number, own in enumerate(pairs)
    ]


def arcs_of(counts: Counter[tuple[int, int]]) -> np.ndarray:
    """Both arcs of each edge, in order; a self-loop has one."""
    pairs = np.array([pair for pair, count in counts.items() for _ in range(count)])
    loops = pairs[:, 0] == pairs[:, 1]
    arcs = np.concatenate([pairs, pairs[~loops, ::-1]])
    return arcs[np.lexsort(arcs.T)]


def require_graph(root: Path, model: Model, shares: list[Share]) -> None:
    """The data set is the graph that the acknowledged updates make."""
    graph = oc.open(root)
    rows = {node: row for share in shares for node, row in share.rows.items()}
    removed = {node for share in shares for node in share.removed}
    joined = [node for share in shares for node in share.joined]
    assert graph.num_nodes == NODES + len(joined) + len(removed)
    there = np.setdiff1d(np.arange(graph.num_nodes), list(removed))
    expected = np.array([rows[node] if node in rows else model.x[node] for node in there])
    np.testing.assert_array_equal(graph.array("x")[there], expected.astype(np.float32))
    offsets = graph.array("offsets").astype(np.int64)
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(offsets))
    found = np.stack([graph.array("sources").astype(np.int64), targets], axis=1)
    found = found[np.lexsort(found.T)]
    counts: Counter[tuple[int, int]] = sum((share.counts for share in shares), Counter())
    np.testing.assert_array_equal(found, arcs_of(counts))


def files_of(root: Path) -> set[str]:
    return {str(file.relative_to(root)) for file in root.rglob("*") if file.is_file()}


def require_no_other_files(root: Path) -> None:
    """Old arrays, old segments and temporary files are gone."""
    arrays = {entry["file"] for entry in oc.open(root).manifest["arrays"].values()}
    others = {file for file in files_of(root) if file not in arrays}
    segments = {file for file in others if file.startswith("live/") and file.endswith(".log")}
    assert len(segments) == 1, segments
    assert others - segments == {"graph.json", "live/end"}, others


def periods(samples: list[Sample]) -> list[list[Sample]]:
    """The samples of each fifth of the time."""
    found: list[list[Sample]] = [[] for _ in range(PERIODS)]
    for sample in samples:
        found[min(int(sample.at * PERIODS / SECONDS), PERIODS - 1)].append(sample)
    return found


def require_flat(samples: list[Sample]) -> None:
    """Neither memory nor files nor threads grow, and the backlog comes down again and again."""
    _, second, *_, last = periods(samples)

    def middle(of: list[Sample], name: str) -> float:
        return median(getattr(sample, name) for sample in of)

    before, after = middle(second, "resident"), middle(last, "resident")
    assert after <= before * (1 + GROWTH) + NOISE, f"resident memory {before} grew to {after}"
    for name in ("files", "threads"):
        before, after = middle(second, name), middle(last, name)
        assert after <= before + 2, f"{name}: {before} grew to {after}"
    # One that is never worked off would be three times as large after three times as long.
    for name in ("backlog", "log", "changes"):
        before, after = middle(second, name), middle(last, name)
        assert after <= 2 * before, f"{name}: {before} grew to {after}"
    released = max(one.changes - next_one.changes for one, next_one in pairwise(samples))
    most = max(one.changes for one in samples)
    assert released > most / 2, f"of {most} bytes for changes {released} were released at most"


def report(load: Load) -> str:
    """What `pytest -s` shows."""
    lines = [
        "",
        f"{SECONDS:.0f} s, {load.updates} updates, {load.refused} refused, "
        f"{load.samples[-1].folds} folds, opened {load.opened} times",
    ]
    for kind, times in load.times.items():
        p50, p99 = np.percentile(times, [50, 99]) * 1e3
        lines.append(f"{kind}: {len(times)} requests, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    names = "| until, s | RSS, MiB | files | threads | backlog | changes, KiB | log, KiB |"
    lines += ["medians, and the highest backlog, changes and log:", names, "|---:" * 7 + "|"]
    for some in filter(None, periods(load.samples)):
        resident, files, threads = (
            median(getattr(s, name) for s in some) for name in ("resident", "files", "threads")
        )
        backlog, changes, log = (
            max(getattr(s, name) for s in some) for name in ("backlog", "changes", "log")
        )
        cells = f"{some[-1].at:.0f} | {resident / (1 << 20):.1f} | {files:.0f} | {threads:.0f}"
        lines.append(f"| {cells} | {backlog} | {changes >> 10} | {log >> 10} |")
    return "\n".join(lines)


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_a_served_graph_withstands_readers_and_writers_at_once(tmp_path: Path) -> None:
    root = tmp_path / "graph"
    model = random_model(1, undirected=True, nodes=NODES, edges=EDGES)
    run = trained(model.write(root), "sage", tmp_path / "sage")
    # Else the server's process would do it, with PyTorch in its memory.
    export_model(run)
    shares = shares_of(model)
    with serving(root, run) as server:
        load = Load(server["url"], server["grpc"], "sage", server["process"], root, shares, NODES)
        load.run(SECONDS)
        if load.samples:
            print(report(load))  # noqa: T201 - the summary is for whoever runs it by hand
        if load.failures:
            raise load.failures[0]
        with oc.Client(load.url, "sage") as client:
            compacted, graph = client.compact(), client.graph()
        assert compacted == graph["compacted_lsn"] == graph["lsn"] == load.lsn
        assert log_bytes(root) < 1 << 10
    assert json.loads(outercore("check", root, "--json"))["sound"]
    require_graph(root, model, shares)
    require_no_other_files(root)
    assert load.samples[-1].folds > 0
    if SECONDS >= 60:
        require_flat(load.samples)
