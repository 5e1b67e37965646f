"""Every algorithm against its definition and against other libraries; exactness; errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import naive
import outercore as oc
from naive import Arcs
from outercore import _core, analytics
from outercore.errors import (
    BudgetError,
    CorruptError,
    InvalidError,
    NotFoundError,
    OutercoreError,
)


def random_edges(
    seed: int, nodes: int, edges: int, skew: float = 1.0
) -> tuple[np.ndarray, np.ndarray]:
    """Edges with loops and parallel ones; the larger the skew, the busier the first nodes."""
    random = np.random.default_rng(seed)
    ends = (nodes * random.random((2, edges)) ** skew).astype(np.int64)
    return ends[0], ends[1]


def chain(nodes: int) -> tuple[np.ndarray, np.ndarray]:
    """A path, its nodes in shuffled order."""
    order = np.random.default_rng(5).permutation(nodes)
    return order[:-1], order[1:]


SHAPES: dict[str, tuple[int, Callable[[], tuple[Any, Any]], bool]] = {
    # Nodes beyond those of the edges have no arc.
    "sparse directed": (130, lambda: random_edges(1, 110, 150), False),
    "skewed directed": (300, lambda: random_edges(2, 280, 1500, 3.0), False),
    "skewed undirected": (300, lambda: random_edges(3, 280, 1200, 3.0), True),
    "sparse undirected": (200, lambda: random_edges(4, 180, 170), True),
    "path": (150, lambda: chain(150), True),
    "one-way path": (150, lambda: chain(150), False),
    "loops only": (9, lambda: ([1, 1, 4], [1, 1, 4]), True),
    "no edges": (7, lambda: ([], []), False),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], tuple[oc.Graph, Arcs]]:
    """The graph of a shape, made once, in small partitions where there is anything to part."""
    known: dict[str, tuple[oc.Graph, Arcs]] = {}

    def make(shape: str) -> tuple[oc.Graph, Arcs]:
        if shape not in known:
            nodes, edges, undirected = SHAPES[shape]
            source, target = edges()
            weight = np.random.default_rng(9).integers(1, 40, len(source)) / np.float32(8)
            root = tmp_path_factory.mktemp("analytics") / "graph"
            graph, arcs = naive.write(
                root,
                nodes,
                source,
                target,
                undirected=undirected,
                weight=weight.astype(np.float32),
            )
            oc.grid(graph, weights="weight", partition_log2=4)
            known[shape] = graph, arcs
        return known[shape]

    return make


@pytest.fixture(params=SHAPES)
def pair(request: pytest.FixtureRequest, made: Any) -> tuple[oc.Graph, Arcs]:
    return made(request.param)


def close(found: np.ndarray, expected: np.ndarray) -> None:
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("weights", [None, "weight"])
@pytest.mark.parametrize("reverse", [False, True])
def test_pagerank_is_the_power_iteration(
    pair: tuple[oc.Graph, Arcs], weights: str | None, reverse: bool
) -> None:
    graph, arcs = pair
    found = oc.pagerank(
        graph, damping=0.8, max_iterations=12, tolerance=0, weights=weights, reverse=reverse
    )
    assert found.dtype == np.float64
    expected = naive.pagerank(arcs, 0.8, 12, weighted=weights is not None, reverse=reverse)
    close(found, expected)


def test_pagerank_jumps_to_where_it_is_told(pair: tuple[oc.Graph, Arcs]) -> None:
    graph, arcs = pair
    teleport = np.zeros(arcs.nodes)
    teleport[[0, 4, arcs.nodes - 1]] = 1.0, 3.0, 0.5
    expected = naive.pagerank(arcs, 0.85, 15, teleport=teleport)
    wanted = {0: 1.0, 4: 3.0, arcs.nodes - 1: 0.5}
    for personalization in (teleport, wanted):
        found = oc.pagerank(graph, max_iterations=15, tolerance=0, personalization=personalization)
        close(found, expected)


def test_pagerank_converges_to_the_ranks_of_networkx(made: Any) -> None:
    networkx = pytest.importorskip("networkx")
    for shape in ("sparse directed", "skewed directed"):
        graph, arcs = made(shape)
        other = networkx.MultiDiGraph()
        other.add_nodes_from(range(arcs.nodes))
        other.add_edges_from(zip(arcs.source.tolist(), arcs.target.tolist(), strict=True))
        expected = networkx.pagerank(other, tol=1e-14, max_iter=1000)
        found = oc.pagerank(graph, tolerance=1e-12, max_iterations=1000)
        np.testing.assert_allclose(found, [expected[node] for node in range(arcs.nodes)], rtol=1e-8)


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_bfs_counts_hops(pair: tuple[oc.Graph, Arcs], direction: Any) -> None:
    graph, arcs = pair
    for source in (0, 3, arcs.nodes - 1):
        found = oc.bfs(graph, source, direction=direction)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, naive.bfs(arcs, source, direction))


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_sssp_finds_the_distances_of_dijkstra(pair: tuple[oc.Graph, Arcs], direction: Any) -> None:
    graph, arcs = pair
    for source in (0, 3, arcs.nodes - 1):
        found = oc.sssp(graph, source, weights="weight", direction=direction)
        assert found.dtype == np.float64
        np.testing.assert_array_equal(found, naive.sssp(arcs, source, direction))


def test_sssp_without_weights_counts_hops(pair: tuple[oc.Graph, Arcs]) -> None:
    graph, arcs = pair
    levels = naive.bfs(arcs, 3)
    np.testing.assert_array_equal(oc.sssp(graph, 3), np.where(levels < 0, np.inf, levels))


def test_wcc_names_components_by_their_smallest_node(pair: tuple[oc.Graph, Arcs]) -> None:
    graph, arcs = pair
    found = oc.wcc(graph)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, naive.wcc(arcs))


def test_scc_names_components_by_their_smallest_node(pair: tuple[oc.Graph, Arcs]) -> None:
    graph, arcs = pair
    found = oc.scc(graph)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, naive.scc(arcs))


def test_radii_of_all_sources_are_the_largest_distances(pair: tuple[oc.Graph, Arcs]) -> None:
    graph, arcs = pair
    found = oc.radii(graph, sources=arcs.nodes)
    assert found.dtype == np.int32
    connected = np.unique([arcs.source, arcs.target])
    isolated = np.setdiff1d(np.arange(arcs.nodes), connected)
    expected = naive.radii(arcs, connected) if len(connected) else np.full(arcs.nodes, -1)
    assert (expected[isolated] == -1).all()
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("normalized", [False, True])
def test_betweenness_of_given_sources_is_that_of_brandes(
    pair: tuple[oc.Graph, Arcs], normalized: bool
) -> None:
    graph, arcs = pair
    sources = [0, 3, 5]
    found = oc.betweenness(graph, sources=sources, normalized=normalized)
    close(found, naive.betweenness(arcs, sources, normalized=normalized))


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("normalized", [False, True])
def test_betweenness_of_all_nodes_is_that_of_networkx(
    tmp_path: Path, undirected: bool, normalized: bool
) -> None:
    networkx = pytest.importorskip("networkx")
    other = networkx.gnm_random_graph(60, 150, seed=3, directed=not undirected)
    ends = np.array(other.edges).T
    graph, _ = naive.write(tmp_path / "graph", 60, ends[0], ends[1], undirected=undirected)
    expected = networkx.betweenness_centrality(other, normalized=normalized)
    found = oc.betweenness(graph, normalized=normalized)
    close(found, np.array([expected[node] for node in range(60)]))


def test_kcore_peels(pair: tuple[oc.Graph, Arcs]) -> None:
    graph, arcs = pair
    found = oc.kcore(graph)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, naive.kcore(arcs))


def test_kcore_of_a_simple_graph_is_that_of_networkx(tmp_path: Path) -> None:
    networkx = pytest.importorskip("networkx")
    other = networkx.barabasi_albert_graph(400, 4, seed=1)
    ends = np.array(other.edges).T
    graph, _ = naive.write(tmp_path / "graph", 400, ends[0], ends[1], undirected=True)
    expected = networkx.core_number(other)
    np.testing.assert_array_equal(oc.kcore(graph), [expected[node] for node in range(400)])


@pytest.mark.parametrize("iterations", [1, 4, 10])
def test_label_propagation_takes_the_most_frequent_label(
    pair: tuple[oc.Graph, Arcs], iterations: int
) -> None:
    graph, arcs = pair
    found = oc.label_propagation(graph, max_iterations=iterations)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, naive.label_propagation(arcs, iterations))


def test_triangles_are_closed_walks_of_three(pair: tuple[oc.Graph, Arcs]) -> None:
    graph, arcs = pair
    done = oc.run("triangles", graph)
    assert done.values.dtype == np.int64
    expected = naive.triangles(arcs)
    np.testing.assert_array_equal(done.values, expected)
    assert done.facts["triangles"] == expected.sum() // 3


@pytest.mark.parametrize("which", ["in", "out", "total"])
def test_degrees_count_arcs(pair: tuple[oc.Graph, Arcs], which: Any) -> None:
    graph, arcs = pair
    found = oc.degrees(graph, which=which)
    assert found.dtype == np.int64
    np.testing.assert_array_equal(found, naive.degrees(arcs, which))


@pytest.mark.parametrize("shape", ["skewed directed", "skewed undirected"])
def test_components_are_those_of_scipy(shape: str, made: Any) -> None:
    sparse = pytest.importorskip("scipy.sparse")
    graph, arcs = made(shape)
    ones = np.ones(len(arcs.source))
    matrix = sparse.csr_array((ones, (arcs.source, arcs.target)), (arcs.nodes, arcs.nodes))
    for function, connection in ((oc.wcc, "weak"), (oc.scc, "strong")):
        count, labels = sparse.csgraph.connected_components(matrix, connection=connection)
        found = function(graph)
        assert len(np.unique(found)) == count
        assert len(np.unique(np.stack([found, labels]), axis=1).T) == count


# ---- exactness

CALLS: dict[str, dict[str, Any]] = {
    "pagerank": {"tolerance": 1e-10, "max_iterations": 500},
    "bfs": {"source": 3},
    "sssp": {"source": 3, "weights": "weight"},
    "wcc": {},
    "scc": {},
    "radii": {"sources": 64},
    "betweenness": {"samples": 5, "seed": 7},
    "closeness": {"nodes": [3, 5, 40]},
    "hits": {"max_iterations": 20, "tolerance": 0},
    "louvain": {"weights": "weight"},
    "local_clustering": {},
    "kcore": {},
    "label_propagation": {},
    "triangles": {},
    "degrees": {"which": "total"},
}


def test_the_calls_of_these_tests_are_all_algorithms() -> None:
    assert sorted(CALLS) == sorted(analytics.ALGORITHMS)


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    """Larger than the least budget's pins: some pieces stay in memory, others do not."""
    source, target = random_edges(11, 60_000, 400_000, 2.0)
    weight = np.random.default_rng(12).random(len(source), np.float32)
    root = tmp_path_factory.mktemp("analytics") / "large"
    graph, _ = naive.write(root, 60_000, source, target, weight=weight)
    oc.grid(graph, weights="weight")
    return graph


