"""Ways of sampling besides one node at a time: LABOR, LADIES, induced subgraphs."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import outercore as oc
from fakes import planted


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> oc.Graph:
    root = tmp_path_factory.mktemp("samplers") / "graph"
    return oc.open(planted(root, nodes=2000, degree=20))


def _batches(graph: oc.Graph, fan_outs: list[int], **options: object) -> list:
    loader = oc.NeighborLoader(
        graph, fan_outs, np.arange(400), batch_size=100, memory="64MiB", **options
    )
    return list(loader)


def test_labor_reaches_fewer_nodes_for_as_many_edges(graph: oc.Graph) -> None:
    alone, shared = (
        _batches(graph, [5], method=method, features=None) for method in ("neighbor", "labor")
    )
    nodes = [sum(batch.num_nodes for batch in batches) for batches in (alone, shared)]
    edges = [sum(batch.num_edges for batch in batches) for batches in (alone, shared)]
    assert nodes[1] < 0.9 * nodes[0]
    assert edges[1] == pytest.approx(edges[0], rel=0.15)


def test_ladies_takes_so_many_nodes_a_hop_and_weighs_the_edges_of_a_node_to_one(
    graph: oc.Graph,
) -> None:
    for batch in _batches(graph, [64, 64], method="ladies"):
        assert batch.num_sampled_nodes[0] == 100
        assert max(batch.num_sampled_nodes[1:]) <= 64
        first = batch.num_sampled_edges[0]
        for part, targets in ((slice(0, first), 100), (slice(first, None), batch.num_nodes)):
            sums = torch.zeros(targets).index_add(
                0, batch.edge_index[1, part], batch.edge_norm[part]
            )
            reached = torch.bincount(batch.edge_index[1, part], minlength=targets) > 0
            torch.testing.assert_close(sums[reached], torch.ones(int(reached.sum())))
            assert not sums[~reached].any()


@pytest.mark.parametrize("disjoint", [False, True])
def test_an_induced_subgraph_has_all_edges_between_its_nodes(
    graph: oc.Graph, *, disjoint: bool
) -> None:
    offsets, sources = (graph.array(f"edges/edge/{name}") for name in ("offsets", "sources"))
    for batch in _batches(graph, [3, 2], subgraph_type="induced", disjoint=disjoint):
        nodes = batch.n_id.tolist()
        trees = batch.batch.tolist() if disjoint else [0] * len(nodes)
        place = {}
        for number, key in enumerate(zip(trees, nodes, strict=True)):
            place.setdefault(key, number)
        expected = [
            (place[tree, source], number)
            for number, (tree, node) in enumerate(zip(trees, nodes, strict=True))
            for source in sources[offsets[node] : offsets[node + 1]].tolist()
            if (tree, source) in place
        ]
        assert [tuple(pair) for pair in batch.edge_index.T.tolist()] == expected
        assert batch.num_sampled_edges == [len(expected)]


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"method": "ladies", "disjoint": True}, "LADIES shares neighbours"),
        ({"method": "labor", "replace": True}, "without replacement"),
        ({"method": "ladies", "subgraph_type": "induced"}, "LADIES weighs"),
        ({"method": "fastest"}, "method: expected one of neighbor, labor, ladies"),
        ({"subgraph_type": "all"}, "subgraph_type"),
        ({"temporal_strategy": "last"}, "`last` expects `time_attr`"),
    ],
)
def test_what_does_not_go_together_is_refused(graph: oc.Graph, options: dict, why: str) -> None:
    with pytest.raises(oc.InvalidError, match=why):
        _batches(graph, [3], **options)


def test_an_unknown_array_is_named_with_those_there_are(graph: oc.Graph) -> None:
    for argument in ("weight_attr", "time_attr"):
        with pytest.raises(
            oc.NotFoundError, match=rf"{argument}: array `nothing`.*\n.*nodes/node/x"
        ):
            _batches(graph, [3], **{argument: "nothing"})
