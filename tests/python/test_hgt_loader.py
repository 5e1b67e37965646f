"""`HGTLoader` gives the batches of the slow sampler, whatever makes them."""

from __future__ import annotations

import pickle
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData

import outercore as oc
from fakes import planted
from outercore.data.csc import csc, edge_rows
from slow_sampler import SlowBatch, SlowGraph, sample_hgt
from typed_fakes import COUNTS, planted_types

SAMPLES = {
    "author": [6, 4],
    "institution": [3, 9],
    "paper": [5, 8],
    "topic": [2, 0],
    "venue": [0, 0],
}
ALIKE = {name: [5, 5] for name in COUNTS}
WAYS = (
    {"memory": "64MiB", "threads": 1},
    {"memory": "6MiB", "threads": 3, "topology": "paged", "backend": "threads"},
    {"memory": "16MiB", "threads": 2, "topology": "paged", "constant_share": 0.0, "group": 1},
)
"""Budgets, back ends and threads that must not matter."""


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> tuple[oc.Graph, SlowGraph]:
    graph = oc.open(planted_types(tmp_path_factory.mktemp("typed") / "graph"))
    return graph, _slow(graph)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> tuple[oc.Graph, SlowGraph]:
    graph = oc.open(planted(tmp_path_factory.mktemp("plain") / "graph"))
    return graph, _slow(graph)


def _slow(graph: oc.Graph) -> SlowGraph:
    edges = {}
    for edge_type in graph.edge_types:
        offsets, sources = csc(graph, edge_type)
        rows = edge_rows(graph, edge_type)
        assert rows is not None
        pairs = list(zip(sources.tolist(), rows.tolist(), strict=True))
        edges[edge_type] = [pairs[start:end] for start, end in pairwise(offsets.tolist())]
    return SlowGraph(dict(graph.node_types), edges)


def _found(batch: HeteroData | Data, graph: oc.Graph) -> SlowBatch:
    """A batch as the slow sampler writes it."""
    one_type = isinstance(batch, Data)
    stores = {name: batch if one_type else batch[name] for name in graph.node_types}
    edges = {one: batch if one_type else batch[one] for one in graph.edge_types}
    return SlowBatch(
        {name: store.n_id.tolist() for name, store in stores.items()},
        {name: [0] * len(store.n_id) for name, store in stores.items()},
        {
            one: [tuple(pair) for pair in store.edge_index.T.tolist()]
            for one, store in edges.items()
        },
        {one: store.e_id.tolist() for one, store in edges.items()},
    )


@pytest.mark.parametrize("num_samples", [[7, 5], SAMPLES, [3], [-1, 2]], ids=str)
def test_a_batch_is_that_of_the_slow_sampler_however_it_is_made(
    typed: tuple[oc.Graph, SlowGraph], num_samples: list[int] | dict[str, list[int]]
) -> None:
    graph, slow = typed
    nodes = np.random.default_rng(3).permutation(COUNTS["paper"])[:30]
    by_type = isinstance(num_samples, dict)
    numbers = num_samples if by_type else dict.fromkeys(COUNTS, num_samples)
    # The slow sampler takes as many as there are.
    numbers = {name: [10**6 if n == -1 else n for n in of] for name, of in numbers.items()}
    for way in WAYS:
        with oc.HGTLoader(
            graph, num_samples, ("paper", nodes), batch_size=8, seed=5, **way
        ) as loader:
            for epoch in range(2):
                batches = list(loader)
                assert len(batches) == 4
                for number, batch in enumerate(batches):
                    seeds = [("paper", int(node)) for node in nodes[8 * number : 8 * number + 8]]
                    expected = sample_hgt(slow, seeds, numbers, seed=5, epoch=epoch, batch=number)
                    assert _found(batch, graph) == expected, (way, epoch, number)


