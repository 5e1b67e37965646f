"""A loader's batches are those of the naive definition, whatever it may use to make them."""

from __future__ import annotations

import gc
import itertools
import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.nn import SAGEConv
from torch_geometric.utils import trim_to_layer

import outercore as oc
import reference
from fakes import checksum, planted, write_npy

FANOUTS = [4, 3]
MIB = 1 << 20


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted(tmp_path_factory.mktemp("planted") / "graph", nodes=600, degree=8))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("planted") / "large"
    return oc.open(planted(root, nodes=20_000, degree=30, width=32))


def loader(graph: oc.Graph, **options) -> oc.NeighborLoader:
    defaults = {"batch_size": 32, "shuffle": True, "seed": 3, "memory": "64MiB", "threads": 2}
    return oc.NeighborLoader(graph, FANOUTS, "train", **{**defaults, **options})


def naive_epoch(
    graph: oc.Graph, epoch: int, *, replace: bool = False
) -> list[tuple[reference.ReferenceBatch, list[int]]]:
    """The reference's batches of an epoch, with the places of their seeds in the split."""
    csc = [graph.array(f"edges/edge/{name}") for name in ("offsets", "sources", "ids")]
    seeds = graph.split("train")
    places = np.arange(len(seeds))
    batches = []
    for batch in range(-(-len(seeds) // 32)):
        own = reference.batch_seeds(places, batch, 32, shuffle=True, seed=3, epoch=epoch)
        sampled = reference.sample_batch(
            *csc, seeds[own], FANOUTS, replace=replace, seed=3, epoch=epoch, batch=batch
        )
        batches.append((sampled, own.tolist()))
    return batches


def assert_equal(
    batch: Data, expected: tuple[reference.ReferenceBatch, list[int]], graph: oc.Graph
) -> None:
    sampled, places = expected
    assert batch.n_id.tolist() == sampled.n_id.tolist()
    assert batch.edge_index[0].tolist() == sampled.row.tolist()
    assert batch.edge_index[1].tolist() == sampled.col.tolist()
    assert batch.e_id.tolist() == sampled.e_id.tolist()
    assert batch.input_id.tolist() == places
    assert batch.num_sampled_nodes == sampled.num_sampled_nodes
    assert batch.num_sampled_edges == sampled.num_sampled_edges
    assert torch.equal(batch.x, torch.from_numpy(graph.array("x")[sampled.n_id]))
    assert torch.equal(batch.y, torch.from_numpy(graph.array("y")[sampled.n_id]))


@pytest.mark.parametrize("replace", [False, True])
def test_batches_are_those_of_the_reference(graph: oc.Graph, replace: bool) -> None:
    with loader(graph, replace=replace) as batches:
        for epoch in range(2):
            delivered = list(batches)
            expected = naive_epoch(graph, epoch, replace=replace)
            assert len(delivered) == len(expected) == len(batches)
            for batch, one in zip(delivered, expected, strict=True):
                assert_equal(batch, one, graph)


@pytest.mark.parametrize(
    ("memory", "backend", "threads", "topology"),
    [
        *itertools.product(["3MiB", "64MiB"], ["uring", "threads", "mmap"], [1, 4], ["auto"]),
        *itertools.product(["4MiB"], ["auto"], [2], ["resident", "paged"]),
    ],
)
def test_no_setting_changes_a_batch(graph, memory, backend, threads, topology) -> None:
    if (
        backend in dict(oc._core.available_backends())
        and dict(oc._core.available_backends())[backend]
    ):
        pytest.skip(f"this kernel offers no {backend}")
    settings = {"memory": memory, "backend": backend, "threads": threads, "topology": topology}
    with loader(graph, **settings) as batches:
        for batch, expected in zip(batches, naive_epoch(graph, 0), strict=True):
            assert_equal(batch, expected, graph)


def test_tensors_of_a_batch_share_no_memory_with_the_next(graph: oc.Graph) -> None:
    with loader(graph) as batches:
        kept = list(batches)
        again = loader(graph)
        for batch, other in zip(kept, again, strict=True):
            assert torch.equal(batch.x, other.x)
            assert torch.equal(batch.edge_index, other.edge_index)


def arrays_of(batch: Data) -> list[torch.Tensor]:
    return [batch.x, batch.edge_index, batch.n_id, batch.e_id, batch.input_id]


def test_what_is_kept_of_a_batch_is_never_written_again(large: oc.Graph) -> None:
    """Batches large enough for the memory of their ids and feature rows to be used again."""
    options = {"batch_size": 1024, "shuffle": True, "memory": "64MiB", "threads": 2}
    kept: list[tuple[object, object]] = []
    batches = oc.NeighborLoader(large, [10, 5], **options)
    for epoch in range(2):
        for number, batch in enumerate(batches):
            if number + 1 < len(batches):
                assert batch.num_edges > 16_384
                assert batch.x.nbytes > MIB
            # Tensors; arrays of NumPy; views of a part; a pickled copy; nothing, written over.
            match (number + epoch) % 5:
                case 0:
                    kept.extend((array, array.clone()) for array in arrays_of(batch))
                case 1:
                    kept.extend((array.numpy(), array.clone()) for array in arrays_of(batch))
                case 2:
                    for view in (batch.edge_index[1, 7::3], batch.x[5::2, 3:]):
                        kept.append((view, view.clone()))
                case 3:
                    copy = pickle.loads(pickle.dumps(batch))
                    same = [array.clone() for array in arrays_of(batch)]
                    kept.extend(zip(arrays_of(copy), same, strict=True))
                case 4:
                    batch.edge_index.fill_(-1)
                    batch.x.fill_(float("nan"))
    assert len(kept) > 30
    batches.close()
    again = oc.NeighborLoader(large, [10, 5], **options)
    expected = [[array.clone() for array in arrays_of(batch)] for batch in again]
    again.set_epoch(0)
    found = list(again)
    del batches, batch, again
    gc.collect()
    for array, copy in kept:
        assert torch.equal(torch.as_tensor(array), copy)
    for batch, arrays in zip(found, expected, strict=True):
        assert all(map(torch.equal, arrays_of(batch), arrays))
        assert torch.equal(batch.x, torch.from_numpy(large.rows("x", batch.n_id.numpy())))


def test_memory_of_feature_rows_is_used_again_once_nothing_shows_it(large: oc.Graph) -> None:
    options = {"batch_size": 1024, "drop_last": True, "shuffle": True, "memory": "64MiB"}
    with oc.NeighborLoader(large, [10, 5], **options) as batches:
        places = []
        for batch in batches:
            assert batch.x.nbytes > MIB
            assert batch.x.data_ptr() % 4096 == 0
            places.append(batch.x.data_ptr())
        assert len(set(places)) < len(places) / 2, places
        batches.set_epoch(0)
        kept = [batch.x for batch in batches]
        assert len({x.data_ptr() for x in kept}) == len(places)
    assert all(x.isfinite().all() for x in kept)


def test_seek_goes_on_where_an_epoch_stopped(graph: oc.Graph) -> None:
    with loader(graph) as batches:
        batches.set_epoch(4)
        whole = [batch.n_id.tolist() for batch in batches]
        batches.set_epoch(4)
        batches.seek(3)
        assert [batch.n_id.tolist() for batch in batches] == whole[3:]


def test_an_abandoned_iteration_does_not_disturb_the_next(graph: oc.Graph) -> None:
    with loader(graph) as batches:
        whole = [batch.n_id.tolist() for batch in batches]
        for taken in range(3):
            batches.set_epoch(0)
            for _ in itertools.islice(batches, taken):
                pass
        batches.set_epoch(0)
        assert [batch.n_id.tolist() for batch in batches] == whole


def test_an_older_iterator_says_that_a_newer_one_has_begun(graph: oc.Graph) -> None:
    sampler = oc.NeighborSampler(graph, FANOUTS, "train", batch_size=32, memory="64MiB")
    for batches in (loader(graph), sampler):
        older, newer = iter(batches), iter(batches)
        for one in (older, newer):
            next(one)
        with pytest.raises(oc.InvalidError, match="epoch 0: a newer iterator") as raised:
            next(older)
        assert "\nhint: " in str(raised.value)
        assert list(older) == []
        assert 1 + sum(1 for _ in newer) == len(batches)
        batches.close()


def test_trim_to_layer_gives_the_same_seed_outputs(graph: oc.Graph) -> None:
    torch.manual_seed(0)
    layers = [SAGEConv(graph.num_features, 16), SAGEConv(16, 4)]
    batch = next(iter(loader(graph)))
    x, trimmed, edges = batch.x, batch.x, batch.edge_index
    trimmed_edges = batch.edge_index
    for index, layer in enumerate(layers):
        x = layer(x, edges)
        trimmed, trimmed_edges, _ = trim_to_layer(
            index, batch.num_sampled_nodes, batch.num_sampled_edges, trimmed, trimmed_edges
        )
        trimmed = layer(trimmed, trimmed_edges)
    seeds = batch.batch_size
    torch.testing.assert_close(trimmed[:seeds], x[:seeds])


def test_all_neighbours_of_all_nodes_are_the_graph(graph: oc.Graph) -> None:
    batches = oc.NeighborLoader(graph, [-1], None, batch_size=100, memory="64MiB")
    edges = set()
    for batch in batches:
        ends = batch.n_id[batch.edge_index]
        edges.update(zip(ends[0].tolist(), ends[1].tolist(), batch.e_id.tolist(), strict=True))
    offsets, sources, ids = (
        graph.array(f"edges/edge/{name}") for name in ("offsets", "sources", "ids")
    )
    targets = np.repeat(np.arange(graph.num_nodes), np.diff(offsets.astype(np.int64)))
    assert edges == set(zip(sources.tolist(), targets.tolist(), ids.tolist(), strict=True))


def test_input_nodes_may_be_a_mask_a_tensor_or_a_list(graph: oc.Graph) -> None:
    mask = np.zeros(graph.num_nodes, dtype=bool)
    mask[[5, 1, 9]] = True
    for nodes, expected in [
        (mask, [1, 5, 9]),
        (torch.tensor([9, 1]), [9, 1]),
        ([7, 7], [7, 7]),
        (np.array([2, 3], dtype=np.int32), [2, 3]),
    ]:
        batch = next(iter(oc.NeighborLoader(graph, [2], nodes, batch_size=8)))
        assert batch.n_id[: batch.batch_size].tolist() == expected


def test_features_come_from_another_file_where_asked(graph: oc.Graph, tmp_path: Path) -> None:
    layer = np.arange(graph.num_nodes * 3, dtype=np.float32).reshape(-1, 3)
    np.save(tmp_path / "layer.npy", layer)
    batch = next(iter(loader(graph, features=tmp_path / "layer.npy")))
    assert torch.equal(batch.x, torch.from_numpy(layer)[batch.n_id])


def test_without_features_the_graph_alone_is_delivered(graph: oc.Graph) -> None:
    batch = next(iter(loader(graph, features=None, labels=None, edge_ids=False)))
    assert "x" not in batch
    assert "y" not in batch
    assert "e_id" not in batch
    assert batch.num_nodes == len(batch.n_id)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"memory": "64KiB"}, oc.BudgetError, "the least that works is"),
        ({"batch_size": 0}, oc.InvalidError, "batch_size: expected 1 to 4294967295, found 0"),
        ({"features": "nonsense"}, oc.NotFoundError, "nonsense"),
        ({"features": "missing.npy"}, oc.NotFoundError, "missing.npy"),
        ({"memory": "lots"}, oc.InvalidError, "lots"),
        ({"memory": None}, oc.InvalidError, "a whole number of bytes, or a size .* found None"),
        ({"memory": 6.4e7}, oc.InvalidError, "a whole number of bytes, or .* found 64000000.0"),
        ({"threads": 0}, oc.InvalidError, "threads 0, expected 1 to 1024"),
        ({"threads": 100_000}, oc.InvalidError, "threads 100000, expected 1 to 1024"),
    ],
)
def test_bad_arguments_name_the_thing(graph, options, error, text) -> None:
    with pytest.raises(error, match=text):
        loader(graph, **options).plan()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_pinned_memory_without_a_gpu_is_refused(graph: oc.Graph) -> None:
    with pytest.raises(oc.InvalidError, match="pin_memory=True: PyTorch finds no GPU"):
        loader(graph, pin_memory=True)