# Under its least budget it goes over the edges many times.
SLOW = {"kcore": [pytest.mark.slow]}


@pytest.mark.parametrize(
    "algorithm", [pytest.param(name, marks=SLOW.get(name, [])) for name in CALLS]
)
def test_budgets_threads_and_back_ends_change_no_bit(algorithm: str, large: oc.Graph) -> None:
    offered = [name for name, missing in _core.available_backends() if missing is None]
    ways: list[dict[str, Any]] = [{"memory": "1GiB", "threads": 1}]
    ways += [{"memory": least(algorithm, large), "threads": threads} for threads in (1, 2, 7)]
    ways += [{"memory": "32MiB", "backend": name} for name in offered if name != "sim"]
    options = dict(CALLS[algorithm])
    first, *others = [oc.run(algorithm, large, **way, **options).values for way in ways]
    for way, other in zip(ways[1:], others, strict=True):
        assert other.tobytes() == first.tobytes(), f"{algorithm}: {way}"


def least(algorithm: str, graph: oc.Graph) -> int:
    """The least budget that works, as the refusal of a smaller one says."""
    with pytest.raises(BudgetError, match="the least that works is") as refusal:
        analytics.plan(algorithm, graph, memory=1 << 16, threads=7, **CALLS[algorithm])
    number, unit = str(refusal.value).split("the least that works is ")[1].split()[:2]
    scale = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20}[unit.strip(",.;")]
    return int((float(number.replace(",", "")) + 0.1) * scale)


