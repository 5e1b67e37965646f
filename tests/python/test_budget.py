"""A budget is a promise: what loading takes beside PyTorch stays within it and a small constant."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outercore as oc
from outercore import _native

MIB = 1 << 20

CONSTANT = 48 * MIB
"""What a process takes beside the budget: thread stacks, and freed memory that the allocator keeps
for each thread."""

CHILD = """
import itertools, json, sys
import outercore as oc

def status(field):
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) << 10 for line in lines if line.startswith(field))

def load(path, memory, topology, kind, fan_outs, batch_size, batches, features="x", arrays=()):
    loader = getattr(oc, kind)(
        oc.open(path), fan_outs, "train", batch_size=batch_size, shuffle=True, memory=memory,
        topology=topology, edge_ids=False, threads=2, features=features,
        labels="y" if features else None, arrays=arrays,
    )
    plan = loader.plan()
    rows = sum(batch.num_nodes for batch in itertools.islice(loader, batches))
    loader.close()
    return {"rows": rows, "plan": plan}

tiny, graph, memory, topology, work = sys.argv[1:]
work = json.loads(work)
load(tiny, "64MiB", "auto", work["kind"], [5, 5], 128, 150)
before = status("VmRSS")
open("/proc/self/clear_refs", "w").write("5")
result = load(graph, memory, topology, **work)
print(json.dumps({**result, "peak": status("VmHWM") - before}))
"""


def silent(phase: str, done: int, total: int, unit: str) -> None:
    pass


def planted(out: Path, nodes: int, degree: int, features: int) -> Path:
    shape = {"nodes": nodes, "degree": degree, "features": features, "classes": 4, "seed": 1}
    _native.generate("planted", out, {**shape, "memory": 64 * MIB}, silent)
    return out


SMALL = {"kind": "NeighborLoader", "fan_outs": [5, 5], "batch_size": 128, "batches": 150}

LARGE = {"kind": "NeighborLoader", "fan_outs": [15, 10], "batch_size": 1024, "batches": 40}


def measure(tiny: Path, graph: Path, memory: int, topology: str, work: dict | None = None) -> dict:
    if not Path("/proc/self/clear_refs").exists():
        pytest.skip("peak memory is read from /proc")
    arguments = [tiny, graph, str(memory), topology, json.dumps(work or SMALL)]
    child = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", CHILD, *arguments],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(child.stdout)


def bytes_of(root: Path, *names: str) -> int:
    return sum((root / f"{name}.npy").stat().st_size for name in names)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return planted(tmp_path_factory.mktemp("budget") / "tiny", 2000, 8, 8)


def test_features_of_ten_budgets(tiny: Path, tmp_path: Path) -> None:
    memory = 24 * MIB
    graph = planted(tmp_path / "wide", 500_000, 6, 128)
    assert bytes_of(graph, "nodes/node/x") > 10 * memory
    found = measure(tiny, graph, memory, "auto")
    assert found["peak"] < memory + CONSTANT, found


def test_topology_and_features_of_ten_budgets_together(tiny: Path, tmp_path: Path) -> None:
    memory = 24 * MIB
    graph = planted(tmp_path / "both", 500_000, 50, 80)
    topology = bytes_of(graph, "edges/edge/offsets", "edges/edge/sources", "edges/edge/ids")
    assert topology > 5 * memory
    assert topology + bytes_of(graph, "nodes/node/x") > 10 * memory
    found = measure(tiny, graph, memory, "auto")
    assert not found["plan"]["topology"]["resident"]
    assert found["peak"] < memory + CONSTANT, found


@pytest.mark.slow
def test_edge_features_of_ten_budgets(tiny: Path, tmp_path: Path) -> None:
    """And node arrays of three dimensions beside them."""
    memory = 32 * MIB
    graph = oc.open(planted(tmp_path / "edges", 300_000, 12, 16))
    random = np.random.default_rng(0)
    graph.add_edge_array("attr", random.random((graph.num_edge_rows, 24), dtype=np.float32))
    graph.add_edge_array("weight", random.random(graph.num_edge_rows))
    graph.add_node_array("box", random.random((graph.num_nodes, 4, 8), dtype=np.float32))
    assert bytes_of(graph.root, "edges/edge/attr") > 5 * memory
    for kind in ("NeighborLoader", "NeighborSampler"):
        work = {**SMALL, "kind": kind, "arrays": ["edge_attr", "edge_weight", "box"]}
        found = measure(tiny, graph.root, memory, "auto", work)
        assert found["plan"]["arrays"]["paged"] >= 1
        assert found["peak"] < memory + CONSTANT, found


@pytest.mark.parametrize("kind", ["NeighborLoader", "NeighborSampler"])
def test_batches_of_many_megabytes_each(tiny: Path, tmp_path: Path, kind: str) -> None:
    """Feature rows of some 20 MB a batch, which an allocator would keep once they are freed."""
    memory = 160 * MIB
    graph = planted(tmp_path / "large", 1_200_000, 6, 128)
    assert bytes_of(graph, "nodes/node/x") > 3.5 * memory
    found = measure(tiny, graph, memory, "auto", {**LARGE, "kind": kind})
    assert found["rows"] * 512 > LARGE["batches"] * 16 * MIB, found
    assert found["peak"] < memory + CONSTANT, found


def test_a_topology_of_most_of_the_budget(tiny: Path, tmp_path: Path) -> None:
    """Without features it is resident, and what is sampled fits beside it."""
    graph = planted(tmp_path / "dense", 300_000, 60, 4)
    topology = bytes_of(graph, "edges/edge/offsets", "edges/edge/sources")
    memory = int(topology / 0.8)
    work = {**SMALL, "kind": "NeighborSampler", "features": None}
    found = measure(tiny, graph, memory, "auto", work)
    assert found["plan"]["topology"]["resident"]
    assert found["peak"] < memory + CONSTANT, found
