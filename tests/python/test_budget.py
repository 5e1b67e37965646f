"""A budget is a promise: what loading takes beside PyTorch stays within it and a small constant."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

import outercore as oc
from outercore import _core
from outercore.cli import run
from peaks import Peaks, available, peaks
from typed_fakes import write_typed

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
    _core.generate_planted(out, {**shape, "memory": 64 * MIB}, silent)
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


SMALLEST = 24
BATCHES = {"batch_size": 128, "num_neighbors": [5, 3], "input_nodes": "train", "shuffle": True}
LINKS = {"batch_size": 128, "num_neighbors": [5, 3], "shuffle": True}
MODEL = "--model sage --hidden 8 --fanout 5 --batch-size 256 --epochs 1"


@dataclass(frozen=True)
class Case:
    """A loader with its options, or a command, within a budget in MiB.

    `DATA` in a text is the directory with the data sets: large ones, or tiny ones to begin with.
    """

    work: str
    budget: int = SMALLEST
    options: dict[str, Any] = field(default_factory=dict)
    """Of a loader."""
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.work.replace("DATA/", "").replace(" ", "-")[:40]

    def asked(self, data: Path, memory: str) -> dict[str, Any]:
        """The work on the data sets in a directory."""
        if " " in self.work:
            words = self.work.replace("DATA", str(data)).replace("MEMORY", f"--memory {memory}")
            return {"command": words.split()}
        options = {"data_set": "graph", "threads": 2, "memory": memory, **self.options}
        options["data_set"] = str(data / options["data_set"])
        arrays = {name: str(data / file) for name, file in options.pop("arrays_of", {}).items()}
        return {"loader": self.work, "options": options, "arrays": arrays}


CASES = [
    Case("NeighborLoader", options=BATCHES),
    Case("NeighborSampler", options={**BATCHES, "features": "x", "labels": "y"}),
    Case("NeighborLoader", options={**BATCHES, "replace": True}, name="with-replacement"),
    Case("NeighborLoader", options={**BATCHES, "disjoint": True}, name="disjoint"),
    Case("NeighborLoader", options={**BATCHES, "method": "labor"}, name="labor"),
    Case(
        "NeighborLoader",
        options={**BATCHES, "method": "ladies", "num_neighbors": [64, 64]},
        name="ladies",
    ),
    Case("NeighborLoader", options={**BATCHES, "weight_attr": "weight"}, name="weighted"),
    Case("NeighborLoader", options={**BATCHES, "subgraph_type": "induced"}, name="induced"),
    Case("NeighborLoader", options={**BATCHES, "subgraph_type": "bidirectional"}, name="both-ways"),
    Case("NeighborLoader", options={**BATCHES, "arrays": ["edge_weight"]}, name="edge-array"),
    Case("NeighborLoader", options={**BATCHES, "data_set": "typed"}, name="typed"),
    Case(
        "HGTLoader",
        48,
        {"num_samples": [1024, 1024], "input_nodes": "train", "batch_size": 512},
    ),
    Case(
        "HGTLoader",
        32,
        {
            "data_set": "typed",
            "num_samples": [128, 128],
            "input_nodes": "train",
            "batch_size": 128,
        },
        name="hgt-typed",
    ),
    Case("LinkNeighborLoader", 120, {**LINKS, "neg_sampling": "binary"}, name="all-links"),
    Case(
        "LinkNeighborLoader",
        32,
        {**LINKS, "neg_sampling": "triplet", "arrays_of": {"edge_label_index": "links.npy"}},
        name="given-links",
    ),
    Case("import DATA/edges.npy --features DATA/x.npy --labels DATA/y.npy --out new MEMORY"),
    Case("import DATA/edges.csv --out text MEMORY"),
    Case("import DATA/facts.parquet --triples --out facts MEMORY"),
    Case("add DATA/graph --array z=DATA/x.npy MEMORY"),
    Case("info DATA/graph"),
    Case("check DATA/graph"),
    Case("convert DATA/graph --to float16"),
    Case("layout DATA/graph --precision int8 MEMORY", 64),
    Case("grid DATA/graph --weights weight MEMORY", 48),
    Case(f"train DATA/graph {MODEL} --out run MEMORY"),
    Case("predict DATA/graph --model DATA/trained --out scores.parquet MEMORY"),
    Case("evaluate DATA/trained MEMORY"),
    Case("export-model DATA/trained --out model"),
    Case("report DATA/trained --out page.html"),
    *(
        Case(f"run {algorithm} DATA/gridded --record none --out found.npy MEMORY")
        for algorithm in (
            *("pagerank", "wcc", "bfs --source 1", "sssp --source 1 --weights weight", "triangles"),
            *("kcore", "label-propagation", "degrees", "scc"),
        )
    ),
    Case("embed DATA/facts --model complex --dim 16 --epochs 1 --out placed MEMORY", 64),
    Case(
        "embed DATA/pairs --model dot --dim 32 --epochs 1 --held-out 0.002 --out placed MEMORY", 144
    ),
]


def made(data: Path, nodes: int, degree: int, width: int) -> Path:
    """One data set of each kind, and files to import, in a new directory."""
    data.mkdir(parents=True)
    random = np.random.default_rng(1)
    shape = f"--nodes {nodes} --degree {degree} --features {width} --splits 0.02,0.01,0.01"
    told(f"generate planted {shape} --out {data}/graph --memory 64MiB")
    graph = oc.open(data / "graph")
    arcs = graph.num_edges
    pairs = random.integers(0, nodes, (arcs // 4, 2))
    np.save(data / "edges.npy", pairs)
    np.save(data / "links.npy", np.ascontiguousarray(pairs.T))
    np.save(data / "x.npy", graph.array("x"))
    np.save(data / "y.npy", graph.array("y"))
    np.save(data / "weight.npy", random.random(graph.num_edge_rows))
    pa_csv.write_csv(_table(pairs, ("source", "target")), data / "edges.csv")
    triples = np.stack([pairs[:, 0], pairs[:, 1] % 7, pairs[:, 1]], axis=1)
    pq.write_table(_table(triples, ("head", "relation", "tail")), data / "facts.parquet")
    told(f"import {data}/facts.parquet --triples --out {data}/facts --memory 64MiB")
    told(f"import {data}/edges.npy --nodes {nodes} --out {data}/pairs --memory 64MiB")
    told(f"add {data}/graph --edge-array weight={data}/weight.npy --memory 64MiB")
    shutil.copytree(data / "graph", data / "gridded")
    told(f"grid {data}/gridded --weights weight --memory 64MiB")
    told(f"train {data}/graph {MODEL} --memory 128MiB --out {data}/trained")
    _typed(data / "typed", nodes, arcs // 4, width)
    return data


def _table(columns: np.ndarray, names: tuple[str, ...]) -> pa.Table:
    return pa.table({name: columns[:, place] for place, name in enumerate(names)})


def _typed(root: Path, nodes: int, edges: int, width: int) -> None:
    """Papers with features, and authors without."""
    random = np.random.default_rng(2)
    counts = {"author": nodes // 2, "paper": nodes}
    types = [("author", "writes", "paper"), ("paper", "cites", "paper")]
    ends = [
        tuple(random.integers(0, counts[end], edges) for end in (one[0], one[2])) for one in types
    ]
    arrays = {
        "nodes/paper/x": random.random((nodes, width), dtype=np.float32),
        "nodes/paper/y": random.integers(0, 4, nodes),
    }
    chosen = np.split(random.permutation(nodes)[: nodes // 25], [nodes // 50, nodes // 33])
    splits = dict(zip(("train", "valid", "test"), chosen, strict=True))
    write_typed(root, counts, dict(zip(types, ends, strict=True)), arrays, splits, 4)


def told(command: str) -> None:
    assert run(command.split()) == 0, command


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Arrays of 60 to 100 MiB: one of them in memory would be more than a case may take."""
    return made(tmp_path_factory.mktemp("budget") / "large", 200_000, 40, 128)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return made(tmp_path_factory.mktemp("budget") / "small", 2_000, 8, 8)


@pytest.fixture(scope="module")
def measured() -> Iterator[Peaks]:
    if not available():
        pytest.skip("peak memory is read from /proc")
    with peaks() as started:
        yield started


@pytest.mark.timeout(600)  # The first one makes the data sets.
@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_loader_or_command_stays_within_its_budget(
    measured: Peaks, large: Path, small: Path, tmp_path: Path, case: Case
) -> None:
    """Also one that takes no `--memory`: what it reads is a stream."""
    data, few = linked(large, tmp_path / "large"), linked(small, tmp_path / "small")
    work, tiny = case.asked(data, f"{case.budget}MiB"), case.asked(few, "64MiB")
    found = measured.of(work, tiny, tmp_path)
    assert found["peak"] < case.budget * MIB + CONSTANT, found


def linked(data: Path, to: Path) -> Path:
    """The same files in another directory, where a command may put others in their place."""
    shutil.copytree(data, to, copy_function=os.link)
    return to