def test_the_plan_divides_no_more_than_the_budget(large: oc.Graph) -> None:
    planned = analytics.plan("pagerank", large, memory="16MiB")
    assert planned["budget"] == 16 << 20
    parts = ("index", "staging", "window", "scratch", "state", "working", "pinned")
    assert sum(planned[part] for part in parts) <= planned["budget"]


def test_a_run_reads_no_more_than_its_plan_says(large: oc.Graph) -> None:
    planned = analytics.plan("pagerank", large, memory="16MiB")
    done = oc.run("pagerank", large, memory="16MiB", max_iterations=5, tolerance=0)
    assert done.counters["passes"] == 5
    assert done.facts["iterations"] == 5
    most = planned["bytes_first_pass"] + 4 * planned["bytes_per_pass"]
    assert done.counters["reads"]["useful_bytes"] <= most + (1 << 20)


# ---- grids and arrays in the data set


def test_the_grid_is_built_once_and_checked(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 50, *random_edges(1, 50, 200))
    oc.wcc(graph)
    keys = [key for key in graph.arrays if key.startswith("grid/")]
    assert "grid/edge/blocks" in keys
    files = {key: graph.arrays[key]["file"] for key in keys}
    oc.bfs(graph, 0)
    assert {key: graph.arrays[key]["file"] for key in keys} == files
    report = _core.check(str(graph.root), None)
    assert report["sound"], report