def test_an_empty_split_is_refused(tmp_path: Path) -> None:
    root = planted(tmp_path / "graph", nodes=50, degree=3)
    (root / "splits/train.npy").unlink()
    write_npy(root / "splits/train.npy", np.empty(0, np.int64))
    manifest = json.loads((root / "graph.json").read_text())
    manifest["arrays"]["splits/train"]["shape"] = [0]
    manifest["arrays"]["splits/train"]["checksum"] = checksum(np.empty(0, np.int64))
    (root / "graph.json").write_text(json.dumps(manifest))
    for kind in (oc.NeighborLoader, oc.NeighborSampler):
        with pytest.raises(oc.InvalidError, match="split `train` is empty"):
            kind(root, [2], "train")


@pytest.mark.parametrize("topology", ["resident", "paged"])
@pytest.mark.parametrize("fan_out", [2**31, 10**9])
def test_a_batch_too_large_for_the_budget_is_refused_before_it_is_made(
    graph: oc.Graph, fan_out: int, topology: str
) -> None:
    for kind in (oc.NeighborLoader, oc.NeighborSampler):
        batches = kind(graph, [fan_out] * 3, "train", replace=True, topology=topology)
        with pytest.raises(oc.BudgetError, match="too many for the budget\nhint: raise `memory`"):
            next(iter(batches))


