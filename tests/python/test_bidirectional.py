"""``subgraph_type="bidirectional"`` adds to a batch what PyG adds to its own."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from torch_geometric.data import Data, HeteroData
from torch_geometric.sampler import HeteroSamplerOutput, SamplerOutput

import outercore as oc
from multigraph import imported
from outercore.loading.batch_edges import lead_both_ways, reverse_types
from typed_fakes import planted_types

WRITES, BACK = ("author", "writes", "paper"), ("paper", "written_by", "author")
CITES = ("paper", "cites", "paper")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    graph = imported(tmp_path_factory.mktemp("plain"), nodes=60, edges=400, undirected=False)
    graph.add_edge_array("weight", np.arange(graph.num_edge_rows) * 0.5)
    return graph


@pytest.fixture(scope="module")
def typed(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    return oc.open(planted_types(tmp_path_factory.mktemp("typed") / "graph", timed=True))


def _pairs(edge_index: Any) -> list[tuple[int, int]]:
    return [(source, target) for source, target in edge_index.T.tolist()]


@pytest.mark.parametrize("options", [{}, {"disjoint": True}, {"replace": True}], ids=str)
def test_a_batch_of_one_type_is_pygs(plain: oc.Graph, options: dict[str, Any]) -> None:
    def loader(subgraph_type: str) -> Any:
        return oc.NeighborLoader(
            plain, [4, 3], np.arange(30), batch_size=10, subgraph_type=subgraph_type, **options
        )

    reversed_edges = 0
    for one_way, both_ways in zip(loader("directional"), loader("bidirectional"), strict=True):
        row, col = one_way.edge_index
        expected = SamplerOutput(one_way.n_id, row, col, one_way.e_id).to_bidirectional()
        assert torch.equal(both_ways.n_id, one_way.n_id)
        assert torch.equal(both_ways.edge_index, torch.stack([expected.row, expected.col]))
        ids: dict[tuple[int, int], int] = {}
        for pair, row_of in zip(_pairs(one_way.edge_index), one_way.e_id.tolist(), strict=True):
            ids.setdefault(pair, row_of)
        own = _pairs(both_ways.edge_index)
        found = [ids.get(pair, ids.get(pair[::-1])) for pair in own]
        assert both_ways.e_id.tolist() == found
        assert torch.equal(both_ways.edge_weight, both_ways.e_id * 0.5)
        assert "num_sampled_edges" not in both_ways
        reversed_edges += sum(pair not in ids for pair in own)
    assert reversed_edges > 0


def test_a_batch_of_several_types_is_pygs(typed: oc.Graph) -> None:
    def loader(subgraph_type: str) -> Any:
        return oc.NeighborLoader(typed, [4, 3], "train", batch_size=16, subgraph_type=subgraph_type)

    with pytest.warns(UserWarning, match="expected one"):
        both = loader("bidirectional")
    added = 0
    for one_way, both_ways in zip(loader("directional"), both, strict=True):
        indexes = {edge_type: one_way[edge_type].edge_index for edge_type in typed.edge_types}
        output = HeteroSamplerOutput(
            {name: one_way[name].n_id for name in typed.node_types},
            {edge_type: index[0] for edge_type, index in indexes.items()},
            {edge_type: index[1] for edge_type, index in indexes.items()},
            {edge_type: one_way[edge_type].e_id for edge_type in indexes},
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = output.to_bidirectional()
        for edge_type in typed.edge_types:
            store = both_ways[edge_type]
            index = torch.stack([expected.row[edge_type], expected.col[edge_type]])
            assert torch.equal(store.edge_index, index), edge_type
            assert ("e_id" in store) == (edge_type not in (WRITES, BACK))
        cites = both_ways[CITES]
        assert torch.equal(cites.edge_time, torch.from_numpy(_times(typed))[cites.e_id])
        added += both_ways[WRITES].num_edges - len(set(_pairs(one_way[WRITES].edge_index)))
    assert added > 0


def _times(graph: oc.Graph) -> np.ndarray:
    return graph.array("edges/paper__cites__paper/time")


def test_reverse_types_are_found_by_name_first() -> None:
    rev = ("paper", "rev_writes", "author")
    edits, back = ("author", "edits", "paper"), ("paper", "edited_by", "author")
    with pytest.warns(UserWarning, match="2 edge types lead back"):
        found = reverse_types([WRITES, rev, edits, back, CITES])
    assert found == {WRITES: rev, rev: WRITES, CITES: CITES}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert reverse_types([WRITES, BACK]) == {WRITES: BACK, BACK: WRITES}


def test_both_directions_of_an_edge_type_with_a_named_reverse_get_all_edges() -> None:
    rev = ("paper", "rev_writes", "author")
    batch = HeteroData()
    for name in ("author", "paper"):
        batch[name].num_sampled_nodes = [1, 2]
    batch[WRITES].edge_index = torch.tensor([[0, 1, 1], [0, 0, 0]])
    batch[rev].edge_index = torch.tensor([[2, 0], [1, 0]])
    for edge_type in (WRITES, rev):
        batch[edge_type].num_sampled_edges = [1]
    lead_both_ways(batch, reverse_types([WRITES, rev]))
    assert _pairs(batch[WRITES].edge_index) == [(0, 0), (1, 0), (1, 2)]
    assert _pairs(batch[rev].edge_index) == [(0, 0), (0, 1), (2, 1)]


def test_a_batch_without_edges_stays_empty() -> None:
    empty = torch.empty((2, 0), dtype=torch.int64)
    batch = Data(edge_index=empty, e_id=empty[0], num_sampled_nodes=[1], num_sampled_edges=[0])
    lead_both_ways(batch, {})
    assert batch.edge_index.shape == (2, 0)
    assert batch.e_id.shape == (0,)


def test_links_may_be_bidirectional_too(plain: oc.Graph) -> None:
    loader = oc.LinkNeighborLoader(
        plain, [3], batch_size=16, neg_sampling="binary", subgraph_type="bidirectional"
    )
    batch = next(iter(loader))
    pairs = _pairs(batch.edge_index)
    assert set(pairs) == {pair[::-1] for pair in pairs}
    assert batch.edge_label_index.shape == (2, 32)


@pytest.mark.parametrize("method", ["ladies", "hgt"])
def test_methods_that_choose_nodes_are_refused(plain: oc.Graph, method: str) -> None:
    with pytest.raises(oc.InvalidError, match=f"`{method}` chooses nodes"):
        oc.NeighborLoader(plain, [3], method=method, subgraph_type="bidirectional")
