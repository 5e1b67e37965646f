"""The sampler yields the loader's batches as NumPy arrays, without PyTorch."""

from __future__ import annotations

import gc
import itertools
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import outercore as oc
from fakes import planted

OPTIONS = {"batch_size": 32, "shuffle": True, "seed": 3, "memory": "64MiB", "threads": 2}


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted(tmp_path_factory.mktemp("planted") / "graph", nodes=600, degree=8))


@pytest.mark.parametrize(
    ("id_dtype", "fan_outs", "replace"),
    [("int64", [4, 3], False), ("int32", [4, 3], False), ("int32", [5], True), ("int64", [], True)],
)
def test_batches_are_those_of_the_loader(graph: oc.Graph, id_dtype, fan_outs, replace) -> None:
    options = {**OPTIONS, "replace": replace}
    loader = oc.NeighborLoader(graph, fan_outs, "train", **options)
    sampler = oc.NeighborSampler(
        graph,
        fan_outs,
        "train",
        features="x",
        labels="y",
        edge_ids=True,
        id_dtype=id_dtype,
        **options,
    )
    assert len(sampler) == len(loader)
    for _ in range(2):
        for batch, expected in zip(sampler, loader, strict=True):
            for ids in (batch.n_id, batch.indptr, batch.indices, batch.edge_index):
                assert ids.dtype == id_dtype
            np.testing.assert_array_equal(batch.n_id, expected.n_id)
            np.testing.assert_array_equal(batch.edge_index, expected.edge_index)
            np.testing.assert_array_equal(batch.e_id, expected.e_id)
            np.testing.assert_array_equal(batch.input_id, expected.input_id)
            np.testing.assert_array_equal(batch.x, expected.x)
            np.testing.assert_array_equal(batch.y, expected.y)
            assert batch.y.dtype == np.int64
            assert batch.batch_size == expected.batch_size
            assert batch.num_sampled_nodes == expected.num_sampled_nodes
            assert batch.num_sampled_edges == expected.num_sampled_edges
            assert (batch.num_nodes, batch.num_edges) == (expected.num_nodes, expected.num_edges)


def test_edges_lie_by_target(graph: oc.Graph) -> None:
    """All neighbours of all nodes are the graph's own columns."""
    batch = next(iter(oc.NeighborSampler(graph, [-1], None, batch_size=graph.num_nodes)))
    offsets, sources = (graph.array(f"edges/edge/{name}") for name in ("offsets", "sources"))
    np.testing.assert_array_equal(batch.indptr, offsets)
    np.testing.assert_array_equal(batch.n_id[batch.indices], sources)


def test_nothing_but_the_graph_comes_unless_asked_for(graph: oc.Graph) -> None:
    batch = next(iter(oc.NeighborSampler(graph, [4], "train", **OPTIONS)))
    assert (batch.x, batch.y, batch.e_id) == (None, None, None)


def arrays_of(batch: oc.SampledSubgraph) -> list[np.ndarray]:
    return [batch.n_id, batch.indptr, batch.indices, batch.input_id]


@pytest.mark.parametrize("id_dtype", ["int64", "int32"])
def test_batches_may_be_kept_and_written_to(graph: oc.Graph, id_dtype) -> None:
    sampler = oc.NeighborSampler(graph, [9, 9], None, id_dtype=id_dtype, **OPTIONS)
    kept = list(sampler)
    copies = [[array.copy() for array in arrays_of(batch)] for batch in kept]
    for batch in sampler:
        for array in arrays_of(batch):
            array.fill(-1)
    sampler.set_epoch(0)
    again = [[array.copy() for array in arrays_of(batch)] for batch in sampler]
    sampler.set_epoch(0)
    # What is left of a batch are views of its arrays, or one of them.
    views = [array[3::2] for batch in sampler for array in arrays_of(batch)[:3]]
    sampler.close()
    del sampler, batch
    gc.collect()
    for batch, copy, same in zip(kept, copies, again, strict=True):
        for array, expected, other in zip(arrays_of(batch), copy, same, strict=True):
            np.testing.assert_array_equal(array, expected)
            np.testing.assert_array_equal(other, expected)
    expected = [array[3::2] for copy in copies for array in copy[:3]]
    for view, array in zip(views, expected, strict=True):
        np.testing.assert_array_equal(view, array)


def test_a_batch_is_handed_over_once(graph: oc.Graph) -> None:
    sampler = oc.NeighborSampler(graph, [4], "train", features="x", **OPTIONS)
    batch = next(iter(sampler))
    for again in (lambda: sampler._core.batch("int32"), sampler._core.batch):
        with pytest.raises(oc.InvalidError, match="no current batch"):
            again()
    rows = np.empty_like(batch.x)
    sampler._core.gather(rows)
    np.testing.assert_array_equal(rows, batch.x)


def test_the_topology_is_resident_wherever_it_fits_when_nothing_else_is_asked_for(
    tmp_path: Path,
) -> None:
    graph = oc.open(planted(tmp_path / "graph", nodes=50_000, degree=60, width=4))
    topology = sum(graph.array(f"edges/edge/{name}").nbytes for name in ("offsets", "sources"))
    budget = int(topology * 1.6)
    options = {"batch_size": 16, "memory": budget, "threads": 1}
    plans = [
        oc.NeighborSampler(graph, [4], "train", features=features, **options).plan()
        for features in (None, "x")
    ]
    assert [plan["topology"]["resident"] for plan in plans] == [True, False]
    least = oc.NeighborSampler(graph, [4], "train", **{**options, "memory": "6MiB"})
    assert not least.plan()["topology"]["resident"]
    with least, oc.NeighborSampler(graph, [4], "train", **options) as resident:
        for batch, other in itertools.islice(zip(least, resident, strict=True), 20):
            np.testing.assert_array_equal(batch.n_id, other.n_id)


def test_pytorch_is_not_imported(graph: oc.Graph) -> None:
    program = (
        "import sys, outercore as oc\n"
        "graph = oc.open(sys.argv[1])\n"
        "for batch in oc.NeighborSampler(graph, [4, 3], 'train', batch_size=8, features='x'):\n"
        "    pass\n"
        "print('torch' in sys.modules)\n"
    )
    command = [sys.executable, "-c", program, str(graph.root)]
    found = subprocess.run(command, capture_output=True, text=True, check=True)
    assert found.stdout == "False\n"


def test_ids_of_another_type_are_refused(graph: oc.Graph) -> None:
    with pytest.raises(oc.InvalidError, match="id_dtype is 'uint8', expected"):
        oc.NeighborSampler(graph, [4], id_dtype="uint8")


def test_arguments_of_pytorchs_loader_have_no_effect_and_a_warning(graph: oc.Graph) -> None:
    with pytest.warns(UserWarning, match="`num_workers`: no effect"):
        sampler = oc.NeighborSampler(graph, [2], "train", num_workers=2)
    assert len(sampler) == len(oc.NeighborSampler(graph, [2], "train"))
