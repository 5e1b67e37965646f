"""Numbers that must come out exactly: weights of any type, path counts, what networkx defines."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest

import naive
import outercore as oc
from outercore.errors import InvalidError


def graph_of(root: Path, other: Any, weight: np.ndarray | None = None) -> oc.Graph:
    ends = np.array(other.edges, np.int64).reshape(-1, 2).T
    undirected = not other.is_directed()
    nodes = other.number_of_nodes()
    return naive.write(root, nodes, *ends, undirected=undirected, weight=weight)[0]


def values_of(found: dict[int, float], nodes: int) -> np.ndarray:
    return np.array([found[node] for node in range(nodes)])


def random_graph(directed: bool, weighted: bool = False) -> Any:
    graph = networkx.gnm_random_graph(60, 200, seed=4, directed=directed)
    for number, (_, _, data) in enumerate(graph.edges(data=True)):
        data["weight"] = float(1 + number % 5) if weighted else 1.0
    return graph


def weights_of(other: Any) -> np.ndarray:
    return np.array([data["weight"] for _, _, data in other.edges(data=True)])


@pytest.mark.parametrize(
    "weights",
    [
        np.array([1 << 24, 1], np.int64),
        np.array([1 << 24, 1], np.float64),
        np.array([1e-60, 0.1]),
        np.array([1 << 52, 1], np.uint64),
        np.array([0.5, 0.25], np.float32),
    ],
    ids=lambda weights: f"{weights.dtype}-{weights[0]}",
)
def test_weights_of_any_type_add_up_exactly(tmp_path: Path, weights: np.ndarray) -> None:
    graph, _ = naive.write(tmp_path / "graph", 3, [0, 1], [1, 2], weight=weights)
    found = oc.sssp(graph, 0, weights="weight")
    assert found.tolist() == [0.0, float(weights[0]), float(weights[0]) + float(weights[1])]


def test_an_integer_weight_that_no_double_holds_is_refused(tmp_path: Path) -> None:
    weight = np.array([5, (1 << 53) + 1], np.int64)
    graph, _ = naive.write(tmp_path / "graph", 3, [0, 1], [1, 2], weight=weight)
    with pytest.raises(InvalidError, match="row 1 is 9007199254740993, which float64"):
        oc.sssp(graph, 0, weights="weight")


@pytest.mark.parametrize("algorithm", ["sssp", "pagerank"])
def test_a_negative_weight_too_small_for_a_float32_is_refused(
    tmp_path: Path, algorithm: str
) -> None:
    weight = np.array([1.0, -1e-60])
    graph, _ = naive.write(tmp_path / "graph", 3, [0, 1], [1, 2], weight=weight)
    options = {"source": 0} if algorithm == "sssp" else {}
    with pytest.raises(InvalidError, match="weights go down to -1e-60"):
        oc.run(algorithm, graph, weights="weight", **options)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_betweenness_of_named_sources_is_that_of_networkx(
    tmp_path: Path, directed: bool, normalized: bool, weighted: bool
) -> None:
    other = random_graph(directed, weighted)
    graph = graph_of(tmp_path / "graph", other, weights_of(other))
    name = "weight" if weighted else None
    expected = networkx.betweenness_centrality_subset(
        other, [3, 8, 20], list(other), normalized=normalized, weight=name
    )
    found = oc.betweenness(graph, sources=[3, 8, 20], normalized=normalized, weights=name)
    np.testing.assert_allclose(found, values_of(expected, 60), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_betweenness_of_samples_is_unbiased(
    tmp_path: Path, directed: bool, normalized: bool
) -> None:
    other = random_graph(directed)
    graph = graph_of(tmp_path / "graph", other)
    exact = oc.betweenness(graph, normalized=normalized)
    runs = [
        oc.betweenness(graph, samples=20, seed=seed, normalized=normalized).sum()
        for seed in range(60)
    ]
    error = np.std(runs) / np.sqrt(len(runs))
    assert abs(np.mean(runs) - exact.sum()) < 4 * error


@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("improved", [False, True])
def test_closeness_is_that_of_networkx(tmp_path: Path, directed: bool, improved: bool) -> None:
    other = networkx.gnm_random_graph(150, 180, seed=5, directed=directed)
    graph = graph_of(tmp_path / "graph", other)
    expected = values_of(networkx.closeness_centrality(other, wf_improved=improved), 150)
    np.testing.assert_allclose(oc.closeness(graph, improved=improved), expected, rtol=1e-12)
    some = oc.closeness(graph, nodes=[0, 9], improved=improved)
    np.testing.assert_allclose(some[[0, 9]], expected[[0, 9]], rtol=1e-12)
    assert np.isnan(some).sum() == 148


def test_hubs_and_authorities_are_those_of_networkx(tmp_path: Path) -> None:
    pytest.importorskip("scipy")
    other = random_graph(directed=True, weighted=True)
    graph = graph_of(tmp_path / "graph", other, weights_of(other))
    hubs, authorities = networkx.hits(other, tol=1e-12)
    for score, expected in (("hubs", hubs), ("authorities", authorities)):
        found = oc.hits(graph, weights="weight", score=score, tolerance=1e-13, max_iterations=5000)
        np.testing.assert_allclose(found, values_of(expected, 60), rtol=1e-6, atol=1e-12)


def test_local_clustering_of_an_undirected_graph_is_that_of_networkx(tmp_path: Path) -> None:
    other = networkx.barabasi_albert_graph(300, 4, seed=2)
    graph = graph_of(tmp_path / "graph", other)
    expected = values_of(networkx.clustering(other), 300)
    np.testing.assert_allclose(oc.local_clustering(graph), expected, rtol=1e-12)


def test_louvain_is_as_good_as_that_of_networkx(tmp_path: Path) -> None:
    other = networkx.planted_partition_graph(8, 30, 0.4, 0.03, seed=7)
    graph = graph_of(tmp_path / "graph", other)
    done = oc.run("louvain", graph)
    groups = [set(np.flatnonzero(done.values == label)) for label in np.unique(done.values)]
    modularity = networkx.community.modularity(other, groups)
    assert abs(modularity - done.facts["modularity"]) < 1e-9
    best = networkx.community.louvain_communities(other, seed=1)
    assert modularity > networkx.community.modularity(other, best) - 0.01


def test_searches_from_several_nodes_are_those_of_networkx(tmp_path: Path) -> None:
    other = random_graph(directed=True, weighted=True)
    graph = graph_of(tmp_path / "graph", other, weights_of(other))
    expected = networkx.multi_source_dijkstra_path_length(other, {3, 8}, cutoff=6)
    found = oc.sssp(graph, [3, 8], weights="weight", cutoff=6)
    assert {node: found[node] for node in np.flatnonzero(np.isfinite(found))} == expected
    before = oc.sssp(graph, [3, 8], weights="weight", cutoff=6, result="predecessors")
    assert before.dtype == np.int64
    for node, distance in expected.items():
        if distance > 0:
            length = other[before[node]][node]["weight"]
            assert found[before[node]] + length == distance
    assert (before[[3, 8]] == -1).all()


@pytest.mark.slow
def test_a_grid_with_more_paths_than_a_double_holds_is_exact(tmp_path: Path) -> None:
    side = 525
    number = np.arange(side * side).reshape(side, side)
    source = np.concatenate([number[:, :-1].ravel(), number[:-1].ravel()])
    target = np.concatenate([number[:, 1:].ravel(), number[1:].ravel()])
    graph, _ = naive.write(tmp_path / "graph", side * side, source, target, undirected=True)
    found = oc.betweenness(graph, sources=[0], normalized=False).reshape(side, side)
    # From a corner shortest paths go down and right: whole numbers of any size, exactly.
    paths = [[1] * side for _ in range(side)]
    for row in range(1, side):
        for column in range(1, side):
            paths[row][column] = paths[row - 1][column] + paths[row][column - 1]
    assert paths[-1][-1] > 10**308
    passed = np.zeros((side + 1, side + 1))
    for row in reversed(range(side)):
        for column in reversed(range(side)):
            for after in ((row + 1, column), (row, column + 1)):
                if max(after) < side:
                    share = paths[row][column] / paths[after[0]][after[1]]
                    passed[row, column] += share * (1 + passed[after])
    expected = passed[:-1, :-1] / 2
    expected[0, 0] = 0
    np.testing.assert_allclose(found, expected, rtol=1e-9)