def test_a_grid_gets_weights_when_an_algorithm_asks_for_them(tmp_path: Path) -> None:
    source, target = random_edges(1, 50, 200)
    weight = np.arange(200, dtype=np.float64)
    graph, arcs = naive.write(tmp_path / "graph", 50, source, target, weight=weight)
    oc.wcc(graph)
    np.testing.assert_array_equal(oc.sssp(graph, 0, weights="weight"), naive.sssp(arcs, 0))


def test_weights_of_an_undirected_edge_hold_both_ways(tmp_path: Path) -> None:
    source, target = random_edges(6, 40, 150)
    weight = np.random.default_rng(1).integers(0, 9, 150)
    graph, arcs = naive.write(
        tmp_path / "graph", 40, source, target, undirected=True, weight=weight
    )
    assert graph.num_edge_rows == 150
    np.testing.assert_array_equal(oc.sssp(graph, 2, weights="weight"), naive.sssp(arcs, 2))


def test_a_result_can_be_kept_in_the_data_set(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 50, *random_edges(1, 50, 200))
    for algorithm, options in CALLS.items():
        chosen = {key: value for key, value in options.items() if key != "weights"}
        done = oc.run(algorithm, graph, save=f"kept/{algorithm}", **chosen)
        kept = oc.open(graph.root).array(f"kept/{algorithm}")
        assert kept.dtype == done.values.dtype
        np.testing.assert_array_equal(kept, done.values)
    assert _core.check(str(graph.root), None)["sound"]
    with pytest.raises(InvalidError, match="`nodes/node/kept/wcc` is in the data set already"):
        oc.wcc(graph, save="kept/wcc")
    oc.run("wcc", graph, save="kept/wcc", overwrite=True)


# ---- errors


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    """200 nodes, 400 edges, a grid, no weights in it."""
    weight = np.ones(400, np.float32)
    weight[17] = np.nan
    root = tmp_path_factory.mktemp("analytics") / "plain"
    graph, _ = naive.write(root, 200, *random_edges(1, 200, 400), weight=weight)
    graph.add_edge_array("debt", np.where(np.arange(400) == 5, -3.0, 1.0))
    oc.grid(graph)
    return graph


WRONG: list[tuple[str, dict[str, Any], type[OutercoreError], str]] = [
    ("bfs", {"source": 200}, InvalidError, "bfs: source 200, the graph has 200 nodes"),
    ("sssp", {"source": 1000}, InvalidError, "sssp: source 1000, the graph has 200 nodes"),
    ("bfs", {"source": -1}, InvalidError, "bfs: source -1, expected 0 or more"),
    ("bfs", {}, InvalidError, "bfs: expected a `source`"),
    ("bfs", {"source": []}, InvalidError, "bfs: `source` is empty, expected at least one node"),
    ("sssp", {"source": [3, 200]}, InvalidError, "sssp: source 200, the graph has 200 nodes"),
    ("betweenness", {"sources": []}, InvalidError, "betweenness: `sources` is empty"),
    ("closeness", {"nodes": []}, InvalidError, "closeness: `nodes` is empty"),
    ("louvain", {"resolution": 0.0}, InvalidError, "louvain: resolution 0, expected above 0"),
    (
        "bfs",
        {"source": 1, "direction": "up"},
        InvalidError,
        "direction: expected one of out, in, both; found 'up'",
    ),
    ("bfs", {"source": 1, "weights": "w"}, InvalidError, "bfs: option `weights`, expected one"),
    ("walk", {}, InvalidError, "algorithm `walk`: expected one of pagerank, betweenness"),
    (
        "pagerank",
        {"damping": 1.5},
        InvalidError,
        "pagerank: damping 1.5, expected 0 <= damping < 1",
    ),
    ("pagerank", {"damping": float("nan")}, InvalidError, "pagerank: damping nan, expected a fin"),
    ("pagerank", {"tolerance": -1.0}, InvalidError, "pagerank: tolerance -1"),
    ("pagerank", {"max_iterations": 0}, InvalidError, "pagerank: max_iterations 0"),
    ("pagerank", {"max_iterations": 2, "tolerance": 1e-9}, InvalidError, "after 2 iterations"),
    ("pagerank", {"personalization": {3: -1.0}}, InvalidError, "personalization"),
    ("pagerank", {"personalization": {200: 1.0}}, InvalidError, "200"),
    ("pagerank", {"personalization": np.zeros(200)}, InvalidError, "personalization"),
    ("pagerank", {"personalization": np.ones(3)}, InvalidError, "expected one weight a node"),
    ("betweenness", {"samples": 3, "sources": [1]}, InvalidError, "betweenness: "),
    ("betweenness", {"samples": 201}, InvalidError, "betweenness: samples 201"),
    ("betweenness", {"sources": [200]}, InvalidError, "betweenness: source 200"),
    ("label_propagation", {"max_iterations": 0}, InvalidError, "label_propagation: max_iterations"),
    (
        "degrees",
        {"which": "mean"},
        InvalidError,
        "which: expected one of in, out, total; found 'mean'",
    ),
    ("sssp", {"source": 1, "weights": "w"}, NotFoundError, "`w` is not in the data set"),
    (
        "sssp",
        {"source": 1, "weights": "weight"},
        InvalidError,
        "edge array `weight`: row 17 is nan",
    ),
    ("sssp", {"source": 1, "weights": "debt"}, InvalidError, "sssp: weights go down to -3"),
    ("wcc", {"memory": "64KiB"}, BudgetError, "the least that works is"),
    ("wcc", {"memory": "much"}, InvalidError, "memory: expected a size"),
    ("wcc", {"threads": -1}, InvalidError, "threads -1, expected 1 to 1024"),
    ("wcc", {"save": "../up"}, InvalidError, "`nodes/node/../up` is no name"),
    ("wcc", {"backend": "telepathy"}, OutercoreError, "telepathy"),
]


