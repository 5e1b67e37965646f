"""Weights of a plain graph's links: each link has its own, in memory and in partitions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import outercore as oc
from embed_stores import MEMORY, config_of, layout_of, links_of, order_of, table_of
from embedded import plain
from outercore.cli import run
from outercore.data.triples import Triples
from outercore.embedding.data.parts import data_of
from outercore.embedding.preparation import plan_session
from outercore.embedding.run_directory import EmbedDirectory
from outercore.embedding.tables.partitions import PartitionStore
from outercore.errors import InvalidError
from outercore.files.npy import npy_header

NODES = 80
CONFIG: dict[str, Any] = {
    "data": {"held_out": 0.0},
    "model": {"kind": "dot", "dim": 8, "init_scale": 0.1},
    "negatives": {"count": 12},
    "optimiser": {"batch_size": 32, "chunk_size": 16, "epochs": 2, "learning_rate": 0.2},
    "budget": {"threads": 1, "memory": "256MiB"},
}
IN_PARTITIONS = {"partitions": 6, "slots": 3}


def edges_of(count: int, nodes: int = NODES, seed: int = 0) -> NDArray[np.int64]:
    """Edges in no order, loops and duplicates among them."""
    return np.random.default_rng(seed).integers(nodes, size=(count, 2))


def graph_of(
    path: Path, edges: NDArray[np.int64], weights: NDArray[Any] | None, *, undirected: bool = False
) -> oc.Graph:
    graph = plain(path, [(int(a), int(b)) for a, b in edges], undirected=undirected)
    if weights is not None:
        graph.add_edge_array("weight", weights)
    return graph


def rows_of(links: Triples, edges: NDArray[np.int64]) -> NDArray[np.int64]:
    """The rows of the edge list that the weights name, where a weight is the number of its row."""
    weights = links.read_weights()
    assert weights is not None
    assert weights.dtype == np.float32
    rows = weights.astype(np.int64)
    np.testing.assert_array_equal(links.read()[:, [0, 2]], edges[rows])
    return rows


def shared(partitions: bool, **groups: Any) -> dict[str, Any]:
    budget = {**CONFIG["budget"], **(IN_PARTITIONS if partitions else {})}
    return {**CONFIG, "budget": budget, **groups}


def as_triples(
    graph: Path, path: Path, triples: NDArray[np.int64], weights: NDArray[np.float32]
) -> None:
    """The data set once more, whose links are triples."""
    shutil.copytree(graph, path)
    (manifest,) = path.glob("*.json")
    saved = json.loads(manifest.read_text())
    saved.pop("checksum")
    (path / "triples").mkdir()
    for key, values in (("triples/train", triples), ("triples/train.weight", weights)):
        header = npy_header(values.dtype.str, values.shape)
        (path / f"{key}.npy").write_bytes(header + values.tobytes())
        described = {"dtype": f"{values.dtype}", "shape": list(values.shape)}
        place = {"file": f"{key}.npy", "data_offset": len(header)}
        saved["arrays"][key] = {**saved["arrays"]["edges/edge/offsets"], **described, **place}
    manifest.write_text(json.dumps(saved))


def bits(path: Path) -> NDArray[np.uint32]:
    return np.load(path / "entities.npy").view(np.uint32)


@pytest.mark.parametrize("undirected", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint16])
def test_a_link_has_the_weight_of_its_row(tmp_path: Path, undirected: bool, dtype: Any) -> None:
    edges = edges_of(20_000, 3000)
    graph = graph_of(
        tmp_path / "graph", edges, np.arange(20_000, dtype=dtype), undirected=undirected
    )
    ends = np.sort(edges, axis=1) if undirected else edges
    rows = rows_of(links_of(graph.root), ends)
    np.testing.assert_array_equal(np.sort(rows), np.arange(20_000))
    # Parts of any size: few links are far from each other in the array.
    parts = [
        rows_of(links_of(graph.root, part, valid=0.001, test=0.4, seed=3), ends)
        for part in ("train", "valid", "test")
    ]
    assert 0 < len(parts[1]) < 100
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.arange(20_000))


def test_of_edges_that_were_sorted_a_weight_is_found_by_its_position(tmp_path: Path) -> None:
    edges = edges_of(5000)
    edges = edges[np.lexsort((edges[:, 0], edges[:, 1]))]
    graph = graph_of(tmp_path / "graph", edges, np.arange(5000))
    assert "edges/edge/ids" not in graph.arrays
    np.testing.assert_array_equal(rows_of(links_of(graph.root), edges), np.arange(5000))


@pytest.mark.parametrize("undirected", [False, True])
def test_dropped_duplicates_leave_the_first_weight(tmp_path: Path, undirected: bool) -> None:
    rows = [(0, 1), (0, 1), (1, 0), (2, 2), (2, 2), (3, 1)]
    (tmp_path / "edges.txt").write_text("".join(f"{a} {b}\n" for a, b in rows))
    np.save(tmp_path / "weights.npy", np.arange(6.0))
    options = ["--undirected" if undirected else "--directed", "--duplicates", "drop"]
    out = tmp_path / "graph"
    weights = ["--weight", f"{tmp_path / 'weights.npy'}"]
    assert run(["import", f"{tmp_path / 'edges.txt'}", *weights, *options, "--out", f"{out}"]) == 0
    ends = np.array(rows)
    found = rows_of(links_of(out), np.sort(ends, axis=1) if undirected else ends)
    assert sorted(found) == ([0, 3, 5] if undirected else [0, 2, 3, 5])


@pytest.mark.parametrize("undirected", [False, True])
def test_a_link_in_partitions_has_the_weight_of_its_row(tmp_path: Path, undirected: bool) -> None:
    edges = edges_of(6000)
    weights = np.arange(6000)
    graph = graph_of(tmp_path / "graph", edges, weights, undirected=undirected)
    ends = np.sort(edges, axis=1) if undirected else edges
    links = links_of(graph.root, "train", valid=0.1, test=0.1)
    store = PartitionStore.create(
        tmp_path / "table",
        links.to_core(),
        layout_of(config_of(model={"kind": "dot", "dim": 8})),
        entity_count=NODES,
        relation_count=1,
        order=order_of(6, 3),
        memory=MEMORY,
    )
    node_of = {tuple(row): node for node, row in enumerate(table_of(store).tolist())}
    found = []
    for pool in store.pools(0):
        assert pool.weights is not None
        rows = pool.weights.long().tolist()
        found += rows
        heads, tails = (pool.entities[pool.triples[:, side]].tolist() for side in (0, 2))
        pairs = [(node_of[tuple(a)], node_of[tuple(b)]) for a, b in zip(heads, tails, strict=True)]
        assert pairs == [(a, b) for a, b in ends[rows].tolist()]
    assert sorted(found) == sorted(rows_of(links, ends).tolist())


@pytest.mark.parametrize("undirected", [False, True])
def test_weights_are_the_same_however_little_memory_puts_them_together(
    tmp_path: Path, undirected: bool
) -> None:
    edges = edges_of(30_000, 3000)
    graph = graph_of(tmp_path / "graph", edges, np.arange(30_000), undirected=undirected)
    links = links_of(graph.root, "train", valid=0.1, test=0.1)
    expected = links.read_weights()
    assert expected is not None
    for memory in (0, 100_000, 1 << 30):
        found = links._core.weights(memory, None)
        assert found is not None
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("partitions", [False, True])
def test_weighted_links_train_as_the_same_weighted_triples(
    tmp_path: Path, partitions: bool
) -> None:
    edges = edges_of(1000)
    weights = np.random.default_rng(1).random(1000)
    graph = graph_of(tmp_path / "graph", edges, weights)
    links = links_of(graph.root)
    found = links.read_weights()
    assert found is not None
    as_triples(graph.root, tmp_path / "facts", links.read(), found)
    config = shared(partitions)
    for name in ("graph", "facts"):
        oc.embed(tmp_path / name, config, out=tmp_path / f"run-{name}")
    np.testing.assert_array_equal(bits(tmp_path / "run-graph"), bits(tmp_path / "run-facts"))
    graph_of(tmp_path / "plain", edges, None)
    oc.embed(tmp_path / "plain", config, out=tmp_path / "run-plain")
    assert (bits(tmp_path / "run-plain") != bits(tmp_path / "run-graph")).any()


@pytest.mark.parametrize("partitions", [False, True])
def test_weights_of_one_are_as_none_and_held_out_links_are_ranked(
    tmp_path: Path, partitions: bool
) -> None:
    edges = edges_of(1000)
    config = shared(partitions, data={"held_out": 0.1})
    figures = []
    for name, weights in (("none", None), ("ones", np.ones(1000))):
        graph_of(tmp_path / name, edges, weights, undirected=True)
        result = oc.embed(tmp_path / name, config, out=tmp_path / f"run-{name}")
        assert {one["part"] for one in result.metrics} == {"valid", "test"}
        figures.append(result.metrics)
    assert figures[0] == figures[1]
    np.testing.assert_array_equal(bits(tmp_path / "run-none"), bits(tmp_path / "run-ones"))


def test_the_plan_counts_weights_of_links(tmp_path: Path) -> None:
    edges = edges_of(1000)
    config = config_of(data={"held_out": 0.0}, budget={"memory": "256MiB"})
    planned = []
    for name, weights in (("none", None), ("ones", np.ones(1000))):
        graph = graph_of(tmp_path / name, edges, weights)
        assert data_of(graph, config).weighted == (weights is not None)
        planned.append(plan_session(graph, config))
    none, ones = planned
    assert (none.size.triple_bytes, ones.size.triple_bytes) == (12, 16)
    assert ones.placement.needed - none.placement.needed == 4 * 1000


@pytest.mark.parametrize("partitions", [False, True])
@pytest.mark.parametrize(
    ("weight", "shown"), [(-1.0, "-1"), (np.nan, "NaN"), (np.inf, "inf"), (1e300, "inf")]
)
def test_a_weight_that_is_none_is_named_by_its_row(
    tmp_path: Path, partitions: bool, weight: float, shown: str
) -> None:
    weights = np.ones(1000)
    weights[321] = weight
    graph = graph_of(tmp_path / "graph", edges_of(1000), weights)
    expected = rf"`edges/edge/weight`: row 321: weight {shown}, expected a finite number, 0 or more"
    with pytest.raises(InvalidError, match=expected):
        oc.embed(graph.root, shared(partitions), out=tmp_path / "run")


def test_weights_of_another_shape_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    graph = graph_of(tmp_path / "graph", edges_of(1000), np.ones((1000, 2)))
    expected = r"`edges/edge/weight`: shape \[1000, 2\], expected \[1000\]"
    with pytest.raises(InvalidError, match=expected):
        oc.embed(graph.root, shared(False), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_other_weights_are_another_graph_to_a_run(tmp_path: Path) -> None:
    edges = edges_of(100)
    names = []
    for name, weights in (("none", None), ("ones", np.ones(100)), ("halves", np.full(100, 0.5))):
        graph = graph_of(tmp_path / name, edges, weights)
        names.append(EmbedDirectory.identity_of(graph).digest)
        graph.add_edge_array("cost", np.ones(100))
        assert EmbedDirectory.identity_of(oc.open(graph.root)).digest == names[-1], "not read"
    assert len(set(names)) == 3
    # The same weights at other edges.
    other = graph_of(tmp_path / "turned", edges[::-1].copy(), np.arange(100))
    same = graph_of(tmp_path / "same", edges, np.arange(100))
    assert EmbedDirectory.identity_of(other) != EmbedDirectory.identity_of(same)
