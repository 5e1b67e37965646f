"""`outercore run VERB --options`: the values in its files are those that NetworkX has."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import outercore as oc
from test_analytics_numbers import graph_of, random_graph, values_of, weights_of

pytest.importorskip("scipy", reason="NetworkX computes HITS with it")

NODES = 60
SHORTEST = {"cutoff": 6, "weight": "weight"}


def read(path: Path) -> np.ndarray:
    if path.suffix == ".npy":
        return np.asarray(np.load(path))
    table = pq.read_table(path) if path.suffix == ".parquet" else pyarrow.csv.read_csv(path)
    assert table["id"].to_pylist() == list(range(NODES))
    return table["value"].to_numpy()


def lengths(found: dict[int, float], otherwise: float) -> np.ndarray:
    return np.array([found.get(node, otherwise) for node in range(NODES)])


def hops(other: Any) -> np.ndarray:
    two = [networkx.single_source_shortest_path_length(other, node, cutoff=2) for node in (3, 8)]
    nearest = {node: min(one.get(node, 9) for one in two) for node in {*two[0], *two[1]}}
    return lengths(nearest, -1)


def some(values: np.ndarray, *nodes: int) -> np.ndarray:
    return np.where(np.isin(np.arange(NODES), nodes), values, np.nan)


VERBS: dict[str, Callable[[Any], np.ndarray]] = {
    "closeness": lambda other: values_of(networkx.closeness_centrality(other), NODES),
    "closeness --direction out --no-improved --nodes 3,17": lambda other: some(
        values_of(networkx.closeness_centrality(other.reverse(), wf_improved=False), NODES), 3, 17
    ),
    "hits --weights weight --tolerance 1e-13 --max-iterations 5000": lambda other: values_of(
        networkx.hits(other, tol=1e-12)[1], NODES
    ),
    "hits --score hubs --weights weight --tolerance 1e-13 --max-iterations 5000": (
        lambda other: values_of(networkx.hits(other, tol=1e-12)[0], NODES)
    ),
    "betweenness --weights weight": lambda other: values_of(
        networkx.betweenness_centrality(other, weight="weight"), NODES
    ),
    "betweenness --weights weight --no-normalized --sources 3,8,20": lambda other: values_of(
        networkx.betweenness_centrality_subset(
            other, [3, 8, 20], list(other), normalized=False, weight="weight"
        ),
        NODES,
    ),
    "bfs --source 3,8 --cutoff 2": hops,
    "sssp --source 3,8 --weights weight --cutoff 6": lambda other: lengths(
        networkx.multi_source_dijkstra_path_length(other, {3, 8}, **SHORTEST), np.inf
    ),
    "sssp --source 3 --weights weight --direction in": lambda other: lengths(
        networkx.single_source_dijkstra_path_length(other.reverse(), 3), np.inf
    ),
}


@pytest.fixture(scope="module")
def other() -> Any:
    return random_graph(directed=True, weighted=True)


@pytest.fixture(scope="module")
def data_set(tmp_path_factory: pytest.TempPathFactory, other: Any) -> Path:
    root = tmp_path_factory.mktemp("verbs") / "graph"
    graph_of(root, other, weights_of(other))
    return root


@pytest.mark.parametrize("verb", VERBS)
def test_files_arrays_and_the_largest_are_those_of_networkx(
    verb: str, data_set: Path, other: Any, outcome: Any, tmp_path: Path
) -> None:
    name, *options = verb.split()
    command = ["run", name, data_set, *options, "--record", "none", "--json", "--top", "3"]
    expected = VERBS[verb](other)
    for number, ending in enumerate(("npy", "parquet", "csv")):
        file = tmp_path / f"values.{ending}"
        kept = ["--save", "kept", "--overwrite"] if number == 0 else []
        code, out, err = outcome(*command, "--out", file, *kept)
        assert (code, err) == (0, "")
        np.testing.assert_allclose(read(file), expected, rtol=1e-6, atol=1e-12)
        if kept:
            assert np.array_equal(oc.open(data_set).array("kept"), read(file), equal_nan=True)
        for node, value in json.loads(out)["top"]:
            assert value == pytest.approx(expected[node], rel=1e-6)
    finite = np.sort(expected[np.isfinite(expected)])[::-1]
    largest = [value for _, value in json.loads(out)["top"]]
    np.testing.assert_allclose(largest, finite[:3], rtol=1e-6)


@pytest.mark.parametrize("options", [["sssp", "--weights", "weight"], ["bfs"]])
def test_predecessors_lead_back_to_the_source_on_shortest_paths(
    options: list[str], data_set: Path, other: Any, outcome: Any, tmp_path: Path
) -> None:
    name, *more = options
    out = tmp_path / "before.csv"
    command = ["run", name, data_set, *more, "--source", "3", "--result", "predecessors"]
    code, _, err = outcome(*command, "--record", "none", "--out", out)
    assert (code, err) == (0, "")
    before, weight = read(out), more[-1] if more else None
    expected = networkx.single_source_dijkstra_path_length(other, 3, weight=weight)
    for node in range(NODES):
        if node == 3 or node not in expected:
            assert before[node] == -1
            continue
        length = other[before[node]][node]["weight"] if weight else 1
        assert expected[before[node]] + length == expected[node]


@pytest.mark.parametrize("ending", ["npy", "parquet", "csv"])
def test_louvain_and_local_clustering_of_an_undirected_graph(
    ending: str, outcome: Any, tmp_path: Path
) -> None:
    other = networkx.planted_partition_graph(4, 15, 0.6, 0.05, seed=7)
    graph_of(tmp_path / "graph", other)
    out = tmp_path / f"values.{ending}"
    command = ["graph", "--record", "none", "--overwrite", "--json", "--out", out]
    code, printed, err = outcome("run", "louvain", *command, "--resolution", "1.0", "--top", "9")
    assert (code, err) == (0, "")
    groups = [set(np.flatnonzero(read(out) == label)) for label in np.unique(read(out))]
    told = json.loads(printed)
    modularity = networkx.community.modularity(other, groups)
    assert told["facts"]["modularity"] == pytest.approx(modularity)
    best = networkx.community.louvain_communities(other, seed=1)
    assert modularity > networkx.community.modularity(other, best) - 0.01
    sizes = sorted((len(group) for group in groups), reverse=True)
    assert [size for _, size in told["top"]] == sizes
    assert outcome("run", "local-clustering", *command)[0] == 0
    expected = values_of(networkx.clustering(other), NODES)
    np.testing.assert_allclose(read(out), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (["hits", "--score", "both"], "both"),
        (["closeness", "--nodes", "3,60"], "60"),
        (["closeness", "--direction", "up"], "up"),
        (["betweenness", "--sources", "3", "--samples", "4"], "samples"),
        (["betweenness", "--weights", "length"], "length"),
        (["sssp", "--source", "3,", "--weights", "weight"], "expected nodes such as `3,17`"),
        (["sssp", "--source", "3", "--result", "paths"], "paths"),
        (["sssp", "--source", "3", "--cutoff", "-1"], "cutoff"),
        (["bfs", "--source", "3,99"], "99"),
        (["louvain", "--resolution", "-1"], "resolution"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_that_cannot_be_is_named(
    verb: list[str], message: str, data_set: Path, outcome: Any
) -> None:
    name, *options = verb
    code, out, err = outcome("run", name, data_set, *options, "--record", "none")
    assert (code, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err
    assert "Traceback" not in err
