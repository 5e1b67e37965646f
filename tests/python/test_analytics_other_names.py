"""Whoever comes from NetworkX: options and functions by their names there, and what to use here."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import outercore as oc
from outercore.analytics import ALGORITHMS, Resources
from outercore.base.other_libraries import FUNCTIONS
from outercore.errors import InvalidError

networkx = pytest.importorskip("networkx")

SAME = {
    "pagerank": ["pagerank"],
    "betweenness": ["betweenness_centrality", "betweenness_centrality_subset"],
    "closeness": ["closeness_centrality", "harmonic_centrality"],
    "hits": ["hits"],
    "kcore": ["core_number", "k_core"],
    "louvain": ["community.louvain_communities"],
    "label_propagation": ["community.asyn_lpa_communities"],
    "triangles": ["triangles"],
    "local_clustering": ["clustering", "average_clustering"],
    "bfs": ["single_source_shortest_path_length", "bfs_edges", "shortest_path_length"],
    "sssp": ["multi_source_dijkstra", "dijkstra_path_length"],
    "radii": ["eccentricity", "diameter"],
    "wcc": ["connected_components"],
    "scc": ["strongly_connected_components"],
    "degrees": ["degree_centrality"],
}
"""Functions of NetworkX by ours."""


def parameters(function: str) -> list[str]:
    place = networkx
    for part in function.split("."):
        place = getattr(place, part)
    found = inspect.signature(place).parameters
    return [name for name in found if name not in ("backend", "backend_kwargs")]


def taken(algorithm: str) -> set[str]:
    return {*inspect.signature(ALGORITHMS[algorithm]).parameters, *Resources.__annotations__}


FOREIGN = [
    (algorithm, name)
    for algorithm, functions in SAME.items()
    for name in dict.fromkeys(name for one in functions for name in parameters(one))
    if name not in taken(algorithm)
]


@pytest.fixture(scope="module")
def karate(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("names") / "karate"
    return oc.from_networkx(networkx.karate_club_graph(), root)


def test_all_algorithms_have_a_function_of_networkx() -> None:
    assert SAME.keys() == ALGORITHMS.keys()
    assert len(FOREIGN) > 40


@pytest.mark.parametrize(("algorithm", "name"), FOREIGN)
def test_an_option_of_networkx_is_refused_with_what_to_do(
    algorithm: str, name: str, karate: oc.Graph
) -> None:
    source = {"source": 0} if algorithm in ("bfs", "sssp") else {}
    calls: list[Any] = [
        lambda: getattr(oc, algorithm)(karate, **source, **{name: None}),
        lambda: oc.run(algorithm, karate, **source, **{name: None}),
        lambda: oc.plan(algorithm, karate, **source, **{name: None}),
    ]
    for call in calls:
        with pytest.raises(InvalidError) as error:
            call()
        message = str(error.value)
        assert message.startswith(f"{algorithm}: option `{name}`"), message
        hint = message.partition("\nhint: ")[2]
        assert hint, message
        called = re.fullmatch(r"it is called `(\w+)` here", hint)
        if called is not None:
            assert called[1] in taken(algorithm), message


@pytest.mark.parametrize(
    ("algorithm", "name", "hint"),
    [
        ("pagerank", "alpha", "it is called `damping` here"),
        ("pagerank", "dangling", "where `personalization` leads"),
        ("pagerank", "nstart", "it ends at `tolerance`"),
        ("betweenness", "endpoints", "`normalized=False`"),
        ("betweenness", "k", "it is called `samples` here"),
        ("closeness", "distance", "`oc.sssp(graph, node, weights=...)`"),
        ("local_clustering", "weight", "`oc.EdgeStream(graph, weights=...)`"),
        ("hits", "normalized", "values always sum to 1"),
        ("kcore", "k", "`oc.kcore(graph) >= k`"),
        ("triangles", "nodes", "index the array"),
        ("louvain", "weight", "it is called `weights` here"),
        ("wcc", "n_jobs", "it is called `threads` here"),
        ("degrees", "memmory", "did you mean `memory`?"),
        ("scc", "colour", "`help(oc.scc)` lists what it takes"),
    ],
)
def test_hints_name_what_is_here(
    algorithm: str, name: str, hint: str, karate: oc.Graph, outcome: Any
) -> None:
    with pytest.raises(InvalidError) as error:
        getattr(oc, algorithm)(karate, **{name: 1})
    assert hint in str(error.value)


@pytest.mark.parametrize(
    ("algorithm", "name", "hint"),
    [
        ("pagerank", "alpha", "it is called `--damping` here"),
        ("pagerank", "max_iter", "it is called `--max-iterations` here"),
        ("pagerank", "dangling", "where `--personalization` leads"),
        ("local-clustering", "nodes", "index the array"),
        ("pagerank", "far_ratio", "`--set far_ratio=VALUE`"),
        ("pagerank", "colour", "see `outercore run pagerank --help`"),
    ],
)
def test_hints_of_the_command_line_name_its_options(
    algorithm: str, name: str, hint: str, karate: oc.Graph, outcome: Any
) -> None:
    code, _, err = outcome("run", algorithm, karate.root, f"--{name.replace('_', '-')}", 1)
    assert code == 1
    assert hint in err


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda graph: oc.bfs(graph), "bfs: missing a required argument: 'source'"),
        (lambda graph: oc.pagerank(graph, 0.9), "pagerank: too many positional arguments"),
        (lambda graph: oc.pagerank(), "`oc.pagerank(graph, damping=..., "),
        (lambda graph: oc.pagerank(G=graph), "it is called `graph` here"),
        (lambda graph: oc.bfs(graph, root=0), "it is called `source` here"),
        (lambda graph: oc.run("core_number", graph), "`oc.kcore` has core numbers"),
        (lambda graph: oc.plan("connected_components", graph), "`oc.wcc` names the component"),
        (lambda graph: oc.bfs(graph, 0, personalization={0: 1}), "only `oc.pagerank` takes it"),
        (lambda graph: oc.pagerank(graph, personalization={0: "a"}), "a number for each node"),
        (lambda graph: oc.pagerank(graph, personalization=["a"]), "expected numbers"),
        (lambda graph: oc.pagerank(networkx.path_graph(3)), "`oc.from_networkx(graph, DIRECTORY)`"),
        (lambda graph: oc.open(3), "expected its directory or an opened graph, found int"),
    ],
)
def test_a_call_that_does_not_fit_is_an_error_of_ours(
    call: Any, message: str, karate: oc.Graph
) -> None:
    with pytest.raises(InvalidError) as error:
        call(karate)
    assert message in str(error.value)


def test_what_the_hint_about_endpoints_proposes_is_what_networkx_computes(tmp_path: Path) -> None:
    other = networkx.disjoint_union(networkx.karate_club_graph(), networkx.path_graph(5))
    graph = oc.from_networkx(networkx.Graph(other.edges), tmp_path / "graph")
    components = oc.wcc(graph)
    sizes = np.bincount(components)[components]
    found = oc.betweenness(graph, normalized=False) + (sizes - 1)
    expected = networkx.betweenness_centrality(
        networkx.Graph(other.edges), normalized=False, endpoints=True
    )
    np.testing.assert_allclose(found, [expected[node] for node in range(39)], rtol=1e-12)


def test_functions_of_other_libraries_name_functions_that_are_here() -> None:
    names = [name for functions in SAME.values() for one in functions for name in [one]]
    for name in names:
        if (last := name.rpartition(".")[2]) not in oc.__all__:
            assert last in FUNCTIONS, name
    for name, hint in FUNCTIONS.items():
        assert name not in oc.__all__, name
        for here in re.findall(r"oc\.(\w+)", hint):
            assert hasattr(oc, here), (name, here)
        with pytest.raises(AttributeError) as error:
            getattr(oc, name)
        assert hint in str(error.value)
