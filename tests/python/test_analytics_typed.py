"""Algorithms on graphs with several types: all edges together, or those of one relation."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

import naive
import outercore as oc
from outercore import analytics
from outercore.cli import app
from outercore.data.edge_types import EdgeType, edge_type_key
from outercore.data.node_names import NodeNumbers
from outercore.errors import BudgetError, InvalidError, NotFoundError
from typed_fakes import COUNTS, EDGES, planted_types, write_typed
from typed_files import edges_by_type

Edges = Mapping[EdgeType, tuple[np.ndarray, np.ndarray]]
ALGORITHMS: dict[str, dict[str, Any]] = {
    "pagerank": {"tolerance": 0, "max_iterations": 8},
    "bfs": {"source": 2, "direction": "both"},
    "sssp": {"source": 2, "result": "predecessors", "direction": "in"},
    "wcc": {},
    "scc": {},
    "radii": {"seed": 3},
    "betweenness": {},
    "closeness": {},
    "hits": {"tolerance": 0, "max_iterations": 8},
    "kcore": {},
    "label_propagation": {"max_iterations": 6},
    "louvain": {},
    "triangles": {},
    "local_clustering": {},
    "degrees": {"which": "total"},
}
"""Every algorithm, with options where it needs some."""
WRITES: EdgeType = ("author", "writes", "paper")
CITES: EdgeType = ("paper", "cites", "paper")


def arcs_of(
    counts: Mapping[str, int], edges: Edges, relation: EdgeType | None, weights: Any = None
) -> naive.Arcs:
    """The arcs of all edge types, or of one, by the places of nodes in a result."""
    ends = counts if relation is None else {relation[0], relation[2]}
    first, start = {}, 0
    for name in sorted(ends):
        first[name] = start
        start += counts[name]
    chosen = [relation] if relation is not None else sorted(edges, key=edge_type_key)
    pairs = []
    for edge_type in chosen:
        sources, targets = edges[edge_type]
        pairs.append((first[edge_type[0]] + sources, first[edge_type[2]] + targets))
    source, target = (np.concatenate(side).astype(np.int64) for side in zip(*pairs, strict=True))
    weight = np.ones(len(source)) if weights is None else weights
    return naive.Arcs(start, source, target, weight, False)


def edges_of(root: Path) -> Edges:
    """Sources and targets of each edge type, in the order of the import."""
    graph = oc.open(root)
    found = {}
    by_type = edges_by_type(graph)
    for edge_type in graph.edge_types:
        rows = np.array(by_type[edge_type_key(edge_type)], np.int64).reshape(-1, 3)
        found[edge_type] = rows[:, 1], rows[:, 2]
    return found


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = planted_types(tmp_path_factory.mktemp("typed") / "graph")
    graph = oc.open(root)
    for place, (edge_type, count) in enumerate(EDGES.items()):
        weight = np.random.default_rng(place).integers(1, 30, count) / 4
        graph.add_edge_array("weight", weight, edge_type=edge_type)
    return root


@pytest.mark.parametrize("relation", [None, WRITES, CITES])
def test_every_algorithm_has_the_values_of_the_plain_graph_with_these_arcs(
    planted: Path, tmp_path: Path, relation: EdgeType | None
) -> None:
    arcs = arcs_of(COUNTS, edges_of(planted), relation)
    plain, _ = naive.write(tmp_path / "plain", arcs.nodes, arcs.source, arcs.target)
    assert set(ALGORITHMS) == set(oc.analytics.ALGORITHMS)
    for algorithm, options in ALGORITHMS.items():
        found = oc.run(algorithm, planted, relation=relation, **options).values
        expected = oc.run(algorithm, plain, **options).values
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected, err_msg=algorithm)


def test_weights_of_a_relation_count_and_those_of_all_edge_types_are_refused(planted: Path) -> None:
    graph = oc.open(planted)
    edges = edges_of(planted)
    for relation in (WRITES, CITES):
        weight = graph.array(f"edges/{edge_type_key(relation)}/weight")
        arcs = arcs_of(COUNTS, edges, relation, weight)
        found = oc.sssp(graph, ("paper", 4), relation=relation, weights="weight", direction="in")
        start = COUNTS["author"] + 4 if relation == WRITES else 4
        np.testing.assert_array_equal(found, naive.sssp(arcs, start, "in"))
        ranks = oc.pagerank(
            graph, relation=relation, weights="weight", tolerance=0, max_iterations=9
        )
        expected = naive.pagerank(arcs, 0.85, 9, weighted=True)
        np.testing.assert_allclose(ranks, expected, rtol=1e-12)
    with pytest.raises(InvalidError, match="`relation`, such as `author,writes,paper`"):
        oc.pagerank(graph, weights="weight")
    with pytest.raises(NotFoundError, match="it has weight"):
        oc.pagerank(graph, relation=CITES, weights="length")
    oc.grid(graph, relation=CITES, overwrite=True)
    with pytest.raises(InvalidError, match="--relation paper,cites,paper --weights weight --over"):
        analytics.plan("pagerank", graph, relation=CITES, weights="weight")
    with pytest.raises(InvalidError, match="--relation author,writes,paper --overwrite"):
        analytics.plan("pagerank", graph, relation=WRITES)


def test_values_are_the_same_whatever_the_budget(planted: Path) -> None:
    networkx = pytest.importorskip("networkx")
    found = oc.pagerank(planted, tolerance=1e-12, max_iterations=300)
    for memory, threads in (("5MiB", 1), ("64MiB", 3)):
        again = oc.pagerank(
            planted, tolerance=1e-12, max_iterations=300, memory=memory, threads=threads
        )
        np.testing.assert_array_equal(again, found)
    arcs = arcs_of(COUNTS, edges_of(planted), None)
    other = networkx.MultiDiGraph()
    other.add_nodes_from(range(arcs.nodes))
    other.add_edges_from(zip(arcs.source.tolist(), arcs.target.tolist(), strict=True))
    expected = networkx.pagerank(other, tol=1e-13, max_iter=500)
    np.testing.assert_allclose(found, [expected[node] for node in range(arcs.nodes)], rtol=1e-8)
    with pytest.raises(BudgetError):
        oc.pagerank(planted, memory="10KiB")


typed_graphs = st.fixed_dictionaries(
    {
        "counts": st.fixed_dictionaries({name: st.integers(1, 9) for name in "abc"}),
        "kinds": st.lists(st.integers(0, 8), min_size=1, max_size=4, unique=True),
        "seed": st.integers(0, 999),
        "edges": st.integers(0, 25),
    }
)


@given(drawn=typed_graphs)
@settings(max_examples=12, deadline=None)
def test_any_typed_graph_has_the_values_of_its_definition(drawn: dict[str, Any]) -> None:
    counts, random = drawn["counts"], np.random.default_rng(drawn["seed"])
    edges: dict[EdgeType, tuple[np.ndarray, np.ndarray]] = {}
    for kind in drawn["kinds"]:
        source, target = "abc"[kind // 3], "abc"[kind % 3]
        count = random.integers(drawn["edges"] + 1)
        edges[source, "to", target] = (
            random.integers(counts[source], size=count),
            random.integers(counts[target], size=count),
        )
    with tempfile.TemporaryDirectory() as directory:
        root = write_typed(Path(directory) / "graph", counts, edges, {}, {}, 0)
        chosen = sorted(edges)[drawn["seed"] % len(edges)]
        for relation in (None, chosen):
            arcs = arcs_of(counts, edges, relation)
            node = (chosen[2], counts[chosen[2]] - 1)
            ends = counts if relation is None else {name: counts[name] for name in chosen[::2]}
            start = NodeNumbers(ends).of(*node)
            found = oc.bfs(root, node, relation=relation, direction="both")
            np.testing.assert_array_equal(found, naive.bfs(arcs, start, "both"))
            np.testing.assert_array_equal(oc.wcc(root, relation=relation), naive.wcc(arcs))
            ranks = oc.pagerank(
                root, relation=relation, tolerance=0, max_iterations=6, personalization={node: 2.0}
            )
            teleport = np.zeros(arcs.nodes)
            teleport[start] = 1
            expected = naive.pagerank(arcs, 0.85, 6, teleport=teleport)
            np.testing.assert_allclose(ranks, expected, rtol=1e-12, atol=1e-15)


def test_values_are_saved_by_type_and_written_with_types(planted: Path, tmp_path: Path) -> None:
    graph = oc.open(planted)
    found = oc.wcc(graph, save="component")
    parts = [graph.array(f"nodes/{name}/component") for name in graph.node_types]
    np.testing.assert_array_equal(np.concatenate(parts), found)
    oc.degrees(graph, relation=CITES, save="cited")
    assert [key for key in graph.arrays if key.endswith("/cited")] == ["nodes/paper/cited"]

    invoke("run", "wcc", planted, "--out", tmp_path / "wcc.parquet", "--record", "none")
    table = pq.read_table(tmp_path / "wcc.parquet")
    assert table.column_names == ["type", "id", "value"]
    numbers = NodeNumbers(COUNTS)
    pairs = zip(table["type"].to_pylist(), table["id"].to_pylist(), strict=True)
    assert [numbers.of(*pair) for pair in pairs] == list(range(len(found)))
    assert table["value"].to_pylist() == numbers.names(found)

    options = ("--set", "relation=author,writes,paper", "--record", "none")
    invoke("run", "bfs", planted, "--source", "author:3", "--out", tmp_path / "bfs.csv", *options)
    table = csv.read_csv(tmp_path / "bfs.csv")
    assert table["type"].to_pylist() == ["author"] * 60 + ["paper"] * 90
    expected = naive.bfs(arcs_of(COUNTS, edges_of(planted), WRITES), 3)
    assert table["value"].to_pylist() == expected.tolist()


def invoke(*arguments: Any) -> Any:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result


def test_the_command_line_names_nodes_by_type_and_id(planted: Path) -> None:
    options = ("--set", "relation=paper,cites,paper", "--record", "none", "--json", "--top", 1)
    done = json.loads(invoke("run", "degrees", planted, *options).stdout)
    arcs = arcs_of(COUNTS, edges_of(planted), CITES)
    counts = np.bincount(arcs.target, minlength=arcs.nodes)
    assert done["top"] == [[f"paper:{counts.argmax()}", int(counts.max())]]


def test_wrong_relations_and_nodes_are_refused_by_name(planted: Path) -> None:
    with pytest.raises(
        NotFoundError, match=r"`author,likes,paper`[\s\S]*did you mean `author,writes,paper`"
    ):
        oc.wcc(planted, relation="author,likes,paper")
    with pytest.raises(InvalidError, match="`paper:90`: expected an id from 0 to 89"):
        oc.bfs(planted, ("paper", 90))
    with pytest.raises(NotFoundError, match=r"no node type `topic`[\s\S]*author, paper"):
        oc.bfs(planted, ("topic", 0), relation=WRITES)
    for text in ("3", "paper:x", "paper"):
        result = CliRunner().invoke(app, ["run", "bfs", str(planted), "--source", text])
        assert "such as `author:17`" in str(result.exception or result.output)


def test_a_run_is_resumed_on_its_relation(planted: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {"relation": CITES, "tolerance": 1e-9}
    whole = oc.pagerank(planted, **options)
    with pytest.raises(InvalidError, match="after 3 iterations"):
        oc.run(
            "pagerank",
            planted,
            record=tmp_path / "run",
            max_iterations=3,
            checkpoint_every=0,
            **options,
        )
    # Another run builds the grid of all edges meanwhile.
    oc.wcc(planted)
    done = oc.resume(tmp_path / "run", max_iterations=100)
    np.testing.assert_array_equal(done.values, whole)


def test_edge_streams_give_the_arcs_of_a_relation(planted: Path) -> None:
    edges = edges_of(planted)
    for relation in (None, WRITES):
        arcs = arcs_of(COUNTS, edges, relation)
        count = np.zeros((arcs.nodes, arcs.nodes), np.int64)
        stream = oc.EdgeStream(planted, relation=relation)
        stream.each(lambda block, count=count: np.add.at(count, (block.source, block.target), 1))
        expected = np.zeros_like(count)
        np.add.at(expected, (arcs.source, arcs.target), 1)
        np.testing.assert_array_equal(count, expected)
