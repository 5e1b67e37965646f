"""A small bibliography: written as tables, imported, and as input of the reference sampler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

import outercore as oc
import reference
from outercore.importing.build.graph import import_graph
from outercore.importing.inputs import TypedInputs
from outercore.importing.options import ImportOptions
from outercore.importing.splits import SplitChoice
from outercore.importing.typed_graph import open_typed
from reference import Csc, EdgeType

COUNTS = {"author": 2_000, "paper": 3_000, "topic": 40, "venue": 9}
EDGES = {
    ("author", "reviews", "paper"): 4_000,
    ("author", "writes", "paper"): 12_000,
    ("paper", "cites", "paper"): 18_000,
    ("paper", "in", "venue"): 3_000,
    ("topic", "of", "paper"): 5_000,
    ("venue", "invites", "author"): 1_000,
}
"""Two edge types have the same ends; no edge goes to a topic."""


@dataclass
class Bibliography:
    """The data set, and all data to compute its batches by definition."""

    root: Path
    features: dict[str, NDArray[Any]]
    labels: NDArray[np.int64]
    splits: dict[str, NDArray[np.int64]]
    weights: NDArray[np.float64]
    edges: dict[EdgeType, Csc]

    def batches(
        self,
        seed_type: str,
        seeds: NDArray[np.int64],
        num_neighbors: Sequence[int] | Mapping[EdgeType, Sequence[int]],
        *,
        batch_size: int,
        seed: int,
        epoch: int,
        shuffle: bool,
        replace: bool = False,
    ) -> Iterator[tuple[reference.TypedReferenceBatch, NDArray[np.int64]]]:
        """The batches of an epoch by definition, with the positions of each batch's seeds."""
        fan_outs = (
            num_neighbors
            if isinstance(num_neighbors, Mapping)
            else dict.fromkeys(self.edges, num_neighbors)
        )
        places = np.arange(len(seeds))
        for batch in range(-(-len(seeds) // batch_size)):
            own = reference.batch_seeds(
                places, batch, batch_size, shuffle=shuffle, seed=seed, epoch=epoch
            )
            sampled = reference.sample_typed_batch(
                COUNTS,
                self.edges,
                seed_type,
                seeds[own],
                fan_outs,
                replace=replace,
                seed=seed,
                epoch=epoch,
                batch=batch,
            )
            yield sampled, own


def bibliography(place: Path, types: Mapping[str, tuple[int, str]], seed: int = 5) -> Bibliography:
    """Imports papers, authors, topics and venues; `types` are width and type of features."""
    random = np.random.default_rng(seed)
    place.mkdir(parents=True, exist_ok=True)
    features = {}
    for name, (width, dtype) in types.items():
        values = random.normal(size=(COUNTS[name], width)) * 20
        features[name] = values.astype(dtype)
        np.save(place / f"{name}.npy", features[name])
    nodes = [f"{name}={place}/{name}.npy" for name in types]
    founded = random.integers(1900, 2020, size=COUNTS["venue"])
    if "venue" not in types:
        _venues(place / "venues.parquet", founded)
        nodes.append(f"venue={place}/venues.parquet:key")
    nodes += [
        f"{name}={COUNTS[name]}" for name in ("author", "paper", "topic") if name not in types
    ]
    classes = random.integers(4, size=COUNTS["paper"])
    np.save(place / "labels.npy", classes)
    order = random.permutation(COUNTS["paper"]).astype(np.int64)
    splits = {"train": order[:150], "valid": order[150:250], "test": order[250:]}
    for name, ids in splits.items():
        np.save(place / f"{name}.npy", ids)
    ends, files, weights = _edges(place, random, keys="venue" not in types)
    options = ImportOptions(memory="64MiB")
    inputs = TypedInputs(
        nodes=tuple(nodes),
        edges=tuple(files),
        label=f"paper={place}/labels.npy",
        splits=SplitChoice.parse([f"{name}={place}/{name}.npy" for name in splits]),
    )
    import_graph(open_typed(inputs, options), place / "graph", options)
    edges = {
        edge_type: _csc(come, to, COUNTS[edge_type[2]]) for edge_type, (come, to) in ends.items()
    }
    return Bibliography(place / "graph", features, classes, splits, weights, edges)


def _venues(path: Path, founded: NDArray[np.int64]) -> None:
    days = pa.array([f"{year}-01-01" for year in founded]).cast(pa.date32())
    keys = [f"venue {row}" for row in range(len(founded))]
    pq.write_table(pa.table({"key": keys, "founded": days}), path)


def _edges(
    place: Path, random: np.random.Generator, *, keys: bool
) -> tuple[dict[EdgeType, tuple[NDArray, NDArray]], list[str], NDArray[np.float64]]:
    ends, files, weights = {}, [], random.normal(size=EDGES["paper", "cites", "paper"])
    for edge_type, count in EDGES.items():
        source, relation, target = edge_type
        come = random.integers(COUNTS[source], size=count)
        # Some targets have many edges; the last tenth is without edges.
        to = (COUNTS[target] * 0.9 * random.random(count) ** 2).astype(np.int64)
        ends[edge_type] = come, to
        columns: dict[str, Any] = {"from": come, "to": to}
        if keys:
            columns = {"from": _named(source, come), "to": _named(target, to)}
        if relation == "cites":
            columns["weight"] = weights
        path = place / f"{relation}.parquet"
        pq.write_table(pa.table(columns), path)
        files.append(f"{','.join(edge_type)}={path}:from,to")
    return ends, files, weights


def _named(node_type: str, rows: NDArray[np.int64]) -> Any:
    return [f"venue {row}" for row in rows] if node_type == "venue" else rows


def _csc(come: NDArray[np.int64], to: NDArray[np.int64], targets: int) -> Csc:
    rows = np.arange(len(to))
    order = np.lexsort((rows, come, to))
    return np.append(0, np.cumsum(np.bincount(to, minlength=targets))), come[order], rows[order]


def assert_equal(
    batch: Any,
    expected: tuple[reference.TypedReferenceBatch, NDArray[np.int64]],
    data: Bibliography,
    seed_type: str = "paper",
) -> None:
    """Asserts that a batch of the loader equals the expected batch, with all its arrays."""
    sampled, places = expected
    assert batch.node_types == sorted(COUNTS)
    assert batch.edge_types == sorted(EDGES, key="__".join)
    assert batch[seed_type].batch_size == len(places)
    assert batch[seed_type].input_id.tolist() == places.tolist()
    for name, n_id in sampled.n_id.items():
        store = batch[name]
        assert store.n_id.tolist() == n_id.tolist(), name
        assert store.num_nodes == len(n_id)
        assert list(store.num_sampled_nodes) == sampled.num_sampled_nodes[name], name
        assert ("x" in store) == (name in data.features), name
        if name in data.features:
            x = data.features[name][n_id].astype(np.float32)
            np.testing.assert_array_equal(store.x.numpy(), x, name)
    assert batch["paper"].y.tolist() == data.labels[sampled.n_id["paper"]].tolist()
    for edge_type in EDGES:
        store = batch[edge_type]
        assert store.edge_index[0].tolist() == sampled.row[edge_type].tolist(), edge_type
        assert store.edge_index[1].tolist() == sampled.col[edge_type].tolist(), edge_type
        assert store.e_id.tolist() == sampled.e_id[edge_type].tolist(), edge_type
        assert list(store.num_sampled_edges) == sampled.num_sampled_edges[edge_type], edge_type
    cites = batch["paper", "cites", "paper"]
    np.testing.assert_array_equal(cites.edge_weight.numpy(), data.weights[cites.e_id.numpy()])


def opened(data: Bibliography) -> oc.Graph:
    """The data set."""
    return oc.open(data.root)
