"""No array of a user takes the place of what a loader itself puts into a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import outercore as oc
from multigraph import imported
from outercore.data.batch_arrays import BATCH, RESERVED, name_in_storage, own_names
from typed_fakes import planted_types

CITES = ("paper", "cites", "paper")
OF_EDGES = sorted(name.removeprefix("edge_") for name in RESERVED if name.startswith("edge_"))
OTHERS = ("edge_weight", "edge_attr", "keys", "num_features", "adj_t", "pos", "_mapping", "_store")
"""Names of node arrays that PyG knows and that no loader sets."""
COMMON = {"batch_size": 8, "seed": 3, "memory": "32MiB", "threads": 1}
LINKS = {"edge_label_index": np.array([[1, 2, 3, 4], [5, 6, 7, 8]])}
TIMED_LINKS = {**LINKS, "edge_label_time": np.array([20, 30, 40, 49]), "time_attr": "time"}
SEEDS = {"input_nodes": np.arange(8)}
TIMED = {**SEEDS, "input_time": np.arange(20, 28), "time_attr": "time"}

PLAIN: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "neighbor": (oc.NeighborLoader, SEEDS),
    "replace": (oc.NeighborLoader, {**SEEDS, "replace": True, "edge_ids": False}),
    "no features": (oc.NeighborLoader, {**SEEDS, "features": None, "labels": None}),
    "disjoint": (oc.NeighborLoader, {**SEEDS, "disjoint": True}),
    "bidirectional": (oc.NeighborLoader, {**SEEDS, "subgraph_type": "bidirectional"}),
    "induced": (oc.NeighborLoader, {**SEEDS, "subgraph_type": "induced"}),
    "labor": (oc.NeighborLoader, {**SEEDS, "method": "labor"}),
    "weights": (oc.NeighborLoader, {**SEEDS, "weight_attr": "weight"}),
    "ladies": (oc.NeighborLoader, {**SEEDS, "method": "ladies"}),
    "hgt": (oc.HGTLoader, SEEDS),
    "time": (oc.NeighborLoader, TIMED),
    "last": (oc.NeighborLoader, {**TIMED, "temporal_strategy": "last"}),
    "own times": (oc.NeighborLoader, {**SEEDS, "time_attr": "time"}),
    "links": (oc.LinkNeighborLoader, LINKS),
    "labels": (oc.LinkNeighborLoader, {**LINKS, "edge_label": np.arange(4)}),
    "binary": (oc.LinkNeighborLoader, {**LINKS, "neg_sampling": "binary"}),
    "triplet": (oc.LinkNeighborLoader, {**LINKS, "neg_sampling": "triplet"}),
    "both ways": (oc.LinkNeighborLoader, {**LINKS, "subgraph_type": "bidirectional"}),
    "binary by time": (oc.LinkNeighborLoader, {**TIMED_LINKS, "neg_sampling": "binary"}),
    "triplet by time": (oc.LinkNeighborLoader, {**TIMED_LINKS, "neg_sampling": "triplet"}),
}
"""Every kind of batch of a graph with one type."""


def of_types(kind: str) -> tuple[Callable[..., Any], dict[str, Any]]:
    """The same kind of batch of a graph with several types."""
    loader, options = PLAIN[kind]
    options = dict(options)
    for name, of_type in (("input_nodes", "paper"), ("edge_label_index", CITES)):
        if name in options:
            options[name] = (of_type, options[name])
    return loader, options


def with_hostile_arrays(graph: oc.Graph) -> oc.Graph:
    """The graph with arrays under every name that a batch may have, and more."""
    of_type, edge_type = ("paper", CITES) if graph.is_typed else (None, None)
    rows = graph.num_nodes if of_type is None else graph.node_types[of_type]
    for name in sorted((RESERVED | set(OTHERS)) - {"x", "y"}):
        graph.add_node_array(name, np.arange(rows) + 0.25, node_type=of_type)
    entry = graph.manifest["edge_types"]["__".join(CITES) if edge_type else "edge"]
    for name in OF_EDGES:
        rows = entry.get("rows", entry["count"])
        graph.add_edge_array(name, np.arange(rows) + 0.75, edge_type=edge_type)
    graph.reload()
    return graph


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    graph = imported(tmp_path_factory.mktemp("names") / "plain", nodes=60, edges=400)
    random = np.random.default_rng(5)
    graph.add_node_array("time", random.integers(50, size=graph.num_nodes))
    graph.add_edge_array("time", random.integers(50, size=graph.num_edge_rows))
    graph.add_edge_array("weight", random.random(graph.num_edge_rows))
    return with_hostile_arrays(graph)


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = planted_types(tmp_path_factory.mktemp("names") / "typed", timed=True)
    return with_hostile_arrays(oc.open(root))


def first_batch(
    graph: oc.Graph, loader: Callable[..., Any], options: dict[str, Any], arrays: list[str]
) -> Data | HeteroData:
    with loader(graph, [3, 2], **{**COMMON, **options, "arrays": arrays}) as batches:
        return next(iter(batches))


def stored(batch: Data | HeteroData) -> Iterator[tuple[Any, str, Any]]:
    """Everything in a batch with its type and name."""
    for store in batch.stores:
        of_type = getattr(store, "_key", None)
        yield from ((of_type, name, value) for name, value in store.items())


def is_same(left: Any, right: Any) -> bool:
    if isinstance(left, torch.Tensor):
        return isinstance(right, torch.Tensor) and torch.equal(left, right)
    return bool(left == right)


def agrees(graph: oc.Graph, loader: Callable[..., Any], options: dict[str, Any]) -> None:
    """Batches have the names that are declared, and an array never replaces one of them."""
    bare = {
        (of, name): value for of, name, value in stored(first_batch(graph, loader, options, []))
    }
    with loader(graph, [3, 2], **{**COMMON, **options, "arrays": []}) as batches:
        declared = own_names(batches._options, of_links=batches._of_links)
    undeclared = {name for _, name in bare} - declared
    assert not undeclared, f"a batch has names that `own_names` does not declare: {undeclared}"
    if graph.is_typed:
        for of, name in bare:
            own = "edges" if isinstance(of, tuple) else "nodes"
            assert BATCH[name].storage in (own, "seeds", "links"), (of, name)
    of_type, of_edges = ("paper", "__".join(CITES)) if graph.is_typed else ("node", "edge")
    keys = [f"nodes/{of_type}/{name}" for name in sorted((RESERVED | set(OTHERS)) - {"x", "y"})]
    keys += [f"edges/{of_edges}/{name}" for name in OF_EDGES]
    taken = [key for key in keys if name_in_storage(key) in declared]
    for key in taken:
        with pytest.raises(oc.InvalidError, match="something else under the name"):
            first_batch(graph, loader, options, [key])
    free = [key for key in keys if key not in taken]
    nodes = [key for key in free if key.startswith("nodes")]
    for tried in (nodes, [key for key in free if key not in nodes]):
        batch = first_batch(graph, loader, options, tried)
        found = {(of, name): value for of, name, value in stored(batch)}
        for key in tried:
            of = None if not graph.is_typed else CITES if key.startswith("edges") else of_type
            rows = found.pop((of, name_in_storage(key)))
            ids = found.get((of, "e_id" if key.startswith("edges") else "n_id"))
            if ids is not None:
                assert torch.equal(rows, torch.from_numpy(graph.array(key))[ids]), key
        assert found.keys() == bare.keys()
        for where, value in found.items():
            assert is_same(value, bare[where]), f"one of {tried} changes {where}"


@pytest.mark.parametrize("kind", PLAIN)
def test_no_array_replaces_what_a_batch_of_one_type_has(kind: str, plain: oc.Graph) -> None:
    agrees(plain, *PLAIN[kind])


@pytest.mark.parametrize("kind", [kind for kind in PLAIN if kind not in ("weights", "ladies")])
def test_no_array_replaces_what_a_batch_of_several_types_has(kind: str, typed: oc.Graph) -> None:
    agrees(typed, *of_types(kind))


def test_ladies_keeps_its_weights_beside_an_array_of_norms(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph", nodes=60, edges=400)
    options = {**COMMON, **SEEDS, "method": "ladies"}
    wanted = next(iter(oc.NeighborLoader(graph, [3, 2], **options))).edge_norm
    graph.add_edge_array("norm", np.full(graph.num_edge_rows, 7.0))
    with pytest.raises(oc.InvalidError, match="something else under the name `edge_norm`"):
        oc.NeighborLoader(graph, [3, 2], **options)
    found = next(iter(oc.NeighborLoader(graph, [3, 2], **options, arrays=[])))
    assert torch.equal(found.edge_norm, wanted)
    # Where no weights are computed the array is delivered as any other.
    plain = next(iter(oc.NeighborLoader(graph, [3, 2], **COMMON, **SEEDS)))
    assert (plain.edge_norm == 7).all()


def test_edge_arrays_of_a_store_replace_nothing_in_a_batch_of_pyg(tmp_path: Path) -> None:
    graph = imported(tmp_path / "graph", nodes=60, edges=400)
    graph.add_edge_array("label", np.ones(graph.num_edge_rows))
    batch = Data(edge_index=torch.tensor([[0], [1]]), e_id=torch.tensor([0]))
    assert graph.pyg()[0].add_edge_arrays(batch.clone()).edge_label.tolist() == [1]
    batch.edge_label = torch.tensor([5])
    with pytest.raises(oc.InvalidError, match="something else under the name `edge_label`"):
        graph.pyg()[0].add_edge_arrays(batch)
