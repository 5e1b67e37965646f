"""Communities: as good as those of NetworkX, whatever the order of ids, and settled."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import outercore as oc

networkx = pytest.importorskip("networkx")
community = networkx.algorithms.community

SEEDS = range(5)


def numbered(graph: Any) -> Any:
    """The graph with nodes 0, 1, ... in their order, without attributes."""
    other = networkx.Graph()
    other.add_nodes_from(range(len(graph)))
    place = {node: at for at, node in enumerate(graph)}
    other.add_edges_from((place[u], place[v]) for u, v in graph.edges)
    return other


def shuffled(graph: Any, seed: int) -> Any:
    order = np.random.default_rng(seed).permutation(len(graph)).tolist()
    return numbered(networkx.relabel_nodes(graph, dict(enumerate(order))))


GRAPHS = {
    "ring lattice": lambda: networkx.circulant_graph(600, [1, 2, 3]),
    "Watts-Strogatz": lambda: networkx.connected_watts_strogatz_graph(600, 6, 0.1, seed=1),
    "rewired less": lambda: networkx.connected_watts_strogatz_graph(600, 6, 0.03, seed=2),
    "path": lambda: networkx.path_graph(600),
    "grid": lambda: networkx.grid_2d_graph(24, 24),
    "tree": lambda: networkx.balanced_tree(2, 8),
    "caves": lambda: networkx.connected_caveman_graph(40, 6),
    "planted partition": lambda: networkx.planted_partition_graph(8, 30, 0.4, 0.03, seed=7),
    "Barabasi-Albert": lambda: networkx.barabasi_albert_graph(600, 4, seed=1),
    "karate": networkx.karate_club_graph,
    "women": networkx.davis_southern_women_graph,
    "shuffled ring": lambda: shuffled(networkx.circulant_graph(600, [1, 2, 3]), 3),
}


def groups(values: NDArray[np.int64]) -> list[set[int]]:
    return [set(np.flatnonzero(values == label).tolist()) for label in np.unique(values)]


@pytest.mark.parametrize("name", GRAPHS)
def test_louvain_has_the_modularity_of_networkx(name: str, tmp_path: Path) -> None:
    other = numbered(GRAPHS[name]())
    graph = oc.from_networkx(other, tmp_path / "graph")
    found = []
    for seed in SEEDS:
        done = oc.run("louvain", graph, seed=seed)
        found.append(community.modularity(other, groups(done.values)))
        assert done.facts["modularity"] == pytest.approx(found[-1]), f"seed {seed}"
    expected = [
        community.modularity(other, community.louvain_communities(other, seed=seed))
        for seed in SEEDS
    ]
    # Both draw an order, so neither is always the better one.
    assert np.mean(found) > np.mean(expected) - 0.015, (found, expected)


def test_louvain_is_a_function_of_its_seed(tmp_path: Path) -> None:
    graph = oc.from_networkx(networkx.circulant_graph(600, [1, 2, 3]), tmp_path / "graph")
    first = oc.louvain(graph, seed=1)
    np.testing.assert_array_equal(oc.louvain(graph, seed=1, threads=1, memory="8MiB"), first)
    np.testing.assert_array_equal(oc.louvain(graph), oc.louvain(graph, seed=0))
    assert (oc.louvain(graph, seed=2) != first).any()


BIPARTITE = {
    "star": lambda: networkx.star_graph(20),
    "path": lambda: networkx.path_graph(50),
    "women": networkx.davis_southern_women_graph,
    "complete": lambda: networkx.complete_bipartite_graph(6, 9),
    "grid": lambda: networkx.grid_2d_graph(6, 7),
}


@pytest.mark.parametrize("name", BIPARTITE)
def test_labels_that_alternate_are_said_and_asynchronous_ones_settle(
    name: str, tmp_path: Path, outcome: Any
) -> None:
    other = numbered(BIPARTITE[name]())
    graph = oc.from_networkx(other, tmp_path / "graph")
    with pytest.warns(UserWarning, match=r"alternate between two labels.*`asynchronous`"):
        oc.label_propagation(graph, max_iterations=60)
    code, out, err = outcome("run", "label-propagation", graph.root, "--max-iterations", 60)
    assert code == 0
    assert "alternating" in out
    assert "alternate between two labels" in err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for seed in SEEDS:
            options: Any = {"update": "asynchronous", "max_iterations": 100, "seed": seed}
            done = oc.run("label_propagation", graph, **options)
            assert done.facts["settled"], f"seed {seed}"
            # Each node has a label that is most frequent among its neighbours.
            for node in other:
                labels = done.values[list(other[node])]
                most = np.unique(labels, return_counts=True)[1].max()
                assert (labels == done.values[node]).sum() == most, f"seed {seed}, node {node}"


@pytest.mark.parametrize("name", GRAPHS)
def test_asynchronous_labels_are_as_good_as_those_of_networkx(name: str, tmp_path: Path) -> None:
    other = numbered(GRAPHS[name]())
    graph = oc.from_networkx(other, tmp_path / "graph")
    options: Any = {"update": "asynchronous", "max_iterations": 100}
    found, expected = [], []
    for seed in range(10):
        values = oc.label_propagation(graph, seed=seed, **options)
        found.append(community.modularity(other, groups(values)))
        labels = community.asyn_lpa_communities(other, seed=seed)
        expected.append(community.modularity(other, list(labels)))
    # Both draw; on small graphs single runs differ by .2.
    assert np.mean(found) > np.mean(expected) - 0.1, (found, expected)


def test_labels_that_have_not_settled_are_said(tmp_path: Path) -> None:
    graph = oc.from_networkx(networkx.path_graph(200), tmp_path / "graph")
    with pytest.warns(UserWarning, match="labels still change"):
        oc.label_propagation(graph, update="asynchronous", max_iterations=2)