def test_a_huge_label_is_a_value(tmp_path: Path) -> None:
    graph = oc.open(planted(tmp_path / "graph", nodes=50, degree=3))
    graph.add_node_array("huge", np.full(50, 10**12))
    batch = next(iter(oc.NeighborLoader(graph, [2], labels="huge", batch_size=50)))
    assert batch.y.tolist() == [10**12] * batch.num_nodes


@pytest.mark.parametrize("memory", ["64KiB", "300KiB", "1MiB"])
def test_the_least_that_a_refusal_names_works(graph: oc.Graph, memory: str) -> None:
    with pytest.raises(oc.BudgetError) as refusal:
        loader(graph, memory=memory, batch_size=200).plan()
    said = re.search(r"the least that works is (.*)", str(refusal.value))
    assert said is not None
    loader(graph, memory=said[1], batch_size=200).plan()


@pytest.mark.parametrize("wrong", [5, None, {"edge": [5]}, {3: [5]}, "15", [2.5], [[3]]])
def test_fan_outs_are_a_list_of_integers(graph: oc.Graph, wrong) -> None:
    for kind in (oc.NeighborLoader, oc.NeighborSampler):
        with pytest.raises(oc.InvalidError, match="num_neighbors: expected a list with a fan-out"):
            kind(graph, wrong)


