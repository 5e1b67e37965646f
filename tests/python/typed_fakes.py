"""A tiny typed data set written with NumPy, and a naive graph and loader over it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from fakes import FakeLoader, fresh_counters, write_arrays
from outercore.data.edge_types import edge_type_key
from outercore.data.graph import Graph

COUNTS = {"author": 60, "institution": 9, "paper": 90, "topic": 12, "venue": 5}
EDGES = {
    ("author", "writes", "paper"): 260,
    ("institution", "employs", "author"): 80,
    ("paper", "cites", "paper"): 240,
    ("paper", "in", "venue"): 90,
    ("paper", "written_by", "author"): 260,
    ("topic", "of", "paper"): 150,
}
"""Institutions and topics have no in-edges, and venues have no out-edges."""
WIDTHS = {"paper": 8, "topic": 5, "venue": 3}


def planted_types(
    root: Path,
    classes: int = 3,
    seed: int = 0,
    *,
    labelled: bool = True,
    paper_width: int = 8,
    timed: bool = False,
) -> Path:
    """Papers whose authors, references and topics mostly belong to their class.

    With times from 0 to 49 papers, authors and all edges have an array `time`.
    """
    random = np.random.default_rng(seed)
    classes_of = {name: random.integers(classes, size=count) for name, count in COUNTS.items()}
    edges = {}
    for (source, relation, target), count in EDGES.items():
        # The last tenth of the targets is without edges of this type.
        to = random.integers(COUNTS[target] * 9 // 10, size=count)
        come = random.integers(COUNTS[source], size=count)
        for place in np.flatnonzero(random.random(count) < 0.8):
            alike = np.flatnonzero(classes_of[source] == classes_of[target][to[place]])
            come[place] = random.choice(alike)
        edges[source, relation, target] = come, to
    arrays: dict[str, np.ndarray] = {}
    for name, width in {**WIDTHS, "paper": paper_width}.items():
        centres = random.normal(size=(classes, width))
        noise = 1.5 * random.normal(size=(COUNTS[name], width))
        arrays[f"nodes/{name}/x"] = (centres[classes_of[name]] + noise).astype(np.float32)
    if timed:
        for name in ("author", "paper"):
            arrays[f"nodes/{name}/time"] = random.integers(50, size=COUNTS[name])
        for edge_type, count in EDGES.items():
            arrays[f"edges/{edge_type_key(edge_type)}/time"] = random.integers(50, size=count)
    splits = {}
    if labelled:
        arrays["nodes/paper/y"] = classes_of["paper"].astype(np.int64)
        shuffled = random.permutation(COUNTS["paper"]).astype(np.int64)
        splits = {"train": shuffled[:50], "valid": shuffled[50:70], "test": shuffled[70:]}
    return write_typed(root, COUNTS, edges, arrays, splits, classes)


def write_typed(
    root: Path,
    counts: Mapping[str, int],
    edges: Mapping[tuple[str, str, str], tuple[np.ndarray, np.ndarray]],
    arrays: dict[str, np.ndarray],
    splits: dict[str, np.ndarray],
    classes: int,
) -> Path:
    """A data set of nodes by type, and of sources and targets by edge type."""
    names = sorted(counts)
    first = dict(zip(names, np.cumsum([0, *(counts[name] for name in names)]), strict=False))
    columns, sources, ids, rows = [], [], [], 0
    types = {}
    for edge_type in sorted(edges, key=edge_type_key):
        source, _, target = edge_type
        come, to = edges[edge_type]
        order = np.lexsort((np.arange(len(to)), come, to))
        columns.append(np.bincount(to, minlength=counts[target]))
        sources.append(come[order] + first[source])
        ids.append(order + rows)
        rows += len(to)
        types[edge_type_key(edge_type)] = {
            "source": source,
            "target": target,
            "count": len(to),
            "undirected": False,
            "rows": len(to),
        }
    arrays = {
        "edges/edge/offsets": np.append(0, np.cumsum(np.concatenate(columns))).astype(np.uint64),
        "edges/edge/sources": np.concatenate(sources).astype(np.uint32),
        "edges/edge/ids": np.concatenate(ids).astype(np.uint32),
        **arrays,
        **{f"splits/{name}": ids for name, ids in splits.items()},
    }
    described = write_arrays(root, arrays)
    with_features = [key.split("/")[1] for key in arrays if key.endswith("/x")]
    labels = {"labels": "nodes/paper/y"} if "nodes/paper/y" in arrays else {}
    roles = {
        **labels,
        "typed_features": {name: f"nodes/{name}/x" for name in with_features},
        "splits": {name: f"splits/{name}" for name in splits},
        "classes": classes if labels else None,
    }
    manifest = {
        "format": "outercore",
        "version": 4,
        "created": "2026-01-01T00:00:00Z",
        "node_types": {name: {"count": count} for name, count in counts.items()},
        "edge_types": types,
        "arrays": described,
        "roles": roles,
        "provenance": {"command": "test", "outercore": "0.1.0", "inputs": [], "options": {}},
    }
    (root / "graph.json").write_text(json.dumps(manifest))
    return root


class TypedGraph(Graph):
    """`oc.Graph` with all data in memory."""

    def __init__(self, root: str | Path) -> None:
        self.root = Path(root)
        self.offsets = self.array("edges/edge/offsets").astype(np.int64)
        self.sources = self.array("edges/edge/sources").astype(np.int64)
        names = list(self.node_types)
        starts = np.cumsum([0, *self.node_types.values()])
        self.first = dict(zip(names, starts, strict=False))
        columns = np.cumsum([0, *(self.node_types[target] for _, _, target in self.edge_types)])
        self.first_column = dict(zip(self.edge_types, columns, strict=False))

    @cached_property
    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = json.loads((self.root / "graph.json").read_text())
        return manifest

    @property
    def num_nodes(self) -> int:
        return sum(self.node_types.values())

    @property
    def num_edges(self) -> int:
        return len(self.sources)

    def array(self, name: str) -> np.ndarray:
        return np.load(self.root / self.arrays[name]["file"])

    def rows(self, name: str, ids: np.ndarray) -> np.ndarray:
        return self.array(name)[ids]

    def split(self, name: str) -> np.ndarray:
        return self.array(self.manifest["roles"]["splits"][name])

    def arcs(self, edge_type: tuple[str, str, str]) -> np.ndarray:
        """All arcs of an edge type: int64 [2, arcs] of source and target within their types."""
        source, _, target = edge_type
        column = self.first_column[edge_type]
        bounds = self.offsets[column : column + self.node_types[target] + 1]
        come = self.sources[bounds[0] : bounds[-1]] - self.first[source]
        return np.stack([come, np.repeat(np.arange(len(bounds) - 1), np.diff(bounds))])


class TypedLoader(FakeLoader):
    """The results of `oc.NeighborLoader` on a typed graph, node by node."""

    def __post_init__(self) -> None:
        graph: Any = self.graph
        chosen = self.input_nodes
        if isinstance(chosen, str):
            self._seed_type, self._input = graph.labelled_type, graph.split(chosen)
        else:
            self._seed_type, ids = chosen
            self._input = np.arange(graph.node_types[self._seed_type]) if ids is None else ids
        assert self.features is None or isinstance(self.features, dict)
        self._x = {name: _rows(graph, key) for name, key in (self.features or {}).items()}
        self._y = None if self.labels is None else graph.array(f"nodes/paper/{self.labels}")
        self._counters = fresh_counters()

    def _batch(self, number: int, places: np.ndarray) -> Any:
        import torch
        from torch_geometric.data import HeteroData

        graph: Any = self.graph
        seeds = self._input[places]
        nodes: dict[str, list[int]] = {name: [] for name in graph.node_types}
        local: dict[str, dict[int, int]] = {name: {} for name in graph.node_types}
        for place, node in enumerate(map(int, seeds)):
            nodes[self._seed_type].append(node)
            local[self._seed_type].setdefault(node, place)
        edges: dict[Any, list[tuple[int, int]]] = {edge_type: [] for edge_type in graph.edge_types}
        node_counts = {name: [len(ids_of)] for name, ids_of in nodes.items()}
        edge_counts: dict[Any, list[int]] = {edge_type: [] for edge_type in edges}
        frontier = {name: range(len(ids_of)) for name, ids_of in nodes.items()}
        for hop, fanout in enumerate(self.num_neighbors):
            before = {name: len(ids_of) for name, ids_of in nodes.items()}
            for edge_type, arcs in edges.items():
                source, _, target = edge_type
                had = len(arcs)
                for place in frontier[target]:
                    column = graph.first_column[edge_type] + nodes[target][place]
                    for position in self._pick(number, hop, column, fanout):
                        node = int(graph.sources[position] - graph.first[source])
                        if node not in local[source]:
                            local[source][node] = len(nodes[source])
                            nodes[source].append(node)
                        arcs.append((local[source][node], place))
                edge_counts[edge_type].append(len(arcs) - had)
            frontier = {name: range(before[name], len(ids_of)) for name, ids_of in nodes.items()}
            for name, ids_of in nodes.items():
                node_counts[name].append(len(ids_of) - before[name])
        data: Any = HeteroData()
        for name, ids_of in nodes.items():
            ids = np.asarray(ids_of, np.int64)
            data[name].n_id = torch.from_numpy(ids)
            if name in self._x:
                data[name].x = torch.from_numpy(np.asarray(self._x[name][ids], np.float32))
            else:
                data[name].num_nodes = len(ids)
            data[name].num_sampled_nodes = node_counts[name]
            if self._y is not None and name == graph.labelled_type:
                data[name].y = torch.from_numpy(self._y[ids])
        data[self._seed_type].batch_size = len(seeds)
        data[self._seed_type].input_id = torch.from_numpy(places)
        for edge_type, arcs in edges.items():
            index = torch.tensor(arcs, dtype=torch.int64).view(-1, 2).t().contiguous()
            data[edge_type].edge_index = index
            data[edge_type].num_sampled_edges = edge_counts[edge_type]
        return data


def _rows(graph: TypedGraph, key: str) -> np.ndarray:
    return np.load(key) if key.endswith(".npy") else graph.array(key)
