"""A tiny data set in format 1 written with NumPy, and a naive graph and loader over it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from outercore.base.sizes import parse_size
from outercore.data.schema import Schema
from outercore.errors import BudgetError


def write_npy(path: Path, array: np.ndarray) -> None:
    """A `.npy` whose data starts at byte 4096."""
    path.parent.mkdir(parents=True, exist_ok=True)
    described = (
        f"{{'descr': '{array.dtype.str}', 'fortran_order': False, 'shape': {array.shape}, }}"
    )
    header = described.encode().ljust(4096 - 11) + b"\n"
    with path.open("wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
        file.write(np.ascontiguousarray(array).tobytes())


def write_arrays(root: Path, arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    """Writes the arrays, and returns their entries for the manifest."""
    described = {}
    for key, array in arrays.items():
        write_npy(root / f"{key}.npy", array)
        described[key] = {
            "file": f"{key}.npy",
            "dtype": str(array.dtype),
            "shape": list(array.shape),
            "data_offset": 4096,
            "checksum": checksum(array),
            "external": False,
        }
    return described


def write_graph(
    root: Path,
    source: np.ndarray,
    target: np.ndarray,
    nodes: int,
    *,
    features: np.ndarray,
    labels: np.ndarray,
    splits: dict[str, np.ndarray],
    classes: int | None = None,
    self_loops: str = "keep",
) -> Path:
    """Writes the arcs source -> target as a data set."""
    order = np.lexsort((np.arange(len(source)), source, target))
    offsets = np.zeros(nodes + 1, np.uint64)
    offsets[1:] = np.cumsum(np.bincount(target, minlength=nodes))
    arrays = {
        "edges/edge/offsets": offsets,
        "edges/edge/sources": source[order].astype(np.uint32),
        "edges/edge/ids": order.astype(np.uint32),
        "nodes/node/x": features,
        "nodes/node/y": labels,
        **{f"splits/{name}": ids.astype(np.int64) for name, ids in splits.items()},
    }
    described = write_arrays(root, arrays)
    manifest = {
        "format": "outercore",
        "version": 1,
        "created": "2026-01-01T00:00:00Z",
        "node_types": {"node": {"count": nodes}},
        "edge_types": {
            "edge": {"source": "node", "target": "node", "count": len(source), "undirected": False}
        },
        "arrays": described,
        "roles": {
            "features": "nodes/node/x",
            "labels": "nodes/node/y",
            "splits": {name: f"splits/{name}" for name in splits},
            "classes": classes,
        },
        "provenance": {
            "command": "test",
            "outercore": "0.1.0",
            "inputs": [],
            "options": {"self_loops": self_loops},
        },
    }
    (root / "graph.json").write_text(json.dumps(manifest))
    return root


def checksum(array: np.ndarray) -> str:
    try:
        import xxhash
    except ImportError:
        return "xxh3:0000000000000000"
    return f"xxh3:{xxhash.xxh3_64_hexdigest(np.ascontiguousarray(array).tobytes())}"


def seal(root: Path, key: str) -> None:
    """Updates the checksum of an array in the manifest to the content of its file."""
    manifest = json.loads((root / "graph.json").read_text())
    entry = manifest["arrays"][key]
    data = (root / entry["file"]).read_bytes()[entry["data_offset"] :]
    entry["checksum"] = checksum(np.frombuffer(data, np.uint8))
    # The checksum of the manifest itself.
    manifest.pop("checksum", None)
    (root / "graph.json").write_text(json.dumps(manifest))


def planted(
    root: Path,
    nodes: int = 240,
    degree: int = 6,
    width: int = 8,
    classes: int = 3,
    seed: int = 0,
    *,
    task: str = "classes",
) -> Path:
    """Communities whose members mostly link to each other, with noisy features."""
    random = np.random.default_rng(seed)
    community = random.integers(classes, size=nodes)
    members = [np.flatnonzero(community == index) for index in range(classes)]
    target = np.repeat(np.arange(nodes), random.integers(0, 2 * degree, size=nodes))
    source = random.integers(nodes, size=len(target))
    alike = random.random(len(target)) < 0.8
    for place in np.flatnonzero(alike):
        source[place] = random.choice(members[community[target[place]]])
    centres = random.normal(size=(classes, width))
    features = (centres[community] + 2.0 * random.normal(size=(nodes, width))).astype(np.float32)
    labels: np.ndarray = community.astype(np.int64)
    if task == "labels":
        labels = np.eye(classes, dtype=np.float32)[community]
    if task == "values":
        labels = 5000.0 + 20.0 * community + random.normal(size=nodes)
        labels[random.random(nodes) < 0.1] = np.nan
    shuffled = random.permutation(nodes)
    splits = {
        "train": shuffled[: nodes // 2],
        "valid": shuffled[nodes // 2 : nodes * 3 // 4],
        "test": shuffled[nodes * 3 // 4 :],
    }
    return write_graph(
        root,
        source,
        target,
        nodes,
        features=features,
        labels=labels,
        splits=splits,
        classes=classes if task == "classes" else None,
    )


def fresh_counters() -> dict[str, Any]:
    stage = {"items": 0, "busy_s": 0.0, "starved_s": 0.0, "blocked_s": 0.0}
    reads = {"requests": 0, "bytes": 0, "useful_bytes": 0}
    cache = ("accesses", "distinct", "constant_hits", "dynamic_hits", "misses")
    return {
        "groups": 0,
        **{name: dict(stage) for name in ("sample", "fetch", "assemble")},
        **{name: dict(reads) for name in ("feature_reads", "topology_reads")},
        "cache": dict.fromkeys(cache, 0),
    }


class FakeGraph:
    """The attributes and methods of `oc.Graph` that training uses, with all data in memory."""

    is_typed = False

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.manifest: dict[str, Any] = json.loads((self.root / "graph.json").read_text())
        self.schema = Schema(self.manifest)
        self.arrays = self.schema.arrays
        self.num_nodes: int = self.manifest["node_types"]["node"]["count"]
        self.num_edges: int = self.manifest["edge_types"]["edge"]["count"]
        self.node_types = {"node": self.num_nodes}
        self.edge_types = [("node", "edge", "node")]
        self.num_features: int = self.manifest["arrays"]["nodes/node/x"]["shape"][1]
        self.num_classes: int | None = self.manifest["roles"]["classes"]
        self.splits = list(self.manifest["roles"]["splits"])
        self.offsets = self._load("edges/edge/offsets").astype(np.int64)
        self.sources = self._load("edges/edge/sources").astype(np.int64)
        self.ids = self._load("edges/edge/ids").astype(np.int64)

    def _load(self, key: str) -> np.ndarray:
        return np.load(self.root / self.manifest["arrays"][key]["file"])

    def array(self, name: str) -> np.ndarray:
        return self._load(f"nodes/node/{name}")

    def split(self, name: str) -> np.ndarray:
        return self._load(self.manifest["roles"]["splits"][name])

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        return self.array(name)[ids]


@dataclass
class FakeLoader:
    """The results of `oc.NeighborLoader`, node by node."""

    graph: FakeGraph
    num_neighbors: list[int]
    input_nodes: str | np.ndarray | None = None
    batch_size: int = 1
    memory: str | int = "1GiB"
    shuffle: bool = False
    replace: bool = False
    seed: int = 0
    features: str | None = "x"
    labels: str | None = "y"
    far: Any = None
    backend: str = "auto"
    threads: int | None = None
    topology: str = "auto"
    policy: str = "window"
    precision: str = "exact"
    hotness: str | None = "presample"
    edge_ids: bool = True
    drop_last: bool = False
    transform: Callable[[Any], Any] | None = None
    least_memory: int = 1
    memory_per_seed: int = 0
    memory_per_node: int = 0
    _epoch: int = 0
    _first: int = 0
    _counters: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.input_nodes is None:
            self._input = np.arange(self.graph.num_nodes)
        elif isinstance(self.input_nodes, str):
            self._input = self.graph.split(self.input_nodes)
        else:
            self._input = np.asarray(self.input_nodes)
        self._x = None
        if self.features is not None:
            path = Path(self.features)
            self._x = np.load(path) if path.suffix == ".npy" else self.graph.array(self.features)
        self._y = None if self.labels is None else self.graph.array(self.labels)
        self._counters = fresh_counters()

    def __len__(self) -> int:
        return -(-len(self._input) // self.batch_size)

    def set_epoch(self, epoch: int) -> None:
        self._epoch, self._first = epoch, 0

    def seek(self, batch: int) -> None:
        self._first = batch

    def counters(self) -> dict[str, Any]:
        counters, self._counters = self._counters, fresh_counters()
        span = {"stage": "sample", "item": 0, "start_s": 0.0, "end_s": 0.001}
        return {"counters": counters, "timeline": [span], "timeline_dropped": 0, "hit_ratio": 0.5}

    def plan(self) -> dict[str, Any]:
        least = max(self.least_memory, self.memory_per_seed * self.batch_size)
        if parse_size(self.memory) < least:
            raise BudgetError(f"budget {self.memory}: at least {least} is needed")
        return {
            "budget": parse_size(self.memory),
            "reserved": 1000,
            "topology": {"resident": 2000},
            "staging": 500,
            "sampled": 700,
            "delivered": 800,
            "slots": 3000,
        }

    def close(self) -> None:
        self._x = self._y = None

    def __iter__(self) -> Iterator[Any]:
        order = np.arange(len(self._input))
        if self.shuffle:
            order = np.random.default_rng([self.seed, self._epoch]).permutation(order)
        first, self._first = self._first, 0
        for batch in range(first, len(self)):
            places = order[batch * self.batch_size : (batch + 1) * self.batch_size]
            yield self._batch(batch, places)

    def _batch(self, number: int, places: np.ndarray) -> Any:
        import torch
        from torch_geometric.data import Data

        seeds = self._input[places]
        nodes = [int(seed) for seed in seeds]
        local: dict[int, int] = {}
        for place, node in enumerate(nodes):
            local.setdefault(node, place)
        source: list[int] = []
        target: list[int] = []
        ids: list[int] = []
        node_counts, edge_counts = [len(nodes)], []
        frontier = range(len(nodes))
        for hop, fanout in enumerate(self.num_neighbors):
            before_nodes, before_edges = len(nodes), len(source)
            for place in frontier:
                for position in self._pick(number, hop, nodes[place], fanout):
                    neighbour = int(self.graph.sources[position])
                    if neighbour not in local:
                        local[neighbour] = len(nodes)
                        nodes.append(neighbour)
                    source.append(local[neighbour])
                    target.append(place)
                    ids.append(int(self.graph.ids[position]))
            frontier = range(before_nodes, len(nodes))
            node_counts.append(len(nodes) - before_nodes)
            edge_counts.append(len(source) - before_edges)
        n_id = np.asarray(nodes, np.int64)
        if parse_size(self.memory) < self.memory_per_node * len(nodes):
            raise BudgetError(f"batch {number} has {len(nodes)} nodes, too many for the budget")
        data = Data(
            x=None if self._x is None else torch.from_numpy(self._x[n_id]),
            y=None if self._y is None else torch.from_numpy(self._y[n_id]),
            edge_index=torch.tensor([source, target], dtype=torch.int64).view(2, -1),
            n_id=torch.from_numpy(n_id),
            e_id=torch.tensor(ids, dtype=torch.int64),
            input_id=torch.from_numpy(places),
            batch_size=len(seeds),
            num_sampled_nodes=node_counts,
            num_sampled_edges=edge_counts,
        )
        self._counters["feature_reads"]["requests"] += len(nodes)
        self._counters["feature_reads"]["bytes"] += 4096 * len(nodes)
        self._counters["cache"]["accesses"] += 2 * len(nodes)
        self._counters["cache"]["misses"] += len(nodes)
        self._counters["sample"]["items"] += 1
        self._counters["sample"]["busy_s"] += 0.001
        return data if self.transform is None else self.transform(data)

    def _pick(self, batch: int, hop: int, node: int, fanout: int) -> np.ndarray:
        first, last = self.graph.offsets[node], self.graph.offsets[node + 1]
        degree = int(last - first)
        if fanout < 0 or (fanout >= degree and not self.replace):
            return np.arange(first, last)
        random = np.random.default_rng([self.seed, self._epoch, batch, hop, node])
        if self.replace:
            return first + random.integers(degree, size=fanout if degree else 0)
        return first + np.sort(random.choice(degree, fanout, replace=False))