@pytest.mark.parametrize("topology", ["resident", "paged"])
def test_a_graph_of_one_type_is_sampled_by_the_same_definition(
    plain: tuple[oc.Graph, SlowGraph], topology: str
) -> None:
    graph, slow = plain
    loader = oc.HGTLoader(graph, [9, 6], np.arange(12), batch_size=12, topology=topology)
    batch = next(iter(loader))
    seeds = [("node", node) for node in range(12)]
    expected = sample_hgt(slow, seeds, {"node": [9, 6]}, seed=0, epoch=0, batch=0)
    assert _found(batch, graph) == expected
    assert batch.num_sampled_nodes == [12, 9, 6]
    assert batch.num_sampled_edges == [batch.num_edges]


def test_a_batch_has_what_pyg_gives_it(typed: tuple[oc.Graph, SlowGraph]) -> None:
    graph, _ = typed
    mask = torch.zeros(COUNTS["paper"], dtype=torch.bool)
    mask[::3] = True
    loader = oc.HGTLoader(
        graph,
        num_samples={key: [16] * 2 for key in graph.node_types},
        batch_size=10,
        input_nodes=("paper", mask),
        shuffle=True,
        num_workers=2,
        persistent_workers=True,
        transform=lambda batch: batch,
    )
    seen = []
    for batch in loader:
        assert isinstance(batch, HeteroData)
        papers = batch["paper"]
        assert papers.batch_size == 10
        assert torch.equal(papers.input_id, papers.n_id[:10])
        assert torch.equal(papers.y, torch.from_numpy(graph.array("nodes/paper/y"))[papers.n_id])
        for name in ("paper", "topic", "venue"):
            rows = graph.rows(f"nodes/{name}/x", batch[name].n_id.numpy())
            assert torch.equal(batch[name].x, torch.from_numpy(rows))
        assert batch["author"].num_sampled_nodes[0] == 0
        assert all(sum(store.num_sampled_nodes) == store.num_nodes for store in batch.node_stores)
        seen += papers.input_id.tolist()
    assert sorted(seen) == list(range(0, COUNTS["paper"], 3))


def test_a_pickled_loader_gives_the_same_batches(typed: tuple[oc.Graph, SlowGraph]) -> None:
    graph, _ = typed
    loader = oc.HGTLoader(graph, [4, 4], "train", batch_size=16)
    copy = pickle.loads(pickle.dumps(loader))
    for batch, other in zip(loader, copy, strict=True):
        assert _found(batch, graph) == _found(other, graph)


def test_links_are_sampled_by_hgt_too(typed: tuple[oc.Graph, SlowGraph]) -> None:
    graph, slow = typed
    writes = ("author", "writes", "paper")
    links = np.array([[3, 1, 5], [20, 20, 8]])
    loader = oc.LinkNeighborLoader(graph, [5, 5], (writes, links), batch_size=3, method="hgt")
    seeds = [("author", 3), ("author", 1), ("author", 5), ("paper", 20), ("paper", 8)]
    expected = sample_hgt(slow, seeds, ALIKE, seed=0, epoch=0, batch=0)
    assert _found(next(iter(loader)), graph) == expected


@pytest.mark.parametrize(
    ("num_samples", "options", "why"),
    [
        ({"paper": [3]}, {}, "num_samples: no numbers for node type 'author'"),
        ({**SAMPLES, "reader": [1, 1]}, {}, "num_samples: node type 'reader' is not in the graph"),
        ({**SAMPLES, "venue": [1]}, {}, r"num_samples: \[1, 2\] hops"),
        (7, {}, "num_samples: expected a list with a number per hop"),
        ([-2], {}, "number -2 is out of range"),
        ([3], {"replace": True}, "HGT sampling takes each node at most once"),
        ([3], {"disjoint": True}, "HGT sampling shares neighbours"),
    ],
)
def test_what_cannot_be_sampled_is_refused(
    typed: tuple[oc.Graph, SlowGraph], num_samples: object, options: dict, why: str
) -> None:
    with pytest.raises(oc.InvalidError, match=why):
        list(oc.HGTLoader(typed[0], num_samples, "train", **options))


def test_weights_and_times_are_refused(tmp_path: Path) -> None:
    graph = oc.open(planted_types(tmp_path / "timed", timed=True))
    for option, why in (("weight_attr", "take no weights"), ("time_attr", "disjoint seeds")):
        with pytest.raises(oc.InvalidError, match=why):
            list(oc.HGTLoader(graph, [3], "train", **{option: "time"}))
