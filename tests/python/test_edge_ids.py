"""`input_id` and `e_id` mean what they mean in PyG, with parallel edges and both directions."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch_geometric.data import Data
from torch_geometric.loader import NodeLoader
from torch_geometric.loader.utils import get_input_nodes
from torch_geometric.sampler import NeighborSampler, SamplerOutput

import outercore as oc
from multigraph import imported, rows


@pytest.fixture(scope="module", params=[False, True], ids=["directed", "undirected"])
def graph(request, tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("edges") / "graph"
    return imported(root, nodes=60, edges=900, undirected=request.param)


def undirected(graph: oc.Graph) -> bool:
    return bool(graph.manifest["edge_types"]["edge"]["undirected"])


MASK = np.zeros(60, dtype=bool)
MASK[[3, 40, 7, 55, 21]] = True


@pytest.mark.parametrize(
    "nodes",
    [MASK, torch.from_numpy(MASK), [9, 2, 30, 2], torch.tensor([8, 1]), np.array([5], np.int32)],
)
def test_input_id_is_that_of_pyg(graph: oc.Graph, nodes) -> None:
    data = Data(num_nodes=graph.num_nodes)
    given = torch.from_numpy(nodes) if isinstance(nodes, np.ndarray) else nodes
    _, ids, input_id = get_input_nodes(data, given)
    # PyG's loader numbers the nodes where it has not been told otherwise.
    expected = torch.arange(len(ids)) if input_id is None else input_id
    for order in (False, True):
        options = {"batch_size": 2, "shuffle": order, "seed": 5}
        batches = list(oc.NeighborLoader(graph, [2], nodes, **options))
        by_numpy = list(oc.NeighborSampler(graph, [2], np.asarray(nodes), **options))
        for batch, other in zip(batches, by_numpy, strict=True):
            np.testing.assert_array_equal(batch.input_id, other.input_id)
        found = torch.cat([batch.input_id for batch in batches])
        seeds = torch.cat([batch.n_id[: batch.batch_size] for batch in batches])
        assert sorted(found.tolist()) == sorted(expected.tolist())
        places = [expected.tolist().index(place) for place in found.tolist()]
        assert torch.equal(ids[places], seeds)
        assert order or torch.equal(found, expected)


def test_input_id_of_a_split_or_of_all_nodes_is_the_place_there(graph: oc.Graph) -> None:
    for nodes, ids in (("train", graph.split("train")), (None, np.arange(graph.num_nodes))):
        for batch in oc.NeighborLoader(graph, [2], nodes, batch_size=7, shuffle=True):
            seeds = batch.n_id[: batch.batch_size].numpy()
            np.testing.assert_array_equal(ids[batch.input_id], seeds)


@pytest.mark.parametrize("fan_outs", [[4, 3], [-1, 5], [1]])
def test_without_replacement_an_edge_appears_once(graph: oc.Graph, fan_outs) -> None:
    """Once at a target; an undirected edge once more at its other end, if both are targets."""
    edges = rows(60, 900)
    for batch in oc.NeighborLoader(graph, fan_outs, "train", batch_size=8, shuffle=True, seed=2):
        ends = batch.n_id[batch.edge_index].T.numpy()
        ids = batch.e_id.numpy()
        # Each id is the row that the arc came from.
        forward = (edges[ids] == ends).all(axis=1)
        backward = (edges[ids] == ends[:, ::-1]).all(axis=1)
        assert (forward | (backward & undirected(graph))).all()
        by_target = np.stack([ids, batch.edge_index[1].numpy()])
        assert len(np.unique(by_target, axis=1).T) == len(ids)
        if not undirected(graph):
            assert len(np.unique(ids)) == len(ids)
        start = 0
        for hop, count in enumerate(batch.num_sampled_edges):
            one = by_target[:, start : start + count]
            degrees = np.bincount(one[1])
            assert fan_outs[hop] == -1 or degrees.max(initial=0) <= fan_outs[hop]
            start += count


def test_a_seed_that_is_listed_twice_has_its_edges_twice(graph: oc.Graph) -> None:
    """As in PyG: each place of the batch is a target of its own."""
    batch = next(iter(oc.NeighborLoader(graph, [3], [7, 7], batch_size=2)))
    first, second = (batch.e_id[batch.edge_index[1] == place] for place in (0, 1))
    assert torch.equal(first, second)
    assert len(first.unique()) == len(first) > 0


class FirstNeighbours(NeighborSampler):
    """PyG's sampler with the first neighbours of each seed in place of its compiled routine."""

    def _sample(self, seed: torch.Tensor, *_: object, **__: object) -> SamplerOutput:
        nodes, row, col, edge = seed.tolist(), [], [], []
        for place, node in enumerate(seed.tolist()):
            start, end = self.colptr[node].item(), self.colptr[node + 1].item()
            for position in range(start, min(end, start + 3)):
                source = int(self.row[position])
                if source not in nodes:
                    nodes.append(source)
                row.append(nodes.index(source))
                col.append(place)
                edge.append(position)
        return SamplerOutput(*(torch.tensor(values) for values in (nodes, row, col, edge)))


@pytest.mark.filterwarnings("ignore:.*pyg-lib")
def test_e_id_of_the_stores_is_the_row_of_the_edge_list(graph: oc.Graph) -> None:
    edges = torch.from_numpy(rows(60, 900))
    stores = graph.pyg()
    sampler = FirstNeighbours(stores, num_neighbors=[3])
    loader = NodeLoader(stores, sampler, input_nodes=torch.arange(60), batch_size=16)
    weight = np.random.default_rng(0).random(900)
    for batch in loader:
        ends = batch.n_id[batch.edge_index].T
        forward = (edges[batch.e_id] == ends).all(dim=1)
        backward = (edges[batch.e_id] == ends.flip(1)).all(dim=1)
        assert (forward | (backward & undirected(graph))).all()
        assert len(weight[batch.e_id]) == batch.num_edges


def test_the_graph_store_has_the_edge_id_of_every_arc_in_each_layout(graph: oc.Graph) -> None:
    edges = torch.from_numpy(rows(60, 900))
    _, store = graph.pyg()
    row, col, ids = store.coo()
    sources, offsets, csc_ids = store.csc()
    pointers, targets, csr_ids = store.csr()
    # In the order of the import; the others are in that of their targets or sources.
    assert torch.equal(ids, torch.sort(ids).values)
    for other_ids in (csc_ids, csr_ids):
        assert torch.equal(ids, torch.sort(other_ids).values)
    for one, other, edge in (
        (row, col, ids),
        (sources, torch.repeat_interleave(offsets.diff()), csc_ids),
        (torch.repeat_interleave(pointers.diff()), targets, csr_ids),
    ):
        ends = torch.stack([one, other], dim=1)
        forward = (edges[edge] == ends).all(dim=1)
        backward = (edges[edge] == ends.flip(1)).all(dim=1)
        assert (forward | (backward & undirected(graph))).all()


def test_edge_ids_that_are_positions_take_no_memory(tmp_path: Path) -> None:
    """An import leaves the array out where every id is its position."""
    np.save(tmp_path / "edges.npy", np.array([[0, 0], [1, 1], [0, 2]]))
    assert oc.cli.run(["import", str(tmp_path / "edges.npy"), "--out", str(tmp_path / "g")]) == 0
    _, store = oc.open(tmp_path / "g").pyg()
    assert store.csc()[2] is None