def test_a_data_set_may_be_given_by_its_directory(graph: oc.Graph) -> None:
    for kind in (oc.NeighborLoader, oc.NeighborSampler):
        for place in (graph.root, str(graph.root)):
            assert len(kind(place, np.array([2]), "train", memory=np.int64(1 << 24))) > 0
        with pytest.raises(oc.NotFoundError, match="nowhere"):
            kind("nowhere", [2])
        with pytest.raises(oc.InvalidError, match="expected an opened data set or its directory"):
            kind(None, [2])


@pytest.mark.parametrize("nodes", [[-1], [600], np.array([0.5]), np.zeros((2, 2), dtype=int)])
def test_bad_seeds_are_refused(graph: oc.Graph, nodes) -> None:
    with pytest.raises(oc.InvalidError):
        oc.NeighborLoader(graph, [2], nodes)


def test_a_closed_loader_says_so(graph: oc.Graph) -> None:
    batches = loader(graph)
    batches.close()
    with pytest.raises(oc.InvalidError, match="closed"):
        list(batches)


def test_an_unknown_split_lists_the_known_ones(graph: oc.Graph) -> None:
    with pytest.raises(oc.NotFoundError, match="train"):
        oc.NeighborLoader(graph, [2], "nonsense")


def test_a_saved_rank_decides_what_is_cached_and_changes_no_batch(tmp_path: Path) -> None:
    """The weighted reverse PageRank as hotness (GIDS 3.3)."""
    root = planted(tmp_path / "graph", nodes=600, degree=8)
    oc.pagerank(root, reverse=True, save="reverse_pagerank")
    graph = oc.open(root)
    with loader(graph, hotness="reverse_pagerank", memory="8MiB") as by_rank:
        for batch, expected in zip(by_rank, naive_epoch(graph, 0), strict=True):
            assert_equal(batch, expected, graph)
        assert by_rank.config["hotness"] == "nodes/node/reverse_pagerank"
    with pytest.raises(oc.NotFoundError, match="`coolness` is not in the data set"):
        loader(graph, hotness="coolness")
