"""What `outercore run` prints: plans, results, counters."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from outercore.analytics.running import COMPONENTS
from outercore.base.durations import format_duration
from outercore.base.sizes import format_size, parse_size
from outercore.cli import console
from outercore.cli.run_largest import largest
from outercore.data.file_ids import names_of_nodes
from outercore.data.graph import Graph
from outercore.data.node_numbers import NodeNumbers

if TYPE_CHECKING:
    from outercore.cli.run_job import Job


def described(done: Any, job: Job, record: Path | None) -> dict[str, Any]:
    """A finished run as JSON has it."""
    return {
        "algorithm": done.algorithm,
        "facts": done.facts,
        "top": [list(pair) for pair in _shown(done, job)],
        "plan": done.plan,
        "counters": done.counters,
        **({} if done.profile is None else {"profile": done.profile}),
        "record": None if record is None else str(record),
    }


def _shown(done: Any, job: Job) -> list[tuple[int | str, float]]:
    """The largest, by the names of nodes where they have some, else by the ids that files have, or
    by type and id."""
    found = largest(done.algorithm, done.values, job.top, parse_size(job.run.memory))
    graph = Graph(job.data_set)
    names = NodeNumbers.of_graph(graph, job.run.relation) or names_of_nodes(graph)
    texts: Sequence[int | str] = names.names(np.array([node for node, _ in found], np.int64))
    return [(text, value) for text, (_, value) in zip(texts, found, strict=True)]


def show(done: Any, job: Job, record: Path | None) -> None:
    """Prints what a run has found and what it has cost."""
    reads, counters = done.counters["reads"], done.counters
    fetched = reads["bytes"] + counters["pinned_bytes"]
    rows = [
        ("time", format_duration(counters["seconds"])),
        ("passes", f"{counters['passes']:,}"),
        ("read", format_size(reads["bytes"])),
        ("from memory", f"{counters['pinned_bytes'] / fetched:.0%}" if fetched else "-"),
    ]
    far = counters.get("far") or {}
    if far:
        rows += [
            ("prepared in", format_duration(counters["prepare_seconds"])),
            ("from far memory", format_size(far["far_bytes"])),
        ]
    kept = {"array": job.save, "file": job.out}
    spilled, checkpoints = counters.get("spill"), counters.get("checkpoints", 0)
    if spilled:
        moved = (format_size(spilled["read"]), format_size(spilled["written"]))
        rows.append(("state in scratch files", f"{moved[0]} read, {moved[1]} written"))
    rows += [("checkpoints", f"{checkpoints:,}")] if checkpoints else []
    rows += [(f"values in {what}", str(name)) for what, name in kept.items() if name is not None]
    rows += [] if record is None else [("record", str(record))]
    facts = [row for row in console.flat(done.facts) if row[1] != "none"]
    console.table(f"{done.algorithm} of {job.data_set}", facts + rows)
    if done.profile is not None:
        console.data("")
        console.table("what the run held, by group", _classes(done.profile))
    nodes = _shown(done, job)
    if nodes:
        console.data("")
        named = done.algorithm in COMPONENTS
        console.table(
            "largest, by smallest node" if named else "largest, by node",
            [(str(node), _number(value) + (" nodes" if named else "")) for node, value in nodes],
        )


def warn(done: Any) -> None:
    """Warnings: the memory server was given up; those of the run."""
    far = done.counters.get("far") or {}
    if far.get("lost"):
        console.note(f"warning: {console.lost(far)}")
    for text in done.warnings:
        console.note(f"warning: {text}")


def _classes(profile: dict[str, Any]) -> list[tuple[str, str]]:
    """Groups 1 to 4 of what a run held (Fargraph+ 5.1)."""
    rows = []
    for held in profile["classes"]:
        reads = "" if held["reads"] is None else f", wanted {held['reads']:,} times"
        local = f", {format_size(held['local'])} of it in memory"
        rows.append(
            (f"{held['group']}  {held['what']}", format_size(held["bytes"]) + local + reads)
        )
    return rows


def _number(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
