"""The graphs of a data set that updates have changed, compared with their definition."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from outercore.data.many_graphs import ADDED, FIRST, REMOVED, ManyGraphs
from outercore.errors import CorruptError
from outercore.training.graph_batches import GraphReader, NodeInputs

X = "nodes/node/x"


def data_set(arrays: dict[str, np.ndarray], nodes: int) -> Any:
    """Arrays in memory with what `ManyGraphs` and `GraphReader` ask of a `Graph`."""
    described = {
        key: {"dtype": str(array.dtype), "shape": array.shape} for key, array in arrays.items()
    }
    return SimpleNamespace(
        root="memory",
        arrays=described,
        num_nodes=nodes,
        num_edges=len(arrays["edges/edge/sources"]),
        array=arrays.__getitem__,
        rows=lambda key, ids: arrays[key][ids],
    )


def random_set(random: np.random.Generator) -> tuple[Any, np.ndarray, list[list[int]]]:
    """A data set, the graph of each node (-1: removed), and the sources of each node's arcs."""
    sizes = random.integers(1, 5, size=random.integers(1, 6))
    of, count, added = np.repeat(np.arange(len(sizes)), sizes), len(sizes), []
    for _ in range(random.integers(8)):
        added.append(int(random.integers(count + 1)))
        count = max(count, added[-1] + 1)
    of = np.append(of, np.array(added, np.int64))
    removed = np.flatnonzero(random.random(len(of)) < 0.2)
    there = of.copy()
    there[removed] = -1
    lists = [
        sorted(random.choice(np.flatnonzero(there == graph), random.integers(3)).tolist())
        if graph >= 0
        else []
        for graph in there
    ]
    arrays = {
        FIRST: np.append(0, np.cumsum(sizes)[:-1]),
        "graphs/y": np.arange(count),
        X: random.standard_normal((len(of), 2)).astype(np.float32),
        "edges/edge/offsets": np.append(0, np.cumsum([len(own) for own in lists])).astype("u8"),
        "edges/edge/sources": np.concatenate([np.array(own, np.uint32) for own in lists]),
    }
    arrays |= {ADDED: np.array(added)} if added else {}
    arrays |= {REMOVED: removed} if len(removed) else {}
    return data_set(arrays, len(of)), there, lists


@pytest.mark.parametrize("seed", range(40))
def test_a_batch_has_the_nodes_and_arcs_that_updates_left(seed: int) -> None:
    random = np.random.default_rng(seed)
    graph, there, lists = random_set(random)
    many = ManyGraphs(graph)
    count = graph.arrays["graphs/y"]["shape"][0]
    assert many.num_nodes == count
    assert many.num_unregistered == count - len(np.setdiff1d(there, [-1]))
    reader = GraphReader(many, NodeInputs(X, 2), "y", memory=1 << 20, batch_size=2)
    asked = random.permutation(np.setdiff1d(there, [-1]))
    batch = reader.batch(asked)
    nodes = np.concatenate([np.flatnonzero(there == of) for of in asked])
    np.testing.assert_array_equal(batch.x.numpy(), graph.array(X)[nodes])
    np.testing.assert_array_equal(asked[batch.graph.numpy()], there[nodes])
    np.testing.assert_array_equal(batch.y.numpy(), asked)
    arcs = [(source, int(node)) for node in nodes for source in lists[node]]
    found = nodes[batch.edge_index.numpy()].T
    np.testing.assert_array_equal(found, np.array(arcs, np.int64).reshape(-1, 2))


def test_an_arc_from_another_graph_and_a_graph_out_of_turn_are_errors() -> None:
    arrays = {
        FIRST: np.array([0, 2]),
        ADDED: np.array([0, 2]),
        "graphs/y": np.zeros(3),
        X: np.zeros((5, 1), np.float32),
        "edges/edge/offsets": np.array([0, 0, 0, 0, 1, 1], np.uint64),
        "edges/edge/sources": np.array([2], np.uint32),
    }
    reader = GraphReader(
        ManyGraphs(data_set(arrays, 5)), NodeInputs(X, 1), "y", memory=1 << 20, batch_size=1
    )
    with pytest.raises(CorruptError, match="an arc of graph 0 begins at node 2, expected 0 to 3"):
        reader.batch(np.array([0]))
    with pytest.raises(CorruptError, match="row 1: graph 4, expected 0 to 2"):
        ManyGraphs(data_set(arrays | {ADDED: np.array([0, 4])}, 5))