@pytest.mark.parametrize(
    ("algorithm", "options", "kind", "message"),
    [case for case in WRONG if case[0] in {*CALLS, "walk"}],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_a_mistake_is_named(
    algorithm: str,
    options: dict[str, Any],
    kind: type[OutercoreError],
    message: str,
    plain: oc.Graph,
) -> None:
    with pytest.raises(kind) as error:
        oc.run(algorithm, plain, **options)
    assert message in str(error.value)


def test_a_graph_without_nodes_has_results_without_values(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 0, [], [])
    for algorithm, options in CALLS.items():
        if algorithm not in ("betweenness", "sssp", "louvain"):
            assert oc.run(algorithm, graph, **options).values.shape == (0,)
    assert oc.sssp(graph, 0).shape == oc.betweenness(graph).shape == (0,)


def test_new_weights_remove_the_grid_of_the_old_ones(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 5, [0, 1], [1, 2], weight=np.array([1.0, 2.0]))
    assert oc.sssp(graph, 0, weights="weight")[2] == 3.0
    graph.add_edge_array("weight", np.array([5.0, 6.0]), overwrite=True)
    with pytest.raises(NotFoundError, match="has no grid"):
        analytics.plan("sssp", graph, source=0, weights="weight")
    assert oc.sssp(graph, 0, weights="weight")[2] == 11.0


def test_a_mistaken_name_is_found_before_anything_runs(plain: oc.Graph) -> None:
    def never(*_: object) -> None:
        raise AssertionError

    with pytest.raises(InvalidError):
        oc.wcc(plain, save="..", progress=never)


def test_a_plan_needs_the_grid_and_builds_none(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 5, [0, 1], [1, 2])
    with pytest.raises(NotFoundError, match="has no grid") as error:
        analytics.plan("wcc", graph)
    assert f"outercore grid {graph.root}" in str(error.value)


def test_a_changed_byte_of_the_grid_is_found_and_named(tmp_path: Path) -> None:
    graph, _ = naive.write(tmp_path / "graph", 500, *random_edges(1, 500, 3000))
    oc.grid(graph)
    path = graph.root / graph.arrays["grid/edge/blocks"]["file"]
    damaged = bytearray(path.read_bytes())
    damaged[4096 + 100] ^= 0x10
    path.write_bytes(damaged)
    with pytest.raises(CorruptError, match="piece") as error:
        oc.pagerank(graph)
    assert "hint: " in str(error.value)
    assert not _core.check(str(graph.root), None)["sound"]


def test_what_a_progress_callback_raises_ends_the_run(large: oc.Graph) -> None:
    class EnoughError(Exception):
        pass

    def stop(*_: object) -> None:
        raise EnoughError

    with pytest.raises(EnoughError):
        oc.pagerank(large, progress=stop)
    assert oc.pagerank(large, max_iterations=1, tolerance=0).shape == (60_000,)
